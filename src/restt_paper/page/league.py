"""The league of tables: every model on the same splits of many tables, from files of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restt_app.pages.numbers import short
from restt_app.pages.shell import Cell, DataTable
from restt_paper.page.charts import Interval, intervals
from restt_paper.page.files import read_all

# Metric -> its name and whether more is better; a file's metric that is not here is not shown.
METRICS = {
    "r2": ("R²", True),
    "accuracy": ("accuracy", True),
    "roc_auc": ("area under the ROC curve", True),
    "log_loss": ("log-loss", False),
    "rmse": ("RMSE", False),
    "crps": ("CRPS", False),
}
OURS = "restt"
# Where files of such results lie, inside the folder of all results.
PLACES = ("tabular/*.json", "bench/tables-*.json", "bench/league*.json")


@dataclass(frozen=True)
class League:
    """One file's tables and models by one metric."""

    title: str
    metric: str
    table: DataTable
    chart: Any  # mean ranks
    behind: tuple[str, ...]  # where ours is not the best, in words
    provenance: Mapping[str, Any]


def leagues(results: Path) -> tuple[list[League], list[str]]:
    """Of every file that is there, and a line on each that cannot be read."""
    found, damaged = read_all(results, PLACES, _leagues)
    return [league for file in found for league in file], damaged


def _leagues(content: Mapping[str, Any]) -> list[League]:
    """One for each metric that a file has."""
    entries = content["results"]
    return [
        _league(str(content.get("title") or content["suite"]), metric, entries, content.get("provenance") or {})
        for metric in METRICS
        if any(_is_number(entry.get(metric)) for entry in entries)
    ]


def _league(title: str, metric: str, entries: Sequence[Mapping[str, Any]], provenance: Mapping[str, Any]) -> League:
    name, more = METRICS[metric]
    cells: dict[str, dict[str, tuple[float, float | None]]] = {}
    for entry in entries:
        if _is_number(entry.get(metric)):
            spread = entry.get(f"{metric}_std") if entry.get("count") != 1 else None
            where = _table_name(entry)
            cells.setdefault(where, {})[str(entry["model"])] = (float(entry[metric]), spread)
    models = sorted({model for row in cells.values() for model in row}, key=lambda model: (not _is_ours(model), model))
    ranks: dict[str, list[int]] = {model: [] for model in models}
    rows, behind = [], []
    for where, row in cells.items():
        ranked = sorted(row, key=lambda model: row[model][0], reverse=more)
        for place, model in enumerate(ranked):
            ranks[model].append(place + 1)
        rows.append((Cell(where), *(_cell(row.get(model), ranked[:1] == [model]) for model in models)))
        behind += [
            f"{where}: {model} is number {ranked.index(model) + 1} of {len(ranked)} by {name}, {_shown(row[model])}; "
            f"{ranked[0]} has {_shown(row[ranked[0]])}"
            for model in ranked[1:]
            if _is_ours(model)
        ]
    means = [Interval(model, sum(at) / len(at), ours=_is_ours(model)) for model, at in ranks.items() if at]
    means.sort(key=lambda one: one.value)
    told = ", ".join(f"{one.name} {short(one.value, 3)}" for one in means)
    return League(
        title,
        name,
        DataTable(
            f"{title}: {name}",
            ("table", *models),
            tuple(rows),
            frozenset(range(1, len(models) + 1)),
            (f"★ best of its row; {'more' if more else 'less'} is better; ± over splits.",),
        ),
        intervals(
            means, f"Mean rank over {len(rows)} tables: {told}", f"mean rank over {len(rows)} tables (1 is best)"
        ),
        tuple(behind),
        provenance,
    )


def _table_name(entry: Mapping[str, Any]) -> str:
    splits = entry.get("splits")
    count = entry.get("count")
    told = ", ".join(
        str(part) for part in (f"{count} {splits} splits" if splits and count and count != 1 else splits,) if part
    )
    return f"{entry['table']} ({told})" if told else str(entry["table"])


def _cell(found: tuple[float, float | None] | None, best: bool) -> Cell:
    if found is None:
        return Cell("–")
    return Cell(f"{'★ ' if best else ''}{_shown(found)}", found[0], kind="best" if best else "")


def _shown(found: tuple[float, float | None]) -> str:
    value, spread = found
    return f"{value:.3f}" + (f" ± {spread:.3f}" if spread is not None else "")


def _is_ours(model: str) -> bool:
    return model.lower().startswith(OURS)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
