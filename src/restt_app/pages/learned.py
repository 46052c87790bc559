"""What a model has learned, for its page: orders, relevance of columns, the strongest interactions, effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from restt.explain import Effect, effect, sobol_indices, top_interactions
from restt_app.pages import charts
from restt_app.pages.numbers import percent, short, signed
from restt_app.pages.shell import Cell, DataTable

# Orders told apart, terms listed, and how many of the columns and pairs are drawn.
ORDERS, TERMS, COLUMNS, CURVES, SURFACES = 8, 20, 20, 12, 6
# Values of a column of numbers on one side of a surface, and levels of one of categories.
SIDE, LEVELS = 21, 12
MARKS = 40


@dataclass(frozen=True)
class Drawing:
    """A chart, the sentence below it, and its numbers as a table."""

    title: str
    chart: Markup
    caption: str = ""
    numbers: DataTable | None = None


@dataclass(frozen=True)
class Learned:
    """Everything the page says of the whole model."""

    orders: Drawing
    order_shares: tuple[float, ...]
    relevance: Drawing
    terms: DataTable
    complete: str
    effects: tuple[Drawing, ...]
    surfaces: tuple[Drawing, ...]
    lines: tuple[str, ...]  # names of the outputs that the effects show
    ranking: tuple[int, ...]  # columns by falling relevance


def learned(model: Any, X: Any, numbers: np.ndarray, outputs: tuple[str, ...]) -> Learned:
    """Read the model; ``numbers`` (B, C) are the rows as the model reads them, ``outputs`` (D) names for people.

    The columns' distribution is that of the rows of the fit where the model kept it, else that of ``X``.
    """
    background = None if getattr(model, "site_covariances_", None) is not None else X
    sites = model.module_.sites
    found = sobol_indices(model, background, max_order=min(sites, ORDERS))
    weights = _output_weights(found.variance.numpy())
    total, first, by_order = (
        np.nan_to_num(part.numpy()) @ weights for part in (found.total, found.first, found.by_order)
    )
    terms = top_interactions(model, background, TERMS, min(sites, 4))
    ranking = tuple(int(place) for place in np.argsort(-total, kind="stable"))
    shown = _shown_outputs(found.variance.numpy())
    names = tuple(outputs[place] for place in shown)
    used = [column for column in ranking if total[column] > 0][:CURVES]
    curves = {column: effect(model, column, background) for column in used}
    pairs = [term for term in terms.terms if len(term.columns) == 2 and float(term.share.max()) > 0][:SURFACES]
    return Learned(
        _orders(by_order, sites),
        tuple(float(share) for share in by_order[1:]),
        _relevance(found.names, total, first, ranking),
        _terms_table(terms, weights),
        "No term outside this list has a larger share than one in it."
        if terms.complete
        else f"The search ended early: a term outside this list has at most a variance of {short(terms.bound)}.",
        tuple(_effect(curves[column], shown, names, numbers[:, column]) for column in used),
        tuple(_surface(model, term, background, curves, outputs) for term in pairs),
        names,
        ranking,
    )


def _output_weights(variance: np.ndarray) -> np.ndarray:
    """What each output counts in one number for all: its part of the variance."""
    total = float(variance.sum())
    return variance / total if total > 0 else np.full(len(variance), 1 / len(variance))


def _shown_outputs(variance: np.ndarray) -> list[int]:
    """Outputs that a chart has lines for: all, or those that vary most, in their own order."""
    return sorted(np.argsort(-variance, kind="stable")[: charts.SERIES].tolist())


def _orders(shares: np.ndarray, sites: int) -> Drawing:
    kept = [order for order in range(1, len(shares)) if order <= 3 or shares[order] >= 5e-5]
    names = {1: "single columns", 2: "pairs", 3: "triples"}
    rows = [charts.Bar(f"{order} · {names.get(order, 'larger')}", float(shares[order])) for order in kept]
    beyond = f" Orders above {kept[-1]} have less than 0.01 % each." if kept[-1] < min(sites, len(shares) - 1) else ""
    told = ", ".join(f"order {order}: {percent(float(shares[order]))}" for order in kept)
    return Drawing(
        "Order spectrum",
        charts.bars(rows, f"Share of the variance by order of interaction. {told}", "share of the variance"),
        "How much of what the predictions vary comes from columns alone, from pairs, from triples." + beyond,
    )


def _relevance(names: tuple[str, ...], total: np.ndarray, first: np.ndarray, ranking: tuple[int, ...]) -> Drawing:
    rows = [
        charts.Bar(
            names[column],
            float(total[column]),
            float(first[column]),
            f"{names[column]}: {percent(float(total[column]))} in all, {percent(float(first[column]))} alone",
        )
        for column in ranking[:COLUMNS]
    ]
    numbers = DataTable(
        "Relevance of columns",
        ("column", "in all", "alone"),
        tuple(
            (
                Cell(names[column]),
                Cell(percent(float(total[column])), float(total[column])),
                Cell(percent(float(first[column])), float(first[column])),
            )
            for column in ranking
        ),
        frozenset({1, 2}),
    )
    most = ", ".join(f"{names[column]} {percent(float(total[column]))}" for column in ranking[:3])
    rest = f" The first {COLUMNS} of {len(ranking)} columns." if len(ranking) > COLUMNS else ""
    return Drawing(
        "Relevance of columns",
        charts.bars(rows, f"Share of the variance by column, largest: {most}", "share of the variance"),
        "Dark: the column alone. Light: with all interactions it takes part in, so that these sum to more than 100 %."
        + rest,
        numbers,
    )


def _terms_table(terms: Any, weights: np.ndarray) -> DataTable:
    rows = []
    for term in terms.terms:
        share = float(np.nan_to_num(term.share.numpy()) @ weights)
        rows.append((Cell(term.label), Cell(str(len(term.columns)), len(term.columns)), Cell(percent(share), share)))
    return DataTable("Strongest terms", ("term", "order", "share"), tuple(rows), frozenset({1, 2}))


def _effect(found: Effect, shown: list[int], names: tuple[str, ...], column: np.ndarray) -> Drawing:
    grid, values, spread = found.grids[0], found.values.numpy(), found.spread.numpy()
    name, on = found.names[0], "effect" if len(names) > 1 else f"effect on {names[0]}"
    low, high = values[:, shown].min(), values[:, shown].max()
    label = f"Effect of {name}, from {signed(float(low))} to {signed(float(high))}"
    if grid.dtype.kind in "fiu":
        known = ~np.isnan(grid)
        lines = [
            charts.Line(other, values[known, place].tolist(), spread[known, place].tolist())
            for other, place in zip(names, shown, strict=True)
        ]
        missing = None if known.all() else ("missing", float(values[~known][0, shown[0]]))
        inside = column[~np.isnan(column)]
        marks = np.quantile(inside, np.linspace(0, 1, MARKS)) if len(inside) else np.empty(0)
        marks = np.clip(marks, grid[known].min(), grid[known].max())
        chart = charts.curves(grid[known].tolist(), lines, label, name, on, marks=marks.tolist(), note=missing)
    else:
        order = sorted(range(len(grid)), key=lambda place: -np.abs(values[place]).max())[:LEVELS]
        kept = sorted(order)
        lines = [charts.Line(other, values[kept, place].tolist()) for other, place in zip(names, shown, strict=True)]
        chart = charts.level_bars([short(grid[place]) for place in kept], lines, label, name, on)
    return Drawing(name, chart)


def _surface(model: Any, term: Any, background: Any, curves: dict[int, Effect], outputs: tuple[str, ...]) -> Drawing:
    place = int(term.share.argmax())
    grids = [_side(curves.get(column) or effect(model, column, background)) for column in term.columns]
    found = effect(model, list(term.columns), background, grids)
    values = found.values[..., place].numpy()
    top = np.unravel_index(np.abs(values).argmax(), values.shape)
    told = ", ".join(f"{name} = {short(grid[at])}" for name, grid, at in zip(term.names, grids, top, strict=True))
    share = percent(float(term.share[place]))
    on = outputs[place] if len(outputs) > 1 else outputs[0]
    return Drawing(
        term.label,
        charts.surface(
            (term.names[0], term.names[1]),
            ([_shown(value) for value in grids[0]], [_shown(value) for value in grids[1]]),
            values,
            f"What {term.names[0]} and {term.names[1]} add together; most at {told}: {signed(float(values[top]))}",
            on,
        ),
        f"{share} of the variance{f' of {on}' if len(outputs) > 1 else ''}; beyond what either adds alone.",
    )


def _side(curve: Effect) -> list[Any]:
    grid = curve.grids[0]
    if grid.dtype.kind in "fiu":
        known = grid[~np.isnan(grid)]
        return [float(value) for value in np.linspace(known.min(), known.max(), SIDE)]
    return [value for value in grid.tolist() if value == value][:LEVELS]


def _shown(value: Any) -> float | str:
    return float(value) if isinstance(value, float) else short(value)
