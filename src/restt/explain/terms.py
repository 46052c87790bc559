"""The interactions that matter most, and whether the list is proven to be complete."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_int
from restt.explain.dense import DenseMoments
from restt.explain.gram import Gram, GramSearch
from restt.explain.subject import Subject
from restt.explain.tables import data_frame, rich_table
from restt.explain.trains import output_moments, transfer_left, transfer_right

# Nodes of the search for terms of three or more sites; each costs two products of (r+1)×(r+1) matrices.
NODES = 20_000
# Bounds and variances are sums of the same numbers in another order: they agree to this share of the whole variance.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Term:
    """One centred (ANOVA) term: the columns in it, its variance and share of the whole by output, (O,) each."""

    columns: tuple[int, ...]
    names: tuple[str, ...]
    variance: Tensor
    share: Tensor

    @property
    def label(self) -> str:
        return " × ".join(self.names)


@dataclass(frozen=True, eq=False)
class TopInteractions:
    """Terms by falling variance, summed over outputs.

    ``complete``: no term outside the list has a larger variance than one in it. Otherwise the search ended early, and
    ``bound`` is the most that an unseen term can have.
    """

    terms: tuple[Term, ...]
    outputs: tuple[str, ...]
    complete: bool
    bound: float
    nodes: int

    def __len__(self) -> int:
        return len(self.terms)

    def __getitem__(self, place: int) -> Term:
        return self.terms[place]

    def to_frame(self) -> Any:
        """One row per term: its columns, order, variance and share of the variance by output."""
        return data_frame(self._records())

    def _records(self) -> list[dict[str, Any]]:
        names = ["share"] if len(self.outputs) == 1 else [f"share of {output}" for output in self.outputs]
        return [
            {
                "term": term.label,
                "order": len(term.columns),
                "variance": float(term.variance.sum()),
                **dict(zip(names, term.share.tolist(), strict=True)),
            }
            for term in self.terms
        ]

    def __rich__(self) -> Any:
        note = "proven complete" if self.complete else f"not proven: an unseen term has at most {self.bound:.3g}"
        return rich_table("Interactions by variance", self._records(), note)


@torch.no_grad()
def top_interactions(
    model: Any, background: Any = None, k: int = 10, max_order: int | None = None, nodes: int = NODES
) -> TopInteractions:
    """The k interactions with the largest variance under independent sites, of any order up to ``max_order``.

    Single sites and pairs are all computed. Larger terms are searched best-first: the variance of all terms that begin
    with the same choices along the chain is one exact number, and bounds each of them; with diagonal cores it is that
    of all terms that contain a pair of sites, and the search also ends after a fixed amount of work.

    Parameters
    ----------
    model : restt.ResTT or fitted estimator
    background : (M, N, I) site vectors for a module, a table for an estimator
    k : int
        How many.
    max_order : int, optional
        The most sites in a term; by default all N.
    nodes : int
        How far to search; where it does not suffice, ``complete`` is False.

    Examples
    --------
    >>> import restt, torch
    >>> model = restt.ResTT(sites=6, feature_dim=2, bond_dim=3, outputs=1, dtype=torch.float64)
    >>> found = top_interactions(model, torch.rand(50, 6, 2, dtype=torch.float64), k=3)
    >>> len(found), found.complete
    (3, True)
    """
    k = check_int("k", k, minimum=1)
    nodes = check_int("nodes", nodes, minimum=1)
    subject = Subject.of(model)
    sites = subject.module.sites
    highest = sites if max_order is None else check_int("max_order", max_order, minimum=1, maximum=sites)
    means, covariances = subject.moments(background)
    moments = subject.train(means).moments(covariances)
    found = _small_terms(moments, highest)
    search: _Search | GramSearch
    if isinstance(moments, DenseMoments):
        search = _Search(moments.train, highest, k, found)
    else:
        search = GramSearch(moments, highest, k, found)
    search.run(nodes)
    ranked = sorted(search.found.items(), key=lambda item: -float(item[1].sum()))[:k]
    whole = moments.variances(1)[0]
    terms = []
    for members, variance in ranked:
        columns = tuple(sorted(subject.columns[site] for site in members))
        share = torch.where(whole > 0, variance / whole.where(whole > 0, 1.0), 0.0)
        terms.append(Term(columns, tuple(subject.names[column] for column in columns), variance, share))
    return TopInteractions(tuple(terms), subject.outputs, search.complete, search.bound, search.nodes)


def _small_terms(moments: DenseMoments | Gram, highest: int) -> dict[tuple[int, ...], Tensor]:
    """Variance (D,) of every single site and, up to ``highest``, every pair."""
    variances = moments.pairs
    sites = range(len(variances))
    found: dict[tuple[int, ...], Tensor] = {(i,): variances[i, i] for i in sites}
    if highest >= 2:
        found |= {(i, j): variances[i, j] for i in sites for j in sites if i < j}
    return found


class _Search:
    """Best-first over which sites take part, decided along the chain, for terms of three sites or more.

    A node has decided the sites before ``n``: it holds E[state stateᵀ] of its partial product. Its bound is the sum of
    the variances of all its descendants of admissible order, so the node with the largest bound is opened first, and
    the search is over when that bound is below the k-th best term.
    """

    LEAST = 3  # smaller terms are known before the search

    def __init__(self, train: list[Tensor], highest: int, k: int, found: dict[tuple[int, ...], Tensor]) -> None:
        self.train, self.highest, self.k, self.found = train, highest, k, found
        self.outputs = output_moments(train[-1])
        self.duals = _remaining(train, highest, self.LEAST)
        self.best = sorted((float(variance.sum()) for variance in found.values()), reverse=True)[:k]
        self.complete, self.bound, self.nodes = True, 0.0, 0

    def run(self, budget: int) -> None:
        """Open nodes until the k best terms are proven, or the limit of opened nodes is reached."""
        if self.highest < self.LEAST:
            return
        number = count()
        start = self.train[0].new_ones(1, 1)
        slack = ROUNDING * self._bound(0, 0, start)
        heap: list[tuple[float, int, int, tuple[int, ...], Tensor]]
        heap = [(-self._bound(0, 0, start), next(number), 0, (), start)]
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
                    self._record(child[1], child[2])
                elif (bound := self._bound(child[0], len(child[1]), child[2])) > self._threshold() + slack:
                    heapq.heappush(heap, (-bound, next(number), *child))

    def _children(self, n: int, members: tuple[int, ...], moment: Tensor) -> list[tuple[int, tuple[int, ...], Tensor]]:
        core = self.train[n]
        children = []
        if len(members) + len(self.train) - n - 1 >= self.LEAST:
            children.append((n + 1, members, transfer_left(moment, core[:, :1])))
        if len(members) < self.highest:
            children.append((n + 1, (*members, n), transfer_left(moment, core[:, 1:])))
        return children

    def _bound(self, n: int, chosen: int, moment: Tensor) -> float:
        dual = self.duals[n][min(chosen, len(self.duals[n]) - 1)]
        return float((moment * dual).sum())

    def _dive(self, n: int, members: tuple[int, ...], moment: Tensor) -> None:
        """The better child each time, down to a whole term: what an unfinished search can still offer."""
        while n < len(self.train):
            children = self._children(n, members, moment)
            n, members, moment = max(children, key=lambda child: self._bound(child[0], len(child[1]), child[2]))
        self._record(members, moment)

    def _record(self, members: tuple[int, ...], moment: Tensor) -> None:
        self.found[members] = moment.diagonal().clone()
        self.best = sorted([*self.best, float(moment.trace())], reverse=True)[: self.k]

    def _threshold(self) -> float:
        return self.best[-1] if len(self.best) == self.k else -1.0


def _remaining(train: list[Tensor], highest: int, least: int) -> list[Tensor]:
    """For each n and number of sites chosen before it, the dual (left, left) of all admissible ways to go on.

    Admissible are terms of ``least`` to ``highest`` sites in all. Where every order is, a term of ``least`` or more
    chosen sites may go on in any way, so one last entry stands for all larger numbers.
    """
    unlimited = highest >= len(train)
    top = least if unlimited else highest
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
            ways[max(0, least - chosen) : len(ways) if unlimited else highest - chosen + 1].sum(0)
            for chosen in range(top + 1)
        ]
        duals.append(torch.stack(sums))
    return duals[::-1]
