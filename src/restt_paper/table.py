"""Tables of results as text, in a terminal and in Markdown, and the paper's numbers that stand beside ours."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path
from typing import Any

NOT_YET = "not yet"
FAILED = "failed"
NO_NUMBER = "–"
PIPED_WIDTH = 160
PAPER_NUMBERS = Path(__file__).with_name("paper_numbers.json")


@cache
def paper_numbers() -> dict[str, Any]:
    """Every number the paper reports, by table; accuracies in percent, ``[mean, std]`` where the paper gives a std.

    >>> paper_numbers()["table2_accuracy"]["MNIST"]["ResTT(r=100)"]
    99.04
    """
    numbers: dict[str, Any] = json.loads(PAPER_NUMBERS.read_text(encoding="utf-8"))
    return numbers


@dataclass(frozen=True)
class Table:
    """A table as it is shown: every entry is text.

    Those with ``details`` stand in the terminal and on the HTML page, not on the short Markdown page.

    >>> print(Table("Parameters", ("r", "TT"), (("10", "38840"),), ("both countings",)).to_markdown())
    ### Parameters
    <BLANKLINE>
    | r | TT |
    | --- | --- |
    | 10 | 38840 |
    <BLANKLINE>
    - both countings
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    details: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns) or not all(isinstance(entry, str) for entry in row):
                raise ValueError(f"rows of {self.title!r} must have {len(self.columns)} texts, got {row}")

    @classmethod
    def of(
        cls, title: str, rows: Iterable[Mapping[str, str]], notes: tuple[str, ...] = (), *, details: bool = False
    ) -> Table:
        """A table of rows that map each column to its text."""
        entries = list(rows)
        columns = tuple(entries[0]) if entries else ()
        return cls(title, columns, tuple(tuple(row.values()) for row in entries), notes, details)

    def to_markdown(self, *, heading: bool = True) -> str:
        """A heading of third rank, the table, and the notes as a list."""
        lines = [f"### {self.title}", ""] if heading else []
        for entries in (self.columns, ["---"] * len(self.columns), *self.rows):
            lines.append("| " + " | ".join(entry.replace("|", "\\|").replace("\n", " ") for entry in entries) + " |")
        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines)

    def print(self) -> None:
        """Show it in the terminal; text that does not fit goes on in the next line."""
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        drawn = RichTable(box=box.SIMPLE_HEAD)
        for column in self.columns:
            drawn.add_column(Text(column), overflow="fold")
        for row in self.rows:
            drawn.add_row(*(Text(entry) for entry in row))
        # A file or a pipe has no width of its own.
        console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
        console.print(Text(self.title, style="bold"))
        console.print(drawn)
        for note in self.notes:
            console.print(Text(f"  {note}"))


def fixed(value: float | None, digits: int = 2) -> str:
    """A number with so many digits after the point, halves rounded away from zero; None is a failed one.

    Means of accuracies often lie exactly between two last digits, and the nearest binary fraction is sometimes above
    and sometimes below: Python's own formatting would round some of them up and some down.

    >>> fixed(0.125), fixed(98.865), f"{98.865:.2f}", fixed(-0.5, 0), fixed(None)
    ('0.13', '98.87', '98.86', '-1', 'failed')
    """
    if value is None:
        return FAILED
    if not math.isfinite(value):
        return f"{value}"
    nearest = Decimal(f"{value:.12g}")  # without the digits that come from the binary fraction
    return f"{nearest.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):f}"


def mean_std(values: Sequence[float | None], digits: int = 2) -> str:
    """Mean ± sample standard deviation over seeds; failed ones are counted, not hidden.

    >>> mean_std([98.9, 99.0, 99.1]), mean_std([98.9]), mean_std([98.0, None])
    ('99.00 ± 0.10', '98.90', '98.00 (1 of 2 failed)')
    >>> mean_std([None, None]), mean_std([])
    ('failed', 'not yet')
    """
    if not values:
        return NOT_YET
    kept = [value for value in values if value is not None]
    if not kept:
        return FAILED
    text = fixed(statistics.fmean(kept), digits)
    if len(kept) > 1:
        text += f" ± {fixed(statistics.stdev(kept), digits)}"
    missing = len(values) - len(kept)
    return f"{text} ({missing} of {len(values)} failed)" if missing else text


def paper_mean_std(entry: float | Sequence[float] | None) -> str:
    """A number of :func:`paper_numbers`, alone or ``[mean, std]``.

    >>> paper_mean_std([98.96, 0.0304]), paper_mean_std(87), paper_mean_std(None)
    ('98.96 ± 0.03', '87.00', '–')
    """
    if entry is None:
        return NO_NUMBER
    parts = entry if isinstance(entry, Sequence) else [entry]
    return " ± ".join(fixed(part, 2) for part in parts)
