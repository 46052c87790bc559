"""All results as one self-contained HTML page: question, method, every number, and what was missed."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from restt_app.pages.shell import Cell, DataTable, render
from restt_paper.experiments import QUICK_MEANS
from restt_paper.report import COMMITS, FINISHED, Report, Section, commit_in_words
from restt_paper.table import NO_NUMBER, Table
from restt_paper.verdict import CLAIM_COLUMNS, RULE, best_per_target

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
# Metric of the league -> its name and whether more is better.
METRICS = {"r2": ("R²", True), "log_loss": ("log-loss", False)}
OURS = "restt"


class BenchFile(NamedTuple):
    """One results file of ``restt bench`` as a table."""

    table: DataTable
    provenance: Mapping[str, Any]


def paper_page(report: Report, results: Path) -> str:
    """The page of a report, with speed and the league from the files under ``results``.

    The same files give the same page: no time of day and no path is in it.
    """
    parts = [_part(section) for section in report.sections]
    unread: list[str] = []
    speed = _bench_files(results / "bench", _steps, unread)
    league = _bench_files(results / "tabular", _league, unread)
    sections = [("asked", "Asked and found"), ("method", "Method")]
    sections += [(section.name, section.title.split(":")[0]) for section in report.sections]
    sections += [("speed", "Speed")] if speed else []
    sections += [("league", "League of tables")] if league else []
    sections += [("missed", "What was missed"), ("made", "How it was made")]
    finished = FINISHED.read_text(encoding="utf-8").splitlines()
    context = {
        "title": "restt: the paper's results, measured again",
        "eyebrow": "Residual tensor trains",
        "heading": "The paper's results, measured again",
        "facts": _facts(report),
        "sections": sections,
        "quick": QUICK_MEANS if any(section.profile == "quick" for section in report.sections) else "",
        "targets": data_table(best_per_target(report.targets)) if report.targets.rows else None,
        "rule": RULE,
        "parts": parts,
        "speed": speed,
        "league": league,
        "missed_targets": report.missed_targets,
        "finished": [line.removeprefix("- ") for line in finished if line.startswith("- ")],
        "provenance": data_table(report.provenance),
        "bench": _made([file.provenance for file in (*speed, *league)]),
        "missing": [*report.missing, *unread],
    }
    return render("paper.html.j2", context, packages=["restt_paper"])


def _part(section: Section) -> dict[str, Any]:
    """An experiment for the template; tables with their titles, and whether they are opened on demand."""
    tables, seen = [], set[str]()
    for table in section.tables:
        title = table.title.removeprefix(section.title.split(":")[0]).lstrip(": ") or table.title
        # A note of a table above is not repeated.
        notes = tuple(note for note in table.notes if note not in seen)
        seen.update(notes)
        folded = table.details and table.columns != CLAIM_COLUMNS
        tables.append((title[:1].upper() + title[1:], data_table(table, notes), folded))
    return {
        "name": section.name,
        "title": section.title,
        "tables": tables,
        "pictures": [_picture(path, section.title) for path in section.pictures],
        "made": _made([{**file["provenance"], "wall_seconds": file["wall_seconds"]} for file in section.own]),
        "refuted": section.refuted,
    }


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


def _leading_number(text: str) -> float | None:
    """The number that a cell such as "94.88 ± 0.17" begins with, by which it is sorted."""
    try:
        return float(text.split(" ")[0])
    except ValueError:
        return None


def _facts(report: Report) -> list[dict[str, str]]:
    facts = []
    if report.targets.rows:
        best = best_per_target(report.targets).rows
        met = sum(row[-1] == "met" for row in best)
        facts.append({"name": "targets met", "value": f"{met} of {len(best)}", "remark": "by the best recipe"})
    verdicts = [row[-1] for section in report.sections for row in section.claims]
    if verdicts:
        value = f"{verdicts.count('holds')} of {len(verdicts)}"
        facts.append({"name": "claims of the paper that hold", "value": value, "remark": "judged by tests at 5 %"})
    files = sum(file is not None for section in report.sections for file in section.files)
    facts.append({"name": "results", "value": f"{files}", "remark": f"of {len(report.sections)} experiments"})
    return facts


def _made(sources: Sequence[Mapping[str, Any]]) -> DataTable:
    """Command, code and machine behind numbers, one row for equal ones."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for source in filter(None, sources):
        command, device = (str(source.get(name) or NO_NUMBER) for name in ("command", "device"))
        seed = str(source["seed"]) if source.get("seed") is not None else NO_NUMBER
        groups.setdefault((command, commit_in_words(source), device, seed), []).append(source)
    rows = []
    for (command, commit, device, seed), group in sorted(groups.items()):
        seconds = [source["wall_seconds"] for source in group if source.get("wall_seconds") is not None]
        minutes = Cell(f"{sum(seconds) / 60:.1f}", sum(seconds)) if seconds else Cell(NO_NUMBER)
        date = max(str(source.get("date") or "")[:10] for source in group) or NO_NUMBER
        cells = (Cell(command, kind="wide mono"), Cell(commit, kind="mono"), Cell(device), Cell(seed))
        rows.append((*cells, Cell(str(len(group)), len(group)), minutes, Cell(date)))
    columns = ("command", "commit", "device", "seed", "results", "minutes", "date")
    return DataTable("How these numbers were made", columns, tuple(rows), frozenset({4, 5}), (COMMITS,))


def _picture(path: Path, title: str) -> dict[str, Any]:
    """An image for the template, in print size and with a text for those who cannot see it."""
    content, name = path.read_bytes(), path.stem.replace("-", " ")
    source = "data:image/png;base64," + base64.b64encode(_smaller(content)).decode()
    # A PNG begins with its size in pixels; ours are drawn at 150 to the inch, a page has 96.
    width, height = (int.from_bytes(content[at : at + 4], "big") * 96 // 150 for at in (16, 20))
    words = f"{title}: {name}. The tables above have its numbers."
    return {"source": source, "words": words, "width": width, "height": height}


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
    return min(buffer.getvalue(), content, key=len)


def _bench_files(
    folder: Path, read: Callable[[Mapping[str, Any]], list[BenchFile]], unread: list[str]
) -> list[BenchFile]:
    """Tables of the files in a folder; a line on each that cannot be read is appended to ``unread``."""
    files: list[BenchFile] = []
    for path in sorted(folder.glob("*.json")):
        try:
            files += read({"suite": path.stem, **json.loads(path.read_text(encoding="utf-8"))})
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            unread.append(f"Left out: {path.name} cannot be read ({type(error).__name__}: {error})")
    return files


def _bench_file(
    content: Mapping[str, Any],
    title: str,
    first: str,
    columns: Sequence[str],
    rows: Sequence[tuple[Cell, ...]],
    *notes: str,
) -> BenchFile:
    title = f"{content.get('title') or content['suite']}{title}"
    numeric = frozenset(range(1, len(columns) + 1))
    return BenchFile(DataTable(title, (first, *columns), tuple(rows), numeric, notes), content.get("provenance") or {})


def _steps(content: Mapping[str, Any]) -> list[BenchFile]:
    """Median milliseconds of a training step: a row per implementation, a column per case."""
    rows = [row for row in content.get("rows") or [] if row.get("step")]
    if not rows:
        return []
    cases = list(dict.fromkeys(_case(row["case"]) for row in rows))
    medians: dict[str, dict[str, float]] = {}
    for row in rows:
        medians.setdefault(row["label"], {})[_case(row["case"])] = float(row["step"]["median"])
    cells = [
        (
            Cell(label, kind="best" if label.startswith(OURS) else ""),
            *(Cell(f"{own[case]:.3g}", own[case]) if case in own else Cell(NO_NUMBER) for case in cases),
        )
        for label, own in medians.items()
    ]
    device = (content.get("provenance") or {}).get("device", "unknown device")
    return [_bench_file(content, f", {device}: ms a training step", "implementation", cases, cells)]


def _case(case: Mapping[str, Any]) -> str:
    runs = f" S={case['runs']}" if case.get("runs") else ""
    precision = f" {case['precision']}" if case.get("precision", "float32") != "float32" else ""
    return f"N={case['sites']} I={case['feature_dim']} r={case['bond_dim']} B={case['batch']}{runs}{precision}"


def _league(content: Mapping[str, Any]) -> list[BenchFile]:
    """One table per metric: a row per table, a column per model, the best of a row marked."""
    entries = content.get("results")
    if not isinstance(entries, list):
        return []
    files = []
    for metric, (name, more) in METRICS.items():
        scores: dict[str, dict[str, float]] = {}
        for entry in entries:
            if isinstance(entry.get(metric), float) and {"table", "model"} <= entry.keys():
                scores.setdefault(str(entry["table"]), {})[str(entry["model"])] = entry[metric]
        models = sorted({model for own in scores.values() for model in own}, key=lambda model: (model != OURS, model))
        rows = []
        for table, own in scores.items():
            best = (max if more else min)(own.values())
            marks = {model: "★ " if value == best else "" for model, value in own.items()}
            cells = [Cell(f"{marks[m]}{own[m]:.3f}", own[m]) if m in own else Cell(NO_NUMBER) for m in models]
            rows.append((Cell(table), *cells))
        if rows:
            note = f"★ best mean of its row; {'more' if more else 'less'} is better."
            files.append(_bench_file(content, f": {name}", "table", models, rows, note))
    return files
