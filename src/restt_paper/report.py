"""All results as tables in the terminal and as two Markdown pages, from the results files alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import quote

import restt_paper
from restt._common.errors import check_folder, check_new_file
from restt._common.files import write_bytes_atomic
from restt_paper.experiments import PICTURES, QUICK_MEANS, Experiment, Store, with_needs
from restt_paper.table import NO_NUMBER, NOT_YET, Table
from restt_paper.verdict import CLAIM_COLUMNS, best_per_target, targets_table

RESULTS_HEAD = """\
# Results

Written by `restt report` from the files of results; do not edit. The paper's numbers stand beside ours. Ways to read
the same runs differently and all verdicts are on the HTML page of the same command; targets and claims that were missed
are on [What was tried and missed](missed.md)."""
MISSED_HEAD = """\
# What was tried and missed

Written by `restt report`, not by hand. Targets, recipes and claims come from the files of results; experiments that are
over from `restt_paper/finished.md`. Accuracies are of the last epoch on test images unless a line says otherwise."""
COMMIT_DIGITS = 10
COMMITS = (
    "A commit alone: the code was exactly that. Changes unknown: the copy that ran had no git history, and its commit "
    "was passed to it. Entered by hand: the commit was written into the file after the run."
)
MISSED = "missed.md"
FINISHED = Path(__file__).with_name("finished.md")


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

    @property
    def claims(self) -> list[tuple[str, ...]]:
        """Rows of the paper's claims."""
        return [row for table in self.tables if table.columns == CLAIM_COLUMNS for row in table.rows]

    @property
    def refuted(self) -> list[str]:
        """Claims of the paper that do not hold, each with its measurement."""
        return [f"{text}: {measured}" for text, measured, verdict in self.claims if verdict == "does not hold"]


@dataclass(frozen=True)
class Report:
    """Everything there is to show, for the terminal, Markdown and HTML."""

    targets: Table
    sections: tuple[Section, ...]
    provenance: Table
    missing: tuple[str, ...]

    def print(self) -> None:
        """Print all tables in the terminal."""
        for table in (*(table for section in self.sections for table in section.tables), self.provenance, self.targets):
            if table.rows:
                table.print()
        for line in self.missing:
            print(line)

    @property
    def missed_targets(self) -> list[str]:
        """Targets that a recipe missed, in words."""
        return [
            f"{name}{'' if recipe == NO_NUMBER else f' ({recipe})'}: {measured}, wanted {bound}"
            for name, recipe, _, bound, measured, verdict in self.targets.rows
            if verdict == "missed"
        ]

    def to_markdown(self, folder: str | PathLike[str] = ".") -> str:
        """The page of results; links to pictures start from ``folder``, where it will lie."""
        parts = [RESULTS_HEAD]
        if any(section.profile == "quick" for section in self.sections):
            parts.append(QUICK_MEANS)
        if self.targets.rows:
            best = best_per_target(self.targets)
            parts += [f"## {best.title}", best.to_markdown(heading=False)]
        for section in self.sections:
            tables = [table for table in section.tables if not table.details]
            if tables or section.pictures:
                parts.append(f"## {section.title}")
            parts += [table.to_markdown(heading=len(tables) > 1) for table in tables]
            parts += [" ".join(_link(path, folder) for path in section.pictures)] if section.pictures else []
        if self.provenance.rows:
            parts += [f"## {self.provenance.title}", self.provenance.to_markdown(heading=False)]
        if self.missing:
            parts += ["## What is missing", *self.missing]
        return "\n\n".join(parts) + "\n"

    def missed_markdown(self) -> str:
        """The page of missed targets, refuted claims, and experiments that are over."""
        notes = [note for section in self.sections if section.name == "improved" for note in section.tables[0].notes]
        refuted = [f"{part.title.split(':')[0]}. {claim}." for part in self.sections for claim in part.refuted]
        lists = {
            "Targets missed by a recipe": [f"{line}." for line in self.missed_targets],
            "How the recipes were chosen": notes,
            "Claims of the paper that do not hold": refuted,
        }
        parts = [MISSED_HEAD]
        for heading, lines in lists.items():
            if lines:
                parts += [f"## {heading}", "\n".join(f"- {line}" for line in lines)]
        return "\n\n".join([*parts, FINISHED.read_text(encoding="utf-8").strip()]) + "\n"


def write_report(
    results: str | PathLike[str] = "results",
    output: str | PathLike[str] = "docs/results.md",
    page: str | PathLike[str] | None = None,
) -> Report:
    """Write all results as Markdown, ``missed.md`` beside it and, where ``page`` names a file, one HTML page.

    The same results give the same pages. Results are no part of the installed package: outside a checkout they are
    those of the working directory.
    """
    written = check_new_file("output", output)
    html = None if page is None else check_new_file("page", page)
    check_folder("results", results)
    if not Path(results).exists():  # an empty page must not replace one of results by a slip
        raise FileNotFoundError(
            f"results must be a folder of results, got {str(results)!r}, which is not there; restt reproduce fills one"
        )
    report = collect(map(restt_paper.experiment, restt_paper.EXPERIMENTS), results)
    write_bytes_atomic(written, report.to_markdown(written.parent).encode())
    write_bytes_atomic(written.with_name(MISSED), report.missed_markdown().encode())
    if html is not None:
        from restt_paper.page import paper_page

        write_bytes_atomic(html, paper_page(report, Path(results)).encode())
    return report


def collect(experiments: Iterable[Experiment], results: str | PathLike[str] = "results") -> Report:
    """Read everything under ``results``: ``paper``, and ``quick`` for experiments of which nothing else is there.

    >>> report = collect([], getfixture("tmp_path"))
    >>> report.sections, report.targets.rows
    ((), ())
    """
    root = check_folder("results", results)
    asked = list(experiments)
    sections: list[Section] = []
    damaged: list[str] = []
    targets: list[tuple[str, ...]] = []
    paper, quick = (Store(root / profile, skip_damaged=True) for profile in ("paper", "quick"))
    for experiment in asked:
        try:
            rows = experiment.measured_targets(paper)
            section = _section(experiment, paper, "paper") or _section(experiment, quick, "quick")
        except ValueError as error:
            damaged.append(str(error))
            continue
        targets += rows
        sections += [] if section is None else [section]
    table = targets_table(targets)
    measured = tuple(row for row in table.rows if row[-1] != NOT_YET)
    unread = [*paper.damaged.values(), *quick.damaged.values(), *damaged]
    missing = _missing(asked, sections, len(table.rows) - len(measured))
    lines = (*(f"Left out: {line}" for line in unread), *missing)
    return Report(replace(table, rows=measured), tuple(sections), _provenance(sections), lines)


def _section(experiment: Experiment, store: Store, profile: str) -> Section | None:
    """Make a section of the report; None where nothing was measured."""
    cells = experiment.cells(profile)
    files = tuple(store.load(cell) for cell in cells)
    own_cells = with_needs(cell for cell in cells if cell.experiment == experiment.name)
    own = tuple(content for cell in own_cells if (content := store.load(cell)) is not None)
    if not any(files) and not own:
        return None
    tables = [table for table in experiment.show(store, profile) if not _is_empty(table)]
    pictures = sorted((store.folder / PICTURES).glob(f"{experiment.name}*.png"))
    return Section(experiment.name, experiment.title, profile, tuple(tables), tuple(pictures), files, own)


def _is_empty(table: Table) -> bool:
    return bool(table.rows) and all(NOT_YET in row for row in table.rows)


def _missing(experiments: Sequence[Experiment], sections: Sequence[Section], targets: int) -> list[str]:
    """One line on cells that were not measured."""
    shown = {section.name: section for section in sections}
    parts = [experiment.name for experiment in experiments if experiment.name not in shown]
    for section in shown.values():
        lacking = sum(file is None for file in section.files)
        if lacking:
            parts.append(f"{section.name} ({lacking} of {len(section.files)} results)")
    if not parts:
        return []
    waiting = f"; {targets} targets wait for them" if targets else ""
    return [
        f"Not measured yet: {', '.join(parts)}{waiting}. `restt reproduce NAME --profile paper` computes what is "
        "missing of one."
    ]


def _link(path: Path, folder: str | PathLike[str]) -> str:
    r"""Markdown that shows a picture, its path relative to the page.

    >>> print(_link(Path("my results/pictures/table3[1].png"), "docs"))
    ![table3\[1\]](../my%20results/pictures/table3%5B1%5D.png)
    """
    name = re.sub(r"([\[\]\\])", r"\\\1", path.stem)
    return f"![{name}]({quote(Path(os.path.relpath(path, folder)).as_posix())})"


def _provenance(sections: Sequence[Section]) -> Table:
    note = (
        "Minutes, device, versions and commit are of the cells computed for the experiment itself, choices of rates "
        f"and settings included. {COMMITS}"
    )
    return Table.of("Where the numbers come from", map(_origin, sections), (note,))


def _origin(section: Section) -> dict[str, str]:
    origins = [file["provenance"] for file in section.own]

    def distinct(text_of: Any) -> str:
        return "; ".join(sorted({text_of(origin) for origin in origins})) or NO_NUMBER

    def versions(origin: Mapping[str, Any]) -> str:
        return ", ".join(str(origin["versions"].get(name, NO_NUMBER)) for name in ("restt", "torch"))

    return {
        "experiment": section.name,
        "profile": section.profile if origins else NO_NUMBER,
        "results": f"{sum(file is not None for file in section.files)} of {len(section.files)}",
        "minutes": f"{sum(file['wall_seconds'] for file in section.own) / 60:.1f}" if origins else NO_NUMBER,
        "device": distinct(lambda origin: origin["device"]),
        "restt, torch": distinct(versions),
        "commit": distinct(commit_in_words),
    }


def commit_in_words(source: Mapping[str, Any]) -> str:
    """The commit in short, whether the files differed from it, and whether it was entered by hand.

    >>> commit_in_words({"commit": "0123456789abcdef", "dirty": True})
    '0123456789 with changes'
    >>> commit_in_words({"commit": "0123456789abcdef", "dirty": None, "commit_entered_by_hand": True})
    '0123456789 entered by hand, changes unknown'
    """
    commit = str(source["commit"])
    short = commit[:COMMIT_DIGITS] if " " not in commit else commit
    if source.get("commit_entered_by_hand") is True:
        short += " entered by hand"
    return short + {True: " with changes", False: "", None: ", changes unknown"}[source.get("dirty")]
