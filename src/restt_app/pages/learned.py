"""What a model has learned, for its page: columns, effects and interactions in the units of y or as probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from restt.explain import Effect, LocalExplanation, effect, top_interactions, variance_shares
from restt.explain.links import link_of
from restt.explain.shares import ShareSettings
from restt_app.pages import charts
from restt_app.pages.explorer import spread_rows
from restt_app.pages.numbers import percent, short, signed
from restt_app.pages.shell import Bar, Bars, Cell, DataTable, Drawing

# Terms listed, and how many of the columns and pairs are drawn.
TERMS, COLUMNS, CURVES, SURFACES = 10, 20, 12, 6
ROWS = 2000  # evenly spread, whose variance is divided
SIDE, BINS = 21, 24  # values on one side of a surface, bins of a histogram
DRAWN = 0.01  # share of the variance, or of all contributions, from which on an interaction or a column is drawn
SURE = 1.96  # standard deviations of a 95 % interval
# Fewer rows and draws than the library's: posterior errors of shares would take more than half of a page's time.
SHARES = ShareSettings(rows=50, draws=300, columns=0)


@dataclass(frozen=True)
class Learned:
    """Everything the page says of the whole model."""

    relevance: Drawing
    orders: str
    order_shares: tuple[float, ...]
    effects: tuple[Drawing, ...]
    surfaces: tuple[Drawing, ...]
    terms: DataTable
    lines: tuple[str, ...]  # names of the outputs that the effects show
    ranking: tuple[int, ...]  # columns by falling relevance


@dataclass(frozen=True, eq=False)
class _Subject:
    """A model with what is needed to put its effects into units."""

    model: Any
    background: Any
    numbers: np.ndarray  # (B, C)
    base: np.ndarray  # (D,) the average row on the model's own scale
    outputs: tuple[str, ...]
    shown: list[int]  # outputs that have lines
    texts: Callable[[int], Callable[[Any], str]]
    unit: str

    def changed(self, scores: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:  # (..., D)
        """Change of the average row's prediction when scores are added to its own, and to ``start``."""
        flat = scores.reshape(-1, scores.shape[-1])
        before = self.base + (0.0 if start is None else start.reshape(flat.shape))
        link = link_of(self.model)
        moved = flat if link is None else link(before + flat) - link(np.broadcast_to(before, flat.shape))
        return np.asarray(moved.reshape(scores.shape))


def learned(
    model: Any,
    X: Any,
    numbers: np.ndarray,
    local: LocalExplanation,
    outputs: tuple[str, ...],
    texts: Callable[[int], Callable[[Any], str]],
    unit: str,
) -> Learned:
    """Read the model. ``numbers`` (B, C) are the rows as it reads them, ``local`` those of some; ``outputs`` (D) names.

    ``texts(column)`` writes values of a column; ``unit`` is that of all effects. The columns' distribution is that of
    the rows of the fit where the model kept it, else that of ``X``.
    """
    background = None if getattr(model, "site_covariances_", None) is not None else X
    terms = top_interactions(model, background, TERMS, min(model.module_.sites, 4))
    some = X.iloc[spread_rows(len(numbers), ROWS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of values unseen in the fit: the whole table was read before
        shares = variance_shares(model, some, [term.columns for term in terms.terms], SHARES)
    variance = shares.variance
    weights = variance / (variance.sum() or 1.0)
    total, alone, by_order = (np.nan_to_num(part) @ weights for part in (shares.total, shares.alone, shares.of_orders))
    of_terms = np.nan_to_num(shares.of_terms)  # (T, D)
    sizes = np.abs(local.on().values).mean(axis=2)  # (B, C)
    ranking = tuple(int(place) for place in np.argsort(-sizes.mean(axis=0), kind="stable"))
    drawn = sorted(np.argsort(-variance, kind="stable")[: charts.SERIES].tolist())
    subject = _Subject(model, background, numbers, local.base, outputs, drawn, texts, unit)
    whole = max(float(sizes.mean(axis=0).sum()), 1e-300)
    used = [column for column in ranking if sizes[:, column].mean() >= DRAWN * whole][:CURVES]
    pairs = [
        (term, of_terms[place])
        for place, term in enumerate(terms.terms)
        if len(term.columns) == 2 and float(of_terms[place].max()) >= DRAWN
    ][:SURFACES]
    limit = float(np.std(local.on().predictions, axis=0).max()) * 2 or 1.0
    rows = []
    for place in np.argsort(-(of_terms @ weights), kind="stable").tolist():
        term, share = terms.terms[place], float(of_terms[place] @ weights)
        error = 0.0 if shares.term_errors is None else SURE * float(shares.term_errors.std[place] @ weights)
        text = percent(share) + (f" ± {percent(error)}" if error else "")
        rows.append((Cell(term.label), Cell(str(len(term.columns)), len(term.columns)), Cell(text, share)))
    notes = () if terms.complete else (f"A term outside this list has at most a variance of {short(terms.bound)}.",)
    names = ((1, "comes from single columns"), (2, "from pairs"), (3, "from triples"))
    return Learned(
        _relevance(local.names, sizes, total, alone, ranking, unit),
        ", ".join(f"{percent(float(by_order[order]))} {name}" for order, name in names if order < len(by_order)),
        tuple(float(share) for share in by_order[1:]),
        tuple(_effect(subject, column) for column in used),
        tuple(surface for term, carried in pairs if (surface := _surface(subject, term, carried, limit))),
        DataTable("Strongest terms", ("term", "order", "share of the variance"), tuple(rows), frozenset({1, 2}), notes),
        tuple(outputs[place] for place in drawn),
        ranking,
    )


def _relevance(
    names: tuple[str, ...], sizes: np.ndarray, total: np.ndarray, alone: np.ndarray, ranking: tuple[int, ...], unit: str
) -> Drawing:
    means, errors = sizes.mean(axis=0), SURE * sizes.std(axis=0) / np.sqrt(len(sizes))
    bars = []
    for c in ranking[:COLUMNS]:
        text = f"{short(means[c], 3)} ± {short(errors[c], 2)}"
        bars.append(Bar(names[c], text, 0.0, means[c], (means[c] - errors[c], means[c] + errors[c])))
    numbers = DataTable(
        "Columns",
        ("column", f"moves it by ({unit})", "share of the variance", "of it alone"),
        tuple(
            (
                Cell(names[c]),
                Cell(short(means[c], 3), float(means[c])),
                Cell(percent(float(total[c])), float(total[c])),
                Cell(percent(float(alone[c])), float(alone[c])),
            )
            for c in ranking
        ),
        frozenset({1, 2, 3}),
    )
    more = f" The first {COLUMNS} of {len(ranking)} columns." if len(ranking) > COLUMNS else ""
    return Drawing(
        "How far each column moves the prediction",
        Bars(f"Mean size of each column's contribution, {unit}", tuple(bars)),
        f"Mean size of a column's contribution, {unit}, over {len(sizes)} rows, with its 95 % interval.{more}",
        numbers,
    )


def _effect(subject: _Subject, column: int) -> Drawing:
    curve: Effect = effect(subject.model, column, subject.background)
    grid, own, spread = curve.grids[0], curve.values.numpy(), SURE * curve.spread.numpy()
    values, bands = subject.changed(own), np.abs(subject.changed(own + spread) - subject.changed(own - spread)) / 2
    name, shown, texts = curve.names[0], subject.shown, subject.texts(column)
    lowest, highest = float(values[:, shown].min()), float(values[:, shown].max())
    label = f"Effect of {name}, from {signed(lowest)} to {signed(highest)} {subject.unit}"
    if grid.dtype.kind not in "fiu":
        return Drawing(name, _level_bars(subject, column, grid, values, bands, label))
    known = ~np.isnan(grid)
    lines = [charts.Line(subject.outputs[place], values[known, place], bands[known, place]) for place in shown]
    missing = None if known.all() else float(values[~known][0, shown[0]])
    inside = subject.numbers[:, column]
    counts = np.histogram(inside[~np.isnan(inside)], BINS, (grid[known].min(), grid[known].max()))[0].tolist()
    y_name = f"change, {subject.unit}"
    return Drawing(name, charts.curves(grid[known], lines, label, y_name, counts=counts, missing=missing, texts=texts))


def _level_bars(
    subject: _Subject, column: int, grid: np.ndarray, values: np.ndarray, bands: np.ndarray, label: str
) -> Bars:
    """Bars for every level, of the output that the column moves most."""
    place = max(subject.shown, key=lambda output: float(np.ptp(values[:, output])))
    codes = subject.numbers[:, column]
    counts = [int(np.isnan(codes).sum()) if level != level else int((codes == k).sum()) for k, level in enumerate(grid)]
    rows = []
    for level, value, band, count in zip(grid.tolist(), values[:, place], bands[:, place], counts, strict=True):
        ends = (float(value - band), float(value + band))
        name, text = "missing" if level != level else str(level), f"{signed(float(value))} ± {short(band, 2)}"
        rows.append(Bar(name, text, 0.0, float(value), ends, f"{count:,} rows"))
    of = f" of {subject.outputs[place]}" if len(subject.outputs) > 1 else ""
    return Bars(f"{label}{of}", tuple(rows))


def _surface(subject: _Subject, term: Any, shares: np.ndarray, limit: float) -> Drawing | None:
    """Joint effect of two columns; None where it is too weak for a shade."""
    place = int(shares.argmax())
    model, background = subject.model, subject.background
    grids = [_side(effect(model, column, background)) for column in term.columns]
    pair = effect(model, list(term.columns), background, grids).values.numpy()
    first, second = (
        effect(model, column, background, grid).values.numpy() for column, grid in zip(term.columns, grids, strict=True)
    )
    start = np.broadcast_to(first[:, None] + second[None], pair.shape)
    values = subject.changed(pair, start)[..., place]
    if np.abs(values).max() * 2 * charts.SHADES < limit:
        return None
    written = [
        [subject.texts(column)(value) for value in grid] for column, grid in zip(term.columns, grids, strict=True)
    ]
    top = np.unravel_index(np.abs(values).argmax(), values.shape)
    where = ", ".join(f"{name} = {grid[at]}" for name, grid, at in zip(term.names, written, top, strict=True))
    on = f" of {subject.outputs[place]}" if len(subject.outputs) > 1 else ""
    return Drawing(
        term.label,
        charts.surface(
            (term.names[0], term.names[1]),
            (written[0], written[1]),
            values,
            limit,
            f"What {term.names[0]} and {term.names[1]} add together; most at {where}: {signed(float(values[top]))}",
            subject.unit,
        ),
        f"{percent(float(shares[place]))} of the variance{on}; at most {signed(float(values[top]))} {subject.unit} "
        f"at {where}. Beyond what either adds alone.",
    )


def _side(curve: Effect) -> list[Any]:
    grid = curve.grids[0]
    if grid.dtype.kind in "fiu":
        known = grid[~np.isnan(grid)]
        return [float(value) for value in np.linspace(known.min(), known.max(), SIDE)]
    return [value for value in grid.tolist() if value == value][:SIDE]
