"""Where the variance of the predictions comes from: Sobol indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int
from restt.explain.orders import spectrum_of
from restt.explain.shapley import gradients
from restt.explain.subject import Subject
from restt.explain.tables import data_frame, rich_table
from restt.explain.trains import row_chunks

DISTRIBUTIONS = ("independent", "joint")


@dataclass(frozen=True, eq=False)
class SobolIndices:
    """Shares of the variance of each output; in the order of ``names``, all float64.

    ``distribution`` says under which rows: ``"independent"`` sites, exact; or the ``"joint"`` distribution sampled by
    the background's rows, where shares are covariances with the prediction and can be negative.
    """

    names: tuple[str, ...]
    outputs: tuple[str, ...]
    distribution: str
    rows: int | None  # how many rows the joint distribution was sampled by
    mean: Tensor  # (O,)
    variance: Tensor  # (O,)
    first: Tensor  # (N, O) a column alone
    total: Tensor  # (N, O) a column in all its interactions
    by_order: Tensor  # (highest + 1, O), index = order; entry 0 is 0
    pairs: Tensor | None  # (N, N, O) what two columns do together, first-order indices on the diagonal

    def to_frame(self) -> Any:
        """One row per column and output: first and total share."""
        return data_frame(self._records())

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

    def __rich__(self) -> Any:
        ranked = sorted(self._records(), key=lambda record: -record["total"])
        how = "exact, independent sites" if self.rows is None else f"sampled, joint distribution of {self.rows} rows"
        return rich_table(f"Sobol indices ({how})", ranked)


@torch.no_grad()
def sobol_indices(
    model: Any, background: Any = None, distribution: str = "independent", max_order: int | None = None
) -> SobolIndices:
    """Mean and variance of the predictions, and the share of each column, pair and order in the variance.

    Under independent sites all of them are exact, whatever N: E[state stateᵀ] goes from site to site by a linear map of
    (r+1)×(r+1) matrices, in which a site takes part or not.

    Parameters
    ----------
    model : restt.ResTT or fitted estimator
    background : (M, N, I) site vectors for a module, a table for an estimator
        Rows whose site means and covariances describe the inputs.
    distribution : {"independent", "joint"}
        ``"joint"`` keeps the background's rows as they are, dependences included, and splits their variance by
        covariance: the share of a set of terms is Cov(their sum, f) / Var f. This is an estimate from a sample.
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
    check_choice("distribution", distribution, DISTRIBUTIONS)
    subject = Subject.of(model)
    sites = subject.module.sites
    highest = sites if max_order is None else min(sites, check_int("max_order", max_order, minimum=1))
    if distribution == "joint":
        if background is None:
            raise ValueError('background must be given with distribution="joint": its rows are the sample')
        return _sampled(subject, subject.vectors(background, "background"), highest)
    means, covariances = subject.moments(background)
    moments = subject.train(means).moments(covariances)
    variance, total, orders = moments.variances(highest)
    mean, pairs = moments.mean(), moments.pairs
    columns = subject.in_columns(subject.in_columns(pairs, 0), 1)
    first = columns.diagonal().T
    shares = [_shares(part, variance) for part in (first, subject.in_columns(total, 0), orders, columns)]
    return SobolIndices(subject.names, subject.outputs, distribution, None, mean, variance, *shares)


def _sampled(subject: Subject, rows: Tensor, highest: int) -> SobolIndices:
    means = rows.mean(dim=0)
    at_means = torch.stack([slope[0] for slope in gradients(subject, means[None])], dim=-1)  # (N, I, D)
    parts: dict[str, list[Tensor]] = {"first": [], "total": [], "orders": [], "value": []}
    module = subject.module
    numbers = module.sites * (4 * module.feature_dim + subject.state_numbers)
    for chosen in row_chunks(len(rows), numbers, rows.device):
        chunk = rows[chosen]
        centre = chunk - means
        parts["first"].append(torch.einsum("bni,nid->bnd", centre, at_means))
        slopes = [torch.einsum("bni,bni->bn", slope, centre) for slope in gradients(subject, chunk)]
        parts["total"].append(torch.stack(slopes, dim=-1))
        parts["orders"].append(spectrum_of(subject, chunk, means, highest))
        parts["value"].append(subject.decide(chunk))
    values = {name: torch.cat(found) for name, found in parts.items()}
    deviation = values["value"] - values["value"].mean(dim=0)
    variance = deviation.square().mean(dim=0)
    first, total, orders = (
        _shares(torch.einsum("bnd,bd->nd", values[name], deviation) / len(rows), variance)
        for name in ("first", "total", "orders")
    )
    orders[0] = 0.0
    return SobolIndices(
        subject.names,
        subject.outputs,
        "joint",
        len(rows),
        values["value"].mean(dim=0),
        variance,
        subject.in_columns(first, 0),
        subject.in_columns(total, 0),
        orders,
        None,
    )


def _shares(part: Tensor, variance: Tensor) -> Tensor:
    """Part of the variance; 0 where an output does not vary."""
    return torch.where(variance > 0, part / variance.where(variance > 0, 1.0), 0.0)
