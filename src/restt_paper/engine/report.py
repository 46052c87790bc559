"""Everything measured, as tables in the terminal and as one Markdown page, from the results files alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import quote

from restt._common.errors import check_folder
from restt_paper.engine.cell import Cell
from restt_paper.engine.experiment import PICTURES, Experiment
from restt_paper.engine.store import Store
from restt_paper.engine.table import NOT_YET, Table
from restt_paper.engine.target import Target, targets_table

INTRODUCTION = """\
# Results

Written by `restt report` from the files of results; do not edit. Only what was measured is here; what is missing is
named at the end. A target that was missed, and a claim of the paper that does not hold, say so."""
QUICK_MARK = " (quick profile)"
QUICK_MEANS = "The quick profile has smaller sets and fewer epochs than the paper: it shows that all works, no more."
COMMIT_DIGITS = 10
COMMITS = (
    "A commit alone: the code was exactly that. Changes unknown: the copy that ran had no git history, and its commit "
    "was told to it. Entered by hand: the commit was written into the file after the run."
)


@dataclass(frozen=True)
class Section:
    """One experiment: its tables, its pictures, and the files they come from.

    ``files`` has one entry per cell, None where it is missing; ``own`` are those computed for this experiment and no
    other, and the choices before them.
    """

    name: str
    title: str
    profile: str
    tables: tuple[Table, ...]
    pictures: tuple[Path, ...]
    files: tuple[dict[str, Any] | None, ...]
    own: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Report:
    """What there is to show; :meth:`print` and :meth:`to_markdown` show it."""

    targets: Table
    sections: tuple[Section, ...]
    provenance: Table
    missing: str
    damaged: tuple[str, ...]

    def print(self) -> None:
        """All tables, in the terminal."""
        for section in self.sections:
            for table in section.tables:
                table.print()
        for table in (self.provenance, self.targets):
            if table.rows:
                table.print()
        for line in (*self.damaged, self.missing):
            if line:
                print(line)

    def to_markdown(self, folder: str | PathLike[str] = ".") -> str:
        """The page; links to pictures start from ``folder``, where it will lie."""
        parts = [INTRODUCTION]
        if any(section.profile == "quick" for section in self.sections):
            parts.append(QUICK_MEANS)
        if self.targets.rows:
            parts += [f"## {self.targets.title}", self.targets.to_markdown(heading=False)]
        for section in self.sections:
            parts.append(f"## {section.title}")
            parts += [table.to_markdown(heading=table.title != section.title) for table in section.tables]
            parts += [_link(path, folder) for path in section.pictures]
        if self.provenance.rows:
            parts += [f"## {self.provenance.title}", self.provenance.to_markdown(heading=False)]
        if self.missing or self.damaged:
            parts += ["## What is missing", *self.damaged]
            parts += [self.missing] if self.missing else []
        return "\n\n".join(parts) + "\n"


def collect(experiments: Iterable[Experiment], results: str | PathLike[str] = "results") -> Report:
    """Read everything under ``results``: ``paper``, and ``quick`` for experiments of which nothing else is there.

    >>> report = collect([], getfixture("tmp_path"))
    >>> report.sections, report.targets.rows
    ((), ())
    """
    root = check_folder("results", results)
    asked = list(experiments)
    sections: list[Section] = []
    damaged: dict[str, str] = {}
    targets: list[tuple[Target, Store]] = []
    # Tables share cells, and are made more than once.
    paper, quick = (Store(root / profile).as_it_is() for profile in ("paper", "quick"))
    for experiment in asked:
        readable, left_out = _readable(experiment, paper, "paper")
        damaged |= left_out
        targets += [(target, readable) for target in experiment.targets]
        section = _section(experiment, readable, "paper")
        if section is None:
            readable, left_out = _readable(experiment, quick, "quick")
            damaged |= left_out
            section = _section(experiment, readable, "quick")
        if section is not None:
            sections.append(section)
    measured = targets_table(targets)
    rows = tuple(row for row in measured.rows if row[-1] != NOT_YET)
    return Report(
        replace(measured, rows=rows),
        tuple(sections),
        _provenance(sections),
        _missing(asked, sections, len(measured.rows) - len(rows)),
        tuple(f"Left out: {line}" for line in damaged.values()),
    )


def _section(experiment: Experiment, store: Store, profile: str) -> Section | None:
    """None where nothing was measured."""
    cells = experiment.cells(profile)
    files = tuple(store.load(cell) for cell in cells)
    asked = [cell for cell in cells if cell.experiment == experiment.name]
    mine = {cell.key: cell for cell in _with_needs(asked)}
    own = tuple(found for cell in mine.values() if (found := store.load(cell)) is not None)
    if not any(files) and not own:
        return None
    return Section(
        experiment.name,
        experiment.title,
        profile,
        tuple(table for table in marked(experiment.tables(store, profile), profile) if not _is_empty(table)),
        tuple(sorted((store.folder / PICTURES).glob(f"{experiment.name}*.png"))),
        files,
        own,
    )


def marked(tables: Iterable[Table], profile: str) -> list[Table]:
    """The tables, those of the quick profile saying so in their titles."""
    return [replace(table, title=table.title + QUICK_MARK) if profile == "quick" else table for table in tables]


def _is_empty(table: Table) -> bool:
    return bool(table.rows) and all(NOT_YET in row for row in table.rows)


def _with_needs(cells: Iterable[Cell]) -> list[Cell]:
    return [one for cell in cells for one in (cell, *_with_needs(cell.needs.values()))]


def _readable(experiment: Experiment, store: Store, profile: str) -> tuple[Store, dict[str, str]]:
    """The store without files that are damaged or lack what the tables show, and a line on each, by key.

    A file's result has the shape its own computation gave it, which only the tables know. So they are made, and where
    they cannot be, from ever fewer files, down to those that fail alone.
    """
    cells = {cell.key: cell for cell in _with_needs(experiment.cells(profile))}
    damaged: dict[str, str] = {}
    for key, cell in cells.items():
        try:
            store.load(cell)
        except (ValueError, OSError) as error:
            damaged[key] = str(error)
    store = store.without(damaged)
    if _failure(experiment, store, profile) is None:
        return store, damaged
    for key, why in _culprits(experiment, store, profile, list(cells), cells).items():
        damaged[key] = (
            f"{store.folder / key}.json lacks a part that its tables show ({why}); move it away or bring back a copy"
        )
    store = store.without(damaged)
    if (failure := _failure(experiment, store, profile)) is not None:
        damaged[experiment.name] = f"the results of {experiment.name} do not fit each other ({failure})"
        store = store.without(cells)
    return store, damaged


@contextmanager
def refusing_damage(experiment: Experiment, store: Store, profile: str) -> Iterator[None]:
    """Have whatever reading the experiment's results raises be a ValueError that names the damaged files."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        _, damaged = _readable(experiment, store, profile)
        if not damaged:
            raise
        raise ValueError("; ".join(damaged.values())) from error


def _culprits(
    experiment: Experiment, store: Store, profile: str, keys: Sequence[str], all_keys: Iterable[str]
) -> dict[str, str]:
    """Those of ``keys`` whose files alone make the tables fail, and how."""
    seen = set(keys)
    failure = _failure(experiment, store.without(key for key in all_keys if key not in seen), profile)
    if failure is None:
        return {}
    if len(keys) == 1:
        return {keys[0]: failure}
    middle = len(keys) // 2
    halves = (_culprits(experiment, store, profile, half, all_keys) for half in (keys[:middle], keys[middle:]))
    return {key: told for half in halves for key, told in half.items()}


def _failure(experiment: Experiment, store: Store, profile: str) -> str | None:
    try:
        experiment.tables(store, profile)
        if profile == "paper":
            targets_table((target, store) for target in experiment.targets)
    except Exception as error:  # a mangled file can make any line of the reading code fail
        return f"{type(error).__name__}: {error}"
    return None


def _missing(experiments: Sequence[Experiment], sections: Sequence[Section], targets: int) -> str:
    """One line on what was not measured."""
    shown = {section.name: section for section in sections}
    parts = [experiment.name for experiment in experiments if experiment.name not in shown]
    for section in shown.values():
        lacking = sum(file is None for file in section.files)
        if lacking:
            parts.append(f"{section.name} ({lacking} of {len(section.files)} results)")
    if not parts:
        return ""
    told = f"Not measured yet: {', '.join(parts)}"
    told += f"; {targets} targets wait for them" if targets else ""
    return f"{told}. `restt reproduce NAME --profile paper` computes what is missing of one."


def _link(path: Path, folder: str | PathLike[str]) -> str:
    """Markdown that shows a picture, its path relative to the page.

    >>> print(_link(Path("my results/pictures/table3[1].png"), "docs"))
    ![table3\\[1\\]](../my%20results/pictures/table3%5B1%5D.png)
    """
    name = re.sub(r"([\[\]\\])", r"\\\1", path.stem)
    return f"![{name}]({quote(Path(os.path.relpath(path, folder)).as_posix())})"


def _provenance(sections: Sequence[Section]) -> Table:
    versions: dict[str, list[str]] = {}
    for section in sections:
        for text in _versions(section):
            versions.setdefault(text, []).append(section.name)
    by_hand = sorted({file["cell"] for section in sections for file in section.own if _by_hand(file["provenance"])})
    return Table(
        "Where the numbers come from",
        ("experiment", "profile", "results", "minutes", "device", "commit"),
        tuple(_origin(section) for section in sections),
        (
            "Minutes, device and commit are of what was computed for the experiment itself, choices of rates and "
            "settings included; results of other experiments that it shows are counted there.",
            COMMITS,
            *([f"Commit entered by hand: {', '.join(by_hand)}."] if by_hand else []),
            *(f"{', '.join(names)}: {text}." for text, names in versions.items()),
        ),
    )


def _versions(section: Section) -> list[str]:
    return sorted(
        {
            ", ".join(f"{name} {version}" for name, version in file["provenance"]["versions"].items())
            for file in section.own
        }
    )


def _origin(section: Section) -> tuple[str, ...]:
    found = section.own
    return (
        section.name,
        section.profile if found else "–",
        f"{sum(file is not None for file in section.files)} of {len(section.files)}",
        f"{sum(file['wall_seconds'] for file in found) / 60:.1f}" if found else "–",
        _distinct([file["provenance"]["device"] for file in found]),
        _distinct([commit_in_words(file["provenance"]) for file in found]),
    )


def _distinct(texts: Sequence[str]) -> str:
    return "; ".join(sorted(set(texts))) or "–"


def commit_in_words(source: Mapping[str, Any]) -> str:
    """The commit in short, whether the files differed from it, and whether a person wrote it down.

    >>> commit_in_words({"commit": "0123456789abcdef", "dirty": True})
    '0123456789 with changes'
    >>> commit_in_words({"commit": "0123456789abcdef", "dirty": False})
    '0123456789'
    >>> commit_in_words({"commit": "0123456789abcdef", "dirty": None})
    '0123456789, changes unknown'
    >>> commit_in_words({"commit": "0123456789abcdef", "dirty": None, "commit_entered_by_hand": True})
    '0123456789 entered by hand, changes unknown'
    """
    commit = str(source["commit"])
    short = commit[:COMMIT_DIGITS] if " " not in commit else commit
    if _by_hand(source):
        short += " entered by hand"
    return short + {True: " with changes", False: "", None: ", changes unknown"}[source.get("dirty")]


def _by_hand(source: Mapping[str, Any]) -> bool:
    return source.get("commit_entered_by_hand") is True
