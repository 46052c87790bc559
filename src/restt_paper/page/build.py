"""The page of everything measured: put together from a report and the files beside it."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from restt_app.pages.shell import Cell, DataTable, render
from restt_paper.engine.report import COMMITS, QUICK_MEANS, Report, Section, commit_in_words
from restt_paper.page.differences import Difference, compared, worse
from restt_paper.page.league import League, leagues
from restt_paper.page.speed import Speed, speed

VERDICTS = {
    "met": ("✓ met", "mark better"),
    "missed": ("✗ missed", "mark worse"),
    "holds": ("✓ holds", "mark better"),
    "does not hold": ("✗ does not hold", "mark worse"),
    "open": ("? open", ""),
    "not yet": ("… not yet", ""),
}
# Tables that are opened on demand: other ways to read the same runs.
FOLDED = ("epoch selected", "best epoch", "learning rates")
# Pictures are drawn for print; on a page they need no more pixels and colours than this.
PICTURE_WIDTH, PICTURE_COLOURS = 1100, 48


@dataclass(frozen=True)
class Shown:
    """One table of a section; ``folded`` ones are opened on demand."""

    title: str
    data: DataTable
    folded: bool


@dataclass(frozen=True)
class Picture:
    """An image as it stands in the page, and what it shows in words."""

    source: str
    words: str
    width: int  # as large as on paper
    height: int


@dataclass(frozen=True)
class Part:
    """One experiment of the paper."""

    name: str
    title: str
    tables: tuple[Shown, ...]
    pictures: tuple[Picture, ...]
    made: DataTable


def paper_page(report: Report, results: Path) -> str:
    """The page of a report, with speed and the league from the files under ``results``.

    The same files give the same page: no time of day and no path is in it.
    """
    parts, differences = _parts(report.sections)
    timed, (league, damaged) = speed(results), leagues(results)
    sections = [("worse", "Where we do worse")]
    sections += [("targets", "Targets")] if report.targets.rows else []
    sections += [(part.name, part.title.split(":")[0]) for part in parts]
    sections += [("speed", "Speed")] if timed.steps or timed.scaling or timed.targets else []
    sections += [("league", "League of tables")] if league else []
    sections.append(("made", "How it was made"))
    context = {
        "title": "restt: everything measured, beside the paper",
        "eyebrow": "Residual tensor trains",
        "heading": "Everything measured, beside the paper",
        "facts": _facts(report, differences, league),
        "sections": sections,
        "quick": QUICK_MEANS if any(section.profile == "quick" for section in report.sections) else "",
        "targets": _with_verdicts(_plain(report.targets)) if report.targets.rows else None,
        "parts": parts,
        "speed": timed,
        "league": league,
        "worse": _worse(report, differences, timed, league),
        "provenance": _plain(report.provenance),
        "bench": _made([*(file.provenance for file in timed.files), *(one.provenance for one in league)]),
        "missing": [*report.damaged, *timed.damaged, *damaged, *([report.missing] if report.missing else [])],
    }
    return render("paper.html.j2", context, packages=["restt_paper.page"])


def _parts(sections: Sequence[Section]) -> tuple[tuple[Part, ...], list[Difference]]:
    parts: list[Part] = []
    differences: list[Difference] = []
    for section in sections:
        tables, said = [], set[str]()
        for table in section.tables:
            data, found = compared(table)
            differences += found
            # A note that a table above already has is not said again.
            data = replace(data, notes=tuple(note for note in data.notes if note not in said))
            said.update(data.notes)
            title = table.title.removeprefix(section.title.split(":")[0]).lstrip(": ") or table.title
            tables.append(Shown(_sentence(title), _with_verdicts(data), any(word in title for word in FOLDED)))
        pictures = tuple(_picture(path, section.title) for path in section.pictures)
        made = _made([{**file["provenance"], "wall_seconds": file["wall_seconds"]} for file in section.own])
        parts.append(Part(section.name, section.title, tuple(tables), pictures, made))
    return tuple(parts), differences


def _sentence(title: str) -> str:
    return title[:1].upper() + title[1:]


def _plain(table: Any) -> DataTable:
    return compared(table)[0]


def _with_verdicts(data: DataTable) -> DataTable:
    """Verdicts in the last column as a sign and a word."""
    if not data.columns or data.columns[-1] != "verdict":
        return data
    rows = []
    for row in data.rows:
        text, kind = VERDICTS.get(row[-1].text, (row[-1].text, ""))
        rows.append((*row[:-1], Cell(text, None, "", kind)))
    return replace(data, rows=tuple(rows))


def _facts(report: Report, differences: Sequence[Difference], league: Sequence[League]) -> list[dict[str, str]]:
    facts = []
    if report.targets.rows:
        met = sum(row[-1] == "met" for row in report.targets.rows)
        facts.append({"name": "targets met", "value": f"{met} of {len(report.targets.rows)}", "remark": ""})
    verdicts = [row[-1] for table in _claims(report) for row in table.rows]
    if verdicts:
        facts.append(
            {
                "name": "claims of the paper that hold",
                "value": f"{verdicts.count('holds')} of {len(verdicts)}",
                "remark": "judged by tests at 5 %",
            }
        )
    if differences:
        counted = {kind: sum(one.verdict == kind for one in differences) for kind in ("better", "same", "worse")}
        facts.append(
            {
                "name": "numbers beside the paper's",
                "value": f"{len(differences):,}",
                "remark": f"▲ {counted['better']} better, ≈ {counted['same']} same, ▼ {counted['worse']} worse",
            }
        )
    facts.append(
        {"name": "experiments", "value": str(len(report.sections)), "remark": "" if not report.missing else "not all"}
    )
    if league:
        tables = sum(len(one.table.rows) for one in league)
        facts.append({"name": "rows of the league", "value": str(tables), "remark": "same splits for every model"})
    return facts


def _claims(report: Report) -> Iterable[Any]:
    return (
        table
        for section in report.sections
        for table in section.tables
        if table.columns[0] == "the paper's claim" and table.columns[-1] == "verdict"
    )


@dataclass(frozen=True)
class Group:
    """One kind of shortfall: where it belongs on the page, its sentence, its items."""

    anchor: str
    title: str
    items: tuple[str, ...]


def _worse(
    report: Report, differences: Sequence[Difference], timed: Speed, league: Sequence[League]
) -> tuple[Group, ...]:
    """What a reader who looks for faults should find first; computed, never chosen."""
    groups = [
        Group(
            "targets",
            "Targets that were missed",
            tuple(
                f"{row[0]}{'' if row[1] == '–' else f' ({row[1]})'}: {row[4]}, wanted {row[3]}"
                for row in report.targets.rows
                if row[-1] == "missed"
            ),
        )
    ]
    for section in report.sections:
        failed = [
            f"{row[0]}: {row[1]}"
            for table in section.tables
            if table.columns[0] == "the paper's claim"
            for row in table.rows
            if row[-1] == "does not hold"
        ]
        groups.append(Group(section.name, f"{section.title.split(':')[0]}: claims that do not hold", tuple(failed)))
    names = {table.title: section.name for section in report.sections for table in section.tables}
    groups += [
        Group(names[title], f"{title}: below the paper", tuple(one.told for one in found))
        for title, found in worse(differences).items()
    ]
    groups += [
        Group("speed", "Targets of speed that were missed", tuple(one for file in timed.files for one in file.missed)),
        Group("speed", "Baselines that are faster", tuple(one for file in timed.files for one in file.slower)),
        *(Group("league", f"{one.title}: not the best by {one.metric}", one.behind) for one in league),
    ]
    return tuple(group for group in groups if group.items)


def _made(sources: Sequence[Mapping[str, Any]]) -> DataTable:
    """How numbers were made: what was run, from which code, on what; alike ones together."""
    together: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for source in sources:
        if source:
            seed = source.get("seed")
            key = (
                str(source.get("command") or "–"),
                commit_in_words(source),
                str(source.get("device") or "–"),
                "–" if seed is None else str(seed),
            )
            together.setdefault(key, []).append(source)
    rows = tuple(
        (
            Cell(command, kind="wide mono"),
            Cell(commit, kind="mono"),
            Cell(device),
            Cell(seed),
            Cell(str(len(found)), len(found)),
            _minutes(found),
            Cell(max(str(one.get("date") or "")[:10] for one in found) or "–"),
        )
        for (command, commit, device, seed), found in sorted(together.items())
    )
    columns = ("command", "commit", "device", "seed", "results", "minutes", "date")
    return DataTable("How these numbers were made", columns, rows, frozenset({4, 5}), (COMMITS,))


def _minutes(found: Sequence[Mapping[str, Any]]) -> Cell:
    seconds = [one["wall_seconds"] for one in found if one.get("wall_seconds") is not None]
    return Cell(f"{sum(seconds) / 60:.1f}", sum(seconds)) if seconds else Cell("–")


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
