"""Rows that a model is fitted to: checked, without implausible targets, in an order of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import shown, warn_caller

Numbers = TypeVar("Numbers", np.ndarray, Tensor)
# y further from its median than this many widths of its middle nine tenths is implausible.
_IMPLAUSIBLE = 1e4
# 1/ν below which Student's noise is normal.
NORMAL_TAIL = 1e-3
_ARRAYS = ("numbers", "targets", "weights")


def checked(
    numbers: np.ndarray, y: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The table, y (B, O) and weights of the rows that have one; ValueError that names what is wrong."""
    table = np.asarray(numbers, dtype=np.float64)
    targets = np.asarray(y, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"numbers must have shape (B, C) with at least one row and column, got {table.shape}")
    targets = targets[:, None] if targets.ndim == 1 else targets
    if targets.ndim != 2 or len(targets) != len(table) or targets.shape[1] == 0:
        raise ValueError(f"y must have shape ({len(table)},) or ({len(table)}, O), got {np.shape(y)}")
    if np.isinf(table).any():
        row, column = np.argwhere(np.isinf(table))[0]
        raise ValueError(f"numbers must be finite or NaN, got {table[row, column]} in row {row}, column {column}")
    if not np.isfinite(targets).all():
        raise ValueError(f"y must be finite, got {targets[~np.isfinite(targets)][0]}")
    used = np.ones(len(table)) if weights is None else np.asarray(weights, dtype=np.float64)
    if used.shape != (len(table),) or not np.isfinite(used).all() or (used < 0).any() or not (used > 0).any():
        raise ValueError(f"weights must be {len(table)} finite numbers of at least 0, not all 0, got {shown(weights)}")
    return table[used > 0], targets[used > 0], used[used > 0]


def distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # (B, N) -> (K,), (B,)
    """Places of the first of equal rows, and the group of each row; missing values are equal, and so are 0 and -0."""
    rows = rows + 0.0
    rows[np.isnan(rows)] = np.nan  # the same bits for all
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return first, group.ravel()


def check_levels(table: np.ndarray, levels: Sequence[int | None]) -> None:  # (B, C), C
    """ValueError where a category is none of its levels: the fit learns a state of each."""
    for place, (column, count) in enumerate(zip(table.T, levels, strict=True)):
        if count is None:
            continue
        wrong = column[~np.isnan(column) & ~np.isin(column, np.arange(count))]
        if len(wrong):
            raise ValueError(f"column {place} of numbers must hold levels 0…{count - 1} or NaN, got {wrong[0]:g}")


def ordinary_range(targets: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # (O,), (O,)
    """Bounds beyond which y is implausible."""
    ends = np.tile([[-np.inf], [np.inf]], targets.shape[1])
    for place, column in enumerate(targets.T):
        low, middle, high = weighted_quantile(column, weights, (0.05, 0.5, 0.95))
        if high > low:
            ends[:, place] = middle - _IMPLAUSIBLE * (high - low), middle + _IMPLAUSIBLE * (high - low)
    return ends[0], ends[1]


def drop_implausible_targets(targets: np.ndarray, weights: np.ndarray) -> np.ndarray:  # (B,) bool
    """Rows to keep: those whose y is not absurdly far from the rest; a warning names what is dropped."""
    low, high = ordinary_range(targets, weights)
    keep = np.asarray(((low <= targets) & (targets <= high)).all(axis=1))
    if not keep.all():
        worst = targets[~keep].ravel()[np.abs(targets[~keep]).argmax()]
        warn_caller(
            f"{int((~keep).sum())} row(s) are left out of the fit: their y, such as {worst:g}, is more than "
            f"{_IMPLAUSIBLE:g} times the width of the middle nine tenths away from the median"
        )
    return keep


def weighted_quantile(values: np.ndarray, weights: np.ndarray, levels: Any) -> np.ndarray:  # (B,), (B,), (K,) -> (K,)
    """The values at which the weighted distribution function reaches each level."""
    if (weights == 1).all():
        # Only these places of the sorted values are needed, which a partition finds in a fraction of the time.
        places = np.maximum(np.ceil(np.asarray(levels) * len(values)).astype(np.int64) - 1, 0)
        return np.partition(values, np.unique(places))[places]
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    index = np.searchsorted(cumulative, np.asarray(levels) * cumulative[-1])
    return values[order][index]


def content_order(table: np.ndarray, targets: np.ndarray, seed: int) -> np.ndarray:  # (B, C), (B, O) -> (B,)
    """A random order of the rows that depends on what they hold, not on how it is written.

    The order of rows and columns, the unit and the sign of a column do not matter. Columns are told apart, and their
    ends, by moments of their ranks; where the odd ones are 0 a value counts by how far it is from the nearer end.

    >>> table = np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> order = content_order(table, np.arange(5.0)[:, None], seed=0)
    >>> bool((content_order(-table, np.arange(5.0)[:, None], seed=0) == order).all())
    True
    """
    total = np.full(len(table), seed % 2**63 + 1, dtype=np.uint64)
    level = np.zeros(len(table), dtype=np.int64)  # of y, whatever its sign
    for column in targets.T:
        ranks = _centred_ranks(column)
        level += ranks * np.sign((ranks**3).sum()) + ranks**2 // 1000
    for salt, columns in ((1, table), (2, targets)):
        for column in columns.T:
            values, rank = np.unique(column, return_inverse=True)
            if len(values) == 1:  # a column of one value changes nothing
                continue
            last = np.count_nonzero(~np.isnan(values)) - 1
            ranks = _centred_ranks(column)
            # Sums of integers, so that neither the order of rows nor rounding matters.
            skewness, slope, bend = (int(each.sum()) for each in (ranks**3, ranks * level, ranks**2 * level))
            upwards = skewness or slope
            place = np.minimum(rank, last - rank) if upwards == 0 else rank if upwards > 0 else last - rank
            place = np.where(np.isnan(column), 2**40, place).astype(np.uint64)
            own = np.array([salt], dtype=np.uint64)
            for moment in (abs(skewness), abs(slope), abs(bend)):
                own = _mixed(own + np.array([moment], dtype=np.uint64))
            total += _mixed(_mixed(place) + own)
    return np.argsort(_mixed(total), kind="stable")


def _centred_ranks(column: np.ndarray) -> np.ndarray:  # (B,) -> (B,) int64
    """Ranks from -1000 to 1000, 0 where a value is missing; of the negated column the negative ones."""
    values, rank = np.unique(column, return_inverse=True)
    last = max(int(np.count_nonzero(~np.isnan(values))) - 1, 1)
    return np.where(np.isnan(column), 0, np.rint(1000 * (2 * rank - last) / last)).astype(np.int64)


def _mixed(values: np.ndarray) -> np.ndarray:
    """Bits of 64-bit integers mixed (splitmix64)."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class FitRows:
    """Rows that a model is conditioned on, in the order of the fit."""

    numbers: np.ndarray  # (B, C)
    targets: np.ndarray  # (B, O): y as the fit was given it
    weights: np.ndarray  # (B,)
    tail: float  # 1/ν of the noise, which the first fit learned
    seed: int  # of the order

    @classmethod
    def of(cls, numbers: np.ndarray, targets: np.ndarray, weights: np.ndarray, seed: int, tail: float = 0.0) -> FitRows:
        """The rows without exact copies, which add their weights: a row is left out with all of its copies.

        Samples are the first rows of an order that depends on what rows hold, not on how they came.

        >>> table = np.array([[1.0], [np.nan], [1.0]])
        >>> sorted(FitRows.of(table, np.zeros((3, 1)), np.ones(3), seed=0).weights.tolist())
        [1.0, 2.0]
        """
        first, group = distinct(np.hstack([numbers, targets]))
        weights = np.bincount(group, weights)
        order = content_order(numbers[first], targets[first], seed)
        return cls(numbers[first][order], targets[first][order], weights[order], tail, seed)

    def __len__(self) -> int:
        return len(self.weights)

    def to_config(self) -> dict[str, Any]:
        """Plain values; the arrays are in :meth:`tensors`."""
        return {"tail": self.tail, "seed": self.seed}

    def tensors(self) -> dict[str, Tensor]:
        """The arrays, for a file."""
        return {name: torch.from_numpy(np.ascontiguousarray(getattr(self, name))) for name in _ARRAYS}

    @classmethod
    def from_config(cls, config: dict[str, Any], tensors: dict[str, Tensor]) -> FitRows:
        """The rows that :meth:`to_config` and :meth:`tensors` described; ValueError where they do not fit."""
        numbers, targets, weights = (tensors[name].numpy() for name in _ARRAYS)
        if numbers.ndim != 2 or targets.ndim != 2 or not len(weights) == len(numbers) == len(targets) > 0:
            raise ValueError(f"rows of {shown(numbers)}, {shown(targets)} and {shown(weights)} do not fit each other")
        if np.isinf(numbers).any() or not np.isfinite(targets).all() or not ((weights > 0) & (weights < np.inf)).all():
            raise ValueError("rows must be finite, their weights above 0")
        if not 0 <= float(config["tail"]) < 0.5 or int(config["seed"]) != config["seed"]:
            raise ValueError(f"the noise of the rows cannot be that of {config}")
        return cls(numbers, targets, weights, config["tail"], config["seed"])


def tail_precision(squares: Numbers, tail: float) -> Numbers:  # (B,) -> (B,)
    """Expected precision of the noise of rows of these standardised squared residuals, under 1/tail degrees."""
    return (1 / tail + 1) / (1 / tail - 2 + squares)
