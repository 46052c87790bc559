"""The picture of training curves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from restt.meanfield.plots import COLORS, picture


def plot_training(panels: Mapping[str, Mapping[str, Tensor]], path: Path) -> Path:
    """A panel per title, in it a line per label of curves (seeds, epochs): the mean, and the range over seeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with picture(path, 1, len(panels)) as axes:
        for axis, (title, lines) in zip(axes[0], panels.items(), strict=True):
            for (label, curves), color in zip(lines.items(), COLORS, strict=False):
                epochs = range(1, curves.shape[1] + 1)
                axis.plot(epochs, curves.mean(0).tolist(), label=label, color=color)
                low, high = curves.min(0).values.tolist(), curves.max(0).values.tolist()
                axis.fill_between(epochs, low, high, color=color, alpha=0.2, linewidth=0)
            axis.set(title=title, xlabel="epoch", ylabel="test accuracy, %")
            if lines:
                axis.legend()
    return path
