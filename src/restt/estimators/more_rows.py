"""``partial_fit`` of the closed-form regressor: its model given more rows (:func:`restt.prior.model.condition_on`)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from restt._common.devices import read_device
from restt._common.errors import warn_caller
from restt.estimators.closed import FitReport
from restt.estimators.columns import AVERAGE, Column, read_numbers
from restt.estimators.modelled import Modelled
from restt.estimators.posterior import MOST_LEVELS, FitTable, Solved, fit_prior, solved
from restt.estimators.tables import Examples, Table, output_columns
from restt.features.levels import read_level
from restt.prior import Predictive, Settings, Warp
from restt.prior.functionals import surprise
from restt.prior.model import condition_on
from restt.prior.rows import FitRows, ordinary_range

if TYPE_CHECKING:
    from restt.estimators.regressor import ResTTRegressor

# New rows as unlikely as this under the model are warned of: one stationary batch in a thousand.
UNLIKELY = 1e-3
# Of a larger batch so many rows are judged.
JUDGED_ROWS = 1000


class ScalesWarning(UserWarning):
    """New rows are unlikely under the scales that the first fit learned."""


def solve_more(given: Examples, model: ResTTRegressor, refit_scales: bool) -> Solved:
    """The fitted model given new rows too; with ``refit_scales`` all scales are learned anew on all rows."""
    began = time.monotonic()
    spread, target, seen = model.spread_, model.target_, model.fit_rows_
    if seen is None or not isinstance(spread, Predictive) or not isinstance(target.model, Warp):
        raise ValueError(
            "partial_fit needs the rows of the fit, which this model does not have: it was refined on a long table, or "
            "saved without them as they are too large for its file (a pickle has them); fit it again on all rows"
        )
    settings = Settings.of_effort(model.effort)
    check_room(len(seen), len(given), settings.exact_rows)
    before = model.encoding_.columns
    columns = tuple(with_new_levels(column, given.table, n) for n, column in enumerate(before))
    if refit_scales:
        columns = may_miss(columns)
    numbers = read_numbers(columns, given.table)
    y = output_columns(given.y)
    if y.shape[1] != target.outputs:
        raise ValueError(f"y must have {target.outputs} column(s), as many as in the first fit, got {y.shape[1]}")
    varies = ~np.isnan(target.constant) & (y != target.constant).any(axis=0)
    kept = _plausible(target.divided(y), seen)
    numbers, y, weights = numbers[kept], y[kept], given.weights[kept]
    new = target.divided(y)
    odds = surprise(spread, target.model, recoded(numbers, columns, before), new, weights, JUDGED_ROWS)
    whole = np.concatenate([recoded(seen.numbers, before, columns), numbers])
    targets, weights = np.concatenate([seen.targets, new]), np.concatenate([seen.weights, weights])
    names = list(model.prior_.names)
    if refit_scales or varies.any():
        raw = np.concatenate([np.ldexp(seen.targets, target.exponents), y])
        target, targets = Modelled.scaled(raw[:, 0] if target.flat else raw, weights)
        columns, whole = learned_anew(columns, whole)
        table = FitTable(columns, whole, targets, weights)
        fitted = fit_prior(table, model, settings, names, seen.seed)
    else:
        warn_if_unlikely(odds)
        bond = model.bond_dim if isinstance(model.bond_dim, str) else int(model.bond_dim)
        rows = FitRows.of(whole, targets, weights, seen.seed, seen.tail)
        kernel = spread.kernel.with_levels(added_levels(before, columns))
        fitted = condition_on(spread, kernel, target.model, rows, tuple(names), bond_dim=bond, settings=settings)
        table = FitTable(columns, rows.numbers, rows.targets, rows.weights)
    found = solved(fitted, table, target, settings, read_device(model.device, 0.0))
    spent = {"effort": model.effort, "seconds": round(time.monotonic() - began, 2)}
    judged = {"rows_before": len(seen), "probability_of_new_rows": odds}
    return replace(found, report=FitReport(spent | found.report | judged))


def check_room(seen: int, given: int, most: int) -> None:
    """Raise ValueError where old and new rows are more than a model may be conditioned on."""
    if seen + given > most:
        raise ValueError(
            f"partial_fit holds at most {most} rows, got {given} beside the {seen} it has: fit again on all of them"
        )


def warn_if_unlikely(odds: float) -> None:
    """Give a :class:`ScalesWarning` where new rows of this probability do not look like those of the first fit."""
    if odds < UNLIKELY:
        warn_caller(
            f"the new rows are unlikely under the first fit (probability {max(odds, 1e-300):.1g}): "
            "partial_fit(X, y, refit_scales=True) learns its scales anew",
            ScalesWarning,
        )


def added_levels(before: Sequence[Column], columns: Sequence[Column]) -> list[tuple[int, int]]:
    """Place and number of the levels of each column that came later, as a kernel takes them."""
    counts = [(len(old.levels or ()), len(column.levels or ())) for old, column in zip(before, columns, strict=True)]
    return [(place, count - place) for place, count in counts]


def with_new_levels(column: Column, table: Table, index: int, most: int = MOST_LEVELS) -> Column:
    """The column with the categories that it did not have, each a level of its own, up to ``most``.

    Rare levels of the first fit stay in their common state.
    """
    if column.levels is None or column.rare is None:
        return column
    known = {*column.levels, *column.rare}
    found = dict.fromkeys(read_level(value) for value in table.categories(index))
    new = [level for level in found if level is not None and level not in known]
    return replace(column, levels=(*column.levels, *new[: max(0, most - column.states)]))


def may_miss(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns with a state for missing values, unless these are an error."""
    return tuple(replace(column, missing=column.missing or column.averages_missing) for column in columns)


def learned_anew(columns: Sequence[Column], numbers: np.ndarray) -> tuple[tuple[Column, ...], np.ndarray]:  # N, (B, C)
    """Columns and numbers for a fit to rows of several batches: a value of an unknown category counts as missing."""
    found = numbers.copy()
    for n, column in enumerate(columns):
        if column.levels is not None:
            found[found[:, n] == AVERAGE, n] = np.nan
    missing = np.isnan(found).any(axis=0).tolist()
    made = (replace(column, missing=absent) for column, absent in zip(columns, missing, strict=True))
    return tuple(made), found


def recoded(numbers: np.ndarray, columns: Sequence[Column], others: Sequence[Column]) -> np.ndarray:  # (B, C)
    """Numbers of levels of some columns as those of others; a level that these do not have is unseen (-1) or rare."""
    found = numbers.copy()
    for n, (column, other) in enumerate(zip(columns, others, strict=True)):
        if column.levels is None or other.levels is None or column.levels == other.levels:
            continue
        rare = len(other.levels)
        place = {level: k for k, level in enumerate(other.levels)}
        codes = [place.get(level, rare if other.other else -1) for level in column.levels]
        known = ~np.isnan(numbers[:, n])
        found[known, n] = np.array([*codes, rare, -1.0])[numbers[known, n].astype(np.int64)]
    return found


def _plausible(targets: np.ndarray, seen: FitRows) -> np.ndarray:  # (K,)
    low, high = ordinary_range(seen.targets, seen.weights)
    kept = np.flatnonzero(((low <= targets) & (targets <= high)).all(axis=1))
    if len(kept) < len(targets):
        warn_caller(f"{len(targets) - len(kept)} row(s) are left out: their y is absurdly far from all others")
    return kept
