"""Time against r, N, B or S, with the limit drawn in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from restt._common.drawing import save_figure
from restt_bench.race import Row

AXES = {
    "bond_dim": "bond dimension r",
    "sites": "sites N",
    "batch": "batch B",
    "runs": "runs side by side S",
}


def plot_suite(
    result: dict[str, Any],
    path: Path,
) -> Path | None:
    """Save the picture of one suite with a varying axis as PNG; None where there is nothing to draw."""
    axis, rows = result.get("axis"), [row for row in result["rows"] if "step" in row]
    if axis is None or not rows:
        return None
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install restt[plot], or run without plots") from error
    figure = Figure(figsize=(7.5, 5.0), layout="constrained")
    drawing = figure.add_subplot()
    for name in dict.fromkeys(row["contender"] for row in rows):
        _draw_contender(drawing, axis, [row for row in rows if row["contender"] == name])
    drawing.set_xscale("log")
    drawing.set_yscale("log")
    drawing.set_xlabel(AXES[axis])
    drawing.set_ylabel("training step, ms (median, quartiles shaded)")
    drawing.set_title(result["title"])
    drawing.grid(visible=True, which="both", alpha=0.2)
    figure.legend(loc="outside right upper", fontsize="small")
    return save_figure(figure, path, metadata={"Software": None})


def _draw_contender(drawing: Any, axis: str, rows: list[Row]) -> None:
    rows = sorted(rows, key=lambda row: row["case"][axis])
    sizes = [row["case"][axis] for row in rows]
    lower, median, upper = ([row["step"][key] for row in rows] for key in ("lower", "median", "upper"))
    is_limit = rows[0]["role"] == "limit"
    style = {"color": "black", "linestyle": "--"} if is_limit else {"marker": "o", "markersize": 4}
    if rows[0]["role"] == "peer":
        style["linestyle"] = ":"
    (line,) = drawing.plot(sizes, median, label=rows[0]["label"], **style)
    drawing.fill_between(sizes, lower, upper, alpha=0.2, color=line.get_color(), linewidth=0)
