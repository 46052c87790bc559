"""Layouts of text: decimal and thousands signs, units, the order of dates, and what can be read in two ways."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from restt._common.errors import shown

Layout = str | Sequence[str] | Mapping[str, str]

# How numbers are written -> (thousands sign, decimal sign). A unit may stand around it: "$1,234.5", "1234.5 kg".
NUMBERS = {
    "1234.5": ("", "."),
    "1234,5": ("", ","),
    "1.234,5": (".", ","),
    "1,234.5": (",", "."),
    "1 234.5": (" ", "."),
    "1 234,5": (" ", ","),
    "1'234.5": ("'", "."),
}
WHOLE = "1234"  # whole numbers of a table that shows no decimal sign anywhere
BOOLEANS = ("true/false", "yes/no", "+/-")
_TIMES = ("", " %H:%M", " %H:%M:%S")  # UTC where a time names no zone
_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d")
DATES = ("ISO8601", *(day + time for time in _TIMES for day in _DAYS), "%d %b %Y", "%d-%b-%Y")
TEXT = ("category", "text")
# The order in which layouts are tried; the first that fits all values of a column is taken.
PLAIN = (
    *(("number", layout) for layout in NUMBERS),
    *(("boolean", layout) for layout in BOOLEANS),
    *(("date", layout) for layout in DATES),
)
# What fits the one may fit the other: 1,234 and 1.234 have two meanings, 1 234 shows no decimal sign.
_RIVALS = {"1234.5": "1.234,5", "1234,5": "1,234.5", "1 234.5": "1 234,5"}
DAY_ORDERS = ("%d/%m", "%m/%d", "%d-%m", "%m-%d")

_MONEY = (
    r"(?:[A-Z]{0,3}[$€£¥₹₽₩₺₴₫₪₦฿]|(?:USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN)|Fr\.)"
)
_UNIT = rf"(?:{_MONEY}|[%‰]|°?[^\W\d_]{{1,12}}[23]?(?:/[^\W\d_]{{1,12}}[23]?)?)"
_DIGITS = r"(?:\d[\d.,'’\s]*|[.,]\d+)(?:[eE][+-]?\d+)?"
_MARKED = re.compile(rf"[+-]?\s*(?P<before>{_MONEY})?\s*[+-]?{_DIGITS}\s*(?P<behind>{_UNIT})?")
_WIDE_SPACES = "[\u00a0\u2009\u202f]"


def split(layout: str) -> tuple[str, str, str]:
    """Unit before a number, layout of the number, unit behind it; ValueError for what is no layout of numbers.

    >>> split("$1,234.5"), split("1234 kg")
    (('$', '1,234.5', ''), ('', '1234', 'kg'))
    """
    for core in sorted((*NUMBERS, WHOLE), key=len, reverse=True):
        before, between, behind = layout.partition(core)
        before, behind = before.strip(), behind.strip()
        if between and re.fullmatch(f"(?:{_MONEY})?", before) and re.fullmatch(f"(?:{_UNIT})?", behind):
            return before, core, behind
    raise ValueError(f"no layout of numbers: {layout!r}")


def joined(before: str, core: str, behind: str) -> str:
    """Layout of a number with its units, the inverse of :func:`split`."""
    return before + core + (f" {behind}" if behind[:1].isalpha() else behind)


def is_layout(kind: str, layout: str) -> bool:
    """Whether columns of this kind can be written in this layout."""
    if kind != "number":
        return layout in {"boolean": BOOLEANS, "date": DATES}.get(kind, TEXT[1:])
    try:
        split(layout)
    except ValueError:
        return False
    return True


def decimal_sign(layout: str) -> str:
    """Decimal sign of a layout of numbers; empty for whole numbers."""
    return NUMBERS.get(split(layout)[1], ("", ""))[1]


def is_money(layout: str) -> bool:
    """Whether the unit of a layout of numbers is a currency."""
    before, _, behind = split(layout)
    return bool(before or re.fullmatch(_MONEY, behind))


def rival(kind: str, layout: str) -> str | None:
    """Another layout that values of this one may fit as well."""
    if kind == "number":
        before, core, behind = split(layout)
        return joined(before, _RIVALS[core], behind) if core in _RIVALS else None
    order = layout[:5]
    return f"%m{order[2]}%d{layout[5:]}" if kind == "date" and order in ("%d/%m", "%d-%m") else None


def candidates(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Kinds and layouts to try, in order: plain ones, those with the unit of the first text, text."""
    match = next((_MARKED.fullmatch(text) for text in texts), None)
    before, behind = (match["before"] or "", match["behind"] or "") if match else ("", "")
    marked = [("number", joined(before, core, behind)) for core in NUMBERS] if before or behind else []
    return [*PLAIN, *marked, TEXT]


def number_texts(texts: Any, layout: str) -> Any:
    """Texts, none missing, in the form pandas reads as numbers; None where some do not fit the layout.

    >>> number_texts(pd.Series(["$1,234", "-$5.5"]), "$1,234.5").tolist()
    ['1234', '-5.5']
    """
    core = split(layout)[1]
    texts = without_unit(texts, layout)
    if texts is None:
        return None
    if core == WHOLE:
        # 1.234 may be a thousand and more: nothing says that the point is a decimal sign.
        return None if texts.str.fullmatch(_grouped(".", ",")).any() else texts
    thousands, decimal = NUMBERS[core]
    if thousands:
        grouped = texts.str.contains(thousands, regex=False)
        if not texts[grouped].str.fullmatch(_grouped(thousands, decimal)).all():
            return None
        texts = texts.str.replace(thousands, "", regex=False)
    if decimal == ",":
        return None if texts.str.contains(".", regex=False).any() else texts.str.replace(",", ".", regex=False)
    return texts


def without_unit(texts: Any, layout: str) -> Any:
    """Numbers alone of texts with the unit of a layout; None where some have another."""
    before, core, behind = split(layout)
    if core in ("1234.5", "1234,5") and not (before or behind):
        return texts
    texts = texts.str.replace(_WIDE_SPACES, " ", regex=True).str.replace("’", "'", regex=False)
    if not (before or behind):
        return texts
    pattern = rf"([+-]?)\s*{re.escape(before)}\s*([+-]?{_DIGITS})\s*{re.escape(behind)}"
    if not texts.str.fullmatch(pattern).all():
        return None
    return texts.str.replace(f"^{pattern}$", r"\1\2", regex=True).str.strip()


def _grouped(thousands: str, decimal: str) -> str:
    return rf"[+-]?[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+(?:{re.escape(decimal)}\d+)?"


def to_floats(texts: Any) -> np.ndarray:
    """Numbers of a pandas series of texts; NaN for what is none."""
    numbers = pd.to_numeric(texts, errors="coerce")
    return np.asarray(numbers.to_numpy(dtype=np.float64, na_value=np.nan))


def numeric_share(counts: Mapping[str, int]) -> float:
    """Share of rows whose text is a number, bare or with the most frequent unit; ``counts`` are rows of each text.

    >>> numeric_share({"1,5": 2, "2 kg": 1, "x": 1})
    0.75
    """
    units: Counter[tuple[str, str]] = Counter()
    for text, rows in counts.items():
        if match := _MARKED.fullmatch(text):
            units[match["before"] or "", match["behind"] or ""] += rows
    bare = units.pop(("", ""), 0)
    return (bare + max(units.values(), default=0)) / max(1, sum(counts.values()))


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
        return Given({name: _known(text) for name, text in layout.items()})
    given = Given()
    for text in [layout] if isinstance(layout, str) else layout:
        name, equals, rest = str(text).rpartition("=")
        kind, known = _known(rest)
        if equals:
            given.columns[name] = kind, known
        else:
            given.table[kind] = known
    return given


def _known(text: str) -> tuple[str, str]:
    try:
        return "number", joined(*split(text.strip()))
    except ValueError:
        date = text.strip() if text.strip() == "ISO8601" else re.sub(r"%?([A-Za-z])", r"%\1", text.strip())
    if date not in DATES:
        raise ValueError(
            f"layout must say how numbers are written, one of {', '.join(NUMBERS)} and a unit around it, or dates, "
            f"such as d/m/Y or %m/%d/%Y; COLUMN= in front is for one column; got {shown(text)}"
        )
    return "date", date


def remedy(name: str, layouts: Iterable[str]) -> str:
    """How a caller names the layout of a column, for messages."""
    ways = [f"{name}={layout.replace('%', '') if layout in DATES else layout}" for layout in layouts]
    return " or ".join(f"layout=[{way!r}] (--layout {shlex.quote(way)})" for way in ways)
