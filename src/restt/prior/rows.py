"""The rows that a prior is learned from: checked, without accidents, equal ones as one."""

from __future__ import annotations

import warnings

import numpy as np

from restt._common.errors import shown
from restt.prior.target import weighted_quantile

# y further from its median than this many widths of its middle nine tenths is an accident, not a tail.
_ACCIDENT = 1e4


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


def ordinary_range(targets: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # (O,), (O,)
    """Between which y is not beyond all measure."""
    ends = np.tile([[-np.inf], [np.inf]], targets.shape[1])
    for place, column in enumerate(targets.T):
        low, middle, high = weighted_quantile(column, weights, (0.05, 0.5, 0.95))
        if high > low:
            ends[:, place] = middle - _ACCIDENT * (high - low), middle + _ACCIDENT * (high - low)
    return ends[0], ends[1]


def without_accidents(targets: np.ndarray, weights: np.ndarray) -> np.ndarray:  # (B,) bool
    """Rows whose y is not beyond all measure; a warning names what is left out."""
    low, high = ordinary_range(targets, weights)
    keep = np.asarray(((low <= targets) & (targets <= high)).all(axis=1))
    if not keep.all():
        worst = targets[~keep].ravel()[np.abs(targets[~keep]).argmax()]
        warnings.warn(
            f"{int((~keep).sum())} row(s) are left out of the fit: their y, such as {worst:g}, is more than "
            f"{_ACCIDENT:g} times the width of the middle nine tenths away from the median",
            UserWarning,
            stacklevel=4,
        )
    return keep


def merged(table: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Equal rows as one with the sum of their weights, in an order that does not depend on theirs.

    So a repeated row is a row of weight 2 to everything that follows, also to what leaves rows out.
    """
    rows = np.column_stack([table, targets]) + 0.0  # -0 becomes 0
    rows[np.isnan(rows)] = np.nan  # the same bits for all
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return table[first], targets[first], np.bincount(group.ravel(), weights)
