"""Sobol indices: shares of the variance of the predictions under independent columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_int
from restt.explain.subject import Subject
from restt.explain.tables import Records


@dataclass(frozen=True, eq=False, repr=False)
class SobolIndices(Records):
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
        return [
            {
                "column": name,
                "output": output,
                "first": float(self.first[n, o]),
                "total": float(self.total[n, o]),
            }
            for o, output in enumerate(self.outputs)
            for n, name in enumerate(self.names)
        ]

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
    >>> found = sobol_indices(model, torch.rand(50, 4, 2, dtype=torch.float64))
    >>> torch.allclose(found.by_order.sum(0), torch.ones(1, dtype=torch.float64))
    True
    >>> bool((found.total >= found.first).all())
    True
    """
    subject = Subject.of(model)
    sites = subject.module.sites
    highest = sites if max_order is None else min(sites, check_int("max_order", max_order, minimum=1))
    means, covariances = subject.moments(background)
    moments = subject.train(means).moments(covariances)
    variance, total, orders = moments.variances(highest)
    pairs = subject.in_columns(subject.in_columns(moments.pairs, 0), 1)
    parts = (pairs.diagonal().T, subject.in_columns(total, 0), orders, pairs)
    shares = [torch.where(variance > 0, part / variance.where(variance > 0, 1.0), 0.0) for part in parts]
    mean = subject.decide(means[None])[0]  # the output is affine in each of the independent sites
    return SobolIndices(subject.names, subject.outputs, mean, variance, *shares)
