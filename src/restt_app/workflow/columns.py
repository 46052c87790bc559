"""Columns of a table: what they hold, whether a model should have them, and the inputs that it gets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd

from restt._common.errors import shown
from restt_app.workflow.layouts import WHOLE, candidates, is_layout, moments, parsed, remedy

# A column whose values nearly all differ names its rows; fewer rows than this say nothing.
IDENTIFIER_ROWS, IDENTIFIER_SHARE = 20, 0.5
LISTED_LEVELS = 100
LARGEST = 1e150  # numbers of a fit: squares of larger ones are no floats, nor are scores
MONTH_DAYS, WEEK_DAYS = 366, 14  # spans of dates from which the month and the weekday are worth a column each
# Part of a date -> its values, in the words of a note.
PARTS = {"month": "1 to 12", "weekday": "0 to 6 from Monday", "hour": "of the day"}
KINDS = ("number", "category", "boolean", "date", "unread")  # unread: dropped
_ID_NAME = re.compile(r"(?:^|[\W_])(?:id|index|no|nr)$", re.IGNORECASE)


@dataclass(frozen=True)
class Column:
    """A column of a table as the card describes it, see :mod:`restt_app.workflow.card`."""

    name: str
    kind: str
    layout: str
    missing: int
    distinct: int
    range: list[Any] | None = None
    levels: list[str] | None = None
    used: bool = True
    inputs: list[str] = field(default_factory=list)
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, without the entries that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, content: Any) -> Column:
        """Read what :meth:`to_json` gave; ValueError for anything else."""
        blank = cls("", "", "", 0, 0, range=[], levels=[])
        column: Column = from_plain(
            blank, content, ("name", "kind", "layout", "missing", "distinct"), "a column of a model card"
        )
        if not all(isinstance(text, str) for text in [*column.inputs, *(column.levels or [])]):
            raise ValueError(f"inputs and levels of a column of a model card must be texts, got {shown(content)}")
        if column.kind not in KINDS or not is_layout(column.kind, column.layout):
            raise ValueError(f"a column of a model card cannot hold {shown(column.kind)} as {shown(column.layout)}")
        known = {column.name, *(f"{column.name} {part}" for part in PARTS if column.kind == "date")}
        if strange := [name for name in column.inputs if name not in known]:
            raise ValueError(f"the column {shown(column.name)} of a model card has no input {shown(strange[0])}")
        return column

    def values(self, series: Any, first_row: int = 1) -> Any:
        """Values of a series as :func:`restt_app.workflow.layouts.parsed` gives them.

        ValueError for values of another kind than the column's; ``first_row`` is the number of the series' first row.
        """
        values, wrong = parsed(series, self.kind, self.layout)
        if not wrong.any():
            if self.kind == "number":
                _refuse_infinite(self.name, values, first_row)
            return values
        row = int(wrong.argmax())
        what = {"number": "numbers", "date": "dates", "boolean": self.layout.replace("/", " or ")}[self.kind]
        got = shown(series.iloc[row : row + 1].tolist()[0])
        message = f"column {self.name!r} must hold {what} as in the fit, got {got} in row {first_row + row}"
        if others := self._other_layouts(series.iloc[row : row + 1]):
            message += (
                f", where they are written as {self.layout}: write these so, or name their layout, "
                f"{remedy(self.name, others)}"
            )
        raise ValueError(message)

    def _other_layouts(self, series: Any) -> list[str]:
        """Layouts by which the value of a series of one row can be read, one for each reading."""
        readings: dict[float, str] = {}
        value = series.iloc[0]
        for kind, layout in candidates(value) if isinstance(value, str) else [("number", "1234.5")]:
            if kind == self.kind != "boolean":
                values, wrong = parsed(series, kind, layout)
                if not wrong.any():
                    readings.setdefault(float(values[0]), layout)
        return list(readings.values())

    def expanded(self, values: Any) -> dict[str, Any]:
        """Inputs of the model by name, from :meth:`values`."""
        if len(self.inputs) < 2:
            return {self.name: values}
        times = moments(values)
        parts = {
            self.name: values,
            f"{self.name} month": times.dt.month.to_numpy(dtype=np.float64, na_value=np.nan),
            f"{self.name} weekday": times.dt.day_of_week.to_numpy(dtype=np.float64, na_value=np.nan),
            f"{self.name} hour": 24.0 * (values - np.floor(values)),
        }
        return {name: parts[name] for name in self.inputs}


def from_plain(blank: Any, content: Any, needed: Sequence[str], what: str) -> Any:
    """A dataclass like ``blank`` from JSON whose entries have the same types; ValueError with ``what`` for others."""
    kinds = {entry.name: type(getattr(blank, entry.name)) for entry in fields(blank)}
    if not isinstance(content, dict):
        raise ValueError(f"{what} must be a JSON object, got {shown(content)}")
    if lacking := [name for name in needed if name not in content]:
        raise ValueError(f"{what} lacks {lacking[0]!r}, got {shown(content)}")
    if unknown := sorted(set(content) - set(kinds)):
        raise ValueError(f"{what} has no entry {unknown[0]!r}; it has {sorted(kinds)}")
    for name, value in content.items():
        kind = kinds[name]
        if not (type(value) is kind or (kind is float and type(value) is int)):
            raise ValueError(f"{name!r} of {what} must be a {kind.__name__}, got {shown(value)}")
    return type(blank)(**content)


def described(name: str, kind: str, layout: str, values: Any, *, keep: bool = False) -> Column:
    """Describe a whole column, and whether a model should have it; with ``keep`` it has it if it varies at all."""
    missing = int(pd.isna(values).sum())
    present = len(values) - missing
    content: dict[str, Any] = {}
    if kind in ("category", "boolean"):
        counts = pd.Series(values).value_counts()
        counts = counts[counts > 0].sort_values(ascending=False, kind="stable")
        distinct, content = len(counts), {"levels": [str(level) for level in counts.index[:LISTED_LEVELS]]}
    else:
        _refuse_infinite(name, values, 1)
        if (np.abs(values) > LARGEST).any():
            row = int((np.abs(values) > LARGEST).argmax())
            raise ValueError(
                f"column {name!r} holds {values[row]:g} in row {row + 1}, and numbers beyond {LARGEST:g} cannot be "
                "fitted to: correct it, or use other units"
            )
        unique = np.unique(values[~np.isnan(values)])
        distinct, content = len(unique), {"range": _ends(kind, unique)} if len(unique) else {}
    reason = ""
    if distinct == 0:
        reason = "holds nothing but missing values"
    elif distinct == 1 and missing == 0:
        reason = "has one value"
    elif keep or present < IDENTIFIER_ROWS:
        pass
    elif kind == "category" and distinct > IDENTIFIER_SHARE * present:
        reason = f"names the rows ({distinct} different texts in {present} rows)"
    elif kind == "number" and distinct == len(values) and _counts_rows(name, unique):
        reason = "numbers the rows"
    if reason:
        return Column(name, kind, layout, missing, distinct, **content, used=False, note=f"left out: {reason}")
    inputs, note = [name], "" if kind != "number" or layout in ("1234.5", WHOLE) else f"written as {layout}"
    if kind == "date":
        span = unique[-1] - unique[0]
        useful = {"month": span >= MONTH_DAYS, "weekday": span >= WEEK_DAYS, "hour": (unique % 1 != 0).any()}
        parts = [part for part in PARTS if useful[part]]
        inputs += [f"{name} {part}" for part in parts]
        note = "days since 1970" + "".join(f", {part} ({PARTS[part]})" for part in parts)
    return Column(name, kind, layout, missing, distinct, **content, inputs=inputs, note=note)


def _refuse_infinite(name: str, values: np.ndarray, first_row: int) -> None:
    if np.isinf(values).any():
        row = first_row + int(np.isinf(values).argmax())
        raise ValueError(f"column {name!r} holds an infinite value in row {row}: correct it, or leave it empty")


def _ends(kind: str, unique: np.ndarray) -> list[Any]:
    ends = [float(unique[0]), float(unique[-1])]
    if kind == "number":
        return ends
    return [moment.isoformat(sep=" ").removesuffix(" 00:00:00") for moment in moments(np.array(ends))]


def _counts_rows(name: str, unique: np.ndarray) -> bool:
    """Whether numbers, each in one row, are whole and count the rows from 0 or 1, or are called an id."""
    if (unique != np.round(unique)).any():
        return False
    counted = unique[0] in (0.0, 1.0) and unique[-1] - unique[0] == len(unique) - 1
    return bool(counted or _ID_NAME.search(name))


def check_column(argument: str, name: str, columns: Sequence[str]) -> None:
    """ValueError where the table has no such column."""
    if name not in columns:
        close = [column for column in columns if column.lower() == name.lower()]
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"{argument} names the column {name!r}, which is not there{hint}; there are {listed(columns)}")


def listed(names: Sequence[str]) -> str:
    """Names for a message, at most twelve."""
    return ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
