"""Values of any type as JSON has them and as cells of CSV: exact, valid, and no formula of a spreadsheet."""

from __future__ import annotations

import json
import math
import re
from typing import IO, Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

# Beginnings of text that spreadsheets take for a formula; OWASP's list, "CSV Injection".
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\0")
_NUMBER = re.compile(r"[+-]?(?:\d[\d.,]*|[.,]\d+)(?:[eE][+-]?\d+)?")


def plain(value: Any) -> Any:
    """A value as JSON has it: missing, NaN and infinite values are None, dates ISO 8601, decimals text, bytes hex.

    >>> import datetime, decimal
    >>> plain([np.int64(3), float("inf"), datetime.date(2024, 2, 1), decimal.Decimal("1.50"), b"\\xff"])
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


def cell(value: Any) -> Any:
    """A value as a cell of CSV: text that a spreadsheet would run as a formula gets an apostrophe in front.

    >>> cell("=1+2"), cell("-5"), cell("a-b"), cell([1, None])
    ("'=1+2", '-5', 'a-b', '[1, null]')
    """
    if isinstance(value, float):
        return value
    value = plain(value)
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def write_csv(frame: Any, file: IO[str], *, header: bool) -> None:
    """Write a data frame as CSV; numbers have the fewest digits that give the same number when read."""
    columns = [
        column if is_numeric_dtype(column) else pd.Series(map(cell, column), frame.index, dtype=object)
        for _, column in frame.items()
    ]
    made = pd.DataFrame(dict(enumerate(columns)))
    names = [cell(name) for name in frame.columns] if header else False
    made.to_csv(_Rows(file), index=False, header=names, lineterminator=_Rows.END)


def write_lines(frame: Any, file: IO[str]) -> None:
    """Write a data frame as one JSON object per row."""
    for record in frame.to_dict("records"):
        file.write(json.dumps(plain(record), ensure_ascii=False, allow_nan=False) + "\n")


class _Rows:
    """Rows of the csv module, ended by a line feed.

    The module quotes a carriage return inside a cell only if it is part of the line end; bare, it would begin a row.
    """

    END = "\r\n"

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, row: str) -> int:
        return self._file.write(row.removesuffix(self.END) + "\n")
