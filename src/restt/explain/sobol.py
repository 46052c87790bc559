"""Variances under independent columns: Sobol indices, and the interactions of largest variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_int
from restt.explain.search import NODES, search_terms
from restt.explain.subject import Subject
from restt.explain.tables import Printed, records_of


@dataclass(frozen=True, eq=False, repr=False)
class SobolIndices(Printed):
    """Shares of the variance of each output under independent columns; in the order of ``names``, all float64."""

    names: tuple[str, ...]
    outputs: tuple[str, ...]
    mean: Tensor  # (O,)
    variance: Tensor  # (O,)
    first: Tensor  # (N, O) a column alone
    total: Tensor  # (N, O) a column in all its interactions
    by_order: Tensor  # (highest + 1, O), index = order; entry 0 is 0
    pairs: Tensor  # (N, N, O) what two columns do together, first-order indices on the diagonal

    def _records(self) -> list[dict[str, Any]]:
        return records_of({"column": self.names}, self.outputs, {"first": self.first, "total": self.total})

    def _title(self) -> tuple[str, str]:
        return "Sobol indices", "exact under independent columns"


@torch.no_grad()
def sobol_indices(model: Any, background: Any = None, max_order: int | None = None) -> SobolIndices:
    """Mean and variance of the predictions, and the share of each column, pair and order in the variance.

    Under independent sites all of them are exact, whatever N: E[state stateᵀ] goes from site to site by a linear map of
    (r+1)×(r+1) matrices, in which a site takes part or not. :func:`restt.explain.variance_shares` divides the variance
    of rows whose columns are not independent.

    Parameters
    ----------
    model : restt.ResTT or fitted estimator
    background : (M, N, I) site vectors for a module, a table for an estimator
        Rows whose site means and covariances describe the inputs.
    max_order : int, optional
        Highest order of ``by_order``; by default N, the costly part for long chains.

    Examples
    --------
    >>> import restt, torch
    >>> model = restt.ResTT(sites=4, feature_dim=2, bond_dim=3, outputs=1, dtype=torch.float64)
    >>> indices = sobol_indices(model, torch.rand(50, 4, 2, dtype=torch.float64))
    >>> torch.allclose(indices.by_order.sum(0), torch.ones(1, dtype=torch.float64))
    True
    >>> bool((indices.total >= indices.first).all())
    True
    """
    subject = Subject.of(model)
    means, covariances = subject.moments(background)
    moments = subject.train(means).moments(covariances)
    variance, total, orders = moments.variances(subject.highest(max_order))
    pairs = subject.in_columns(subject.in_columns(moments.pairs, 0), 1)
    parts = (pairs.diagonal().T, subject.in_columns(total, 0), orders, pairs)
    mean = subject.decide(means[None])[0]  # the output is affine in each of the independent sites
    return SobolIndices(subject.names, subject.outputs, mean, variance, *(share_of(part, variance) for part in parts))


def share_of(part: Tensor, whole: Tensor) -> Tensor:  # (…, D), (D,)
    """The ratio, 0 where nothing varies."""
    return torch.where(whole > 0, part / whole, 0.0)


@dataclass(frozen=True, eq=False)
class Term:
    """One centred (ANOVA) term: the columns in it, its variance and share of the whole by output, (O,) each."""

    columns: tuple[int, ...]
    names: tuple[str, ...]
    variance: Tensor
    share: Tensor

    @property
    def label(self) -> str:
        """The names of the columns."""
        return " × ".join(self.names)


@dataclass(frozen=True, eq=False, repr=False)
class TopInteractions(Printed):
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

    def _title(self) -> tuple[str, str]:
        note = "proven complete" if self.complete else f"not proven: an unseen term has at most {self.bound:.3g}"
        return "Interactions by variance under independent columns", note


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
    >>> top = top_interactions(model, torch.rand(50, 6, 2, dtype=torch.float64), k=3)
    >>> len(top), top.complete
    (3, True)
    """
    k = check_int("k", k, minimum=1)
    nodes = check_int("nodes", nodes, minimum=1)
    subject = Subject.of(model)
    sites = subject.sites
    highest = sites if max_order is None else check_int("max_order", max_order, minimum=1, maximum=sites)
    means, covariances = subject.moments(background)
    moments = subject.train(means).moments(covariances)
    search = search_terms(moments, highest, k, nodes)
    terms = []
    for members, variance in sorted(search.variances.items(), key=lambda item: -float(item[1].sum()))[:k]:
        columns = tuple(sorted(subject.columns[site] for site in members))
        names = tuple(subject.names[column] for column in columns)
        terms.append(Term(columns, names, variance, share_of(variance, moments.variance)))
    return TopInteractions(tuple(terms), subject.outputs, search.complete, search.bound, search.nodes)
