"""Fitted models on further rows: two models side by side, and whether new rows are like those of a fit."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import betabinom, binom

from restt_app.workflow.card import FittedTable, as_fitted
from restt_app.workflow.columns import LISTED_LEVELS, Column
from restt_app.workflow.metrics import METRICS, draws, entry, row_losses, weak_groups, words
from restt_app.workflow.predicting import known_targets, naming, read_rows
from restt_app.workflow.scoring import OURS

LISTED_ROWS = 5
ERROR_RATE = 0.01  # chance that rows like those of the fit give any finding, shared by all tests (Bonferroni)


def compare_tables(
    a: str | PathLike[str] | FittedTable,
    b: str | PathLike[str] | FittedTable,
    data: Any,
    *,
    seed: int = 0,
    **options: Any,
) -> dict[str, Any]:
    """Score two models of one target on the rows of a table.

    Parameters
    ----------
    a, b : path or FittedTable
    data : path, "-" or data frame
        Best rows that neither was fitted to; where a file is the one of a fit, a note says so.
    seed : int
        Of the resamples, which are the same for both models.
    options
        ``layout``, ``delimiter``, ``encoding`` and ``missing``, see :func:`read_table`.

    Returns
    -------
    dict
        Plain JSON: ``rows``; ``metrics``, for each ``a``, ``b``, and their difference a − b with its 95 % interval, and
        which is ``better`` where the interval holds no 0; ``apart``, how far predictions are apart, and the ``rows``
        where most; ``worse_a`` and ``worse_b``, groups of rows in which one is worse than elsewhere; ``notes``.
    """
    models = [as_fitted(model) for model in (a, b)]
    cards = [model.card for model in models]
    for name in ("task", "target", "classes"):
        ours, theirs = (getattr(card, name) for card in cards)
        if ours != theirs:
            raise ValueError(f"a and b must be models of the same {name}, got {ours!r} and {theirs!r}")
    tables, known = [], []
    for letter, card in zip("ab", cards, strict=True):
        with naming(letter):
            tables.append(read_rows(card, data, **options))
            known.append(known_targets(card, tables[-1]))
    (x, y), (other, _) = known
    notes = list(dict.fromkeys(note for rows in tables for note in rows.notes))
    for letter, card in zip("ab", cards, strict=True):
        if tables[0].sha256 is not None and card.source.get("sha256") == tables[0].sha256:
            notes.append(f"{letter} was fitted to this file: its score here says nothing about new rows")
    classes = _classes(models[0])
    values = [_predicted(model, rows) for model, rows in zip(models, (x, other), strict=True)]
    resampled = [draws(y, predicted, classes, seed) for predicted in values]
    losses = [row_losses(y, predicted, classes) for predicted in values]
    gap = np.abs(values[0] - values[1]) if classes is None else np.abs(values[0] - values[1]).sum(axis=1) / 2
    largest = [
        {
            "row": int(x.index[row]) + 1,
            "a": _in_words(values[0][row], classes),
            "b": _in_words(values[1][row], classes),
            "observed": y.tolist()[row],
        }
        for row in np.argsort(-gap, kind="stable")[:LISTED_ROWS]
    ]
    return {
        "rows": len(y),
        "metrics": [
            _compared(name, ours, resampled[1][name]) for name, ours in resampled[0].items() if np.isfinite(ours[0])
        ],
        "apart": {"mean": float(gap.mean()), "largest": float(gap.max()), "rows": largest},
        "worse_a": weak_groups(x, losses[0] - losses[1]),
        "worse_b": weak_groups(x, losses[1] - losses[0]),
        "notes": notes,
    }


def check_table(
    model: str | PathLike[str] | FittedTable, data: Any, *, seed: int = 0, **options: Any
) -> dict[str, Any]:
    """Compare the rows of a table with those of a model's fit.

    Parameters
    ----------
    model : path or FittedTable
    data : path, "-" or data frame
    seed : int
        Of the resamples of scores.
    options
        ``layout``, ``delimiter``, ``encoding`` and ``missing``, see :func:`read_table`.

    Returns
    -------
    dict
        Plain JSON: ``rows``; ``findings``, each with ``column``, ``what``, ``rows`` and ``share``; ``scores`` where the
        table has the target; ``notes``. There are no findings when the rows could have come from those of the fit:
        values outside the range, unseen levels and missing values are counted beyond what chance explains.

    Examples
    --------
    >>> from restt.workflow import check_table, fit_table
    >>> data = pd.DataFrame(np.random.default_rng(0).random((60, 2)), columns=["a", "b"])
    >>> model = fit_table(data.assign(y=data.a * data.b), "y", effort="quick")
    >>> [(found["column"], found["what"]) for found in check_table(model, data.assign(b=data.b + 5))["findings"]]
    [('b', 'outside the range of the fit')]
    """
    fitted = as_fitted(model)
    card = fitted.card
    rows = read_rows(card, data, **options)
    tests = [
        (column.name, what, count, chance)
        for column in fitted.columns
        if column.used
        for what, count, chance in _counted(column, rows.x[column.name], card.source["rows_used"], fitted.estimator)
    ]
    findings: list[dict[str, Any]] = [
        {"column": name, "what": what, "rows": count, "share": count / len(rows.x)}
        for name, what, count, chance in tests
        if count and chance * len(tests) < ERROR_RATE
    ]
    scores: list[dict[str, Any]] = []
    if rows.y is not None:
        x, y = known_targets(card, rows)
        scores = _scores(fitted, x, y, seed)
        for score in scores:
            if score["worse"]:
                what = f"{words(score['metric'])} is worse than on the held-out rows"
                findings.append({"column": card.target, "what": what, "rows": len(y), "share": 1.0})
    findings.sort(key=lambda finding: -finding["share"])
    return {"rows": len(rows.x), "findings": findings, "scores": scores, "notes": rows.notes}


def _classes(model: FittedTable) -> np.ndarray | None:
    return None if model.card.task == "regression" else model.estimator.classes_


def _predicted(model: FittedTable, x: Any) -> np.ndarray:
    predict = model.estimator.predict if _classes(model) is None else model.estimator.predict_proba
    return np.asarray(predict(x))


def _compared(metric: str, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    gap = entry(a - b)
    better = ""
    if gap["low"] > 0 or gap["high"] < 0:
        better = "a" if (gap["value"] > 0) == METRICS[metric][1] else "b"
    difference = {"difference": gap["value"], "low": gap["low"], "high": gap["high"]}
    return {"metric": metric, "a": float(a[0]), "b": float(b[0]), **difference, "better": better}


def _in_words(values: Any, classes: np.ndarray | None) -> Any:
    """Prediction of one row: the number, or the class with its probability."""
    return float(values) if classes is None else [classes.tolist()[int(values.argmax())], float(values.max())]


def _counted(column: Column, series: Any, rows: int, estimator: Any) -> list[tuple[str, int, float]]:
    """Name, count and the probability of as many or more if new rows are exchangeable with those of the fit."""
    present = series[series.notna()]
    gone = len(series) - len(present)
    chance = betabinom.sf(gone - 1, len(series), column.missing + 1, rows - column.missing + 1)
    missing = ("missing", gone, float(chance))
    if column.kind in ("number", "date"):
        low, high = _ends(column)
        outside = int(((present < low) | (present > high)).sum())
        # Of n values of the fit, the share of new ones outside their range is Beta(2, n - 1).
        chance = betabinom.sf(outside - 1, len(present), 2, max(rows - column.missing - 1, 1))
        return [missing, ("outside the range of the fit", outside, float(chance))]
    place = list(estimator.feature_names_in_).index(column.name)
    known = {str(level) for level in estimator.encoding_.columns[place].levels or ()} | set(column.levels or ())
    unseen = sum(str(value) not in known for value in present)
    # Good and Turing: levels that one row of the fit had are as frequent as those that none had.
    single = max(column.distinct - len(column.levels or ()), 0) if column.distinct <= LISTED_LEVELS else 0
    chance = binom.sf(unseen - 1, len(present), (single + 1) / (rows + 1))
    return [missing, ("levels that the fit has not seen", unseen, float(chance))]


def _ends(column: Column) -> tuple[float, float]:
    low, high = column.range or [-np.inf, np.inf]
    if column.kind == "number":
        return float(low), float(high)
    days = [(pd.Timestamp(end) - pd.Timestamp(0, unit="s")) / pd.Timedelta(days=1) for end in (low, high)]
    return days[0] - 1e-6, days[1] + 1e-6  # dates are written out to the millisecond


def _scores(fitted: FittedTable, x: Any, y: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """Scores on these rows beside those of the held-out rows; worse where the intervals do not meet."""
    before = {score["metric"]: score for score in fitted.card.scores if score["model"] == OURS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of unseen levels and missing values: they are findings
        predicted = _predicted(fitted, x)
    scores = []
    for metric, values in draws(y, predicted, _classes(fitted), seed).items():
        now = entry(values)
        if metric in before and np.isfinite(now["value"]):
            held_out = before[metric]
            worse = now["high"] < held_out["low"] if METRICS[metric][1] else now["low"] > held_out["high"]
            scores.append({"metric": metric, **now, "held_out": held_out["value"], "worse": bool(worse)})
    return scores
