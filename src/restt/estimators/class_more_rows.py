"""``partial_fit`` of the closed-form classifier: the average of its first fit conditioned on more rows.

Candidates, hyper-parameters, knots and weights of the average stay those of the first fit. Everything else is computed
anew from all rows, brought into an order that depends on what they hold alone: batches give what all rows at once do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import ttest_ind_from_stats

from restt.estimators.class_rows import ClassRows, ClassSettings
from restt.estimators.classes import new_labels, row_losses
from restt.estimators.columns import Column, levels_beside, read_numbers
from restt.estimators.gradient import member_outputs
from restt.estimators.more_rows import (
    added_levels,
    check_room,
    learned_anew,
    may_miss,
    recoded,
    warn_if_unlikely,
    with_new_levels,
)
from restt.estimators.selection import Average, Selected, device_of
from restt.estimators.tables import Examples
from restt.estimators.targets import Labels, class_numbers
from restt.features.levels import sorted_levels
from restt.prior.gp import Process
from restt.prior.rows import FitRows

if TYPE_CHECKING:
    from restt.estimators.classifier import ResTTClassifier

# L-BFGS steps of a mode that is not begun from the folds', and the share of its objective that the last one gains.
_ITERATIONS, _TOLERANCE = 400, 1e-9


def select_more(given: Examples, model: ResTTClassifier, refit_scales: bool) -> tuple[Selected, float]:
    """The average given new rows too, and how probable these were; with ``refit_scales`` learned anew on all rows."""
    seen, average, settings = model.fit_rows_, model._average, ClassSettings.of_effort(model.effort)
    if seen is None or average is None:
        raise ValueError(
            "partial_fit needs the rows of the fit, which this model does not have: it was fitted to more than "
            f"{settings.most_rows} rows, trained by gradients, or read from a file (a pickle has them); fit it again "
            "on all rows"
        )
    check_room(len(seen), len(given), settings.most_rows)
    first, before = average.kernels.rows.columns, model.encoding_.columns
    most = levels_beside(len(first), settings.most_levels, settings.most_states)
    grown = (with_new_levels(column, given.table, n, most) for n, column in enumerate(before))
    columns = tuple(_in_order(*pair) for pair in zip(first, grown, strict=True))
    if refit_scales:
        columns = may_miss(columns)
    numbers, labels = read_numbers(columns, given.table), class_numbers(given.y, model.classes_)
    known = recoded(numbers, columns, before)
    logits = member_outputs(model.module_, model.encoding_, known, model.precision_).mean(axis=0)
    losses = row_losses(logits, labels)
    odds = probability_of(losses, model.target_.row_weights(given.y, given.weights), average.row_losses)
    rows = FitRows.of(
        np.concatenate([recoded(seen.numbers, before, columns), numbers]),
        np.concatenate([seen.targets, labels[:, None].astype(np.float64)]),
        np.concatenate([seen.weights, given.weights]),
        seen.seed,
    )
    places = rows.targets[:, 0].astype(np.int64)
    target = new_labels(model.classes_[places], rows.weights, model.class_weight, classes=model.classes_)
    if refit_scales or average.loss is None:
        columns, whole = learned_anew(columns, rows.numbers)
        rows = replace(rows, numbers=whole)
        merged = ClassRows.of(columns, whole, places, rows.weights, model, target, rows.seed)
        average, found = Average.learned(merged, model, rows.seed)
        selected = average.conditioned(merged, rows.numbers, rows.weights, target, found)
    else:
        warn_if_unlikely(odds)
        selected = _with_rows(average, first, columns, rows, model, target)
    return replace(selected, average=average.kept(), rows=rows), odds


def _with_rows(
    average: Average,
    first: tuple[Column, ...],
    columns: tuple[Column, ...],
    rows: FitRows,
    model: ResTTClassifier,
    target: Labels,
) -> Selected:
    """The first fit's average given all rows, numbered by columns that may have more levels than it had."""
    levels = added_levels(first, columns)
    processes = average.kernels.processes
    kernel = next(iter(processes.values())).kernel.with_levels(levels)
    content = rows.numbers, rows.targets[:, 0].astype(np.int64), rows.weights
    merged = ClassRows.of(columns, *content, model, target, rows.seed, kernel.sites, kernel.means)
    settings = replace(merged.settings, mode_iterations=_ITERATIONS, mode_tolerance=_TOLERANCE)
    merged = replace(merged, settings=settings)
    wider = {name: Process(kernel, one.theta, one.component, one.settings) for name, one in processes.items()}
    if any(count for _, count in levels):  # of which trains have no state
        average = replace(average, weights=average.of_kernels[0], loss=average.of_kernels[1])
    kernels = replace(average.kernels, rows=merged, processes=wider, by_fold=())
    trains = replace(average.trains, device=device_of(merged, model))
    return replace(average, kernels=kernels, trains=trains).conditioned(merged, rows.numbers, rows.weights, target)


def _in_order(first: Column, column: Column) -> Column:
    """The column with the levels that came after the first fit sorted, whichever came first."""
    if first.levels is None or column.levels is None:
        return column
    return replace(column, levels=(*first.levels, *sorted_levels(set(column.levels) - set(first.levels))))


def probability_of(losses: np.ndarray, weights: np.ndarray, held_out: tuple[float, float, int]) -> float:
    """Probability of so large a mean log-loss if rows were as those held out in the fit: a t-test, one-sided.

    ``held_out``: mean, standard deviation and number of the losses of rows that the candidates had not seen.

    >>> round(probability_of(np.full(9, 0.5), np.ones(9), (0.5, 0.3, 100)), 3)
    0.5
    """
    mean, spread, count = held_out
    if not count or not len(losses) or not weights.sum() > 0:
        return 1.0
    own = np.average(losses, weights=weights)
    own_spread = np.sqrt(np.average((losses - own) ** 2, weights=weights))
    if not spread > 0 and not own_spread > 0:
        return 1.0 if own <= mean else 0.0
    test = ttest_ind_from_stats(own, own_spread, len(losses), mean, spread, count, alternative="greater")
    return float(test.pvalue)
