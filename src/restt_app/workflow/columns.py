"""Columns of a table: numbers, categories, booleans or dates, how their text becomes values, what the model gets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

from restt._common.errors import shown
from restt_app.workflow.layouts import WHOLE, candidates, is_layout, number_texts, remedy, split, to_floats

DASHES = ("-", "–", "—", "--", "---")  # missing values, but not where + stands against -
_CODE = r"0\d"  # 01234 is a code, such as that of a place, and no number
_ID_NAME = re.compile(r"(?:^|[\W_])(?:id|index|no|nr)$", re.IGNORECASE)
_QUICK = 50  # values tried before all are

# A column whose values nearly all differ names its rows; fewer rows than this say nothing.
IDENTIFIER_ROWS, IDENTIFIER_SHARE = 20, 0.5
LISTED_LEVELS = 100
MONTH_DAYS, WEEK_DAYS = 366, 14  # spans of dates from which the month and the weekday are worth a column each
# Part of a date -> how many there are, in the words of a note.
PARTS = {"month": "1 to 12", "weekday": "0 to 6 from Monday", "hour": "of the day"}
KINDS = ("number", "category", "boolean", "date", "unread")  # unread: dropped
_REQUIRED: dict[str, type] = {"name": str, "kind": str, "layout": str, "missing": int, "distinct": int}
_OPTIONAL: dict[str, type] = {"range": list, "levels": list, "used": bool, "inputs": list, "note": str}


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

    @classmethod
    def unread(cls, name: str) -> Column:
        """A column that was dropped before anything in it was looked at."""
        return cls(name, "unread", "text", 0, 0, used=False, note="left out: as asked")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, without the entries that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, content: Any) -> Column:
        """Read what :meth:`to_json` gave; ValueError for anything else."""
        if not isinstance(content, dict) or not set(_REQUIRED) <= set(content) <= {*_REQUIRED, *_OPTIONAL}:
            raise ValueError(f"a column of a model card has {', '.join(_REQUIRED)}, got {shown(content)}")
        for name, value in content.items():
            kind = {**_REQUIRED, **_OPTIONAL}[name]
            if type(value) is not kind:
                raise ValueError(f"{name!r} of a column of a model card must be a {kind.__name__}, got {shown(value)}")
        column = cls(**content)
        if not all(isinstance(text, str) for text in [*column.inputs, *(column.levels or [])]):
            raise ValueError(f"inputs and levels of a column of a model card must be texts, got {shown(content)}")
        if column.kind not in KINDS or not is_layout(column.kind, column.layout):
            raise ValueError(f"a column of a model card cannot hold {shown(column.kind)} as {shown(column.layout)}")
        known = {column.name, *(f"{column.name} {part}" for part in PARTS)}
        if strange := [name for name in column.inputs if name not in known]:
            raise ValueError(f"the column {shown(column.name)} of a model card has no input {shown(strange[0])}")
        return column

    def expanded(self, values: Any) -> dict[str, Any]:
        """Inputs of the model by name, from :meth:`values`."""
        if self.kind != "date" or len(self.inputs) < 2:
            return {self.name: values}
        parts = {self.name: values, **{f"{self.name} {part}": found for part, found in _date_parts(values).items()}}
        return {name: parts[name] for name in self.inputs}

    def values(self, series: Any, first_row: int = 1) -> Any:
        """Floats for numbers, days since 1970 for dates, a pandas Categorical of texts for categories.

        ValueError for values of another kind than the column's; ``first_row`` is the number of the series' first row.
        """
        values = parsed(series, self.kind, self.layout, codes=False)
        if values is not None:
            return values
        row, value = first_misfit(series, self.kind, self.layout, codes=False)
        what = {"number": "numbers", "date": "dates", "boolean": self.layout.replace("/", " or ")}[self.kind]
        message = f"column {self.name!r} must hold {what} as in the fit, got {shown(value)} in row {first_row + row}"
        if others := self._other_layouts(series.iloc[row : row + 1]):
            message += (
                f", where they are written as {self.layout}: write these so, or name their layout, "
                f"{remedy(self.name, others)}"
            )
        raise ValueError(message)

    def _other_layouts(self, series: Any) -> list[str]:
        """Layouts by which the value of a series of one row can be read, one for each reading."""
        readings: dict[float, str] = {}
        for kind, layout in candidates(series) if is_text(series) else [("number", "1234.5")]:
            if kind == self.kind != "boolean" and (values := parsed(series, kind, layout, codes=False)) is not None:
                readings.setdefault(float(values[0]), layout)
        return list(readings.values())


def parsed(series: Any, kind: str, layout: str, *, codes: bool = True) -> Any:
    """Values of a pandas series of stripped texts or of another type, see :meth:`Column.values`; None for a misfit.

    With ``codes``, whole numbers of which some begin with 0 do not fit numbers.

    >>> parsed(pd.Series(["1,5", None]), "number", "1234,5")
    array([1.5, nan])
    >>> parsed(pd.Series(["1,5", "x"]), "number", "1234,5") is None
    True
    """
    if not is_text(series):
        bare = kind != "number" or split(layout)[::2] == ("", "") or series.isna().all()
        return _typed(series, kind) if bare else None
    if kind != "category" and len(series) > _QUICK:
        first = series[series.notna()].iloc[:_QUICK]
        if parsed(first, kind, layout, codes=codes) is None:
            return None
    there = np.array(series.notna(), dtype=bool)
    if layout != "+/-":
        there &= ~np.asarray(series.isin(DASHES))
    if kind == "category":
        return pd.Categorical(series.where(there))
    if kind == "boolean":
        lower, states = series.str.lower(), layout.split("/")
        fits = lower[there].isin(states).all()
        return pd.Categorical(lower.where(there), categories=sorted(states)) if fits else None
    values = np.full(len(series), np.nan)
    values[there] = _numbers(series[there], layout, codes) if kind == "number" else _dates(series[there], layout)
    return None if np.isnan(values[there]).any() else values


def _numbers(texts: Any, layout: str, codes: bool) -> Any:
    """Floats; NaN for all where some text does not fit."""
    plain = number_texts(texts, layout)
    if plain is None:
        return np.nan
    numbers = to_floats(plain)
    if codes and len(numbers) and (numbers == np.round(numbers)).all() and plain.str.match(_CODE).any():
        return np.nan
    return numbers


def _dates(texts: Any, layout: str) -> Any:
    """Days since 1970; NaN where a text does not fit."""
    # Every date has a digit: asked first, as most columns of text are none, and "today" would be read as one.
    if len(texts) and not any(character.isdigit() for character in texts.iloc[0]):
        return np.nan
    return _days(pd.to_datetime(texts, format=layout, errors="coerce", utc=True))


def is_text(series: Any) -> bool:
    """Whether a series holds text, missing values aside."""
    if isinstance(series.dtype, pd.StringDtype):
        return True
    return series.dtype == object and all(isinstance(value, str) for value in series[series.notna()])


def _typed(series: Any, kind: str) -> Any:
    """Values of a column with a type of its own, as a data frame's or Parquet's have; None where they do not fit."""
    own = typed_kind(series)
    if kind == "category":
        return pd.Categorical(_texts(series))
    if kind == own == "boolean":
        return pd.Categorical(_texts(series), categories=["false", "true"])
    if kind == own == "date":
        return _days(pd.to_datetime(series, utc=True))
    if kind == "number" and own in ("number", "boolean"):
        return series.astype(object).where(series.notna(), np.nan).to_numpy().astype(np.float64)
    return None


def typed_kind(series: Any) -> str:
    """Kind by a series' own type; text is category."""
    if isinstance(series.dtype, pd.CategoricalDtype):
        return "category"
    if is_bool_dtype(series.dtype):
        return "boolean"
    if is_datetime64_any_dtype(series.dtype):
        return "date"
    if is_numeric_dtype(series.dtype) and getattr(series.dtype, "kind", "f") != "c":
        return "number"
    present = series[series.notna()]
    if series.dtype != object or any(isinstance(value, (list, dict, tuple, set, np.ndarray)) for value in present):
        raise ValueError(f"column {series.name!r} holds values of type {series.dtype}, which no model takes: drop it")
    if all(isinstance(value, (bool, np.bool_)) for value in present):
        return "boolean"
    try:
        present.to_numpy().astype(np.float64)
    except (TypeError, ValueError):
        texts = np.array([isinstance(value, str) for value in series])
        if texts.any() and not texts[series.notna()].all():
            row = int(texts.argmax())
            raise ValueError(mixed(str(series.name), row + 1, series.iloc[row])) from None
        return "date" if all(hasattr(value, "year") for value in present) else "category"
    return "number"


def _texts(series: Any) -> list[str | None]:
    return [_text(value) if there else None for value, there in zip(series.tolist(), series.notna(), strict=True)]


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _days(times: Any) -> np.ndarray:
    return np.asarray((times - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1), dtype=np.float64)


def _date_parts(days: np.ndarray) -> dict[str, np.ndarray]:
    times = pd.Series(pd.to_datetime(days, unit="D", origin="unix"))
    return {
        "month": times.dt.month.to_numpy(dtype=np.float64, na_value=np.nan),
        "weekday": times.dt.day_of_week.to_numpy(dtype=np.float64, na_value=np.nan),
        "hour": 24.0 * (days - np.floor(days)),
    }


def first_misfit(series: Any, kind: str, layout: str, *, codes: bool = True) -> tuple[int, Any]:
    """Place and value of the first entry of a series that is not of this kind and layout, by bisection."""
    begin, end = 0, len(series)
    while end - begin > 1:
        middle = (begin + end) // 2
        if parsed(series.iloc[begin:middle], kind, layout, codes=codes) is None:
            end = middle
        else:
            begin = middle
    return begin, series.iloc[begin : begin + 1].tolist()[0]


def mixed(name: str, row: int, value: Any) -> str:
    """The message for a column of numbers with text among them."""
    text = shown(value)
    return (
        f"column {name!r} holds numbers and text, such as {text} in row {row}: correct it, or pass missing=[{text}] "
        f"(--missing {text}) if that means a missing value, or category=[{name!r}] (--category) to take categories"
    )


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
        if np.isinf(values).any():
            row = int(np.flatnonzero(np.isinf(values))[0]) + 1
            raise ValueError(f"column {name!r} holds an infinite value in row {row}: correct it, or leave it empty")
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
        parts = _useful_parts(unique)
        inputs += [f"{name} {part}" for part in parts]
        note = "days since 1970" + "".join(f", {part} ({PARTS[part]})" for part in parts)
    return Column(name, kind, layout, missing, distinct, **content, inputs=inputs, note=note)


def _ends(kind: str, unique: np.ndarray) -> list[Any]:
    ends = [float(unique[0]), float(unique[-1])]
    if kind == "number":
        return ends
    return [pd.Timestamp(day, unit="D").isoformat(sep=" ").removesuffix(" 00:00:00") for day in ends]


def _counts_rows(name: str, unique: np.ndarray) -> bool:
    """Whether numbers, each in one row, are whole and count the rows from 0 or 1, or are called an id."""
    if (unique != np.round(unique)).any():
        return False
    counted = unique[0] in (0.0, 1.0) and unique[-1] - unique[0] == len(unique) - 1
    return bool(counted or _ID_NAME.search(name))


def _useful_parts(days: np.ndarray) -> list[str]:
    span = days.max() - days.min()
    useful = {"month": span >= MONTH_DAYS, "weekday": span >= WEEK_DAYS, "hour": (days != np.floor(days)).any()}
    return [part for part in PARTS if useful[part]]


def exact(kind: str, layout: str, values: Sequence[Any]) -> list[Any]:
    """Meanings of labels, to be compared: numbers to the last digit, booleans whatever the case, else texts.

    >>> exact("number", "1234.5", ["9007199254740993", "1.0", 1]), exact("boolean", "yes/no", ["Yes"])
    ([Decimal('9007199254740993'), Decimal('1.0'), Decimal('1')], ['yes'])
    """
    if kind == "number":
        texts = [value for value in values if isinstance(value, str)]
        plain = iter(number_texts(pd.Series(texts, dtype=object), layout) if texts else ())
        return [Decimal(next(plain) if isinstance(value, str) else str(+value)) for value in values]
    return [_text(value).lower() if kind == "boolean" else _text(value) for value in values]
