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
from restt.explain.trains import (
    centred,
    mean_sweeps,
    merged,
    output_moments,
    present,
    row_chunks,
    transfer_left,
    transfer_right,
    whitened,
)

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
    train = whitened(merged(centred(subject.cores(), means)), covariances)[0]
    before, after = mean_sweeps([core[None] for core in train])
    left, right = moment_sweeps(train)
    mean = torch.einsum("l,lr,rd->d", before[-1][0], train[-1][:, 0], after[-1][0])
    pairs = pair_variances(train)
    total = torch.stack(
        [torch.einsum("ab,dab->d", transfer_left(left[n], core[:, 1:]), right[n + 1]) for n, core in enumerate(train)]
    )
    orders = order_variances(train, highest)
    orders[0] = 0.0
    variance = total_variance(train)
    columns = subject.in_columns(subject.in_columns(pairs, 0), 1)
    first = columns.diagonal().T
    shares = [_shares(part, variance) for part in (first, subject.in_columns(total, 0), orders, columns)]
    return SobolIndices(subject.names, subject.outputs, distribution, None, mean, variance, *shares)


def moment_sweeps(train: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """E[state stateᵀ] before each site and after the last, N+1 of (left, left); and their duals, (D, left, left)."""
    left, right = [train[0].new_ones(1, 1)], [output_moments(train[-1])]
    for core in train:
        left.append(transfer_left(left[-1], core))
    for core in reversed(train):
        right.append(transfer_right(right[-1], core))
    return left, right[::-1]


def total_variance(train: list[Tensor]) -> Tensor:  # (D,)
    """Var f: the terms whose last site is n, summed over n. Nothing is subtracted, so small variances stay exact."""
    _, after = mean_sweeps([core[None] for core in train])
    moment, variance = train[0].new_ones(1, 1), train[-1].new_zeros(train[-1].shape[-1])
    for core, end in zip(train, after, strict=True):
        variance = variance + torch.einsum("ab,ad,bd->d", transfer_left(moment, core[:, 1:]), end[0], end[0])
        moment = transfer_left(moment, core)
    return variance


def order_variances(train: list[Tensor], highest: int) -> Tensor:  # (highest+1, D)
    """E f_d² of the sum of all terms of each order d: the transfer map on matrices that are polynomials."""
    moments = train[0].new_ones(1, 1, 1)  # (orders, left, left)
    for n, core in enumerate(train):
        orders = min(n + 1, highest) + 1
        grown = transfer_left(moments, core[:, 1:])[: orders - 1]
        moments = transfer_left(moments, core[:, :1])
        moments = torch.cat([moments, moments.new_zeros(orders - len(moments), *moments.shape[1:])])
        moments[1:] += grown
    return moments.diagonal(dim1=1, dim2=2).clone()


def pair_variances(train: list[Tensor]) -> Tensor:  # (N, N, D)
    """The variance of every pair's term, of every single site's on the diagonal; exhaustive, O(N²)."""
    before, after = mean_sweeps([core[None] for core in train])
    sites, outputs = len(train), train[-1].shape[-1]
    found = train[0].new_zeros(sites, sites, outputs)
    travelling = train[0].new_zeros(0, 1)  # (entries of earlier sites, left)
    owners = torch.zeros(0, dtype=torch.long, device=found.device)
    for n, core in enumerate(train):
        reached = core[:, 1:] @ after[n][0]  # (left, J, D)
        alone = torch.einsum("l,ljd->jd", before[n][0], reached)
        found[n, n] = alone.square().sum(dim=0)
        if n:
            together = torch.einsum("el,ljd->ejd", travelling, reached).square().sum(dim=1)
            found[:, n] = found[:, n].index_add(0, owners, together)
            found[n, :n] = found[:n, n]
            travelling = travelling @ core[:, 0]
        own = torch.einsum("l,ljr->jr", before[n][0], core[:, 1:])
        travelling = torch.cat([travelling, own]) if n else own
        owners = torch.cat([owners, owners.new_full((len(own),), n)])
    return found


def _sampled(subject: Subject, rows: Tensor, highest: int) -> SobolIndices:
    means = rows.mean(dim=0)
    cores = centred(subject.cores(), means)
    before, after = mean_sweeps(cores)
    parts: dict[str, list[Tensor]] = {"first": [], "total": [], "orders": [], "value": []}
    module = subject.module
    numbers = module.sites * (4 * module.feature_dim + (module.runs or 1) * module.bond_dim)
    for chosen in row_chunks(len(rows), numbers, rows.device):
        chunk = rows[chosen]
        centre = chunk - means
        alone = [
            torch.einsum("sbr,srd->bd", present(before[n][:, None].expand(-1, len(chunk), -1), core, centre[:, n]), end)
            for n, (core, end) in enumerate(zip(cores, after, strict=True))
        ]
        parts["first"].append(torch.stack(alone, dim=1) / cores[0].shape[0])
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
