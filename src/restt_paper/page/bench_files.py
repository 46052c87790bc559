"""Speed and the league of tables on the page, from the files of ``restt bench``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restt_app.pages.shell import Cell, DataTable

# Metric -> its name and whether more is better.
METRICS = {"r2": ("R²", True), "log_loss": ("log-loss", False)}
OURS = "restt"


@dataclass(frozen=True)
class BenchFile:
    """One results file as a table."""

    table: DataTable
    provenance: Mapping[str, Any]


def speed_files(results: Path) -> tuple[list[BenchFile], list[str]]:
    """Timed steps of every suite under ``results/bench``, and a line on each file that cannot be read."""
    return _read(results.glob("bench/*.json"), _steps)


def league_files(results: Path) -> tuple[list[BenchFile], list[str]]:
    """Scores of every league under ``results/tabular``, and a line on each file that cannot be read."""
    return _read(results.glob("tabular/*.json"), _league)


def _read(
    paths: Iterable[Path], make: Callable[[Mapping[str, Any]], list[BenchFile]]
) -> tuple[list[BenchFile], list[str]]:
    files: list[BenchFile] = []
    unread: list[str] = []
    for path in sorted(paths):
        try:
            files += make({"suite": path.stem, **json.loads(path.read_text(encoding="utf-8"))})
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            unread.append(f"Left out: {path.name} cannot be read ({type(error).__name__}: {error})")
    return files, unread


def _steps(content: Mapping[str, Any]) -> list[BenchFile]:
    """Median milliseconds of a training step: a row per implementation, a column per case."""
    rows = [row for row in content.get("rows") or [] if row.get("step")]
    if not rows:
        return []
    cases = list(dict.fromkeys(_case(row["case"]) for row in rows))
    medians: dict[str, dict[str, float]] = {}
    for row in rows:
        medians.setdefault(row["label"], {})[_case(row["case"])] = float(row["step"]["median"])
    cells = tuple(
        (
            Cell(label, kind="best" if label.startswith(OURS) else ""),
            *(Cell(f"{own[case]:.3g}", own[case]) if case in own else Cell("–") for case in cases),
        )
        for label, own in medians.items()
    )
    origin = content.get("provenance") or {}
    title = f"{content.get('title') or content['suite']}, {origin.get('device', 'unknown device')}: ms a training step"
    numeric = frozenset(range(1, len(cases) + 1))
    return [BenchFile(DataTable(title, ("implementation", *cases), cells, numeric), origin)]


def _case(case: Mapping[str, Any]) -> str:
    runs = f" S={case['runs']}" if case.get("runs") else ""
    precision = f" {case['precision']}" if case.get("precision", "float32") != "float32" else ""
    return f"N={case['sites']} I={case['feature_dim']} r={case['bond_dim']} B={case['batch']}{runs}{precision}"


def _league(content: Mapping[str, Any]) -> list[BenchFile]:
    """One table per metric: a row per table, a column per model, the best of a row marked."""
    entries, origin = content.get("results"), content.get("provenance") or {}
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
            cells = [Cell(table)]
            for model in models:
                value = own.get(model)
                mark = "★ " if value == best else ""
                cells.append(Cell("–") if value is None else Cell(f"{mark}{value:.3f}", value))
            rows.append(tuple(cells))
        if rows:
            title = f"{content.get('title') or content['suite']}: {name}"
            notes = (f"★ best mean of its row; {'more' if more else 'less'} is better.",)
            shown = DataTable(title, ("table", *models), tuple(rows), frozenset(range(1, len(models) + 1)), notes)
            files.append(BenchFile(shown, origin))
    return files
