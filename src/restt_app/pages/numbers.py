"""Numbers as the pages show them: a few digits, a true minus, thousands told apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd

MISSING = "missing"
# Metric -> its name for people, and whether more of it is better.
METRICS = {
    "r2": ("R²", True),
    "rmse": ("RMSE", False),
    "log_loss": ("log-loss", False),
    "roc_auc": ("ROC AUC", True),
    "average_precision": ("average precision", True),
    "brier": ("Brier score", False),
    "accuracy": ("accuracy", True),
}
# Beyond these sizes a number is written with a power of ten.
LARGEST, SMALLEST = 1e7, 1e-4


def short(value: Any, digits: int = 4) -> str:
    """A number with ``digits`` significant digits; text as it is, a missing value in words.

    >>> short(12345.678), short(-0.04321987), short(3), short(float("nan")), short("red"), short(2.5e-9)
    ('12,346', '−0.04322', '3', 'missing', 'red', '2.5·10⁻⁹')
    """
    if value is None:
        return MISSING
    if isinstance(value, str) or not isinstance(value, (int, float, np.number, np.bool_)):
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    number = float(value)
    if math.isnan(number):
        return MISSING
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    size = abs(number)
    if size == 0:
        return "0"
    if size >= LARGEST or size < SMALLEST:
        mantissa, power = f"{number:.{digits - 1}e}".split("e")
        return _signed(f"{float(mantissa):g}·10{_raised(int(power))}")
    decimals = max(0, digits - 1 - math.floor(math.log10(size)))
    text = f"{number:,.{decimals}f}"
    return _signed(text.rstrip("0").rstrip(".") if "." in text else text)


class Texts:
    """How values of a model's columns are written: dates as dates, weekdays by name, all else by :func:`short`.

    ``names`` are the model's columns, ``columns`` the entries of its card.

    >>> Texts(("day", "x"), [{"name": "day", "kind": "date"}])(0)(18262.0)
    '2020-01-01'
    """

    def __init__(self, names: Sequence[str], columns: Sequence[Mapping[str, Any]]) -> None:
        dates = {str(column["name"]) for column in columns if column.get("kind") == "date"}
        kinds: dict[str, Callable[[Any], str]] = {}
        for name in dates:
            kinds |= {name: _date, f"{name} weekday": _weekday}
        self._kinds = [kinds.get(name, short) for name in names]

    def __call__(self, column: int) -> Callable[[Any], str]:
        """Writer of a column's values."""
        return self._kinds[column]


def _date(days: Any) -> str:
    if days is None or days != days:
        return MISSING
    moment = datetime(1970, 1, 1) + timedelta(days=float(days))
    return moment.strftime("%Y-%m-%d" if abs(days - round(days)) < 1e-6 else "%Y-%m-%d %H:%M")


def _weekday(day: Any) -> str:
    if day is None or day != day:
        return MISSING
    return ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[round(day)] if float(day).is_integer() else ""


def signed(value: float, digits: int = 3) -> str:
    """A difference, with its sign.

    >>> signed(0.5), signed(-12.34), signed(0.0)
    ('+0.5', '−12.3', '±0')
    """
    text = short(value, digits)
    return "±0" if text == "0" else text if value < 0 else f"+{text}"


def percent(share: float) -> str:
    """A share of one.

    >>> percent(0.9827), percent(0.017), percent(0.00002), percent(0.0), percent(1.0)
    ('98.3 %', '1.7 %', '< 0.01 %', '0 %', '100 %')
    """
    hundred = 100 * share
    if 0 < abs(hundred) < 0.01:
        return "< 0.01 %"
    digits = 2 if abs(hundred) < 1 else 1
    text = f"{hundred:.{digits}f}".rstrip("0").rstrip(".")
    return _signed(f"{text} %")


def seconds(value: float) -> str:
    """A duration.

    >>> seconds(0.21), seconds(42.4), seconds(130), seconds(7330)
    ('0.21 s', '42.4 s', '2 min 10 s', '2 h 2 min')
    """
    if value < 60:
        return f"{short(value, 3)} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def plain(value: Any) -> Any:
    r"""A value as JSON has it: missing, NaN and infinite values are None, dates ISO 8601, decimals text, bytes hex.

    >>> import datetime, decimal
    >>> plain([np.int64(3), float("inf"), datetime.date(2024, 2, 1), decimal.Decimal("1.50"), b"\xff"])
    [3, None, '2024-02-01', '1.50', 'ff']
    """
    if isinstance(value, dict):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple, set, np.ndarray)):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or pd.isna(value) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _signed(text: str) -> str:
    return text.replace("-", "−", 1)


def _raised(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
