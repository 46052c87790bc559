"""Records as tables: a data frame, a table for the terminal, plain text, HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

# A table on a terminal shows this many rows and says how many it leaves out.
ROWS_SHOWN = 30


def data_frame(records: Sequence[dict[str, Any]]) -> Any:
    """A pandas data frame, or an ImportError that says what to install."""
    try:
        import pandas as pd
    except ImportError as missing:
        raise ImportError("to_frame needs pandas: pip install pandas") from missing
    return pd.DataFrame(list(records))


def rich_table(title: str, records: Sequence[dict[str, Any]], note: str = "") -> Any:
    """A rich table of records that all have the same keys."""
    from rich.table import Table

    left = len(records) - ROWS_SHOWN
    captions = [text for text in (f"and {left} more" if left > 0 else "", note) if text]
    caption = "; ".join(captions)
    table = Table(title=title, caption=caption or None, min_width=max(len(title), len(caption)) + 2)
    for name, value in (records[0] if records else {}).items():
        table.add_column(name, justify="right" if isinstance(value, (int, float)) else "left")
    for record in records[:ROWS_SHOWN]:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in record.values()))
    return table


def text_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    """A table as plain text, the first column to the left and the others to the right.

    >>> print(text_table("Shares", ["term", "share"], [["age", "12 %"], ["age × bmi", "3 %"]]))
    Shares
      term       share
      age         12 %
      age × bmi    3 %
    """
    widths = [max(len(row[place]) for row in [header, *rows]) for place in range(len(header))]
    lines = [
        "  " + "  ".join(cell.ljust(width) if place == 0 else cell.rjust(width) for place, (cell, width) in pairs)
        for pairs in (list(enumerate(zip(row, widths, strict=True))) for row in [header, *rows])
    ]
    return "\n".join([title, *(line.rstrip() for line in lines), *([note] if note else [])])


def html_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    """The same as HTML."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for tag, cell in zip(_tags(row), row, strict=True)) + "</tr>"
        for row in rows
    )
    foot = f"<p>{escape(note)}</p>" if note else ""
    return f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}"


def _tags(row: Sequence[str]) -> list[str]:
    return ["th", *["td"] * (len(row) - 1)]
