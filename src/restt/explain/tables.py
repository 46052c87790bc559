"""Results as tables: a data frame, plain text, HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

LONGEST_NOTE = 100  # characters on one line; of longer notes each part has a line
ROWS_SHOWN = 30  # a printed table says how many rows it leaves out


class Table(NamedTuple):
    """A title, the names of the columns, rows of text, and a note below.

    >>> print(Table("Shares", ["term", "share"], [["age", "12 %"], ["age × bmi", "3 %"]]).text())
    Shares
      term       share
      age         12 %
      age × bmi    3 %
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def text(self) -> str:
        """Plain text, the first column to the left and the others to the right."""
        cells = [self.header, *self.rows]
        widths = [max(len(row[place]) for row in cells) for place in range(len(self.header))]
        lines = [
            "  ".join(["", row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in cells
        ]
        note = self.note if len(self.note) <= LONGEST_NOTE else self.note.replace("; ", "\n")
        return "\n".join([self.title, *lines, *([note] if note else [])])

    def html(self) -> str:
        """An HTML table."""
        head = "".join(f"<th>{escape(cell)}</th>" for cell in self.header)
        body = "".join(
            f"<tr><th>{escape(first)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in others)}</tr>"
            for first, *others in self.rows
        )
        foot = f"<p>{escape(self.note)}</p>" if self.note else ""
        caption = f"<caption>{escape(self.title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}"


class Printed:
    """A result that prints as one table, as text and in notebooks: by default of its records, one row each."""

    def _records(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def _title(self) -> tuple[str, str]:
        """The title of the printed table and the note below it."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()

    def to_frame(self) -> Any:
        """A pandas data frame of the numbers."""
        return data_frame(self._records())

    def _table(self) -> Table:
        (title, note), records = self._title(), self._records()
        left = len(records) - ROWS_SHOWN
        notes = [text for text in (f"and {left} more" if left > 0 else "", note) if text]
        rows = [[short(value) for value in record.values()] for record in records[:ROWS_SHOWN]]
        return Table(title, list(records[0]), rows, "; ".join(notes))


def records_of(
    labels: Mapping[str, Sequence[Any]],  # of K entries each
    outputs: Sequence[str],
    numbers: Mapping[str, Any],  # (K, O) each
) -> list[dict[str, Any]]:
    """One record per output and entry: its labels, the output, its numbers.

    >>> records_of({"column": ["a", "b"]}, ["y"], {"share": [[0.2], [0.8]]})[1]
    {'column': 'b', 'output': 'y', 'share': 0.8}
    """
    return [
        {
            **{name: values[k] for name, values in labels.items()},
            "output": output,
            **{name: float(values[k][o]) for name, values in numbers.items()},
        }
        for o, output in enumerate(outputs)
        for k in range(len(next(iter(labels.values()))))
    ]


def short(value: Any) -> str:
    """A number in four digits, anything else as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def data_frame(records: Sequence[dict[str, Any]], **attributes: Any) -> Any:
    """A pandas data frame with these ``attrs``, or an ImportError that says what to install."""
    try:
        import pandas as pd
    except ImportError as missing:
        raise ImportError("to_frame needs pandas: pip install pandas") from missing
    frame = pd.DataFrame(list(records))
    frame.attrs = attributes
    return frame
