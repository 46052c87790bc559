"""Pictures of topologies in the style of the paper's Fig. 3."""

from __future__ import annotations

from itertools import combinations
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from restt._common.drawing import require_matplotlib, save_figure

if TYPE_CHECKING:
    from restt.topology import Topology

_SHORTCUT, _STATE, _INPUT, _CORE = "#c0392b", "#1f4e9c", "#f4d58d", "#cfe0f5"
_LONGEST_DRAWN_WHOLE = 8  # longer chains show their first and last sites and the edited ones, "…" between
_LONGEST_UNROLLED = 4  # 15 terms; beyond that the equivalent form of Fig. 3d no longer helps
_FORMATS = ("png", "svg", "pdf")


def draw_topology(topology: Topology, path: str | PathLike[str]) -> None:
    """Save the pipeline (Fig. 3a) and, for small N, its unrolled equivalent (Fig. 3d) as png, svg or pdf."""
    plt = require_matplotlib()
    target = Path(fspath(path))
    if target.suffix.lower().lstrip(".") not in _FORMATS:
        raise ValueError(f"path must end in one of {', '.join('.' + f for f in _FORMATS)}, got {target.name!r}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path lies in {str(target.parent)!r}, which is not a folder")
    terms = _terms(topology) if topology.sites <= _LONGEST_UNROLLED else []
    columns = _columns(topology)
    width, height = 1.3 * len(columns) + 1.1, max(2.4, 0.29 * len(terms) + 0.7)
    if terms:
        unrolled = 0.85 * topology.sites + 1.1
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(width + unrolled, height), width_ratios=[width, unrolled], layout="constrained"
        )
        _draw_unrolled(right, topology, terms)
    else:
        figure, left = plt.subplots(figsize=(width, height), layout="constrained")
    _draw_pipeline(left, topology, columns)
    try:
        save_figure(figure, target)
    finally:
        plt.close(figure)


def _columns(topology: Topology) -> list[int | None]:
    """The sites drawn, None where some are left out: runs of equal sites show their first and last."""
    n = topology.sites
    if n <= _LONGEST_DRAWN_WHOLE:
        return list(range(1, n + 1))
    kinds = list(zip(topology.chains, topology.linears, topology.skips, strict=True))
    shown = {1, 2, n - 1, n}
    for site in range(3, n):
        if kinds[site - 2] != kinds[site - 3]:
            shown |= {site - 1, site}
    columns: list[int | None] = []
    for site in sorted(shown):
        if columns and columns[-1] is not None and site > columns[-1] + 1:
            columns.append(None)
        columns.append(site)
    return columns


def _terms(topology: Topology) -> list[tuple[int, ...]]:
    sites = range(1, topology.sites + 1)
    subsets = [members for order in sites for members in combinations(sites, order)]
    return [members for members in subsets if topology.contains(members)]


def _node(axes: Any, x: float, y: float, text: str, color: str) -> None:
    style = {"boxstyle": "circle,pad=0.28", "facecolor": color, "edgecolor": "black", "linewidth": 1}
    axes.text(x, y, text, ha="center", va="center", fontsize=8, bbox=style, zorder=3)


def _junction(axes: Any, x: float, y: float) -> None:
    axes.plot([x], [y], marker="o", markersize=13, markerfacecolor="white", markeredgecolor="black", zorder=3)
    axes.text(x, y, "+", ha="center", va="center", fontsize=11, zorder=4)


def _line(axes: Any, points: list[tuple[float, float]], color: str = "black", arrow: bool = True) -> None:
    xs, ys = zip(*points, strict=True)
    axes.plot(xs, ys, color=color, linewidth=1.4, zorder=1, solid_joinstyle="round")
    if arrow:
        (x0, y0), (x1, y1) = points[-2:]
        middle = ((x0 + x1) / 2 + 0.04 * (x1 - x0), (y0 + y1) / 2 + 0.04 * (y1 - y0))
        axes.annotate("", xy=middle, xytext=(x0, y0), arrowprops={"arrowstyle": "-|>", "color": color}, zorder=2)


def _draw_pipeline(axes: Any, topology: Topology, columns: list[int | None]) -> None:
    step, last = 1.9, topology.sites
    bus = 1.75  # height of the line that leads to the output
    taps: list[float] = []
    for column, site in enumerate(columns):
        x = column * step
        if site is None:
            axes.text(x, 0, "· · ·", ha="center", va="center", fontsize=14)
            continue
        _node(axes, x, -1.6, rf"$x^{{({site})}}$", _INPUT)
        if site == 1:
            _line(axes, [(x, -1.6), (x, 0)])
            _line(axes, [(x, 0), (x + 0.6, 0)], arrow=False)
            _node(axes, x, 0, r"$W^{(1)}$", _CORE)
            _state(axes, x + 0.62, 1, topology)
            continue
        chain, linear, skip = topology.chains[site - 2], topology.linears[site - 2], topology.skips[site - 2]
        start, end = x - step + 0.6, x + 0.62
        leave = start + 0.16  # beside the junction, so that one skip's end and the next one's start stay apart
        if chain:
            _line(axes, [(start, 0), (x, 0)])
            _line(axes, [(x, -1.6), (x, 0)])
            _line(axes, [(x, 0), (end, 0)])
            _node(axes, x, 0, rf"$W^{{({site},1)}}$", _CORE)
        elif skip != "none":
            _line(axes, [(start, 0), (leave, 0)], arrow=False)
        if linear:
            _line(axes, [(x, -1.6), (end, -1.6), (end, 0)], _SHORTCUT)
            _node(axes, end, -0.85, rf"$W^{{({site},2)}}$", _CORE)
        leaves = skip == "output" and site < last
        if leaves:
            _line(axes, [(leave, 0), (leave, bus)], _SHORTCUT)
            taps.append(leave)
        elif skip != "none":
            _line(axes, [(leave, 0), (leave, 0.95), (end, 0.95), (end, 0)], _SHORTCUT, arrow=False)
            if site == last:
                _node(axes, x, 0.95, rf"$W^{{({last},3)}}$", _CORE)
        _junction(axes, end, 0)
        _state(axes, end, site, topology)
    end = (len(columns) - 1) * step + 0.62
    if taps:
        _line(axes, [(min(taps), bus), (end, bus), (end, 0)], _SHORTCUT, arrow=False)
        _node(axes, end - 0.62, bus, rf"$W^{{({last},3)}}$", _CORE)
    _line(axes, [(end, 0), (end + 0.9, 0)])
    axes.set_title(f"{topology.name}: {str(topology).splitlines()[0].split(': ')[1]}", fontsize=10)
    axes.set_xlim(-0.7, end + 1.1)
    axes.set_ylim(-2.1, 2.15)
    axes.set_axis_off()


def _state(axes: Any, x: float, site: int, topology: Topology) -> None:
    lift = 0.36
    label = rf"$y^{{({site})}}$" if site < topology.sites else r"$y$"
    axes.text(x + 0.24, lift, label, color=_STATE, fontsize=9, ha="left", va="center")


def _draw_unrolled(axes: Any, topology: Topology, terms: list[tuple[int, ...]]) -> None:
    """One row per interaction: the tensors on its path through the chain, and the inputs it multiplies."""
    for row, members in enumerate(terms):
        y = -row
        path = [_entry_name(site, members) for site in members]
        if members[-1] < topology.sites:
            path.append(rf"W^{{({topology.sites},3)}}")
        for position, tensor in enumerate(path):
            axes.text(1.35 * position, y, f"${tensor}$", ha="center", va="center", fontsize=8, zorder=3, bbox=_BOX)
            if position:
                axes.plot([1.35 * (position - 1), 1.35 * position], [y, y], color="black", linewidth=1.2, zorder=1)
        inputs = "".join(f"x^{{({site})}}" for site in members)
        axes.text(1.35 * (topology.sites + 0.25), y, f"${inputs}$", ha="left", va="center", fontsize=8)
        axes.text(-0.85, y, "+" if row else "y =", ha="center", va="center", fontsize=9, color=_STATE)
    axes.set_xlim(-1.2, 1.35 * (topology.sites + 0.25) + 0.45 * topology.sites)
    axes.set_ylim(-len(terms) + 0.3, 0.7)
    axes.set_title("equivalent form, term by term", fontsize=10)
    axes.set_axis_off()


_BOX = {"boxstyle": "round,pad=0.25,rounding_size=0.6", "facecolor": _CORE, "edgecolor": "black", "linewidth": 0.8}


def _entry_name(site: int, members: tuple[int, ...]) -> str:
    if site == 1:
        return "W^{(1)}"
    return rf"W^{{({site},{2 if site == members[0] else 1})}}"
