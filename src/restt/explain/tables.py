"""Records as tables: a data frame, or a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
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
