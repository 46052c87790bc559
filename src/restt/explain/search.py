"""Searches for the terms of three sites or more with the largest variance."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import combinations, count

import torch
from torch import Tensor

from restt.explain.dense_moments import output_moments, transfer_left, transfer_right
from restt.explain.gram import Gram

Sites = tuple[int, ...]
LEAST = 3  # smaller terms are known before a search


@dataclass(frozen=True)
class SearchSettings:
    """Limits of a search, and the slack of its proof."""

    nodes: int = 20_000  # of a dense train; each costs two products of (r+1)×(r+1) matrices
    work: float = 3e10  # products of numbers for a sum of products
    sets: int = 500_000  # of sites that are compared in one order, for a sum of products
    # Bounds and variances are sums of the same numbers in another order: they agree to this share of the whole.
    rounding: float = 1e-12


SETTINGS = SearchSettings()


@dataclass(eq=False)
class Search:
    """The best terms so far, and whether they are proven to be the best of all."""

    highest: int
    k: int
    variances: dict[Sites, Tensor]  # by sites, (D,): those of one and two sites at the start
    settings: SearchSettings = SETTINGS
    complete: bool = True
    bound: float = 0.0  # the most that an unseen term can have, where the list is not proven
    nodes: int = 0
    best: list[float] = field(init=False)  # the k largest variances, falling

    def __post_init__(self) -> None:
        self.best = sorted((float(variance.sum()) for variance in self.variances.values()), reverse=True)[: self.k]

    def _record(self, members: Sites, variance: Tensor) -> None:
        self.variances[members] = variance
        self.best = sorted([*self.best, float(variance.sum())], reverse=True)[: self.k]

    def _threshold(self) -> float:
        """The variance that a term must exceed to be listed."""
        return self.best[-1] if len(self.best) == self.k else -1.0


@dataclass(eq=False)
class DenseSearch(Search):
    """Best-first over which sites take part, decided along the chain of a whitened dense train.

    A node has decided the sites before ``n``: it holds E[state stateᵀ] of its partial product. Its bound is the sum of
    the variances of all its descendants of admissible order, so the node with the largest bound is opened first, and
    the search is over when that bound is below the k-th best term.
    """

    train: list[Tensor] = field(kw_only=True)
    duals: list[Tensor] = field(init=False)

    def run(self, budget: int) -> None:
        """Open nodes until the k best terms are proven, or the limit of opened nodes is reached."""
        if self.highest < LEAST:
            return
        self.duals = remaining_duals(self.train, self.highest)
        number, start = count(), self.train[0].new_ones(1, 1)
        whole = self._bound(0, 0, start)
        slack = self.settings.rounding * whole
        heap: list[tuple[float, int, int, Sites, Tensor]] = [(-whole, next(number), 0, (), start)]
        while heap and -heap[0][0] > self._threshold() + slack:
            if self.nodes >= budget:
                self.complete, self.bound = False, -heap[0][0]
                for node in heapq.nsmallest(self.k, heap):
                    self._dive(*node[2:])
                return
            _, _, n, members, moment = heapq.heappop(heap)
            self.nodes += 1
            for child in self._children(n, members, moment):
                if child[0] == len(self.train):
                    self._record(child[1], child[2].diagonal().clone())
                elif (bound := self._bound(child[0], len(child[1]), child[2])) > self._threshold() + slack:
                    heapq.heappush(heap, (-bound, next(number), *child))

    def _children(self, n: int, members: Sites, moment: Tensor) -> list[tuple[int, Sites, Tensor]]:
        core = self.train[n]
        children = []
        if len(members) + len(self.train) - n - 1 >= LEAST:
            children.append((n + 1, members, transfer_left(moment, core[:, :1])))
        if len(members) < self.highest:
            children.append((n + 1, (*members, n), transfer_left(moment, core[:, 1:])))
        return children

    def _bound(self, n: int, chosen: int, moment: Tensor) -> float:
        dual = self.duals[n][min(chosen, len(self.duals[n]) - 1)]
        return float((moment * dual).sum())

    def _dive(self, n: int, members: Sites, moment: Tensor) -> None:
        """The better child each time, down to a whole term: what an unfinished search can still offer."""
        while n < len(self.train):
            children = self._children(n, members, moment)
            n, members, moment = max(children, key=lambda child: self._bound(child[0], len(child[1]), child[2]))
        self._record(members, moment.diagonal().clone())


def remaining_duals(train: list[Tensor], highest: int) -> list[Tensor]:
    """For each n and number of sites chosen before it, the dual (left, left) of all admissible ways to go on.

    Admissible are terms of three to ``highest`` sites in all. Where every order is, a term of three or more chosen
    sites may go on in any way, so one last entry stands for all larger numbers.
    """
    unlimited = highest >= len(train)
    top = LEAST if unlimited else highest
    # ways[d]: exactly d more sites; the last one: d or more where the order is not limited.
    ways = torch.cat([output_moments(train[-1]).sum(dim=0)[None], train[-1].new_zeros(top, *[train[-1].shape[-1]] * 2)])
    duals = []
    for core in [None, *reversed(train)]:
        if core is not None:
            grown = transfer_right(ways, core[:, 1:])
            ways = transfer_right(ways, core[:, :1])
            ways[1:] += grown[:-1]
            if unlimited:
                ways[-1] += grown[-1]
        sums = [
            ways[max(0, LEAST - chosen) : len(ways) if unlimited else highest - chosen + 1].sum(0)
            for chosen in range(top + 1)
        ]
        duals.append(torch.stack(sums))
    return duals[::-1]


@dataclass(eq=False)
class GramSearch(Search):
    """Order by order over sets of sites of a sum of products.

    The variance of all terms that contain a pair of sites bounds each of them; what is already known of them is
    subtracted. A set can only be among the best if the rest of each of its pairs is above the k-th best term.
    """

    gram: Gram = field(kw_only=True)

    def run(self, budget: int) -> None:
        """Look at sets of three sites or more until the best are proven, or nodes or work are spent."""
        if self.highest < LEAST:
            return
        rest, work = self.gram.containing().sum(-1), self.settings.work
        slack = self.settings.rounding * float(rest.max())
        for members, variance in self.variances.items():
            _subtract(rest, members, variance)
        for order in range(LEAST, self.highest + 1):
            candidates = self._candidates(rest, order, self._threshold() + slack)
            for bound, members in candidates:
                if bound <= self._threshold() + slack:
                    break
                work -= self.gram.cost(members)
                if len(candidates) > self.settings.sets or self.nodes >= budget or work < 0:
                    self.complete, self.bound = False, float(rest.max())
                    return
                self.nodes += 1
                self._record(members, self.gram.term(members))
                _subtract(rest, members, self.variances[members])
            if float(rest.max()) <= self._threshold() + slack:
                return

    def _candidates(self, rest: Tensor, order: int, least: float) -> list[tuple[float, Sites]]:
        """Sets all of whose pairs have more left than ``least``, by the least that a pair of theirs has."""
        table = rest.tolist()
        sites = [n for n in range(self.gram.sites) if sum(value > least for value in table[n]) >= order - 1]
        candidates = []
        for members in combinations(sites, order):
            bound = min(table[n][m] for n, m in combinations(members, 2))
            if bound > least:
                candidates.append((bound, members))
                if len(candidates) > self.settings.sets:
                    break
        return sorted(candidates, reverse=True)


def _subtract(rest: Tensor, members: Sites, variance: Tensor) -> None:
    for n, m in combinations(members, 2):
        rest[n, m] -= float(variance.sum())
        rest[m, n] -= float(variance.sum())
