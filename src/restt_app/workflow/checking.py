"""Whether a new table is like the one a model was fitted to, and whether the model still does as well on it."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any

import numpy as np
from scipy.stats import betabinom, binom

from restt_app.workflow.columns import Column
from restt_app.workflow.fitting import FittedTable
from restt_app.workflow.folder import load
from restt_app.workflow.metrics import METRICS, draws, entry, words
from restt_app.workflow.rows import known_answers, read_rows

ERROR_RATE = 0.01  # chance that rows like those of the fit give any finding, shared by all tests (Bonferroni)


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
    >>> import pandas as pd
    >>> from restt.workflow import check_table, fit_table
    >>> data = pd.DataFrame(np.random.default_rng(0).random((60, 2)), columns=["a", "b"])
    >>> model = fit_table(data.assign(y=data.a * data.b), "y", effort="quick")
    >>> [(one["column"], one["what"]) for one in check_table(model, data.assign(b=data.b + 5))["findings"]]
    [('b', 'outside the range of the fit')]
    """
    fitted = model if isinstance(model, FittedTable) else load(model)
    card = fitted.card
    read = read_rows(card, data, **options)
    fit_rows = int(card.source["rows_used"])
    found: list[dict[str, Any]] = []
    tests = 0
    for entry_ in card.columns:
        column = Column.from_json(entry_)
        if not column.used:
            continue
        series = read.x[column.name]
        for what, count, chance in _counted(column, series, fit_rows, fitted.estimator):
            tests += 1
            share = count / len(series)
            found.append({"column": column.name, "what": what, "rows": count, "share": share, "chance": chance})
    findings = [one for one in found if one["rows"] and one["chance"] * tests < ERROR_RATE]
    scores: list[dict[str, Any]] = []
    if read.y is not None:
        x, y = known_answers(card, read)
        scores = _scores(fitted, x, y, seed)
        findings += [
            {
                "column": card.target,
                "what": f"{words(one['metric'])} is worse than on the held-out rows",
                "rows": len(y),
            }
            | {"share": 1.0}
            for one in scores
            if one["worse"]
        ]
    kept = sorted(findings, key=lambda one: -one["share"])
    return {"rows": len(read.x), "findings": kept, "scores": scores, "notes": read.notes}


def _counted(column: Column, series: Any, rows: int, estimator: Any) -> list[tuple[str, int, float]]:
    """What is counted, how often, and the chance of as many or more if new rows are exchangeable with the fit's."""
    gone = np.asarray(series.isna())
    count, new = int(gone.sum()), len(series)
    found = [("missing", count, float(betabinom.sf(count - 1, new, column.missing + 1, rows - column.missing + 1)))]
    present = int((~gone).sum())
    if column.kind in ("number", "date"):
        low, high = _ends(column)
        values = np.asarray(series, dtype=np.float64)
        outside = int(((values < low) | (values > high)).sum())
        # Of n values of the fit, the share of new ones outside their range is Beta(2, n - 1).
        chance = float(betabinom.sf(outside - 1, present, 2, max(rows - column.missing - 1, 1)))
        return [*found, ("outside the range of the fit", outside, chance)]
    place = list(estimator.feature_names_in_).index(column.name)
    known = {str(level) for level in estimator.encoding_.columns[place].levels or ()} | set(column.levels or ())
    unseen = int(sum(str(value) not in known for value in series[~gone]))
    # Good and Turing: levels that one row of the fit had are as frequent as those that none had.
    single = max(column.distinct - len(column.levels or ()), 0) if column.distinct <= 100 else 0
    chance = float(binom.sf(unseen - 1, present, (single + 1) / (rows + 1)))
    return [*found, ("levels that the fit has not seen", unseen, chance)]


def _ends(column: Column) -> tuple[float, float]:
    import pandas as pd

    low, high = column.range or [-np.inf, np.inf]
    if column.kind == "number":
        return float(low), float(high)
    days = [(pd.Timestamp(end) - pd.Timestamp(0)) / pd.Timedelta(days=1) for end in (low, high)]
    return days[0] - 1e-6, days[1] + 1e-6  # a microsecond is lost where dates are written out


def _scores(fitted: FittedTable, x: Any, y: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """Scores on these rows beside those of the held-out rows; worse where the intervals do not meet."""
    card = fitted.card
    classes = None if card.task == "regression" else fitted.estimator.classes_
    predict = fitted.estimator.predict if classes is None else fitted.estimator.predict_proba
    before = {one["metric"]: one for one in card.scores if one["model"] == "ResTT"}
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of unseen levels and missing values: they are findings
        predicted = np.asarray(predict(x))
    for metric, values in draws(y, predicted, classes, seed).items():
        now = entry(values)
        if metric not in before or not np.isfinite(now["value"]):
            continue
        more = METRICS[metric][1]
        worse = now["high"] < before[metric]["low"] if more else now["low"] > before[metric]["high"]
        found.append({"metric": metric, **now, "held_out": before[metric]["value"], "worse": bool(worse)})
    return found
