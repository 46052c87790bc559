"""One column's kind and levels, and its values as numbers: what an exported graph takes too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from restt._common.errors import shown
from restt.estimators.tables import Table
from restt.features.levels import Level, code_column, read_level

# With handle_unknown="other", levels with less than this share of the rows' weight are learned as one state, "other".
RARE_SHARE = 0.01
UNKNOWN = -1.0


@dataclass(frozen=True)
class Column:
    """What fit found in a column.

    ``levels`` is None for a column of numbers. ``missing``: some values were missing, so the site has a state for that.
    ``other``: what becomes of an unknown category: None an error, True the learned state of rare levels, False (no
    level was rare) the average of the column's states.
    """

    label: str
    levels: tuple[Level, ...] | None = None
    missing: bool = False
    other: bool | None = None

    @property
    def states(self) -> int:
        """Number of one-hot states: levels and "other"; 0 for numbers. The missing state comes after them."""
        return 0 if self.levels is None else len(self.levels) + (self.other is True)

    def to_config(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Column:
        levels = config["levels"]
        return cls(**{**config, "levels": None if levels is None else tuple(levels)})

    def read(self, table: Table, index: int) -> np.ndarray:  # (B,) float64
        """Numbers as they are; categories as the number of their level; NaN for missing, -1 for an average category."""
        if self.levels is None:
            values = table.numbers(index)
            self._refuse_infinite(values)
        else:
            values = self._codes(table.categories(index))
        missing = np.isnan(values)
        if missing.any() and not self.missing:
            raise ValueError(
                f"Input X contains NaN: {self.label} misses {int(missing.sum())} value(s), first in row "
                f"{int(missing.argmax())}, but had none missing in the fit, so nothing was learned for it"
            )
        return values

    def _codes(self, values: np.ndarray) -> np.ndarray:
        assert self.levels is not None
        found, missing = code_column(values, self.levels, int(UNKNOWN))
        codes = found.numpy().astype(np.float64)
        unknown = (codes == UNKNOWN) & ~missing.numpy()
        if unknown.any() and self.other is None:
            row = int(unknown.argmax())
            raise ValueError(
                f"{self.label} of X has the category {shown(read_level(values[row]))} in row {row}, unseen in "
                f'the fit; known are {shown(list(self.levels))}. handle_unknown="other" accepts it'
            )
        if self.other:
            codes[unknown] = len(self.levels)
        codes[missing.numpy()] = np.nan
        return codes

    def _refuse_infinite(self, values: np.ndarray) -> None:
        infinite = np.isinf(values)
        if infinite.any():
            raise ValueError(f"Input X contains infinity: {self.label}, first in row {int(infinite.argmax())}")


def fit_column(
    table: Table,
    index: int,
    weights: np.ndarray,  # (B,), above 0 everywhere
    categorical: bool,
    handle_unknown: str,
    handle_missing: str,
) -> Column:
    """The kind, levels and missing state of a column."""
    label = table.label(index)
    if not categorical:
        missing = bool(np.isnan(table.numbers(index)).any())
        levels, other = None, None
    else:
        read = [read_level(value) for value in table.categories(index)]
        missing = any(level is None for level in read)
        levels = _sorted({level for level in read if level is not None})
        other = None if handle_unknown == "error" else False
        if handle_unknown == "other":
            common = _sorted(_common_levels(read, weights))
            if len(common) < len(levels):
                levels, other = common, True
    if missing and handle_missing == "error":
        raise ValueError(f'Input X contains NaN: {label} has missing values, which handle_missing="error" refuses')
    return Column(label, levels, missing, other)


def _common_levels(read: Sequence[Level | None], weights: np.ndarray) -> set[Level]:
    totals: dict[Level, float] = {}
    for level, weight in zip(read, weights.tolist(), strict=True):
        if level is not None:
            totals[level] = totals.get(level, 0.0) + weight
    least = RARE_SHARE * float(weights.sum())
    return {level for level, total in totals.items() if total >= least}


def _sorted(levels: set[Level]) -> tuple[Level, ...]:
    return tuple(sorted(levels, key=lambda level: (isinstance(level, str), level)))
