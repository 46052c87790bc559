"""The synthetic figure as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from restt.meanfield.plots import COLORS, picture
from restt_paper.synthetic_reading import Case
from restt_paper.synthetic_tables import NAMES

LINES = ("-", (0, (5, 3)), ":")


def plot_errors(cases: Sequence[Case], path: Path) -> Path:
    """RMSE by d as in the paper, a column per reading of N(0, ·); below, in units of the target's spread."""
    path.parent.mkdir(parents=True, exist_ok=True)
    readings = sorted({case.reading for case in cases})
    sizes = sorted({case.rows for case in cases})
    with picture(path, 2, len(readings), sharex=True) as axes:
        for column, reading in enumerate(readings):
            for rows, line in zip(sizes, LINES, strict=False):
                for (model, label), color in zip(NAMES.items(), COLORS, strict=False):
                    chosen = [case for case in cases if (case.reading, case.rows) == (reading, rows)]
                    points = [
                        (case.d, error, case.target_std)
                        for case in chosen
                        if (error := case.mean(model)) is not None and case.target_std is not None
                    ]
                    style = {"color": color, "linestyle": line, "marker": "o", "markersize": 3}
                    widths = [d for d, _, _ in points]
                    axes[0, column].plot(widths, [error for _, error, _ in points], label=f"{label}-{rows}", **style)
                    axes[1, column].plot(widths, [error / unit for _, error, unit in points], **style)
            axes[0, column].set_title(f"N(0, ·) gives the {reading}")
            axes[1, column].set_xlabel("feature width d")
            axes[0, column].legend(fontsize=8, frameon=False)
        axes[0, 0].set_ylabel("test RMSE")
        axes[1, 0].set_ylabel("test RMSE / std of y")
    return path
