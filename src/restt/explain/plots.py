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
NOTHING = "#bbbbbb"  # what is not distinguishable from nothing
DEVIATIONS = 2.0  # posterior standard deviations within which a value is not
_RANKED = {"vmin": 0.0, "vmax": 1.0}
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
    values = found.values[row, :, o]
    ranked = np.argsort(-np.abs(values))
    grey = _nothing(found[row])[0, :, o]
    shown_, rest = ranked[:BARS], values[ranked[BARS:]].sum()
    bars = [(_labelled(found, row, n), float(values[n]), bool(grey[n])) for n in shown_]
    if len(ranked) > BARS:
        bars.append((f"{len(ranked) - BARS} others", float(rest), False))
    axes = _axes(axes, height=1.0 + 0.35 * len(bars))
    level = float(found.base[o])
    for place, (_, value, nothing) in reversed(list(enumerate(bars))):
        axes.barh(place, value, left=level, color=NOTHING if nothing else UP if value > 0 else DOWN)
        end = max(level, level + value)
        axes.annotate(f"{value:+.3g}", (end, place), (3, 0), textcoords="offset points", va="center", fontsize=8)
        level += value
    axes.axvline(float(found.base[o]), color=NEUTRAL, linewidth=0.8, linestyle=":")
    axes.axvline(level, color=NEUTRAL, linewidth=0.8)
    axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
    axes.invert_yaxis()
    axes.set_xlabel(f"{found.measured(o)}: from {float(found.base[o]):.3g} to {level:.3g}")
    return axes


def _nothing(found: Any) -> np.ndarray:  # (B, N, O) bool
    """Mask of values within two posterior standard deviations of 0; none without a posterior."""
    if found.std is None:
        return np.zeros(found.values.shape, dtype=bool)
    return np.asarray(np.abs(found.values) <= DEVIATIONS * found.std)


def _labelled(found: Any, row: int, column: int) -> str:
    if found.data is None:
        return str(found.names[column])
    value = found.data[row, column]
    return f"{found.names[column]} = {value:.3g}" if isinstance(value, float) else f"{found.names[column]} = {value}"


def beeswarm(found: Any, output: int = 0, axes: Any = None) -> Any:
    """All rows' values by column, coloured by the rank of the column's value; grey where not distinguishable from 0."""
    o = _output(found, output)
    values, grey = found.values[:, :, o], _nothing(found)[:, :, o]
    ranked = np.argsort(-np.abs(values).mean(axis=0))[:BARS]
    axes = _axes(axes, height=1.0 + 0.4 * len(ranked))
    for place, n in enumerate(ranked):
        ordered = np.argsort(values[:, n])
        # Neighbours in value are spread apart in turn, so that equal values form a band as wide as they are many.
        offsets = np.empty(len(ordered))
        offsets[ordered] = 0.3 * np.sin(2.4 * np.arange(len(ordered)))
        kept, ranks = ~grey[:, n], _ranks(found, n)
        for some, colour in ((~kept, {"color": NOTHING}), (kept, {"c": ranks[kept], "cmap": "coolwarm", **_RANKED})):
            axes.scatter(values[some, n], (place + offsets)[some], s=8, linewidths=0, **colour)
    axes.axvline(0, color=NEUTRAL, linewidth=0.8)
    axes.set_yticks(range(len(ranked)), [found.names[n] for n in ranked])
    axes.invert_yaxis()
    axes.set_xlabel(f"{found.method} for {found.measured(o)}")
    return axes


def dependence(found: Any, output: int = 0, axes: Any = None, column: Any = 0) -> Any:
    """The values of one column against what rows hold there, with error bars of one posterior standard deviation."""
    o = _output(found, output)
    if found.data is None:
        raise ValueError("dependence needs the rows of a table, and a module has none")
    if isinstance(column, str) and column not in found.names:
        raise ValueError(f"column must be one of {shown(list(found.names))}, got {column!r}")
    n = found.names.index(column) if isinstance(column, str) else check_int("column", column, minimum=0)
    if n >= len(found.names):
        raise ValueError(f"column must be at most {len(found.names) - 1}, got {n}")
    axes = _axes(axes)
    kept = [place for place, value in enumerate(found.data[:, n]) if value is not None and value == value]
    held, values, grey = found.data[kept, n], found.values[kept, n, o], _nothing(found)[kept, n, o]
    if all(isinstance(value, (int, float)) for value in held):
        at = held.astype(float)
    else:
        levels = sorted({str(value) for value in held})
        at = np.array([levels.index(str(value)) for value in held])
        axes.set_xticks(range(len(levels)), levels)
    if found.std is not None:
        axes.errorbar(at, values, found.std[kept, n, o], fmt="none", ecolor="#dddddd", zorder=1)
    axes.scatter(at, values, color=np.where(grey, NOTHING, DOWN).tolist(), s=12, zorder=2)
    axes.axhline(0, color=NEUTRAL, linewidth=0.8)
    axes.set(xlabel=found.names[n], ylabel=f"{found.method} for {found.measured(o)}")
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
    """The part of each order: shares of the variance, or the mean size of its contribution to rows."""
    o = _output(found, output)
    axes = _axes(axes)
    if hasattr(found, "sobol"):
        shares = found.shares
        heights = found.sobol.by_order[1:, o].numpy() if shares is None else shares.of_orders[1:, o]
        axes.set_ylabel(_variance(found, o))
    else:
        heights = np.abs(found.orders[:, 1:, o]).mean(axis=0)
        axes.set_ylabel(f"mean size of the contribution to {found.measured(o)}")
    axes.bar(range(1, len(heights) + 1), heights.tolist(), color=DOWN)
    axes.set_xlabel("order of interaction")
    axes.set_xticks(range(1, len(heights) + 1))
    return axes


def _variance(found: Any, output: int) -> str:
    """The label of an axis of shares: of the rows, or where none are known of independent columns."""
    rows = "independent columns" if found.shares is None else f"{found.shares.rows} rows"
    return f"share of the variance of {found.measured(output)}\n({rows})"


def column_bars(found: Any, output: int = 0, axes: Any = None) -> Any:
    """Each column's share of the variance, alone and in all; grey where it may have less than one per cent."""
    o = _output(found, output)
    shares = found.shares
    parts = (found.sobol.first.numpy(), found.sobol.total.numpy()) if shares is None else (shares.alone, shares.total)
    first, total = (part[:, o] for part in parts)
    ranked = np.argsort(-total, kind="stable")[:BARS].tolist()
    errors = None if shares is None else shares.column_errors
    sure = [errors is None or errors.probability[n, o] >= shares.settings.sure for n in ranked]
    axes = _axes(axes, height=1.0 + 0.35 * len(ranked))
    light = ["#cfe0f5" if known else "#e8e8e8" for known in sure]
    dark = [DOWN if known else NOTHING for known in sure]
    deviations = None if errors is None else errors.std[ranked, o]
    axes.barh(
        range(len(ranked)), total[ranked], color=light, xerr=deviations, ecolor=NEUTRAL, label="with interactions"
    )
    axes.barh(range(len(ranked)), first[ranked], color=dark, height=0.5, label="alone")
    axes.set_yticks(range(len(ranked)), [found.names[n] for n in ranked])
    axes.invert_yaxis()
    axes.set_xlabel(_variance(found, o))
    axes.legend(frameon=False)
    return axes


def heat_map(found: Any, output: int = 0, axes: Any = None) -> Any:
    """The share of the variance of every pair; of single columns on the diagonal."""
    o = _output(found, output)
    if found.sobol.pairs is None:
        raise ValueError('heat_map needs the pairs of distribution="independent", got a sampled joint one')
    axes = _axes(axes, 5.5, 4.5)
    # Pairs share one scale with the columns, so that a pair of next to nothing has next to no colour.
    image = axes.imshow(found.sobol.pairs[..., o].numpy(), cmap="Blues", vmin=0)
    axes.set_xticks(range(len(found.names)), found.names, rotation=90)
    axes.set_yticks(range(len(found.names)), found.names)
    label = f"share of the variance of {found.measured(o)}\n(independent columns)"
    axes.figure.colorbar(image, ax=axes, label=label)
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
    real = _real_terms(found, o)
    for term in terms:
        points = np.array([at[n] for n in term.columns])
        middle = points.mean(axis=0)
        strength = float(term.share[o]) / largest
        for point in points:  # a pair is a straight line, a larger term a star
            axes.plot(
                *zip(point, middle, strict=True),
                color=NOTHING if not real.get(term.columns, not real) else UP if len(points) > 2 else DOWN,
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


def _real_terms(found: Any, output: int) -> dict[tuple[int, ...], bool]:
    """By term, True where it surely has more than one per cent of the variance; empty without a posterior."""
    shares = found.shares
    if shares is None or shares.term_errors is None:
        return {}
    known = shares.term_errors.probability[:, output] >= shares.settings.sure
    return dict(zip(shares.terms, known.tolist(), strict=True))


def pixel_map(found: Any, output: int = 0, axes: Any = None, shape: tuple[int, int] | None = None, row: int = 0) -> Any:
    """The Shapley values of an image's pixels, where they lie."""
    o, row = _output(found, output), _row(found, row)
    side = math.isqrt(len(found.names))
    height, width = (side, side) if shape is None else shape
    if height * width != len(found.names):
        raise ValueError(f"shape must have {len(found.names)} pixels, got {shown(shape or (side, side))}")
    values = found.values[row, :, o].reshape(height, width)
    limit = float(np.abs(values).max()) or 1.0
    axes = _axes(axes, 4.0, 4.0)
    image = axes.imshow(values, cmap="coolwarm", vmin=-limit, vmax=limit)
    axes.figure.colorbar(image, ax=axes, label=f"{found.method} for {found.measured(o)}")
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
    axes.set(xlabel=found.names[0], ylabel=f"effect on {found.measured(o)}")
    return axes


def effect_surface(found: Any, output: int = 0, axes: Any = None) -> Any:
    """The pure interaction of two columns, grey where it is within two standard deviations of its spread from zero."""
    o = _output(found, output)
    axes = _axes(axes, 5.5, 4.5)
    values: Tensor = found.values[..., o]
    limit = float(torch.nan_to_num(values).abs().max()) or 1.0
    keep = [np.flatnonzero(~np.isnan(grid)) if _numeric(grid) else np.arange(len(grid)) for grid in found.grids]
    places = [grid[kept] if _numeric(grid) else kept for grid, kept in zip(found.grids, keep, strict=True)]
    nothing = (values.abs() <= DEVIATIONS * found.spread[..., o]) & (found.spread[..., o] > 0)
    shown_ = np.where(nothing, np.nan, values.numpy())[np.ix_(*keep)].T
    colours = require_matplotlib().get_cmap("coolwarm").with_extremes(bad=NOTHING)
    image = axes.pcolormesh(
        *places, np.ma.masked_invalid(shown_), cmap=colours, vmin=-limit, vmax=limit, shading="nearest"
    )
    for grid, ticks in zip(found.grids, (axes.set_xticks, axes.set_yticks), strict=True):
        if not _numeric(grid):
            ticks(range(len(grid)), [_level(value) for value in grid])
    axes.figure.colorbar(image, ax=axes, label=f"effect on {found.measured(o)}")
    axes.set(xlabel=found.names[0], ylabel=found.names[1])
    return axes


def _numeric(grid: np.ndarray) -> bool:
    return grid.dtype.kind in "fiu"


def _level(value: Any) -> str:
    return "missing" if value is None or value != value else str(value)
