"""Searches for the terms of three sites or more with the largest variance under independent sites."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import combinations, count, islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from restt.explain.dense import DenseMoments, transfer_left, transfer_right
from restt.explain.products import Gram

Sites = tuple[int, ...]
LEAST = 3  # smaller terms are known before a search


# Limits of a search: nodes of a dense train, each two products of (r+1)×(r+1) matrices; of a sum of products about how
# many multiplications, and how many sets of sites are compared in one order.
NODES, WORK, SETS = 20_000, 3e10, 500_000
# Bounds and variances are sums of the same numbers in another order: they agree to this share of the whole.
ROUNDING = 1e-12


@dataclass(eq=False)
class Search:
    """The k terms of largest variance so far, and whether they are proven to be the best of all."""

    highest: int
    k: int
    variances: dict[Sites, Tensor] = field(default_factory=dict)  # by sites, (D,)
    complete: bool = True
    bound: float = 0.0  # the most that an unseen term can have, where the list is not proven
    nodes: int = 0
    best: list[float] = field(default_factory=list)  # the k largest variances, falling

    def record(self, members: Sites, variance: Tensor) -> None:
        """Add a term."""
        self.variances[members] = variance
        self.best = sorted([*self.best, float(variance.sum())], reverse=True)[: self.k]

    @property
    def threshold(self) -> float:
        """The variance that a term must exceed to be listed."""
        return self.best[-1] if len(self.best) == self.k else -np.inf


def search_terms(moments: DenseMoments | Gram, highest: int, k: int, nodes: int = NODES) -> Search:
    """The k terms of largest variance of at most ``highest`` sites: all singles and pairs, larger ones by a search."""
    search = Search(highest, k)
    for order in range(1, min(highest, 2) + 1):
        for members in combinations(range(len(moments.pairs)), order):
            search.record(members, moments.pairs[members[0], members[-1]])
    if highest >= LEAST:
        if isinstance(moments, DenseMoments):
            _search_dense(search, moments, nodes)
        else:
            _search_products(search, moments, nodes)
    return search


class _Node(NamedTuple):
    """A choice of which of the first sites take part; in the order in which nodes are opened."""

    bound: float  # less the variance of all admissible terms that begin with this choice
    number: int  # tells nodes of the same bound apart
    site: int  # how many sites are decided
    members: Sites
    moment: Tensor  # E[state stateᵀ] of the partial product


def _search_dense(search: Search, moments: DenseMoments, budget: int) -> None:
    """Best-first over which sites take part, decided along the chain of a whitened train.

    A node's bound is the sum of the variances of all its descendants of admissible order, so the node with the largest
    bound is opened first, and the search is over when that bound is below the k-th best term. A search cut short
    follows the better child of the best nodes down to whole terms.
    """
    train, number, duals = moments.train, count(), _remaining_duals(moments, search.highest)

    def made(site: int, members: Sites, moment: Tensor) -> _Node:
        dual = duals[site]
        return _Node(
            -float((moment * dual[min(len(members), len(dual) - 1)]).sum()), next(number), site, members, moment
        )

    def children(node: _Node) -> list[_Node]:
        """The next site left out or taken in, where terms of an admissible order remain."""
        core, site, found = train[node.site], node.site, []
        if len(node.members) + len(train) - site - 1 >= LEAST:
            found.append(made(site + 1, node.members, transfer_left(node.moment, core[:, :1])))
        if len(node.members) < search.highest:
            found.append(made(site + 1, (*node.members, site), transfer_left(node.moment, core[:, 1:])))
        return found

    heap = [made(0, (), train[0].new_ones(1, 1))]
    slack = -ROUNDING * heap[0].bound
    while heap and -heap[0].bound > search.threshold + slack:
        if search.nodes >= budget:
            search.complete, search.bound = False, -heap[0].bound
            for node in heapq.nsmallest(search.k, heap):
                while node.site < len(train):
                    node = min(children(node))
                search.record(node.members, node.moment.diagonal().clone())
            return
        search.nodes += 1
        for child in children(heapq.heappop(heap)):
            if child.site == len(train):
                search.record(child.members, child.moment.diagonal().clone())
            elif -child.bound > search.threshold + slack:
                heapq.heappush(heap, child)


def _remaining_duals(moments: DenseMoments, highest: int) -> list[Tensor]:
    """Duals (left, left) of all admissible ways to go on, for each n and number of sites chosen before it.

    Admissible are terms of three to ``highest`` sites in all. Where every order is, a term of three or more chosen
    sites may go on in any way, so one last entry stands for all larger numbers.
    """
    unlimited = highest >= len(moments.train)
    top = LEAST if unlimited else highest
    end = moments.ends.sum(dim=0)
    # ways[d]: exactly d more sites; the last one: d or more where the order is not limited.
    ways = torch.cat([end[None], end.new_zeros(top, *end.shape)])
    duals = []
    for core in [None, *reversed(moments.train)]:
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


def _search_products(search: Search, gram: Gram, budget: int) -> None:
    """Order by order over sets of sites of a sum of products.

    The variance of all terms that contain a pair of sites bounds each of them; what is already known of them is
    subtracted. A set can only be among the best if the rest of each of its pairs is above the k-th best term.
    """
    rest, work = gram.containing().sum(-1).cpu().numpy(), 0.0
    slack = ROUNDING * rest.max()
    for members, variance in search.variances.items():
        rest[np.ix_(members, members)] -= float(variance.sum())
    for order in range(LEAST, search.highest + 1):
        candidates = _candidates(rest, order, search.threshold + slack)
        for bound, members in candidates:
            if bound <= search.threshold + slack:
                break
            if len(candidates) > SETS or search.nodes >= budget or work > WORK:
                search.complete, search.bound = False, float(rest.max())
                return
            variance, spent = gram.term(members)
            search.nodes, work = search.nodes + 1, work + spent
            search.record(members, variance)
            rest[np.ix_(members, members)] -= float(variance.sum())
        if rest.max() <= search.threshold + slack:
            return


def _candidates(rest: np.ndarray, order: int, least: float) -> list[tuple[float, Sites]]:
    """Sets all of whose pairs have more left than ``least``, by the least that a pair of theirs has."""
    table = rest.tolist()
    sites = [n for n, row in enumerate(table) if sum(value > least for value in row) >= order - 1]
    bounds = ((min(table[n][m] for n, m in combinations(own, 2)), own) for own in combinations(sites, order))
    return sorted(islice((bound for bound in bounds if bound[0] > least), SETS + 1), reverse=True)
