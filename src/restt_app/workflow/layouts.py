"""Layouts of text: decimal and thousands signs, units, orders of dates; values of a column read by its layout."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype
from pandas.tseries.api import guess_datetime_format

from restt._common.errors import shown

Layout = str | Sequence[str] | Mapping[str, str]

WHOLE = "1234"  # whole numbers of a table that shows no decimal sign anywhere
# How numbers are written -> (thousands sign, decimal sign). A unit may stand around it: "$1,234.5", "1234.5 kg".
NUMBERS = {
    "1234.5": ("", "."),
    "1234,5": ("", ","),
    "1.234,5": (".", ","),
    "1,234.5": (",", "."),
    "1 234.5": (" ", "."),
    "1 234,5": (" ", ","),
    "1'234.5": ("'", "."),
    WHOLE: ("", ""),
}
BOOLEANS = ("true/false", "yes/no", "+/-")
ISO = "ISO8601"
TEXT = ("category", "text")
DASHES = ("-", "–", "—", "--", "---")  # missing values, but not where + stands against -
# What fits the one may fit the other: 1,234 and 1.234 have two meanings, 1 234 shows no decimal sign.
_RIVALS = {"1234.5": "1.234,5", "1234,5": "1,234.5", "1 234.5": "1 234,5"}
_DAY_ORDER = re.compile(r"%([dm])([/-])%([dm])(?=\2)")

_MONEY = (
    r"(?:[A-Z]{0,3}[$€£¥₹₽₩₺₴₫₪₦฿]|(?:USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN)|Fr\.)"
)
_UNIT = rf"(?:{_MONEY}|[%‰]|°?[^\W\d_]{{1,12}}[23]?(?:/[^\W\d_]{{1,12}}[23]?)?)"
_DIGITS = r"(?:\d[\d.,'’\s]*|[.,]\d+)(?:[eE][+-]?\d+)?"
_NEGATIVE = re.compile(r"^−|^\((?=[^()]*\d)([^()]*)\)$")  # the minus sign that is no hyphen, and accountants'
_MARKED = re.compile(rf"[+-]?\s*(?P<before>{_MONEY})?\s*[+-]?{_DIGITS}\s*(?P<behind>{_UNIT})?")


def split(layout: str) -> tuple[str, str, str]:
    """Unit before a number, layout of the number, unit behind it; ValueError for what is no layout of numbers.

    >>> split("$1,234.5"), split("1234 kg")
    (('$', '1,234.5', ''), ('', '1234', 'kg'))
    """
    for core in sorted(NUMBERS, key=len, reverse=True):
        before, between, behind = (part.strip() for part in layout.partition(core))
        if between and re.fullmatch(f"(?:{_MONEY})?", before) and re.fullmatch(f"(?:{_UNIT})?", behind):
            return before, core, behind
    raise ValueError(f"no layout of numbers: {layout!r}")


def joined(before: str, core: str, behind: str) -> str:
    """Layout of a number with its units, the inverse of :func:`split`."""
    return before + core + (f" {behind}" if behind[:1].isalpha() else behind)


def is_layout(kind: str, layout: str) -> bool:
    """Whether columns of this kind can be written in this layout."""
    if kind == "date":
        return layout == ISO or {"%Y", "%m", "%d"} <= set(re.findall("%.", re.sub("%[bB]", "%m", layout)))
    if kind != "number":
        return layout in (BOOLEANS if kind == "boolean" else TEXT[1:])
    try:
        split(layout)
    except ValueError:
        return False
    return True


def decimal_sign(layout: str) -> str:
    """Decimal sign of a layout of numbers; empty for whole numbers."""
    return NUMBERS[split(layout)[1]][1]


def day_order(layout: str) -> str:
    """``"d"`` or ``"m"``, what comes first in a layout of dates whose days and months can be confused, else ``""``.

    >>> day_order("%m/%d/%Y"), day_order("%d.%m.%Y")
    ('m', '')
    """
    match = _DAY_ORDER.match(layout)
    return match[1] if match else ""


def is_money(layout: str) -> bool:
    """Whether the unit of a layout of numbers is a currency."""
    before, _, behind = split(layout)
    return bool(before or re.fullmatch(_MONEY, behind))


def rival(kind: str, layout: str) -> str | None:
    """Another layout that values of this one may fit as well."""
    if kind == "number":
        before, core, behind = split(layout)
        return joined(before, _RIVALS[core], behind) if core in _RIVALS else None
    return _DAY_ORDER.sub(r"%\3\2%\1", layout) if kind == "date" and day_order(layout) else None


def candidates(text: str) -> list[tuple[str, str]]:
    """Kinds and layouts that a text may have, in the order in which they are tried.

    >>> candidates("31/12/2024")[-2:]
    [('date', '%d/%m/%Y'), ('category', 'text')]
    """
    match = _MARKED.fullmatch(_NEGATIVE.sub(r"-\1", text))
    units = {("", ""), (match["before"] or "", match["behind"] or "")} if match else {("", "")}
    numbers = [joined(before, core, behind) for before, behind in sorted(units) for core in NUMBERS if core != WHOLE]
    dates = [ISO] if re.match(r"\d{4}-?\d", text) else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # both orders are asked for
        guessed = (guess_datetime_format(text, dayfirst=first) for first in (True, False))
        dates += [layout for layout in guessed if layout and is_layout("date", layout) and "%Y-%d" not in layout]
    dates += [layout.replace("%B", "%b") for layout in dates]  # May is its own abbreviation
    pairs = {"number": numbers, "boolean": BOOLEANS, "date": dict.fromkeys(dates)}
    return [*((kind, layout) for kind, layouts in pairs.items() for layout in layouts), TEXT]


def parsed(series: Any, kind: str, layout: str) -> tuple[Any, np.ndarray]:
    """Values of a pandas series of stripped texts or of another type, and where (B,) they do not fit the layout.

    Values are floats for numbers, days since 1970 for dates, a pandas Categorical of texts for categories and booleans.

    >>> parsed(pd.Series(["1,5", None, "x"]), "number", "1234,5")
    (array([1.5, nan, nan]), array([False, False,  True]))
    """
    there = np.array(series.notna(), dtype=bool)
    if not is_text(series):
        return _parsed_typed(series, kind, layout, there)
    if layout != "+/-":
        there &= ~np.asarray(series.isin(DASHES))
    if kind == "category":
        return pd.Categorical(series.where(there)), np.zeros(len(series), dtype=bool)
    if kind == "boolean":
        lower, states = series.str.lower(), sorted(layout.split("/"))
        known = np.asarray(lower.isin(states))
        return pd.Categorical(lower.where(there & known), categories=states), there & ~known
    values = np.full(len(series), np.nan)
    values[there] = _numbers(series[there], layout) if kind == "number" else _dates(series[there], layout)
    return values, there & np.isnan(values)


def _numbers(texts: Any, layout: str) -> np.ndarray:
    """Numbers of texts, none missing; NaN for one that does not fit the layout."""
    before, core, behind = split(layout)
    thousands, decimal = NUMBERS[core]
    if texts.str.startswith(("−", "(")).any():
        texts = texts.str.replace(_NEGATIVE, lambda match: f"-{match[1] or ''}", regex=True)
    if before or behind or thousands:
        texts = texts.str.replace("[\u00a0\u2009\u202f]", " ", regex=True).str.replace("’", "'", regex=False)
    if before or behind:
        parts = texts.str.extract(rf"^([+-]?)\s*{re.escape(before)}\s*([+-]?{_DIGITS})\s*{re.escape(behind)}$")
        texts = (parts[0] + parts[1]).str.strip().fillna("")
    wrong = np.zeros(len(texts), dtype=bool)
    if core == WHOLE:
        wrong = _matches(texts, _grouped(".", ","))  # 1.234 may be a thousand and more
    elif thousands:
        grouped = np.asarray(texts.str.contains(thousands, regex=False), dtype=bool)
        wrong = grouped & ~_matches(texts, _grouped(thousands, decimal))
        texts = texts.str.replace(thousands, "", regex=False)
    if decimal == ",":
        wrong |= np.asarray(texts.str.contains(".", regex=False), dtype=bool)
        texts = texts.str.replace(",", ".", regex=False)
    numbers = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(wrong, np.nan, numbers)


def _matches(texts: Any, pattern: str) -> np.ndarray:
    return np.asarray(texts.str.fullmatch(pattern), dtype=bool)


def _grouped(thousands: str, decimal: str) -> str:
    return rf"[+-]?[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+(?:{re.escape(decimal)}\d+)?"


def _dates(texts: Any, layout: str) -> np.ndarray:
    """Days since 1970; NaN where a text does not fit. "today" has no digit, and pandas would read it."""
    texts = texts.where(texts.str.contains(r"\d"))
    return _days(pd.to_datetime(texts, format=layout, errors="coerce", utc=True))


def _days(times: Any) -> np.ndarray:
    # In seconds: nanoseconds reach from 1677 to 2262 only.
    return np.asarray((times - pd.Timestamp(0, unit="s", tz="UTC")) / pd.Timedelta(days=1), dtype=np.float64)


def moments(days: np.ndarray) -> Any:  # (B,)
    """Times of days since 1970 as a pandas series, to the millisecond, which floats hold in any year of four digits.

    >>> moments(np.array([-354284.25, np.nan]))[0]
    Timestamp('1000-01-01 18:00:00')
    """
    times = np.full(days.shape, np.datetime64("NaT", "ms"))
    there = ~np.isnan(days)
    times[there] = np.round(days[there] * 86_400e3).astype("int64").astype("datetime64[ms]")
    return pd.Series(times)


def is_text(series: Any) -> bool:
    """Whether a series holds text, missing values aside."""
    if isinstance(series.dtype, pd.StringDtype):
        return True
    return series.dtype == object and all(isinstance(value, str) for value in series[series.notna()])


def _parsed_typed(series: Any, kind: str, layout: str, there: np.ndarray) -> tuple[Any, np.ndarray]:
    """Parse a column that has a type of its own, as in data frames and Parquet files."""
    own, fits = typed_kind(series), np.zeros(len(series), dtype=bool)
    if kind == "category":
        texts = [label_text(value) if known else None for value, known in zip(series.tolist(), there, strict=True)]
        return pd.Categorical(texts), fits
    if kind == own == "boolean":
        yes, no = layout.split("/")
        texts = [(yes if value else no) if known else None for value, known in zip(series, there, strict=True)]
        return pd.Categorical(texts, categories=sorted((yes, no))), fits
    if kind == own == "date":
        return _days(pd.to_datetime(series, utc=True)), fits
    if kind == "number" and own in ("number", "boolean") and split(layout)[::2] == ("", ""):
        return series.astype(object).where(series.notna(), np.nan).to_numpy().astype(np.float64), fits
    return np.full(len(series), np.nan), there


def typed_kind(series: Any) -> str:
    """Kind by a series' own type; what is neither numbers, booleans nor dates is category."""
    if isinstance(series.dtype, pd.CategoricalDtype):
        return "category"
    if is_bool_dtype(series.dtype):
        return "boolean"
    if is_datetime64_any_dtype(series.dtype):
        return "date"
    if is_numeric_dtype(series.dtype) and getattr(series.dtype, "kind", "f") != "c":
        return "number"
    inferred = pd.api.types.infer_dtype(series, skipna=True)
    if inferred in ("integer", "floating", "mixed-integer-float", "decimal", "empty"):
        return "number"
    if inferred in ("boolean", "date", "datetime"):
        return "boolean" if inferred == "boolean" else "date"
    texts = np.array([isinstance(value, str) for value in series])
    if not texts.any():
        raise ValueError(f"column {series.name!r} holds values of type {series.dtype}, which no model takes: drop it")
    raise ValueError(mixed(str(series.name), int(texts.argmax()) + 1, series.iloc[int(texts.argmax())]))


def label_text(value: Any) -> str:
    """A value as the text of a category.

    >>> label_text(True), label_text(2.0), label_text("x")
    ('true', '2', 'x')
    """
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def mixed(name: str, row: int, value: Any) -> str:
    """The message for a column of numbers with text among them."""
    text = shown(value)
    return (
        f"column {name!r} holds numbers and text, such as {text} in row {row}: correct it, or pass missing=[{text}] "
        f"(--missing {text}) if that means a missing value, or category=[{name!r}] (--category) to take categories"
    )


@dataclass(frozen=True)
class Given:
    """Layouts that a caller named: of single columns, and of all other numbers and dates."""

    columns: dict[str, tuple[str, str]] = field(default_factory=dict)
    table: dict[str, str] = field(default_factory=dict)


def given_layouts(layout: Layout) -> Given:
    """Read layouts from texts such as ``"1,234.5"``, ``"m/d/Y"`` or ``"price=1234,5"``, or a mapping of columns.

    >>> given_layouts(["price=1234,5", "m/d/Y"])
    Given(columns={'price': ('number', '1234,5')}, table={'date': '%m/%d/%Y'})
    """
    if isinstance(layout, Mapping):
        layout = [f"{name}={text}" for name, text in layout.items()]
    given = Given()
    for text in [layout] if isinstance(layout, str) else layout:
        name, equals, rest = str(text).rpartition("=")
        kind, known = _known(rest.strip())
        if equals:
            given.columns[name] = kind, known
        else:
            given.table[kind] = known
    return given


def _known(text: str) -> tuple[str, str]:
    if is_layout("number", text):
        return "number", joined(*split(text))
    date = text if text == ISO else re.sub(r"%?([A-Za-z])", r"%\1", text)
    if not is_layout("date", date):
        raise ValueError(
            f"layout must say how numbers are written, one of {', '.join(NUMBERS)} and a unit around it, or dates, "
            f"such as d/m/Y or %m/%d/%Y; COLUMN= in front is for one column; got {shown(text)}"
        )
    return "date", date


def remedy(name: str, layouts: Iterable[str]) -> str:
    """How a caller names the layout of a column, for messages."""
    ways = [f"{name}={layout.replace('%', '') if is_layout('date', layout) else layout}" for layout in layouts]
    return " or ".join(f"layout=[{way!r}] (--layout {shlex.quote(way)})" for way in ways)
