"""The interactions that matter most, and whether the list is proven to be complete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_int
from restt.explain.dense_moments import DenseMoments
from restt.explain.gram import Gram
from restt.explain.search import SETTINGS, DenseSearch, GramSearch
from restt.explain.subject import Subject
from restt.explain.tables import Records


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
class TopInteractions(Records):
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
    model: Any, background: Any = None, k: int = 10, max_order: int | None = None, nodes: int = SETTINGS.nodes
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
    known = _small_terms(moments, highest)
    search: DenseSearch | GramSearch
    if isinstance(moments, DenseMoments):
        search = DenseSearch(highest, k, known, train=moments.train)
    else:
        search = GramSearch(highest, k, known, gram=moments)
    search.run(nodes)
    ranked = sorted(search.variances.items(), key=lambda item: -float(item[1].sum()))[:k]
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
