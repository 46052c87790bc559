"""The phase diagram as a picture, with measured trainings on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from os import PathLike
from typing import Any

from torch import Tensor

from restt.meanfield.phases import PhaseDiagram
from restt.meanfield.plots import picture
from restt.meanfield.rules import LARGEST_LOG_GROWTH, LARGEST_LOG_SHRINKAGE, stable_sigma2
from restt.topology import Topology

_LN10 = math.log(10)
_PRESET_NAMES = {"plain": "TT", "residual": "ResTT"}
_DEEPEST_DECADES = 12  # of the colour scale
_LINE_POINTS = 20  # of a line that is straight between them


def plot_phases(
    diagrams: Sequence[PhaseDiagram],
    path: str | PathLike[str],
    success: Sequence[tuple[Tensor, Tensor, Tensor] | None] | None = None,
    titles: Sequence[str] | None = None,
) -> None:
    """The phase diagram over σ_w² and N: vanish, trainable, explode.

    Parameters
    ----------
    diagrams : sequence of PhaseDiagram
        One panel each.
    path : path
        Where to save.
    success : sequence of (σ_w² (K,), N (K,), score in 0…1 (K,)) or None, optional
        Measured trainings, one entry per panel: each point is drawn on the plane, filled by its score.
    titles : sequence of str, optional
        One per panel; by default the presets' names.
    """
    with picture(path, 1, len(diagrams), width=4.8, height=3.9) as axes:
        for index, diagram in enumerate(diagrams):
            axis = axes[0, index]
            points = None if success is None else success[index]
            shading = _draw_plane(axis, diagram, 0 if points is None else int(points[1].max()))
            if titles is not None:
                axis.set_title(titles[index])
            if points is not None:
                dots = _draw_trainings(axis, points)
        if success is not None and any(points is not None for points in success):
            axis.figure.colorbar(dots, ax=axes[0, -1], label="measured: 0 chance, 1 all learned", shrink=0.85)
        else:
            axis.figure.colorbar(shading, ax=axes[0, -1], label="log₁₀ change of the signal's variance", shrink=0.85)
        axes[0, 0].set_ylabel(r"$\sigma_w^2 \cdot \mathrm{E}\,|x|^2$")


def _draw_trainings(axis: Any, points: tuple[Tensor, Tensor, Tensor]) -> Any:
    sigma2, sites, scores = (values.numpy() for values in points)
    return axis.scatter(sites, sigma2, c=scores, cmap="viridis", vmin=0, vmax=1, s=38, edgecolors="black", zorder=3)


def _draw_plane(
    axis: Any,
    diagram: PhaseDiagram,
    occupied: int,  # the words stay right of this N
) -> Any:
    decades = diagram.log_change / _LN10
    low, high = -LARGEST_LOG_SHRINKAGE / _LN10, LARGEST_LOG_GROWTH / _LN10
    sites, sigma2 = diagram.sites.numpy(), diagram.sigma2.numpy()
    shading = axis.pcolormesh(
        sites,
        sigma2,
        decades.clamp(-_DEEPEST_DECADES, _DEEPEST_DECADES).numpy(),
        cmap="RdBu_r",
        vmin=-_DEEPEST_DECADES,
        vmax=_DEEPEST_DECADES,
        shading="nearest",
        rasterized=True,
    )
    axis.contour(sites, sigma2, decades.numpy(), levels=[low, high], colors="black", linestyles="-")
    few = sites[:: max(1, len(sites) // _LINE_POINTS)]
    stable = [stable_sigma2(Topology.preset(diagram.preset, int(n))) for n in few]
    axis.plot(few, stable, color="black", linestyle=":", label='sigma2="auto"')
    axis.set_ylim(sigma2.min(), sigma2.max())
    axis.legend(fontsize=8, loc="lower right")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("number of sites N")
    axis.set_title(_PRESET_NAMES.get(diagram.preset, diagram.preset))
    masks = {"vanish": decades < low, "trainable": (decades >= low) & (decades <= high), "explode": decades > high}
    for phase, mask in masks.items():
        free = mask & (diagram.sites > 1.5 * occupied)
        if free.any():
            row, column = _middle(free)
            box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "boxstyle": "round,pad=0.2"}
            axis.text(sites[column], sigma2[row], phase, ha="center", va="center", bbox=box)
    return shading


def _middle(mask: Tensor) -> tuple[int, int]:
    """The marked cell nearest to the centre of all marked ones."""
    cells = mask.nonzero().double()
    nearest = (cells - cells.mean(dim=0)).square().sum(dim=1).argmin()
    row, column = cells[nearest].int().tolist()
    return row, column
