"""What a model has learned, for its page: orders, relevance of columns, the strongest interactions, effects."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from restt.explain import Effect, VarianceShares, effect, top_interactions, variance_shares
from restt_app.pages import charts
from restt_app.pages.explorer import take
from restt_app.pages.numbers import percent, short, signed
from restt_app.pages.shell import Cell, DataTable

# Orders told apart, terms listed, and how many of the columns and pairs are drawn.
TERMS, COLUMNS, CURVES, SURFACES = 20, 20, 12, 6
# Rows, evenly spread, whose variance is divided.
ROWS = 2000
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

    variance: str  # what shares are of
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

    Shares are of the variance over the rows of ``X`` as they are. Effects are in y's units; absent columns average the
    rows of the fit where the model kept them, else those of ``X``.
    """
    background = None if getattr(model, "site_covariances_", None) is not None else X
    sites = model.module_.sites
    terms = top_interactions(model, background, TERMS, min(sites, 4))
    some = take(X, np.unique(np.linspace(0, len(numbers) - 1, min(len(numbers), ROWS)).round().astype(int)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of values unseen in the fit: the whole table was read before
        found = variance_shares(model, some, [term.columns for term in terms.terms])
    weights = _output_weights(found.variance)
    total, first, by_order = (part @ weights for part in (found.total, found.alone, found.of_orders))
    ranking = tuple(int(place) for place in np.argsort(-np.abs(total), kind="stable"))
    shown = _shown_outputs(found.variance)
    names = tuple(outputs[place] for place in shown)
    used = [column for column in ranking if total[column] != 0][:CURVES]
    curves = {column: effect(model, column, background).on() for column in used}
    largest = max((float(curve.values.abs().max()) for curve in curves.values()), default=0.0)
    pairs = [
        (place, term)
        for place, term in enumerate(terms.terms)
        if len(term.columns) == 2 and float(term.share.max()) > 0
    ]
    return Learned(
        _variance(found),
        _orders(by_order, sites),
        tuple(float(share) for share in by_order[1:]),
        _relevance(found.names, total, first, ranking),
        _terms_table(found, [term.share.numpy() for term in terms.terms], weights),
        "No term outside this list has a larger variance under independent columns than one in it."
        if terms.complete
        else f"The search ended early: a term outside this list has at most a variance of {short(terms.bound)}.",
        tuple(_effect(curves[column], shown, names, numbers[:, column]) for column in used),
        tuple(
            _surface(model, term, background, curves, outputs, largest, _told(found, place))
            for place, term in pairs[:SURFACES]
        ),
        names,
        ranking,
    )


def _variance(found: VarianceShares) -> str:
    """What shares are of."""
    scale = "" if found.scale == "y" else " on the scale on which the model adds up (its latent scale)"
    return (
        f"Shares of the variance of the predictions{scale}, over {found.rows:,} rows as they are: the covariance of a "
        "part and the prediction over the variance of the prediction. They sum to one; one is negative where a part "
        "takes back what others say."
    )


def _told(found: VarianceShares, place: int) -> str:
    """How a pair's share is known, for the sentence below its surface."""
    share = found.of_terms[place]
    top = int(np.abs(share).argmax())
    known = found.term_errors
    if known is None:
        return f"{percent(float(share[top]))} of the variance"
    sure = f"probability of more than 1 %: {known.probability[place, top]:.2f}"
    return f"{percent(float(share[top]))} ± {percent(float(known.std[place, top]))} of the variance, {sure}"


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


def _terms_table(found: VarianceShares, independent: list[np.ndarray], weights: np.ndarray) -> DataTable:
    head, errors = ["term", "order", "share"], found.term_errors
    head += [] if errors is None else ["±", "P(> 1 %)"]
    rows = []
    for place, columns in enumerate(found.terms):
        shares = [float(found.of_terms[place] @ weights)]
        cells = [Cell(found.label(place)), Cell(str(len(columns)), len(columns))]
        if errors is not None:
            shares.append(float(errors.std[place] @ weights))
        cells += [Cell(percent(share), share) for share in shares]
        if errors is not None:
            probability = float(errors.probability[place] @ weights)
            cells.append(Cell(f"{probability:.2f}", probability))
        alone = float(np.nan_to_num(independent[place]) @ weights)
        rows.append((*cells, Cell(percent(alone), alone)))
    head.append("independent columns")
    return DataTable("Strongest terms", tuple(head), tuple(rows), frozenset(range(1, len(head))))


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


def _surface(
    model: Any,
    term: Any,
    background: Any,
    curves: dict[int, Effect],
    outputs: tuple[str, ...],
    largest: float,
    told_share: str,
) -> Drawing:
    place = int(term.share.argmax())
    grids = [_side(curves.get(column) or effect(model, column, background)) for column in term.columns]
    found = effect(model, list(term.columns), background, grids).on()
    values = found.values[..., place].numpy()
    top = np.unravel_index(np.abs(values).argmax(), values.shape)
    told = ", ".join(f"{name} = {short(grid[at])}" for name, grid, at in zip(term.names, grids, top, strict=True))
    on = outputs[place] if len(outputs) > 1 else outputs[0]
    return Drawing(
        term.label,
        charts.surface(
            (term.names[0], term.names[1]),
            ([_shown(value) for value in grids[0]], [_shown(value) for value in grids[1]]),
            values,
            f"What {term.names[0]} and {term.names[1]} add together; most at {told}: {signed(float(values[top]))}",
            on,
            largest,
        ),
        f"{told_share}; beyond what either adds alone.",
    )


def _side(curve: Effect) -> list[Any]:
    grid = curve.grids[0]
    if grid.dtype.kind in "fiu":
        known = grid[~np.isnan(grid)]
        return [float(value) for value in np.linspace(known.min(), known.max(), SIDE)]
    return [value for value in grid.tolist() if value == value][:LEVELS]


def _shown(value: Any) -> float | str:
    return float(value) if isinstance(value, float) else short(value)
