"""Everything measured, as tables in the terminal and as one Markdown page, from the results files alone."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import quote

from restt._common.errors import check_folder, check_new_file
from restt._common.files import write_bytes_atomic
from restt_paper import EXPERIMENTS, PICTURES, QUICK_MEANS, experiment, results_of, tables_of
from restt_paper.store import Store, read_cell
from restt_paper.tables import Table
from restt_paper.targets import Target, targets_table

INTRODUCTION = """\
# Results

Written by `restt report` from the files of results; do not edit. `restt reproduce NAME --profile paper` computes what
is missing. What was not measured yet says "not yet"; a target that was missed, and a claim of the paper that does not
hold, say so."""
COMMIT_DIGITS = 10
# Settings that may hold the key of the cell by which something was chosen before.
CHOSEN_BY = ("rate", "search")


@dataclass(frozen=True)
class Section:
    """One experiment: its tables, its pictures, and the files they come from.

    ``files`` has one entry per cell, None where it is missing; ``own`` are those computed for this experiment and no
    other, and the choices of rates and settings before them.
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

    def print(self) -> None:
        """All tables, in the terminal."""
        for section in self.sections:
            for table in section.tables:
                table.print()
        self.provenance.print()
        self.targets.print()

    def to_markdown(self, folder: str | PathLike[str] = ".") -> str:
        """The page; links to pictures start from ``folder``, where it will lie."""
        parts = [INTRODUCTION]
        if any(section.profile == "quick" for section in self.sections):
            parts.append(QUICK_MEANS)
        parts += [f"## {self.targets.title}", self.targets.to_markdown(heading=False)]
        for section in self.sections:
            parts.append(f"## {section.title}")
            parts += [table.to_markdown(heading=table.title != section.title) for table in section.tables]
            parts += [_link(path, folder) for path in section.pictures]
        parts += [f"## {self.provenance.title}", self.provenance.to_markdown(heading=False)]
        return "\n\n".join(parts) + "\n"


def collect(results: str | PathLike[str] = "results") -> Report:
    """Read everything under ``results``: ``paper``, and ``quick`` for experiments of which nothing else is there.

    >>> report = collect(getfixture("tmp_path"))
    >>> {row[-1] for row in report.targets.rows}
    {'not yet'}
    """
    root = check_folder("results", results)
    sections = tuple(_section(name, root) for name in EXPERIMENTS)
    targets: list[Target] = [target for name in EXPERIMENTS for target in getattr(experiment(name), "TARGETS", ())]
    return Report(targets_table(targets, Store(root / "paper")), sections, _provenance(sections))


def write_report(results: str | PathLike[str] = "results", output: str | PathLike[str] = "docs/results.md") -> Report:
    """:func:`collect`, and write the Markdown page. The same results give the same page."""
    page = check_new_file("output", output)
    if not Path(results).exists():  # a page of "not yet" must not replace one of results by a slip
        raise FileNotFoundError(
            f"results must be a folder of results, got {str(results)!r}, which is not there; restt reproduce fills one"
        )
    report = collect(results)
    write_bytes_atomic(page, report.to_markdown(page.parent).encode())
    return report


def _section(name: str, root: Path) -> Section:
    profile = "paper"
    files = results_of(name, "paper", root / "paper")
    if not any(files):
        quick = results_of(name, "quick", root / "quick")
        if any(quick):
            profile, files = "quick", quick
    folder = root / profile
    pictures = sorted((folder / PICTURES).glob(f"{name}*.png"))
    tables, own = tables_of(name, profile, folder), _own(name, profile, folder)
    return Section(name, experiment(name).TITLE, profile, tuple(tables), tuple(pictures), tuple(files), tuple(own))


def _own(name: str, profile: str, folder: Path) -> list[dict[str, Any]]:
    """What is asked for today; a folder may also hold results of earlier settings, and files of other kinds."""
    asked = [cell for cell in experiment(name).cells(profile) if cell.experiment == name]
    before = [cell.settings[choice] for cell in asked for choice in CHOSEN_BY if choice in cell.settings]
    keys = dict.fromkeys([*(cell.key for cell in asked), *(key for key in before if isinstance(key, str))])
    return [found for key in keys if (found := read_cell(folder / f"{key}.json")) is not None]


def _link(path: Path, folder: str | PathLike[str]) -> str:
    """
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
    return Table(
        "Where the numbers come from",
        ("experiment", "profile", "results", "minutes", "device", "commit"),
        tuple(_origin(section) for section in sections),
        (
            "Minutes, device and commit are of what was computed for the experiment itself, choices of rates and "
            "settings included; results of other experiments that it shows are counted there.",
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
        _distinct([_commit(file["provenance"]) for file in found]),
    )


def _distinct(texts: Sequence[str]) -> str:
    return "; ".join(sorted(set(texts))) or "–"


def _commit(source: Mapping[str, Any]) -> str:
    """The commit in short, and whether the files differed from it.

    >>> _commit({"commit": "0123456789abcdef", "dirty": True})
    '0123456789 with changes'
    """
    commit = str(source["commit"])
    short = commit[:COMMIT_DIGITS] if " " not in commit else commit
    return f"{short} with changes" if source.get("dirty") else short
