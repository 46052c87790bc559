"""Pictures of the mean-field analysis; matplotlib is imported when the first one is drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from restt._common.drawing import require_matplotlib, save_figure
from restt.init.stability import LARGEST_LOG_GROWTH, LARGEST_LOG_SHRINKAGE, stable_sigma2
from restt.meanfield.profile import Profile
from restt.topology import Topology
from restt_paper.meanfield.comparison import Comparison
from restt_paper.meanfield.trainability import PhaseDiagram, Points, typical_log_decay

COLORS = ("#2563a8", "#c2552d", "#2e8b57", "#8a4fae", "#b8860b", "#555555")
_LN10 = math.log(10)
_BAND = 2  # standard errors each side
_PRESET_NAMES = {"plain": "TT", "residual": "ResTT"}
_DEEPEST_DECADES = 12  # of the colour scale
_LINE_POINTS = 20  # of a line that is straight between them
_DASHED = (0, (5, 3))
_LEGEND: dict[str, Any] = {"fontsize": 8, "frameon": False}


@contextmanager
def picture(
    path: str | PathLike[str],
    rows: int,
    columns: int,
    *,
    width: float = 4.4,
    height: float = 3.2,
    **options: Any,
) -> Iterator[Any]:
    """A grid of axes (rows, columns), saved to ``path`` when the block ends; the file's ending picks the format."""
    plt = require_matplotlib()
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained", **options
    )
    try:
        yield axes
        for axis in axes.flat:
            axis.spines[["top", "right"]].set_visible(False)
        save_figure(figure, path)
    finally:
        plt.close(figure)


def plot_profiles(groups: Mapping[str, Mapping[str, tuple[Profile, Profile]]], path: str | PathLike[str]) -> None:
    """Variance q and χ along the chain.

    ``groups`` is {title: {label: (theory, measured)}}: a column per title, a colour per label.
    """
    with picture(path, 2, len(groups), sharex="col") as axes:
        for column, (title, cases) in enumerate(groups.items()):
            for color, (label, (theory, measured)) in zip(COLORS, cases.items(), strict=False):
                for row, name in enumerate(("q", "chi")):
                    _draw_profile(axes[row, column], name, label, theory, measured, color)
            axes[0, column].set_title(title)
            axes[1, column].set_xlabel("site k")
            axes[0, column].legend(**_LEGEND)
        axes[0, 0].set_ylabel("log₁₀ q(k)")
        axes[1, 0].set_ylabel("log₁₀ χ(k)")
        styles = [
            axes[1, 0].plot([], [], color="black", linestyle=_DASHED, label="theory")[0],
            axes[1, 0].plot([], [], color="gray", label=f"mean over runs ± {_BAND} s.e.")[0],
            axes[1, 0].plot([], [], color="gray", linestyle=":", label="median run")[0],
        ]
        axes[1, 0].legend(handles=styles, **_LEGEND)


def plot_steps(groups: Mapping[str, Mapping[str, Comparison]], path: str | PathLike[str]) -> None:
    """Deviation of measurement from theory along the chain, all steps added up, in standard errors.

    ``groups`` is {title: {label: Comparison}}: a column per title, a colour per label.
    """
    with picture(path, 2, len(groups), height=2.6, sharex="col", sharey=True) as axes:
        for column, (title, cases) in enumerate(groups.items()):
            for color, (label, comparison) in zip(COLORS, cases.items(), strict=False):
                axes[0, column].plot(comparison.q.profile_z, color=color, label=label)
                axes[1, column].plot(comparison.chi.profile_z, color=color)
            for row in range(2):
                axes[row, column].axhspan(-_BAND, _BAND, color="#2e8b57", alpha=0.12, linewidth=0)
                axes[row, column].axhline(0, color="black", linewidth=1, linestyle=_DASHED)
            axes[0, column].set_title(title)
            axes[1, column].set_xlabel("steps of the recursion")
            axes[0, column].legend(ncols=3, **_LEGEND)
        axes[0, 0].set_ylabel("q: deviation / s.e.")
        axes[1, 0].set_ylabel("χ: deviation / s.e.")


def _draw_profile(axis: Any, name: str, label: str, theory: Profile, measured: Profile, color: str) -> None:
    """Draw ``name``, q or chi: the mean with its band, the median, and the theory."""
    predicted = getattr(theory, f"log_{name}") / _LN10
    sites = torch.arange(len(predicted)) + (1 if name == "q" else 2)
    mean = getattr(measured, f"log_{name}") / _LN10
    error = getattr(measured, f"log_{name}_error")
    median = getattr(measured, f"median_log_{name}")
    axis.plot(sites, mean, color=color, linewidth=1.8, label=label)
    if error is not None:
        half = _BAND * error / _LN10
        axis.fill_between(sites, mean - half, mean + half, color=color, alpha=0.22, linewidth=0)
    if median is not None:
        axis.plot(sites, median / _LN10, color=color, linewidth=1, linestyle=":")
    axis.plot(sites, predicted, color="black", linewidth=1, linestyle=_DASHED)


def plot_conventions(measured: Profile, derived: Profile, paper: Profile, path: str | PathLike[str]) -> None:
    """The measured q of a residual chain against the derived recursion (+ s/r) and the paper's (+ s)."""
    with picture(path, 1, 1, width=5.2) as axes:
        axis = axes[0, 0]
        _draw_profile(axis, "q", "measured, mean over runs", derived, measured, COLORS[0])
        sites = torch.arange(paper.sites) + 1
        axis.plot(sites, paper.log_q / _LN10, color=COLORS[1], label="q(k) = (1+s) q(k−1) + s, as printed")
        axis.plot([], [], color="black", linestyle=_DASHED, label="q(k) = (1+s) q(k−1) + s/r, derived")
        axis.set_xlabel("site k")
        axis.set_ylabel("log₁₀ q(k)")
        axis.legend(**_LEGEND)


def plot_finite_width(rows: Sequence[Mapping[str, float]], sites: int, path: str | PathLike[str]) -> None:
    """Plot q after N sites of a plain train at s = 1, by bond dimension: mean, median and quartiles over runs."""
    with picture(path, 1, 1, width=5.2) as axes:
        axis = axes[0, 0]
        bonds = [row["bond_dim"] for row in rows]

        def decades(name: str) -> list[float]:
            return [row[name] / _LN10 for row in rows]

        axis.axhline(0, color="black", linewidth=1, linestyle=_DASHED, label="theory of the mean: 1")
        between = range(int(min(bonds)), int(max(bonds)) + 1)
        typical = [(sites - 2) * typical_log_decay(bond) / _LN10 for bond in between]
        axis.plot(between, typical, color="black", linewidth=1, label="theory of the typical run")
        axis.plot(bonds, decades("log_mean"), "s", color=COLORS[1], label="mean over runs")
        axis.plot(bonds, decades("log_median"), "o", color=COLORS[0], label="median run")
        axis.vlines(
            bonds, decades("log_lower_quartile"), decades("log_upper_quartile"), color=COLORS[0], label="quartiles"
        )
        axis.set_xscale("log")
        axis.set_xticks(bonds, [f"{bond:g}" for bond in bonds])
        axis.minorticks_off()
        axis.set_xlabel("bond dimension r")
        axis.set_ylabel(f"log₁₀ q({sites - 1}) / q(1)")
        axis.legend(**_LEGEND)


def plot_gradients(curves: Mapping[str, Tensor], path: str | PathLike[str]) -> None:  # label -> (S, N)
    """Each site's gradient over the chain's middle one; the median run in colour, all runs in grey."""
    with picture(path, 1, len(curves), width=4, height=3, sharey=True) as axes:
        for axis, color, (label, gradients) in zip(axes[0], COLORS, curves.items(), strict=False):
            relative = (gradients / gradients.median(dim=1, keepdim=True).values).log10()
            sites = torch.arange(gradients.shape[1]) + 1
            for run in relative:
                axis.plot(sites, run, color="#bbbbbb", linewidth=0.5)
            axis.plot(sites, relative.median(dim=0).values, color=color, linewidth=1.2)
            axis.axhspan(-0.5, 0.5, color="#2e8b57", alpha=0.12, linewidth=0)
            axis.set_title(label, fontsize=10)
            axis.set_xlabel("site")
        axes[0, 0].set_ylabel("log₁₀ gradient / median site's")


def plot_phases(
    diagrams: Sequence[PhaseDiagram],
    path: str | PathLike[str],
    points: Sequence[Points] | None = None,
    titles: Sequence[str] | None = None,
) -> None:
    """The phase diagrams over σ_w² and N, one panel each: vanish, trainable, explode.

    ``points`` are measured trainings of each panel, drawn on the plane and filled by their score; ``titles`` stand in
    place of the presets' names.
    """
    with picture(path, 1, len(diagrams), width=4.8, height=3.9) as axes:
        for index, diagram in enumerate(diagrams):
            axis = axes[0, index]
            shading = _draw_plane(axis, diagram, 0 if points is None else int(points[index][1].max()))
            if titles is not None:
                axis.set_title(titles[index])
            if points is not None:
                sigma2, sites, scores = (values.numpy() for values in points[index])
                style = {"cmap": "viridis", "vmin": 0, "vmax": 1, "s": 38, "edgecolors": "black", "zorder": 3}
                shading = axis.scatter(sites, sigma2, c=scores, **style)
        change, learned = "log₁₀ change of the signal's variance", "measured: 0 chance, 1 all learned"
        axis.figure.colorbar(shading, ax=axes[0, -1], label=change if points is None else learned, shrink=0.85)
        axes[0, 0].set_ylabel(r"$\sigma_w^2 \cdot \mathrm{E}\,|x|^2$")


def _draw_plane(axis: Any, diagram: PhaseDiagram, occupied: int) -> Any:
    """Shade one diagram, with the names of the phases right of N = ``occupied``."""
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
            # The marked cell nearest to the centre of all marked ones.
            marked = free.nonzero().double()
            row, column = marked[(marked - marked.mean(dim=0)).square().sum(dim=1).argmin()].int().tolist()
            box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "boxstyle": "round,pad=0.2"}
            axis.text(sites[column], sigma2[row], phase, ha="center", va="center", bbox=box)
    return shading
