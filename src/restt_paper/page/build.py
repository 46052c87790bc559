"""The HTML page of all results: the question and the answer, the method, every number, and what was missed."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restt_app.pages.shell import Cell, DataTable, render
from restt_paper.engine.experiment import QUICK_MEANS
from restt_paper.engine.report import COMMITS, FINISHED, Report, Section, commit_in_words
from restt_paper.engine.table import Table
from restt_paper.engine.verdict import RULE, best_per_target
from restt_paper.page.bench_files import league_files, speed_files

VERDICTS = {
    "met": ("✓ met", "mark better"),
    "missed": ("✗ missed", "mark worse"),
    "holds": ("✓ holds", "mark better"),
    "does not hold": ("✗ does not hold", "mark worse"),
    "open": ("? open", ""),
    "not yet": ("… not yet", ""),
}
# Characters from which on a text gets a wide column, and up to which it stays on one line.
LONG, SHORT = 60, 24
# Pictures are drawn for print; on a page they need no more pixels and colours than this.
PICTURE_WIDTH, PICTURE_COLOURS = 1100, 48


@dataclass(frozen=True)
class Picture:
    """An image as it stands in the page, with a text for those who cannot see it."""

    source: str
    words: str
    width: int  # in print size
    height: int


@dataclass(frozen=True)
class Part:
    """One experiment of the paper."""

    name: str
    title: str
    tables: tuple[tuple[str, DataTable, bool], ...]  # title, table, whether it is opened on demand
    pictures: tuple[Picture, ...]
    made: DataTable
    refuted: tuple[str, ...]


def paper_page(report: Report, results: Path) -> str:
    """The page of a report, with speed and the league from the files under ``results``.

    The same files give the same page: no time of day and no path is in it.
    """
    parts = tuple(_part(section) for section in report.sections)
    (speed, unread), (league, unread_too) = speed_files(results), league_files(results)
    sections = [("asked", "Asked and found"), ("method", "Method")]
    sections += [(part.name, part.title.split(":")[0]) for part in parts]
    sections += [("speed", "Speed")] if speed else []
    sections += [("league", "League of tables")] if league else []
    sections += [("missed", "What was missed"), ("made", "How it was made")]
    context = {
        "title": "restt: the paper's results, measured again",
        "eyebrow": "Residual tensor trains",
        "heading": "The paper's results, measured again",
        "facts": _facts(report, parts),
        "sections": sections,
        "quick": QUICK_MEANS if any(section.profile == "quick" for section in report.sections) else "",
        "targets": data_table(best_per_target(report.targets)) if report.targets.rows else None,
        "rule": RULE,
        "parts": parts,
        "speed": speed,
        "league": league,
        "missed_targets": report.missed_targets,
        "finished": _finished(),
        "provenance": data_table(report.provenance),
        "bench": _made([file.provenance for file in (*speed, *league)]),
        "missing": [*report.missing, *unread, *unread_too],
    }
    return render("paper.html.j2", context, packages=["restt_paper.page"])


def _part(section: Section) -> Part:
    tables, seen = [], set[str]()
    for table in section.tables:
        title = table.title.removeprefix(section.title.split(":")[0]).lstrip(": ") or table.title
        # A note of a table above is not repeated.
        notes = tuple(note for note in table.notes if note not in seen)
        seen.update(notes)
        is_claims = table.columns[0] == "the paper's claim"
        tables.append((title[:1].upper() + title[1:], data_table(table, notes), table.details and not is_claims))
    made = _made([{**file["provenance"], "wall_seconds": file["wall_seconds"]} for file in section.own])
    pictures = tuple(_picture(path, section.title) for path in section.pictures)
    return Part(section.name, section.title, tuple(tables), pictures, made, tuple(section.refuted))


def data_table(table: Table, notes: tuple[str, ...] | None = None) -> DataTable:
    """A table of the page, verdicts in its last column as a sign and a word."""
    rows = []
    for row in table.rows:
        cells = [
            Cell(text, _leading_number(text), kind="wide" if len(text) > LONG else "short" if len(text) < SHORT else "")
            for text in row
        ]
        if table.columns[-1] == "verdict":
            text, kind = VERDICTS.get(row[-1], (row[-1], ""))
            cells[-1] = Cell(text, None, "", kind)
        rows.append(tuple(cells))
    return DataTable(table.title, table.columns, tuple(rows), notes=table.notes if notes is None else notes)


def _facts(report: Report, parts: Sequence[Part]) -> list[dict[str, str]]:
    facts = []
    if report.targets.rows:
        best = best_per_target(report.targets).rows
        met = sum(row[-1] == "met" for row in best)
        facts.append({"name": "targets met", "value": f"{met} of {len(best)}", "remark": "by the best recipe"})
    verdicts = [
        row[-1]
        for section in report.sections
        for table in section.tables
        if table.columns[0] == "the paper's claim"
        for row in table.rows
    ]
    if verdicts:
        value = f"{verdicts.count('holds')} of {len(verdicts)}"
        facts.append({"name": "claims of the paper that hold", "value": value, "remark": "judged by tests at 5 %"})
    files = sum(file is not None for section in report.sections for file in section.files)
    facts.append({"name": "results", "value": f"{files}", "remark": f"of {len(parts)} experiments"})
    return facts


def _finished() -> list[str]:
    """Sentences on experiments that are over."""
    lines = FINISHED.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("- ") for line in lines if line.startswith("- ")]


def _made(sources: Sequence[Mapping[str, Any]]) -> DataTable:
    """Command, code and machine behind numbers, one row for equal ones."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for source in sources:
        if source:
            key = (
                str(source.get("command") or "–"),
                commit_in_words(source),
                str(source.get("device") or "–"),
                str(source["seed"]) if source.get("seed") is not None else "–",
            )
            groups.setdefault(key, []).append(source)
    rows = []
    for (command, commit, device, seed), group in sorted(groups.items()):
        seconds = [source["wall_seconds"] for source in group if source.get("wall_seconds") is not None]
        minutes = Cell(f"{sum(seconds) / 60:.1f}", sum(seconds)) if seconds else Cell("–")
        date = max(str(source.get("date") or "")[:10] for source in group) or "–"
        cells = (Cell(command, kind="wide mono"), Cell(commit, kind="mono"), Cell(device), Cell(seed))
        rows.append((*cells, Cell(str(len(group)), len(group)), minutes, Cell(date)))
    columns = ("command", "commit", "device", "seed", "results", "minutes", "date")
    return DataTable("How these numbers were made", columns, tuple(rows), frozenset({4, 5}), (COMMITS,))


def _picture(path: Path, title: str) -> Picture:
    content, words = path.read_bytes(), path.stem.replace("-", " ")
    source = "data:image/png;base64," + base64.b64encode(_smaller(content)).decode()
    # A PNG begins with its size in pixels; ours are drawn at 150 to the inch, a page has 96.
    width, height = (int.from_bytes(content[at : at + 4], "big") * 96 // 150 for at in (16, 20))
    return Picture(source, f"{title}: {words}. The tables above have its numbers.", width, height)


def _smaller(content: bytes) -> bytes:
    """A picture with as many pixels and colours as a page needs, where Pillow is installed; matplotlib brings it."""
    try:
        from PIL import Image
    except ImportError:
        return content
    with Image.open(io.BytesIO(content)) as image:
        drawn = image.convert("RGB")
        if drawn.width > PICTURE_WIDTH:
            drawn = drawn.resize((PICTURE_WIDTH, round(drawn.height * PICTURE_WIDTH / drawn.width)))
        buffer = io.BytesIO()
        drawn.quantize(PICTURE_COLOURS).save(buffer, format="PNG", optimize=True)
    smaller = buffer.getvalue()
    return smaller if len(smaller) < len(content) else content


def _leading_number(text: str) -> float | None:
    """The number that a cell such as "94.88 ± 0.17" begins with, by which it is sorted."""
    try:
        return float(text.split(" ")[0])
    except ValueError:
        return None
