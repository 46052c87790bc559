"""The league as a picture: how far every model is behind the best one, table by table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from restt._common.drawing import require_matplotlib, save_figure
from restt_bench.league.models import OURS
from restt_bench.league.season import DECIDED_BY

LABELS = {"r2": "R² behind the best", "log_loss": "log-loss above the best"}
# Gaps beyond this are drawn at the edge, as open markers: a linear model on a product is off every scale.
EDGE = 0.5
COLOR, OTHERS = "#c2552d", "#8a94a3"


def draw_league(result: dict[str, Any], path: Path) -> Path:
    """One panel for values, one for classes; ours in colour, the others in grey, named where they are best."""
    plt = require_matplotlib()
    panels = [
        (task, metric, more, _gaps(result["results"], task, metric, more))
        for task, (metric, more) in DECIDED_BY.items()
    ]
    panels = [panel for panel in panels if panel[3]]
    tallest = max(len(gaps) for *_, gaps in panels)
    figure, axes = plt.subplots(
        1, len(panels), figsize=(6.5 * len(panels), 1.2 + 0.32 * tallest), squeeze=False, layout="constrained"
    )
    for axis, (_, metric, _, gaps) in zip(axes[0], panels, strict=True):
        for place, by_model in enumerate(gaps.values()):
            for model, gap in sorted(by_model.items(), key=lambda item: item[0] == OURS):
                ours, beyond = model == OURS, gap > EDGE
                color = COLOR if ours else OTHERS
                axis.plot(
                    min(gap, EDGE),
                    place,
                    "o" if ours else "|",
                    color=color,
                    markersize=8 if ours else 9,
                    markerfacecolor="none" if beyond else color,
                    clip_on=False,
                )
            best = min(by_model, key=lambda model: by_model[model])
            if best != OURS:
                axis.annotate(
                    best, (0, place), (-4, 0), textcoords="offset points", ha="right", va="center", fontsize=7
                )
        axis.set_yticks(range(len(gaps)), list(gaps))
        axis.tick_params(axis="y", pad=70, length=0)
        axis.set_xlim(0, EDGE)
        axis.invert_yaxis()
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlabel(f"{LABELS[metric]}; ● {OURS}, | others")
    return save_figure(figure, path)


def _gaps(rows: list[dict[str, Any]], task: str, metric: str, more: bool) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["task"] == task and metric in row:
            found.setdefault(row["table"], {})[row["model"]] = row[metric] if more else -row[metric]
    return {table: {model: max(own.values()) - value for model, value in own.items()} for table, own in found.items()}
