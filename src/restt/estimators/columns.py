"""Columns: which hold categories, in which order they become sites, and their values as numbers.

A column of numbers stays as it is; a category becomes the number of its level. That is what an exported graph takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from restt._common.errors import shown, warn_caller
from restt.estimators.tables import Table
from restt.features.levels import Level, code_column, read_level, sorted_levels

# With handle_unknown="other", levels with less than this share of the rows' weight are learned as one state, "other".
# It bounds a column to 100 levels, and with it the width to which the site vectors of every column are padded.
RARE_SHARE = 0.01
# A model that draws levels of few rows towards the others by itself pools only what weighs less than this many rows.
FEWEST_ROWS = 2.0
# Up to this many rare levels are remembered by name, so that a warning can name one that was never seen.
MOST_REMEMBERED = 10_000
# In place of a level: the average of the column's states.
AVERAGE = -1.0
# A column whose spread is below this share of its mean is constant: what is left is the rounding of its values.
ROUNDING = 1e3 * np.finfo(np.float64).eps


@dataclass(frozen=True)
class Column:
    """Kind, levels and missing values of a column in the fit.

    ``levels`` is None for a column of numbers. ``missing``: some values were missing, so the site has a state for that;
    where none were, a missing value is the average of the column's states with ``averages_missing``, else an error.
    ``other``: what becomes of a category that is no level: None an error, True the learned state of rare levels, False
    (no level was rare) the average of the column's states. ``rare`` are the rare levels, None where they were too many
    to remember.
    """

    label: str
    levels: tuple[Level, ...] | None = None
    missing: bool = False
    other: bool | None = None
    rare: tuple[Level, ...] | None = ()
    averages_missing: bool = False

    @property
    def states(self) -> int:
        """Number of one-hot states: levels and "other"; 0 for numbers. The missing state comes after them."""
        return 0 if self.levels is None else len(self.levels) + (self.other is True)

    def to_config(self) -> dict[str, Any]:
        """Plain values that :meth:`from_config` reads."""
        return asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Column:
        """The column that :meth:`to_config` wrote; ValueError where the entries are not of the right kind."""
        levels, rare = config["levels"], config.get("rare", ())
        lists = {"levels": levels, "rare": rare}
        column = cls(**{**config, **{name: None if part is None else tuple(part) for name, part in lists.items()}})
        plain = all(isinstance(level, (int, float, str)) for level in (*(column.levels or ()), *(column.rare or ())))
        flags = all(isinstance(flag, bool) for flag in (column.missing, column.averages_missing))
        if not plain or not flags or not isinstance(column.label, str) or column.other not in (None, False, True):
            raise ValueError(f"a column is described by entries of the wrong kind: {shown(config)}")
        return column

    def read(self, table: Table, index: int) -> tuple[np.ndarray, str, str]:  # (B,) float64
        """Read the column as numbers; ValueError for what the fit says is an error.

        NaN is missing, -1 a category that becomes the average state. Beside them, in words, the first category and the
        missing values that the fit had not seen.
        """
        unknown = ""
        if self.levels is not None:
            values, unknown = self._codes(table.categories(index))
        else:
            values = table.numbers(index)
            infinite = np.isinf(values)
            if infinite.any():
                raise ValueError(f"Input X contains infinity: {self.label}, first in row {int(infinite.argmax())}")
        absent = np.isnan(values)
        if self.missing or not absent.any():
            return values, unknown, ""
        missing = f"{self.label} misses {int(absent.sum())} value(s), first in row {int(absent.argmax())}"
        if not self.averages_missing:
            raise ValueError(
                f"Input X contains NaN: {missing}, but had none missing in the fit, so nothing was learned for it"
            )
        return values, unknown, missing

    def _codes(self, values: np.ndarray) -> tuple[np.ndarray, str]:
        assert self.levels is not None
        places, absent = code_column(values, self.levels, int(AVERAGE))
        codes, missing = places.numpy().astype(np.float64), absent.numpy()
        unknown = (codes == AVERAGE) & ~missing
        first = "" if self.rare is None else self._first_unseen(values, np.flatnonzero(unknown), set(self.rare))
        if first and self.other is None:
            raise ValueError(
                f'{first}, unseen in the fit; known are {shown(list(self.levels))}. handle_unknown="other" accepts it'
            )
        if self.other:
            codes[unknown] = len(self.levels)
        codes[missing] = np.nan
        return codes, first

    def _first_unseen(self, values: np.ndarray, rows: np.ndarray, rare: set[Level]) -> str:
        for row in rows:
            level = read_level(values[row])
            if level not in rare:
                return f"{self.label} of X has the category {shown(level)} in row {row}"
        return ""


def fit_columns(
    table: Table,
    weights: np.ndarray,  # (B,), above 0 everywhere
    categorical_features: Any = None,
    handle_unknown: str = "other",
    handle_missing: str = "average",
    *,
    every: bool = False,
    most_levels: int | None = None,
) -> tuple[Column, ...]:
    """Learn kind, levels and missing state of each column; ``every`` one holds categories, or those that are chosen.

    ``most_levels``: at most this many, the heaviest, have a state of their own, none of less than two rows; without it
    those with a share of :data:`RARE_SHARE`.
    """
    chosen = set(chosen_columns("categorical_features", categorical_features, table))
    columns = []
    for index in range(table.width):
        label, averages = table.label(index), handle_missing == "average"
        if not (every or index in chosen or table.holds_categories(index)):
            absent = bool(np.isnan(table.numbers(index)).any())
            column = Column(label, missing=absent, averages_missing=averages)
        else:
            totals, absent = _level_weights(table.categories(index), weights)
            rare = _rare_levels(totals, float(weights.sum()), most_levels) if handle_unknown == "other" else set()
            column = Column(
                label,
                sorted_levels(set(totals) - rare),
                missing=absent,
                other=bool(rare) if handle_unknown == "other" else None,
                rare=sorted_levels(rare) if len(rare) <= MOST_REMEMBERED else None,
                averages_missing=averages,
            )
        if absent and handle_missing == "error":
            raise ValueError(f'Input X contains NaN: {label} has missing values, which handle_missing="error" refuses')
        columns.append(column)
    return tuple(columns)


def levels_beside(columns: int, most: int, states: int) -> int:
    """Number of levels of a category that have a state of their own.

    Sites are as wide as the widest, so ``levels × columns`` is at most about ``states``; there may always be as many
    levels as shares of :data:`RARE_SHARE` would leave.

    >>> levels_beside(4, 500, 3000), levels_beside(10, 500, 3000), levels_beside(80, 500, 3000)
    (500, 300, 100)
    """
    return min(most, max(states // columns, round(1 / RARE_SHARE)))


def _rare_levels(totals: dict[Level, float], weight: float, most_levels: int | None) -> set[Level]:
    """Levels that share one state."""
    least = RARE_SHARE * weight if most_levels is None else min(FEWEST_ROWS, RARE_SHARE * weight)
    rare = {level for level, total in totals.items() if total < least}
    if most_levels is not None and len(totals) - len(rare) > most_levels:
        kept = sorted(sorted_levels(set(totals) - rare), key=lambda level: -totals[level])
        rare |= set(kept[most_levels:])
    return rare


def _level_weights(values: np.ndarray, weights: np.ndarray) -> tuple[dict[Level, float], bool]:
    """Sum the weights of the rows of each level; tell whether some value is missing."""
    totals: dict[Level, float] = {}
    absent = False
    for value, weight in zip(values, weights.tolist(), strict=True):
        level = read_level(value)
        if level is None:
            absent = True
        else:
            totals[level] = totals.get(level, 0.0) + weight
    return totals, absent


def chosen_columns(name: str, given: Any, table: Table) -> list[int]:
    """Column numbers from names, numbers or a mask; none for None. ``name`` is the parameter's, for errors."""
    if given is None:
        return []
    values = np.asarray(given)
    if values.ndim != 1:
        raise ValueError(f"{name} must be a list of column names or numbers, or a mask, got {shown(given)}")
    if values.size == 0:
        return []
    if values.dtype == bool:
        if len(values) != table.width:
            raise ValueError(f"{name} as a mask must have {table.width} entries, one per column, got {len(values)}")
        return [int(index) for index in np.flatnonzero(values)]
    if values.dtype.kind in "iu":
        outside = [int(index) for index in values if not 0 <= index < table.width]
        if outside:
            raise ValueError(f"{name} must hold column numbers 0 … {table.width - 1}, got {outside[0]}")
        return [int(index) for index in values]
    if values.dtype.kind not in "OU" or not all(isinstance(value, str) for value in values.tolist()):
        raise TypeError(f"{name} must hold column names, numbers or a mask, got {shown(given)}")
    if table.names is None:
        raise ValueError(f"{name} names columns, but X has no column names: pass a data frame, or column numbers")
    unknown = [value for value in values.tolist() if value not in table.names]
    if unknown:
        raise ValueError(f"{name} names {unknown[0]!r}, which is no column of X; it has {shown(table.names)}")
    return [table.names.index(value) for value in values.tolist()]


def site_columns(site_order: Any, table: Table) -> list[int]:
    """Place of the column that each site reads."""
    if isinstance(site_order, str):
        return list(range(table.width))
    order = chosen_columns("site_order", site_order, table)
    if sorted(order) != list(range(table.width)):
        raise ValueError(
            f"site_order must name each of the {table.width} columns once, got {shown(site_order)}, "
            f"which are the columns {shown(order)}"
        )
    return order


def read_numbers(columns: Sequence[Column], table: Table) -> np.ndarray:  # (B, C) float64
    """Read the table as numbers, a category as the number of its level.

    One warning each for categories and for missing values that the fit of the columns had not seen.
    """
    if all(column.levels is None for column in columns):
        plain = table.all_numbers()
        if plain is not None and (np.isfinite(plain).all() or _only_known_missing(columns, plain)):
            return plain
    values, unknown, missing = zip(*(column.read(table, index) for index, column in enumerate(columns)), strict=True)
    _warn_of_unseen(
        unknown,
        "unseen in the fit: taken as one of the column's rare categories, or where none was rare as the average of its "
        'states; handle_unknown="error" refuses it',
    )
    _warn_of_unseen(
        missing,
        "but had none missing in the fit: taken as the average of the column's states; "
        'handle_missing="error" refuses it',
    )
    return np.stack(values, axis=1)


def _only_known_missing(columns: Sequence[Column], values: np.ndarray) -> bool:  # (B, C)
    """Whether no value is infinite, and none missing where the fit saw none missing."""
    unseen = np.isnan(values).any(axis=0) & np.array([not column.missing for column in columns])
    return not unseen.any() and not np.isinf(values).any()


def _warn_of_unseen(notes: Sequence[str], consequence: str) -> None:
    notes = [note for note in notes if note]
    if notes:
        more = f" (and {len(notes) - 1} more column(s))" if len(notes) > 1 else ""
        warn_caller(f"{notes[0]}{more}, {consequence}")


def mean_and_spread(
    values: np.ndarray,  # (B, K), NaN where missing
    weights: np.ndarray,  # (B,), above 0 everywhere
) -> tuple[np.ndarray, np.ndarray]:  # (K,), (K,)
    """Weighted mean and standard deviation of each column; a constant one has its own value and the spread 0.

    Columns are divided by a power of two first, which changes no digit and keeps their squares in range.

    >>> mean_and_spread(np.array([[0.1, 1e300], [0.1, 3e300], [0.1, np.nan]]), np.ones(3))
    (array([1.e-001, 2.e+300]), array([0.e+000, 1.e+300]))
    """
    present = ~np.isnan(values)
    low = np.min(values, axis=0, where=present, initial=np.inf)
    high = np.max(values, axis=0, where=present, initial=-np.inf)
    empty = ~present.any(axis=0)
    low, high = np.where(empty, 0.0, low), np.where(empty, 0.0, high)
    exponents = binary_exponents(np.maximum(np.abs(low), np.abs(high)))
    scaled = np.where(present, np.ldexp(values, -exponents), 0.0)
    shares = weights[:, None] * present
    total = np.where(empty, 1.0, shares.sum(axis=0))
    mean = (shares * scaled).sum(axis=0) / total
    spread = np.sqrt((shares * (scaled - mean) ** 2).sum(axis=0) / total)
    constant = (low == high) | (spread <= ROUNDING * np.abs(mean))
    mean, spread = np.ldexp(mean, exponents), np.ldexp(spread, exponents)
    return np.where(low == high, low, mean), np.where(constant, 0.0, spread)


def binary_exponents(sizes: np.ndarray) -> np.ndarray:
    """Exponents e with sizes · 2^-e in [1/2, 1); 0 for 0."""
    return np.asarray(np.frexp(sizes)[1])
