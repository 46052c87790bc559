"""Knots of a column from its values and row weights."""

from __future__ import annotations

import torch
from torch import Tensor


def uniform_knots(column: Tensor, count: int) -> list[float]:
    """``count`` evenly spaced knots over the range of ``column`` (B,); one knot for a constant column."""
    low, high = column.min().item(), column.max().item()
    if low == high:
        return [low]
    inner = torch.linspace(0, 1, count, dtype=torch.float64)[1:-1]
    return sorted({low, *(low * (1 - inner) + high * inner).tolist(), high})


def quantile_knots(column: Tensor, weights: Tensor, count: int) -> list[float]:
    """Up to ``count`` knots at the weighted quantiles 0, 1/(count-1), …, 1 of ``column`` (B,).

    Quantiles are values of the column (the inverse of the weighted distribution function), so that a row of weight 2
    counts exactly as two rows. A column with at most ``count`` distinct values has a knot at each; equal quantiles
    share one knot.

    >>> import torch
    >>> quantile_knots(torch.tensor([0., 0., 0., 1., 2., 9.]), torch.ones(6), 3)
    [0.0, 9.0]
    >>> quantile_knots(torch.tensor([0., 1., 2., 3., 9.]), torch.tensor([1., 1., 1., 9., 1.]), 3)
    [0.0, 3.0, 9.0]
    """
    distinct = column.unique()
    if len(distinct) <= count:
        return distinct.tolist()
    order = column.argsort(stable=True)
    cumulative = weights[order].cumsum(0)
    levels = torch.linspace(0, 1, count, dtype=cumulative.dtype) * cumulative[-1]
    index = torch.searchsorted(cumulative, levels).clamp(max=len(column) - 1)
    return column[order][index].unique().tolist()
