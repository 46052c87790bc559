"""What a column holds (numbers, categories, yes or no, dates), how its text becomes values, what the model gets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

from restt._common.errors import shown
from restt_app.workflow.layouts import BOOLEANS, DATES, TEXT, WHOLE, candidates, number_texts, remedy, split, to_floats

DASHES = ("-", "–", "—", "--", "---")  # missing values, but not where + stands against -
_CODE = r"0\d"  # 01234 is a code, such as that of a place, and no number
_ID_NAME = re.compile(r"(?:^|[\W_])(?:id|index|no|nr)$", re.IGNORECASE)
_QUICK = 50  # values tried before all are

# More different texts than this of which at least half are numbers: numbers with something else among them.
MIXED_LEVELS, MIXED_SHARE = 20, 0.5
# A column whose values nearly all differ names its rows; fewer rows than this say nothing.
IDENTIFIER_ROWS, IDENTIFIER_SHARE = 20, 0.5
LISTED_LEVELS = 100
MONTH_DAYS, WEEK_DAYS = 366, 14  # spans of dates from which the month and the weekday are worth a column each
# Part of a date -> how many there are, in the words of a note.
PARTS = {"month": "1 to 12", "weekday": "0 to 6 from Monday", "hour": "of the day"}

UNREAD = "unread"  # the kind of a dropped column
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
    def unread(cls, name: str, note: str) -> Column:
        """A column that was dropped before anything in it was looked at."""
        return cls(name, UNREAD, "text", 0, 0, used=False, note=note)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, content: Any) -> Column:
        """The column that :meth:`to_json` gave; ValueError for what is none."""
        if not isinstance(content, dict) or not set(_REQUIRED) <= set(content) <= {*_REQUIRED, *_OPTIONAL}:
            raise ValueError(f"a column of a model card has {', '.join(_REQUIRED)}, got {shown(content)}")
        for name, value in content.items():
            kind = {**_REQUIRED, **_OPTIONAL}[name]
            if type(value) is not kind:
                raise ValueError(f"{name!r} of a column of a model card must be a {kind.__name__}, got {shown(value)}")
        found = cls(**content)
        if not all(isinstance(text, str) for text in [*found.inputs, *(found.levels or [])]):
            raise ValueError(f"inputs and levels of a column of a model card must be texts, got {shown(content)}")
        if not _is_layout(found.kind, found.layout) or (found.used and found.kind == UNREAD):
            raise ValueError(f"a column of a model card cannot hold {shown(found.kind)} as {shown(found.layout)}")
        known = {found.name, *(f"{found.name} {part}" for part in PARTS)}
        if strange := [name for name in found.inputs if name not in known]:
            raise ValueError(f"the column {shown(found.name)} of a model card has no input {shown(strange[0])}")
        return found

    def expanded(self, values: Any) -> dict[str, Any]:
        """What the model gets of these :meth:`values`, by the names of its inputs."""
        if self.kind != "date" or len(self.inputs) < 2:
            return {self.name: values}
        parts = _date_parts(values)
        return {
            name: values if name == self.name else parts[name.removeprefix(f"{self.name} ")] for name in self.inputs
        }

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

    def _other_layouts(self, one: Any) -> list[str]:
        """The layouts by which a value can be read, one for each reading."""
        found: dict[float, str] = {}
        for kind, layout in candidates(one) if is_text(one) else [("number", "1234.5")]:
            if kind == self.kind != "boolean" and (read := parsed(one, kind, layout, codes=False)) is not None:
                found.setdefault(float(read[0]), layout)
        return list(found.values())


def _is_layout(kind: str, layout: str) -> bool:
    if kind != "number":
        return layout in {"category": TEXT[1:], UNREAD: TEXT[1:], "boolean": BOOLEANS, "date": DATES}.get(kind, ())
    try:
        split(layout)
    except ValueError:
        return False
    return True


def parsed(series: Any, kind: str, layout: str, *, codes: bool = True) -> Any:
    """The values of a pandas series, as :meth:`Column.values` has them; None where some do not fit.

    With ``codes``, whole numbers of which some begin with 0 do not fit numbers.

    >>> import pandas as pd
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
    there = np.array(series.notna(), dtype=bool) if layout == "+/-" else present(series)
    values = _parsed_text(series[there], kind, layout, codes)
    if values is None or kind == "category":
        return values if values is None else pd.Categorical(series.str.strip().where(there))
    if kind == "boolean":
        return pd.Categorical(series.str.strip().str.lower().where(there), categories=sorted(layout.split("/")))
    filled = np.full(len(series), np.nan)
    filled[there] = values
    return filled


def present(series: Any) -> np.ndarray:  # (B,)
    """Where a series of texts has a value: a dash is none."""
    there = np.array(series.notna(), dtype=bool)
    dashed = np.asarray(series.str.startswith(tuple(dash[0] for dash in DASHES), na=False), dtype=bool)
    there[dashed] = ~np.asarray(series[dashed].str.strip().isin(DASHES))
    return there


def _parsed_text(present: Any, kind: str, layout: str, codes: bool) -> Any:
    """Numbers of values that are all there; for categories and booleans something that is not None."""
    if kind == "category":
        return present
    if kind == "boolean":
        return present if present.str.strip().str.lower().isin(layout.split("/")).all() else None
    if kind == "date":
        # Every date has a digit: asked first, as most columns of text are none, and "today" would be read as one.
        if len(present) and not any(character.isdigit() for character in present.iloc[0]):
            return None
        times = pd.to_datetime(present.str.strip(), format=layout, errors="coerce", utc=True)
        return None if times.isna().any() else _days(times)
    texts = number_texts(present, layout)
    if texts is None:
        return None
    numbers = to_floats(texts)
    if np.isnan(numbers).any():
        return None
    if codes and len(numbers) and (numbers == np.round(numbers)).all() and texts.str.match(_CODE).any():
        return None
    return numbers


def is_text(series: Any) -> bool:
    """Whether a series holds text, missing values aside."""
    if isinstance(series.dtype, pd.StringDtype):
        return True
    return series.dtype == object and all(isinstance(value, str) for value in series[series.notna()])


def _typed(series: Any, kind: str) -> Any:
    """Values of a column with a type of its own, as a data frame's or Parquet's have; None where they do not fit."""
    found = typed_kind(series)
    if kind == "category":
        return pd.Categorical(_texts(series))
    if kind == "boolean" and found == "boolean":
        return pd.Categorical(_texts(series), categories=["false", "true"])
    if kind == "date" and found == "date":
        return _days(pd.to_datetime(series, utc=True))
    if kind == "number" and found in ("number", "boolean"):
        return series.astype(object).where(series.notna(), np.nan).to_numpy().astype(np.float64)
    return None


def typed_kind(series: Any) -> str:
    """The kind that a series' own type says; text is category."""
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
        kinds = {isinstance(value, str) for value in present}
        if kinds == {True, False}:
            row, value = next((row, value) for row, value in enumerate(series, 1) if isinstance(value, str))
            raise ValueError(mixed(str(series.name), row, value)) from None
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
    hours = 24.0 * (days - np.floor(days))
    return {
        "month": times.dt.month.to_numpy(dtype=np.float64, na_value=np.nan),
        "weekday": times.dt.day_of_week.to_numpy(dtype=np.float64, na_value=np.nan),
        "hour": hours,
    }


def first_misfit(series: Any, kind: str, layout: str, *, codes: bool = True) -> tuple[int, Any]:
    """Place and value of the first entry of a series that is not of this kind and layout."""
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
    """What a whole column holds, and whether a model should have it; with ``keep`` it has it if it varies at all."""
    if kind in ("category", "boolean"):
        return _described_levels(name, kind, layout, values, keep)
    present = values[~np.isnan(values)]
    missing, unique = len(values) - len(present), np.unique(present)
    if np.isinf(present).any():
        row = int(np.flatnonzero(np.isinf(values))[0]) + 1
        raise ValueError(f"column {name!r} holds an infinite value in row {row}: correct it, or leave it empty")
    ends = [float(unique[0]), float(unique[-1])] if len(unique) else None
    reason = _constant(len(unique), missing)
    inputs, note = [name], ""
    if kind == "date" and ends is not None:
        parts = _useful_parts(present)
        inputs += [f"{name} {part}" for part in parts]
        note = "days since 1970" + "".join(f", {part} ({PARTS[part]})" for part in parts)
        ends = [pd.Timestamp(day, unit="D").isoformat(sep=" ").removesuffix(" 00:00:00") for day in ends]
    elif kind == "number":
        note = "" if layout in ("1234.5", WHOLE) else f"written as {layout}"
        if not keep and not reason and _numbers_rows(name, unique, len(values)):
            reason = "numbers the rows"
    if reason:
        return Column(name, kind, layout, missing, len(unique), ends, used=False, note=f"left out: {reason}")
    return Column(name, kind, layout, missing, len(unique), ends, inputs=inputs, note=note)


def _described_levels(name: str, kind: str, layout: str, values: Any, keep: bool) -> Column:
    counts = values.value_counts()
    counts = counts[counts > 0].sort_values(ascending=False, kind="stable")
    counts = counts[counts.index.notna()]
    rows, missing = len(values), int(values.isna().sum())
    present = rows - missing
    reason = _constant(len(counts), missing)
    if (
        kind == "category"
        and not (keep or reason)
        and present >= IDENTIFIER_ROWS
        and len(counts) > IDENTIFIER_SHARE * present
    ):
        reason = f"names the rows ({len(counts)} different texts in {present} rows)"
    levels = [str(level) for level in counts.index[:LISTED_LEVELS]]
    if reason:
        return Column(name, kind, layout, missing, len(counts), levels=levels, used=False, note=f"left out: {reason}")
    return Column(name, kind, layout, missing, len(counts), levels=levels, inputs=[name])


def exact(kind: str, layout: str, values: Sequence[Any]) -> list[Any]:
    """What values of a column mean, to be compared: numbers to the last digit, yes or no whatever the case, else texts.

    >>> exact("number", "1234.5", ["9007199254740993", "1.0", 1]), exact("boolean", "yes/no", ["Yes"])
    ([Decimal('9007199254740993'), Decimal('1.0'), Decimal('1')], ['yes'])
    """
    if kind == "number":
        texts = [value for value in values if isinstance(value, str)]
        plain = iter(number_texts(pd.Series(texts, dtype=object), layout) if texts else ())
        return [Decimal((next(plain) if isinstance(value, str) else str(+value)).strip()) for value in values]
    return [_text(value).strip().lower() if kind == "boolean" else _text(value).strip() for value in values]


def left_out(columns: Iterable[Column]) -> list[str]:
    """A line for each column that the model does not get, and why."""
    return [f"column {column.name!r} is {column.note}" for column in columns if not column.used]


def _constant(distinct: int, missing: int) -> str:
    if distinct == 0:
        return "holds nothing but missing values"
    return "has one value" if distinct == 1 and missing == 0 else ""


def _numbers_rows(name: str, unique: np.ndarray, rows: int) -> bool:
    """Whether different whole numbers count the rows from 0 or 1, or are called an id."""
    if len(unique) < max(rows, IDENTIFIER_ROWS) or (unique != np.round(unique)).any():
        return False
    counted = unique[0] in (0.0, 1.0) and unique[-1] - unique[0] == rows - 1
    return bool(counted or _ID_NAME.search(name))


def _useful_parts(days: np.ndarray) -> list[str]:
    span = days.max() - days.min()
    hours = bool((days != np.floor(days)).any())
    return [
        part
        for part, worth in (("month", span >= MONTH_DAYS), ("weekday", span >= WEEK_DAYS), ("hour", hours))
        if worth
    ]
