"""The paper's numbers and ours in one table: which belong together, how far apart they are, and which way.

Tables are text, as they are shown everywhere; the numbers are read back from it, with their spreads and as many digits
as they have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from restt_app.pages.numbers import signed
from restt_app.pages.shell import Cell, DataTable
from restt_paper.engine.table import Table

# A column of the paper -> the columns of ours that stand for the same, {} being what the pattern found.
PARTNERS = (
    (r"(.+), paper", ("{}, ours", "{}, its split", "{}")),
    (r"paper", ("ours", "the paper's counting")),
    (r"paper \((.+)\)", ("ours, {}",)),
    (r"paper, until .* (on test)", ("{}",)),
)
LESS_IS_BETTER = ("RMSE", "milliseconds", "seconds")
COUNTED = "number of parameters"  # neither more nor less is better
NUMBER = re.compile(r"(-?\d+(?:\.(\d+))?)(?: ± (\d+(?:\.\d+)?))?(?: %| s| minutes)?(?: \(.*\))?")
PADDED = 3
# Characters from which on a text gets room, and up to which it stays on one line.
LONG, SHORT = 60, 24
SETTING = "r"  # of a model: together with its name it says which row is meant
WHO = ""  # the heading of a column that says whether a row is the paper's or ours
RULE = (
    "▲ better than the paper, ▼ worse, ≈ no further apart than the larger of the two spreads (±), or than the last "
    "digit where there is none."
)


@dataclass(frozen=True)
class Number:
    """A number as a table shows it: its value, its spread, and what its last digit is worth."""

    value: float
    spread: float
    digit: float

    @classmethod
    def read(cls, text: str) -> Number | None:
        """Read a number as tables show it; None where there is none.

        >>> Number.read("98.87 ± 0.07"), Number.read("–"), Number.read("4.610").digit
        (Number(value=98.87, spread=0.07, digit=0.01), None, 0.01)
        """
        found = NUMBER.fullmatch(text)
        if found is None:
            return None
        decimals = found[2] or ""
        # Numbers of two digits stand as three beside others that have them: the last zero is not the paper's.
        known = len(decimals.rstrip("0")) if len(decimals) >= PADDED else len(decimals)
        return cls(float(found[1]), float(found[3] or 0), 10.0**-known)


@dataclass(frozen=True)
class Difference:
    """A number of ours beside the paper's, in words a reader can find it by."""

    table: str
    where: str
    ours: str
    paper: str
    verdict: str  # better, worse, same

    @property
    def told(self) -> str:
        return f"{self.where}: {self.ours}, the paper has {self.paper}"


def compared(table: Table) -> tuple[DataTable, tuple[Difference, ...]]:
    """The table to be shown, its numbers marked, and every pair of numbers in it."""
    pairs = {**dict(_by_columns(table)), **dict(_by_rows(table))}
    differences = []
    rows = []
    for place, row in enumerate(table.rows):
        cells = []
        for column, text in enumerate(row):
            number = Number.read(text)
            value = None if number is None else number.value
            partner = pairs.get((place, column))
            theirs = None if partner is None else Number.read(table.rows[partner[0]][partner[1]])
            if number is None or theirs is None or partner is None:
                room = "wide" if len(text) > LONG else "short" if len(text) < SHORT else ""
                cells.append(Cell(text, value, kind=room))
                continue
            found = Difference(
                table.title,
                _where(table, place, column),
                text,
                table.rows[partner[0]][partner[1]],
                _verdict(table, column, number, theirs),
            )
            differences.append(found)
            cells.append(Cell(text, value, _remark(found.verdict, number, theirs), found.verdict))
        rows.append(tuple(cells))
    notes = table.notes if not differences else (RULE, *table.notes)
    return DataTable(table.title, table.columns, tuple(rows), _numeric(table), notes), tuple(differences)


def _by_columns(table: Table) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Places of ours and, in the same row, the paper's."""
    for theirs, name in enumerate(table.columns):
        for pattern, partners in PARTNERS:
            found = re.fullmatch(pattern, name)
            if found is None:
                continue
            wanted = [partner.format(*found.groups()) for partner in partners]
            for ours, other in enumerate(table.columns):
                if other in wanted:
                    for row in range(len(table.rows)):
                        yield (row, ours), (row, theirs)


def _by_rows(table: Table) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Places of ours and, in the row of the same model, the paper's."""
    if WHO not in table.columns:
        return
    who = table.columns.index(WHO)
    papers = {row[:who]: place for place, row in enumerate(table.rows) if row[who] == "paper"}
    for place, row in enumerate(table.rows):
        if row[who] == "ours" and row[:who] in papers:
            for column in range(who + 1, len(row)):
                yield (place, column), (papers[row[:who]], column)


def _verdict(table: Table, column: int, ours: Number, paper: Number) -> str:
    lead = ours.value - paper.value
    if abs(lead) <= max(ours.spread, paper.spread, *_rounding(ours, paper)):
        return "same"
    if COUNTED in table.title:
        return "worse"
    less = any(word in f"{table.title} {table.columns[column]}" for word in LESS_IS_BETTER)
    return "better" if (lead < 0) == less else "worse"


def _rounding(ours: Number, paper: Number) -> tuple[float, float]:
    """Numbers without spreads that were rounded to a number of digits may differ by the last; counted ones may not."""
    if ours.digit == 1.0 and paper.digit == 1.0:
        return 0.0, 0.0
    return 1.001 * ours.digit, 1.001 * paper.digit


def _remark(verdict: str, ours: Number, paper: Number) -> str:
    sign, word = {"better": ("▲", "better"), "worse": ("▼", "worse"), "same": ("≈", "same")}[verdict]
    lead = ours.value - paper.value
    if verdict == "same":
        return f"{sign} {word}"
    if paper.value > 0 and ours.value > 0 and not 0.5 < ours.value / paper.value < 2:  # a difference would say nothing
        times = max(ours.value / paper.value, paper.value / ours.value)
        return f"{sign} {times:,.0f} times {'more' if lead > 0 else 'less'}" if times < 10_000 else f"{sign} {word}"
    return f"{sign} {signed(lead)}"


def _where(table: Table, row: int, column: int) -> str:
    """The row's own words and the column's, without who measured it."""
    who = table.columns.index(WHO) if WHO in table.columns else None
    last = min(who if who is not None else len(table.columns), 2)
    words = [text for place, text in enumerate(table.rows[row][:last]) if place == 0 or table.columns[place] == SETTING]
    heading = re.sub(r",? ?(ours|its split)$", "", table.columns[column])
    settings = [f"{SETTING} = {text}" for text in words[1:]]
    return ", ".join([words[0], *settings, *([heading] if heading else [])])


def _numeric(table: Table) -> frozenset[int]:
    """Columns of numbers: those in which no text but a dash stands among them."""
    return frozenset(
        column
        for column in range(1, len(table.columns))
        if any(Number.read(row[column]) for row in table.rows)
        and all(Number.read(row[column]) or row[column] in ("–", "failed", "not yet") for row in table.rows)
    )


def worse(differences: Sequence[Difference]) -> dict[str, list[Difference]]:
    """Those that are worse than the paper's, by table."""
    found: dict[str, list[Difference]] = {}
    for one in differences:
        if one.verdict == "worse":
            found.setdefault(one.table, []).append(one)
    return found
