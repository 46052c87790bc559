"""Warnings about rows that are fitted as they are given, and seldom meant so: tiny weights, copies."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterator

import numpy as np

from restt.estimators.gradient import Examples

_PRIME = np.uint64(0x9E3779B97F4A7C15)


def warn_of_odd_rows(given: Examples, categorical: Collection[int]) -> None:
    """UserWarning where the rows' weights sum to less than a column has, or most rows are copies of others.

    ``categorical``: the columns that hold categories though their type does not say so.
    """
    total, columns = float(given.weights.sum()), given.table.width
    if total < columns + 1 <= len(given):
        warnings.warn(
            f"sample_weight sums to {total:.3g} over {len(given)} rows of {columns} columns: the weights say that "
            "there are fewer rows than columns; multiply them so that their mean is 1",
            UserWarning,
            stacklevel=6,
        )
    copies = len(given) - len(np.unique(_contents(given, categorical)))
    if 2 * copies > len(given) and _possible_rows(given, categorical) > len(given):
        warnings.warn(
            f"{copies} of {len(given)} rows are exact copies, in X and y, of others; a copy counts as a row seen "
            "twice: drop duplicates unless each was observed",
            UserWarning,
            stacklevel=6,
        )


def _contents(given: Examples, categorical: Collection[int]) -> np.ndarray:  # (B,)
    """A number for each row, the same for rows that hold the same."""
    found = np.zeros(len(given), dtype=np.uint64)
    for codes in _columns(given, categorical):
        found = (found ^ codes) * _PRIME
        found ^= found >> np.uint64(29)
    return found


def _possible_rows(given: Examples, categorical: Collection[int]) -> int:
    """How many different rows the values of the columns and of y could make: with few, copies are no accident."""
    return math.prod(len(np.unique(codes)) for codes in _columns(given, categorical))


def _columns(given: Examples, categorical: Collection[int]) -> Iterator[np.ndarray]:  # (B,) each
    """Every column of X and y as whole numbers, the same for the same values."""
    table = given.table
    for column in range(table.width):
        if column in categorical or table.holds_categories(column):
            levels: dict[object, int] = {}
            codes = [levels.setdefault(value, len(levels)) for value in table.categories(column).tolist()]
            yield np.array(codes, dtype=np.uint64)
        else:
            yield _bits(table.numbers(column))
    for values in given.y.reshape(len(given), -1).T:
        is_number = values.dtype.kind in "biuf"
        yield _bits(values) if is_number else np.unique(values, return_inverse=True)[1].astype(np.uint64)


def _bits(values: np.ndarray) -> np.ndarray:
    """Bits of numbers, the same for 0.0 and -0.0 and for every NaN."""
    numbers = values.astype(np.float64) + 0.0
    return np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)
