"""How text is written: decimal and thousands signs, units, the order of dates, and what can be read in two ways."""

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

_MONEY = (
    r"(?:[A-Z]{0,3}[$€£¥₹₽₩₺₴₫₪₦฿]|(?:USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN)|Fr\.)"
)
_UNIT = rf"(?:{_MONEY}|[%‰]|°?[^\W\d_]{{1,12}}[23]?(?:/[^\W\d_]{{1,12}}[23]?)?)"
_DIGITS = r"(?:\d[\d.,'’\s]*|[.,]\d+)(?:[eE][+-]?\d+)?"
_MARKED = re.compile(rf"[+-]?\s*(?P<before>{_MONEY})?\s*[+-]?{_DIGITS}\s*(?P<behind>{_UNIT})?")
_WIDE_SPACES = "[\u00a0\u2009\u202f]"


def split(layout: str) -> tuple[str, str, str]:
    """The unit before a number, how the number is written, and the unit behind it; ValueError for no numbers' layout.

    >>> split("$1,234.5"), split("1234 kg")
    (('$', '1,234.5', ''), ('', '1234', 'kg'))
    """
    for core in sorted((*NUMBERS, WHOLE), key=len, reverse=True):
        before, found, behind = layout.partition(core)
        before, behind = before.strip(), behind.strip()
        if found and re.fullmatch(f"(?:{_MONEY})?", before) and re.fullmatch(f"(?:{_UNIT})?", behind):
            return before, core, behind
    raise ValueError(f"no layout of numbers: {layout!r}")


def joined(before: str, core: str, behind: str) -> str:
    """The layout that :func:`split` takes apart."""
    return before + core + (f" {behind}" if behind[:1].isalpha() else behind)


def decimal_sign(layout: str) -> str:
    """The decimal sign of a layout of numbers; none for whole numbers."""
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


def candidates(texts: Any) -> list[tuple[str, str]]:
    """Kinds and layouts to be tried for a pandas series of texts, in order: plain ones, those with its unit, text."""
    found = next((_MARKED.fullmatch(text.strip()) for text in texts), None)
    before, behind = (found["before"] or "", found["behind"] or "") if found else ("", "")
    marked = [("number", joined(before, core, behind)) for core in NUMBERS] if before or behind else []
    return [*PLAIN, *marked, TEXT]


def number_texts(texts: Any, layout: str) -> Any:
    """A pandas series of texts, none missing, in the way pandas reads numbers; None where some do not fit the layout.

    >>> import pandas as pd
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
    """The numbers alone of a pandas series of texts with the unit of a layout; None where some have another."""
    before, core, behind = split(layout)
    if core in ("1234.5", "1234,5") and not (before or behind):
        return texts
    texts = texts.str.strip().str.replace(_WIDE_SPACES, " ", regex=True).str.replace("’", "'", regex=False)
    if not (before or behind):
        return texts
    pattern = rf"([+-]?)\s*{re.escape(before)}\s*([+-]?{_DIGITS})\s*{re.escape(behind)}"
    if not texts.str.fullmatch(pattern).all():
        return None
    return texts.str.replace(f"^{pattern}$", r"\1\2", regex=True).str.strip()


def _grouped(thousands: str, decimal: str) -> str:
    return rf"[+-]?[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+(?:{re.escape(decimal)}\d+)?"


def numeric_share(texts: Sequence[str], counts: Sequence[int]) -> float:
    """The share of rows whose text is a number, however written, bare or with the unit that most have."""
    marks = [(found["before"], found["behind"]) if (found := _MARKED.fullmatch(text)) else None for text in texts]
    weights = np.asarray(counts, dtype=np.float64)
    units: Counter[Any] = Counter()
    for mark, weight in zip(marks, weights, strict=True):
        if mark not in (None, (None, None)):
            units[mark] += weight
    usual = {(None, None), *(mark for mark, _ in units.most_common(1))}
    return float(weights[[mark in usual for mark in marks]].sum() / weights.sum()) if weights.sum() else 0.0


@dataclass(frozen=True)
class Given:
    """Layouts that a caller named: of single columns, and of all numbers and all dates else."""

    columns: dict[str, tuple[str, str]] = field(default_factory=dict)
    table: dict[str, str] = field(default_factory=dict)


def given_layouts(layout: Layout) -> Given:
    """Read layouts from texts such as ``"1,234.5"``, ``"m/d/Y"`` or ``"price=1234,5"``, or a mapping of columns.

    >>> given_layouts(["price=1234,5", "m/d/Y"])
    Given(columns={'price': ('number', '1234,5')}, table={'date': '%m/%d/%Y'})
    """
    if isinstance(layout, Mapping):
        return Given({name: _known(text) for name, text in layout.items()})
    found = Given()
    for text in [layout] if isinstance(layout, str) else layout:
        name, equals, rest = str(text).rpartition("=")
        kind, known = _known(rest)
        if equals:
            found.columns[name] = kind, known
        else:
            found.table[kind] = known
    return found


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


def to_floats(texts: Any) -> np.ndarray:
    """Numbers of a pandas series of texts; NaN for what is none."""
    numbers = pd.to_numeric(texts, errors="coerce")
    return np.asarray(numbers.to_numpy(dtype=np.float64, na_value=np.nan))
