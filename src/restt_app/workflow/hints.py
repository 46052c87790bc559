"""What a table shows before a fit: columns that give the target away, ids that repeat, rows in the order of time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import pearsonr, rankdata, spearmanr

from restt._common.errors import shown
from restt_app.workflow.columns import Column

LEAK = 0.999  # R² or ROC AUC of one column alone
IMBALANCED = 0.8  # share of the largest class; Google's course on machine learning calls 20 % and less imbalanced
LEAST_TIMES = 10  # fewer different dates in order may be chance
_ID = re.compile(r"(?:^|[\W_]|(?<=[a-z]))(?:id|uuid|ID|Id|key|code|no|nr)$")


def leaks(frame: Any, y: np.ndarray, classes: np.ndarray | None, target: str) -> list[str]:
    """A line for each column of a model's inputs that alone predicts the target nearly perfectly.

    A row's target is estimated from its neighbours in the order of the column, or from the rows of its level, itself
    left out: neither needs to know the form of the dependence. A line and an order count too.

    Examples
    --------
    >>> import pandas as pd
    >>> y = np.random.default_rng(0).normal(size=50)
    >>> leaks(pd.DataFrame({"a": y**3, "b": y[::-1]}), y, None, "y")[0][:45]
    "column 'a' alone predicts 'y' nearly perfectl"
    """
    found = []
    for name in frame.columns:
        metric, score = _alone(frame[name], y, classes)
        if score > LEAK:
            found.append(
                f"column {name!r} alone predicts {target!r} nearly perfectly ({metric} {score:.4f}): if it is not "
                f"known when predicting, leave it out (--drop {name})"
            )
    return found


def _alone(series: Any, y: np.ndarray, classes: np.ndarray | None) -> tuple[str, float]:
    codes = None if series.dtype != "category" else np.asarray(series.cat.codes)
    numbers = None if codes is not None else np.asarray(series, dtype=np.float64)
    if classes is None:
        error = y - _estimated(y, codes, numbers)
        found = [1 - (error**2).sum() / ((y - y.mean()) ** 2).sum()]
        if numbers is not None and not np.isnan(numbers).any() and len(np.unique(numbers)) > 2:
            # Neighbours say little at the ends of few rows; a line and an order do.
            found += [pearsonr(numbers, y)[0] ** 2, spearmanr(numbers, y)[0] ** 2]
        return "R²", float(max(found))
    labels, counts = np.unique(y, return_counts=True)
    areas = []
    for label in labels[counts > 1] if len(labels) > 2 else labels[-1:]:
        truth = (y == label).astype(np.float64)
        areas.append(_auc(truth, _estimated(truth, codes, numbers)))
        if numbers is not None and not np.isnan(numbers).any():
            own = _auc(truth, numbers)
            areas[-1] = max(areas[-1], own, 1 - own)
    # One class may be plain where another is not: a leak gives all of them away.
    return "ROC AUC", min(areas, default=0.0)


def _estimated(y: np.ndarray, codes: np.ndarray | None, numbers: np.ndarray | None) -> np.ndarray:  # (B,)
    """The target of each row from the others: mean of its level, or between its two neighbours."""
    if codes is not None:
        return _others_mean(y, codes)
    assert numbers is not None
    known = ~np.isnan(numbers)
    found = np.full(len(y), y.mean())
    found[~known] = _others_mean(y[~known], np.zeros((~known).sum(), dtype=int))
    places, groups = np.unique(numbers[known], return_inverse=True)
    if len(places) < 3:
        found[known] = _others_mean(y[known], groups)
        return found
    counts = np.bincount(groups)
    means = np.bincount(groups, weights=y[known]) / counts
    middle = np.clip(np.arange(len(places)), 1, len(places) - 2)
    share = (places - places[middle - 1]) / (places[middle + 1] - places[middle - 1])
    between = means[middle - 1] + share * (means[middle + 1] - means[middle - 1])
    inside = (np.arange(len(places)) > 0) & (np.arange(len(places)) < len(places) - 1)
    between = np.where(inside, between, means[np.where(np.arange(len(places)) == 0, 1, len(places) - 2)])
    found[known] = np.where(counts[groups] > 1, _others_mean(y[known], groups), between[groups])
    return found


def _others_mean(y: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Mean of the other rows of each row's group; the mean of all where it is alone."""
    if not len(y):
        return y
    groups = groups - groups.min()
    counts, sums = np.bincount(groups)[groups], np.bincount(groups, weights=y)[groups]
    return np.where(counts > 1, (sums - y) / np.maximum(counts - 1, 1), y.mean())


def _auc(truth: np.ndarray, score: np.ndarray) -> float:
    hits = truth.sum()
    if hits in (0, len(truth)):
        return 0.0
    return float((rankdata(score)[truth > 0].sum() - hits * (hits + 1) / 2) / (hits * (len(truth) - hits)))


def dependence(columns: Mapping[str, Column], values: Mapping[str, Any], rows: int) -> list[str]:
    """Lines on columns by which rows seem to belong together or to follow each other, and the option that heeds it."""
    found = []
    for name, column in columns.items():
        if name not in values:
            continue
        if column.kind in ("number", "category") and 1 < column.distinct < rows - column.missing and _ID.search(name):
            found.append(
                f"several rows share a value of {name!r} ({column.distinct} in {rows} rows): if new rows come from new "
                f"ones, score on whole groups (--group {name})"
            )
        if column.kind == "date" and column.distinct >= LEAST_TIMES and column.missing == 0:
            steps = np.diff(values[name])
            if (steps >= 0).all() or (steps <= 0).all():
                found.append(
                    f"rows are sorted by {name!r}: if the model is to predict what comes later, score on the latest "
                    f"rows (--time {name})"
                )
    return found


def imbalance(y: np.ndarray, target: str) -> list[str]:
    """A line where one class has most of the rows.

    >>> imbalance(np.array(["no"] * 99 + ["yes"]), "ill")[0][:66]
    "the classes of 'ill' are imbalanced: 'no' is in 99 % of the rows, "
    """
    labels, counts = np.unique(y, return_counts=True)
    share = counts.max() / len(y)
    if share <= IMBALANCED:
        return []
    most = shown(labels.tolist()[counts.argmax()])
    rest = f"{shown(labels.tolist()[counts.argmin()])} in {100 * counts.min() / len(y):.2g} %"
    return [
        f"the classes of {target!r} are imbalanced: {most} is in {100 * share:.3g} % of the rows, {rest}; always "
        f"saying {most} has an accuracy of {share:.3g}, so read average precision and the confusion matrix instead"
    ]
