"""Pictures of explanations, each on one set of axes; matplotlib is imported when the first one is drawn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.stats import rankdata

from restt._common.drawing import require_matplotlib
from restt._common.errors import check_int, shown
from restt.explain.tables import short

UP, DOWN, NEUTRAL, LIGHT = "#c2552d", "#2563a8", "#555555", "#cfe0f5"
NOTHING = "#bbbbbb"  # what is not distinguishable from nothing
DEVIATIONS = 2.0  # posterior standard deviations within which a value is not
BARS = 12  # columns shown; the rest are summed, or left to the tables
LINE = {"color": NEUTRAL, "linewidth": 0.8}  # of 0, or of a base


def _start(explanation: Any, output: int, axes: Any, width: float = 6.0, height: float = 4.0) -> tuple[int, Any]:
    """The output, checked, and the axes: those given or new ones."""
    output = check_int("output", output, minimum=0, maximum=len(explanation.outputs) - 1)
    if axes is None:
        _, axes = require_matplotlib().subplots(figsize=(width, height), layout="constrained")
        axes.spines[["top", "right"]].set_visible(False)
    return output, axes


def _rows_of(axes: Any, labels: list[str]) -> None:
    """Labelled rows, the first on top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()


def _nothing(local: Any) -> np.ndarray:  # (B, N, O) bool
    """Mask of values within two posterior standard deviations of 0; none without a posterior."""
    if local.std is None:
        return np.zeros(local.values.shape, dtype=bool)
    return np.asarray(np.abs(local.values) <= DEVIATIONS * local.std)


def waterfall(local: Any, output: int = 0, axes: Any = None, row: int = 0) -> Any:
    """Draw the way from the background's prediction to the row's, one bar per column, the largest on top."""
    row = check_int("row", row, minimum=0, maximum=len(local) - 1)
    o, axes = _start(local, output, axes, height=1.0 + 0.35 * min(BARS + 1, len(local.names)))
    values, grey = local.values[row, :, o], _nothing(local[row])[0, :, o]
    ranked = np.argsort(-np.abs(values))
    names = local.names
    if local.data is not None:
        names = [f"{name} = {short(value)}" for name, value in zip(names, local.data[row], strict=True)]
    bars = [(names[n], float(values[n]), bool(grey[n])) for n in ranked[:BARS]]
    if len(ranked) > BARS:
        bars.append((f"{len(ranked) - BARS} others", float(values[ranked[BARS:]].sum()), False))
    base = level = float(local.base[o])
    for place, (_, value, nothing) in reversed(list(enumerate(bars))):
        axes.barh(place, value, left=level, color=NOTHING if nothing else UP if value > 0 else DOWN)
        end = max(level, level + value)
        axes.annotate(f"{value:+.3g}", (end, place), (3, 0), textcoords="offset points", va="center", fontsize="small")
        level += value
    axes.use_sticky_edges = False  # room for the labels beyond the bars
    axes.margins(x=0.2)
    axes.axvline(base, linestyle=":", **LINE)
    axes.axvline(level, **LINE)
    _rows_of(axes, [label for label, _, _ in bars])
    axes.set_xlabel(f"{local.measured(o)}: from {base:.3g} to {level:.3g}")
    return axes


def beeswarm(local: Any, output: int = 0, axes: Any = None) -> Any:
    """All rows' values by column, coloured by the rank of the column's value; grey where not distinguishable from 0."""
    o, axes = _start(local, output, axes, height=1.0 + 0.4 * min(BARS, len(local.names)))
    values, grey = local.values[:, :, o], _nothing(local)[:, :, o]
    ranked = np.argsort(-np.abs(values).mean(axis=0))[:BARS]
    for place, n in enumerate(ranked):
        ordered = np.argsort(values[:, n])
        # Neighbours in value are spread apart in turn, so that equal values form a band as wide as they are many.
        offsets = np.empty(len(ordered))
        offsets[ordered] = place + 0.3 * np.sin(2.4 * np.arange(len(ordered)))
        known, dots = ~grey[:, n], {"s": 8, "linewidths": 0}
        axes.scatter(values[~known, n], offsets[~known], color=NOTHING, **dots)
        ranks = np.full(len(ordered), 0.5)
        if local.data is not None:
            ranks = rankdata(_placed(local.data[:, n])[0], "dense", nan_policy="omit") - 1
            ranks = ranks / max(1.0, np.nan_to_num(ranks).max())
        axes.scatter(values[known, n], offsets[known], c=ranks[known], cmap="coolwarm", vmin=0.0, vmax=1.0, **dots)
    axes.axvline(0, **LINE)
    _rows_of(axes, [local.names[n] for n in ranked])
    axes.set_xlabel(f"{local.method} for {local.measured(o)}")
    return axes


def dependence(local: Any, output: int = 0, axes: Any = None, column: Any = 0) -> Any:
    """The values of one column against its entries, with error bars of one posterior standard deviation."""
    if local.data is None:
        raise ValueError("dependence needs the rows of a table, and a module has none")
    if isinstance(column, str) and column not in local.names:
        raise ValueError(f"column must be one of {shown(list(local.names))}, got {column!r}")
    n = local.names.index(column) if isinstance(column, str) else column
    n = check_int("column", n, minimum=0, maximum=len(local.names) - 1)
    o, axes = _start(local, output, axes)
    at, levels = _placed(local.data[:, n])
    known = ~np.isnan(at)
    at, values, grey = at[known], local.values[known, n, o], _nothing(local)[known, n, o]
    if levels:
        axes.set_xticks(range(len(levels)), levels)
    if local.std is not None:
        axes.errorbar(at, values, local.std[known, n, o], fmt="none", ecolor="#dddddd", zorder=1)
    axes.scatter(at, values, color=np.where(grey, NOTHING, DOWN).tolist(), s=12)
    axes.axhline(0, **LINE)
    axes.set(xlabel=local.names[n], ylabel=f"{local.method} for {local.measured(o)}")
    return axes


def _placed(entries: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Numbers of a column's entries, NaN where missing; of levels their places, and the levels."""
    missing = np.array([value is None or value != value for value in entries], dtype=bool)
    if all(isinstance(value, (int, float)) for value in entries[~missing]):
        return np.where(missing, np.nan, entries).astype(float), []
    levels, places = np.unique(entries[~missing].astype(str), return_inverse=True)
    at = np.full(len(entries), np.nan)
    at[~missing] = places
    return at, levels.tolist()


def orders(explanation: Any, output: int = 0, axes: Any = None) -> Any:
    """Shares of the variance by order, or mean sizes of the orders' contributions to explained rows."""
    o, axes = _start(explanation, output, axes)
    if hasattr(explanation, "predictions"):
        heights = np.abs(explanation.orders[:, 1:, o]).mean(axis=0)
        label = f"mean size of the contribution to {explanation.measured(o)}"
    else:
        shares = explanation.shares
        heights = explanation.sobol.by_order[1:, o].numpy() if shares is None else shares.of_orders[1:, o]
        label = _variance(explanation, o)
    places = range(1, len(heights) + 1)
    axes.bar(places, heights.tolist(), color=DOWN)
    axes.set(xlabel="order of interaction", ylabel=label, xticks=places)
    return axes


def _variance(explanation: Any, output: int) -> str:
    """The label of an axis of shares: of the rows, or where none are known of independent columns."""
    rows = "independent columns" if explanation.shares is None else f"{explanation.shares.rows} rows"
    return f"share of the variance of {explanation.measured(output)}\n({rows})"


def columns(explanation: Any, output: int = 0, axes: Any = None) -> Any:
    """Each column's share of the variance, alone and in all; grey where it may have less than one per cent."""
    shares, sobol = explanation.shares, explanation.sobol
    o, axes = _start(explanation, output, axes, height=1.0 + 0.35 * min(BARS, len(explanation.names)))
    parts = (sobol.first.numpy(), sobol.total.numpy()) if shares is None else (shares.alone, shares.total)
    first, total = (part[:, o] for part in parts)
    ranked = np.argsort(-total, kind="stable")[:BARS]
    errors = None if shares is None else shares.column_errors
    sure = [errors is None or errors.probability[n, o] >= shares.settings.sure for n in ranked]
    light, dark = (
        [colour if known else grey for known in sure] for colour, grey in ((LIGHT, "#e8e8e8"), (DOWN, NOTHING))
    )
    deviations = None if errors is None else errors.std[ranked, o]
    places = range(len(ranked))
    axes.barh(places, total[ranked], color=light, xerr=deviations, ecolor=NEUTRAL, label="with interactions")
    axes.barh(places, first[ranked], color=dark, height=0.5, label="alone")
    _rows_of(axes, [explanation.names[n] for n in ranked])
    axes.set_xlabel(_variance(explanation, o))
    axes.legend(frameon=False)
    return axes


def network(explanation: Any, output: int = 0, axes: Any = None) -> Any:
    """Columns on a circle, as large as their own share; the largest interactions as lines between them.

    Grey are those that may have less than one per cent of the variance.
    """
    o, axes = _start(explanation, output, axes, 5.0, 5.0)
    terms = [term for term in explanation.interactions.terms if len(term.columns) > 1 and float(term.share[o]) > 0]
    alone, shares = explanation.sobol.first[:, o], explanation.shares
    columns = sorted({n for term in terms for n in term.columns} | set(alone.argsort(descending=True)[:BARS].tolist()))
    angles = 2 * math.pi * np.arange(len(columns)) / len(columns)
    at = dict(zip(columns, np.stack([np.cos(angles), np.sin(angles)], 1), strict=True))
    largest = max((float(term.share[o]) for term in terms), default=1.0)
    unsure = set()
    if shares is not None and shares.term_errors is not None:
        known = shares.term_errors.probability[:, o] >= shares.settings.sure
        unsure = {term for term, sure in zip(shares.terms, known, strict=True) if not sure}
    for term in terms:
        points = np.array([at[n] for n in term.columns])
        strength = float(term.share[o]) / largest
        colour = NOTHING if term.columns in unsure else UP if len(points) > 2 else DOWN
        for point in points:  # a pair is a straight line, a larger term a star
            line = zip(point, points.mean(axis=0), strict=True)
            axes.plot(*line, color=colour, linewidth=4 * strength, alpha=0.3 + 0.6 * strength, zorder=1)
    sizes = [60 + 900 * float(alone[n]) for n in columns]
    axes.scatter(*np.array(list(at.values())).T, s=sizes, color=NEUTRAL)
    for n, point in at.items():
        axes.annotate(explanation.names[n], 1.22 * point, ha="center", va="center", fontsize="small")
    axes.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal")
    axes.set_axis_off()
    return axes


def effect_curve(effect: Any, output: int = 0, axes: Any = None) -> Any:
    """A main effect, in a band of one standard deviation of its spread to either side."""
    o, axes = _start(effect, output, axes)
    grid, values, spread = effect.grids[0], effect.values[:, o].numpy(), effect.spread[:, o].numpy()
    if _is_numeric(grid):
        known = ~np.isnan(grid)
        if spread.any():
            label = f"± one standard deviation of the {effect.spread_over}"
            axes.fill_between(grid[known], (values - spread)[known], (values + spread)[known], color=LIGHT, label=label)
        axes.plot(grid[known], values[known], color=DOWN)
        if not known.all():
            axes.axhline(float(values[~known][0]), color=NEUTRAL, linestyle=":", label="missing")
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False)
    else:
        axes.bar(range(len(grid)), values, yerr=spread if spread.any() else None, color=DOWN)
        axes.set_xticks(range(len(grid)), _levels(grid))
    axes.axhline(0, **LINE)
    axes.set(xlabel=effect.names[0], ylabel=f"effect on {effect.measured(o)}")
    return axes


def effect_surface(effect: Any, output: int = 0, axes: Any = None) -> Any:
    """The pure interaction of two columns, grey where it is within two standard deviations of its spread from zero."""
    o, axes = _start(effect, output, axes, 5.5, 4.5)
    values, spread = effect.values[..., o].numpy(), effect.spread[..., o].numpy()
    limit = float(np.nan_to_num(np.abs(values)).max()) or 1.0
    known = [np.flatnonzero(~np.isnan(grid)) if _is_numeric(grid) else np.arange(len(grid)) for grid in effect.grids]
    places = [grid[own] if _is_numeric(grid) else own for grid, own in zip(effect.grids, known, strict=True)]
    nothing = (np.abs(values) <= DEVIATIONS * spread) & (spread > 0)
    coloured = np.ma.masked_invalid(np.where(nothing, np.nan, values)[np.ix_(*known)].T)
    colours = require_matplotlib().get_cmap("coolwarm").with_extremes(bad=NOTHING)
    image = axes.pcolormesh(*places, coloured, cmap=colours, vmin=-limit, vmax=limit, shading="nearest")
    for grid, set_ticks in zip(effect.grids, (axes.set_xticks, axes.set_yticks), strict=True):
        if not _is_numeric(grid):
            set_ticks(range(len(grid)), _levels(grid))
    axes.figure.colorbar(image, ax=axes, label=f"effect on {effect.measured(o)}")
    axes.set(xlabel=effect.names[0], ylabel=effect.names[1])
    return axes


def _is_numeric(grid: np.ndarray) -> bool:
    return grid.dtype.kind in "fiu"


def _levels(grid: np.ndarray) -> list[str]:
    return ["missing" if value is None or value != value else str(value) for value in grid]
