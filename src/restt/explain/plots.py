"""Pictures of explanations, each on one set of axes; matplotlib is imported when the first one is drawn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.drawing import require_matplotlib
from restt._common.errors import check_int, shown

UP, DOWN, NEUTRAL = "#c2552d", "#2563a8", "#555555"
FADED = 0.35  # opacity of what may as well be zero
BARS = 12  # columns shown; the rest are summed, or left to the tables


def _axes(axes: Any, width: float = 6.0, height: float = 4.0) -> Any:
    if axes is not None:
        return axes
    _, made = require_matplotlib().subplots(figsize=(width, height), layout="constrained")
    made.spines[["top", "right"]].set_visible(False)
    return made


def _output(found: Any, output: int) -> int:
    return check_int("output", output, minimum=0, maximum=len(found.outputs) - 1)


def _row(found: Any, row: int) -> int:
    return check_int("row", row, minimum=0, maximum=len(found) - 1)


def waterfall(found: Any, output: int = 0, axes: Any = None, row: int = 0) -> Any:
    """From the background's prediction to the row's, one bar per column, the largest on top."""
    o, row = _output(found, output), _row(found, row)
    values = found.values[row, :, o].numpy()
    ranked = np.argsort(-np.abs(values))
    shown_, rest = ranked[:BARS], values[ranked[BARS:]].sum()
    bars = [(_labelled(found, row, n), float(values[n])) for n in shown_]
    if len(ranked) > BARS:
        bars.append((f"{len(ranked) - BARS} others", float(rest)))
    axes = _axes(axes, height=1.0 + 0.35 * len(bars))
    level = float(found.base[o])
    for place, (_, value) in reversed(list(enumerate(bars))):
        axes.barh(place, value, left=level, color=UP if value > 0 else DOWN)
        end = max(level, level + value)
        axes.annotate(f"{value:+.3g}", (end, place), (3, 0), textcoords="offset points", va="center", fontsize=8)
        level += value
    axes.axvline(float(found.base[o]), color=NEUTRAL, linewidth=0.8, linestyle=":")
    axes.axvline(level, color=NEUTRAL, linewidth=0.8)
    axes.set_yticks(range(len(bars)), [label for label, _ in bars])
    axes.invert_yaxis()
    axes.set_xlabel(f"{found.outputs[o]}: from {float(found.base[o]):.3g} to {level:.3g}")
    return axes


def _labelled(found: Any, row: int, column: int) -> str:
    if found.data is None:
        return str(found.names[column])
    value = found.data[row, column]
    return f"{found.names[column]} = {value:.3g}" if isinstance(value, float) else f"{found.names[column]} = {value}"


def beeswarm(found: Any, output: int = 0, axes: Any = None) -> Any:
    """All rows' Shapley values by column, coloured by the rank of the column's value."""
    o = _output(found, output)
    values = found.values[:, :, o].numpy()
    ranked = np.argsort(-np.abs(values).mean(axis=0))[:BARS]
    axes = _axes(axes, height=1.0 + 0.4 * len(ranked))
    for place, n in enumerate(ranked):
        ordered = np.argsort(values[:, n])
        # Neighbours in value are spread apart in turn, so that equal values form a band as wide as they are many.
        offsets = np.empty(len(ordered))
        offsets[ordered] = 0.3 * np.sin(2.4 * np.arange(len(ordered)))
        axes.scatter(values[:, n], place + offsets, c=_ranks(found, n), cmap="coolwarm", s=8, linewidths=0)
    axes.axvline(0, color=NEUTRAL, linewidth=0.8)
    axes.set_yticks(range(len(ranked)), [found.names[n] for n in ranked])
    axes.invert_yaxis()
    axes.set_xlabel(f"Shapley value for {found.outputs[o]}")
    return axes


def _ranks(found: Any, column: int) -> np.ndarray:
    if found.data is None:
        return np.full(len(found), 0.5)
    keys = [
        (isinstance(value, str), str(value) if isinstance(value, str) else value) for value in found.data[:, column]
    ]
    known = sorted({key for key in keys if key[1] == key[1]})
    places = {key: place / max(1, len(known) - 1) for place, key in enumerate(known)}
    return np.array([places.get(key, np.nan) for key in keys])


def order_bars(found: Any, output: int = 0, axes: Any = None) -> Any:
    """How much comes from each order: shares of the variance, or of single rows' predictions their mean size."""
    o = _output(found, output)
    axes = _axes(axes)
    if hasattr(found, "sobol"):
        heights = found.sobol.by_order[1:, o]
        axes.set_ylabel(f"share of the variance of {found.outputs[o]}")
    else:
        heights = found.orders[:, 1:, o].abs().mean(dim=0)
        axes.set_ylabel(f"mean size of the contribution to {found.outputs[o]}")
    axes.bar(range(1, len(heights) + 1), heights.tolist(), color=DOWN)
    axes.set_xlabel("order of interaction")
    axes.set_xticks(range(1, len(heights) + 1))
    return axes


def column_bars(found: Any, output: int = 0, axes: Any = None) -> Any:
    """Each column's share of the variance, alone and in all."""
    o = _output(found, output)
    first, total = found.sobol.first[:, o], found.sobol.total[:, o]
    ranked = total.argsort(descending=True)[:BARS].tolist()
    axes = _axes(axes, height=1.0 + 0.35 * len(ranked))
    axes.barh(range(len(ranked)), total[ranked].tolist(), color="#cfe0f5", label="with interactions")
    axes.barh(range(len(ranked)), first[ranked].tolist(), color=DOWN, height=0.5, label="alone")
    axes.set_yticks(range(len(ranked)), [found.names[n] for n in ranked])
    axes.invert_yaxis()
    axes.set_xlabel(f"share of the variance of {found.outputs[o]}")
    axes.legend(frameon=False)
    return axes


def heat_map(found: Any, output: int = 0, axes: Any = None) -> Any:
    """The share of the variance of every pair; of single columns on the diagonal."""
    o = _output(found, output)
    if found.sobol.pairs is None:
        raise ValueError('heat_map needs the pairs of distribution="independent", got a sampled joint one')
    axes = _axes(axes, 5.5, 4.5)
    image = axes.imshow(found.sobol.pairs[..., o].numpy(), cmap="Blues", vmin=0)
    axes.set_xticks(range(len(found.names)), found.names, rotation=90)
    axes.set_yticks(range(len(found.names)), found.names)
    axes.figure.colorbar(image, ax=axes, label=f"share of the variance of {found.outputs[o]}")
    return axes


def network(found: Any, output: int = 0, axes: Any = None) -> Any:
    """Columns on a circle, as large as their own share; the largest interactions as lines between them."""
    o = _output(found, output)
    terms = [term for term in found.interactions.terms if len(term.columns) > 1 and float(term.share[o]) > 0]
    alone = found.sobol.first[:, o]
    shown_ = sorted({n for term in terms for n in term.columns} | set(alone.argsort(descending=True)[:BARS].tolist()))
    axes = _axes(axes, 5.0, 5.0)
    at = {
        n: (math.cos(2 * math.pi * k / len(shown_)), math.sin(2 * math.pi * k / len(shown_)))
        for k, n in enumerate(shown_)
    }
    largest = max((float(term.share[o]) for term in terms), default=1.0)
    for term in terms:
        points = np.array([at[n] for n in term.columns])
        middle = points.mean(axis=0)
        strength = float(term.share[o]) / largest
        for point in points:  # a pair is a straight line, a larger term a star
            axes.plot(
                *zip(point, middle, strict=True),
                color=UP if len(points) > 2 else DOWN,
                linewidth=4 * strength,
                alpha=0.3 + 0.6 * strength,
                zorder=1,
            )
    axes.scatter(
        *zip(*at.values(), strict=True), s=[60 + 900 * float(alone[n]) for n in shown_], color=NEUTRAL, zorder=2
    )
    for n, (x, y) in at.items():
        axes.annotate(found.names[n], (1.22 * x, 1.22 * y), ha="center", va="center", fontsize=9)
    axes.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal")
    axes.set_axis_off()
    return axes


def pixel_map(found: Any, output: int = 0, axes: Any = None, shape: tuple[int, int] | None = None, row: int = 0) -> Any:
    """The Shapley values of an image's pixels, where they lie."""
    o, row = _output(found, output), _row(found, row)
    side = math.isqrt(len(found.names))
    height, width = (side, side) if shape is None else shape
    if height * width != len(found.names):
        raise ValueError(f"shape must have {len(found.names)} pixels, got {shown(shape or (side, side))}")
    values = found.values[row, :, o].reshape(height, width).numpy()
    limit = float(np.abs(values).max()) or 1.0
    axes = _axes(axes, 4.0, 4.0)
    image = axes.imshow(values, cmap="coolwarm", vmin=-limit, vmax=limit)
    axes.figure.colorbar(image, ax=axes, label=f"Shapley value for {found.outputs[o]}")
    axes.set_axis_off()
    return axes


def effect_curve(found: Any, output: int = 0, axes: Any = None) -> Any:
    """A main effect, in a band of one standard deviation of its spread to either side."""
    o = _output(found, output)
    axes = _axes(axes)
    grid, values, spread = found.grids[0], found.values[:, o].numpy(), found.spread[:, o].numpy()
    if _numeric(grid):
        known = ~np.isnan(grid)
        if spread.any():
            label = f"± one standard deviation of the {found.spread_over}"
            low, high = (values - spread)[known], (values + spread)[known]
            axes.fill_between(grid[known], low, high, color="#cfe0f5", label=label)
        axes.plot(grid[known], values[known], color=DOWN)
        if not known.all():
            axes.axhline(float(values[~known][0]), color=NEUTRAL, linestyle=":", label="missing")
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False)
    else:
        axes.bar(range(len(grid)), values, yerr=spread if spread.any() else None, color=DOWN)
        axes.set_xticks(range(len(grid)), [_level(value) for value in grid])
    axes.axhline(0, color=NEUTRAL, linewidth=0.8)
    axes.set(xlabel=found.names[0], ylabel=f"effect on {found.outputs[o]}")
    return axes


def effect_surface(found: Any, output: int = 0, axes: Any = None) -> Any:
    """The pure interaction of two columns, faded where it is within one standard deviation of its spread from zero."""
    o = _output(found, output)
    axes = _axes(axes, 5.5, 4.5)
    values: Tensor = found.values[..., o]
    limit = float(torch.nan_to_num(values).abs().max()) or 1.0
    keep = [np.flatnonzero(~np.isnan(grid)) if _numeric(grid) else np.arange(len(grid)) for grid in found.grids]
    image = axes.pcolormesh(
        *[grid[kept] if _numeric(grid) else kept for grid, kept in zip(found.grids, keep, strict=True)],
        values.numpy()[np.ix_(*keep)].T,
        cmap="coolwarm",
        vmin=-limit,
        vmax=limit,
        shading="nearest",
        alpha=np.where(values.abs() >= found.spread[..., o], 1.0, FADED)[np.ix_(*keep)].T,
    )
    for grid, ticks in zip(found.grids, (axes.set_xticks, axes.set_yticks), strict=True):
        if not _numeric(grid):
            ticks(range(len(grid)), [_level(value) for value in grid])
    axes.figure.colorbar(image, ax=axes, label=f"effect on {found.outputs[o]}")
    axes.set(xlabel=found.names[0], ylabel=found.names[1])
    return axes


def _numeric(grid: np.ndarray) -> bool:
    return grid.dtype.kind in "fiu"


def _level(value: Any) -> str:
    return "missing" if value is None or value != value else str(value)
