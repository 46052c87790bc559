"""Warnings before a fit: columns that give the target away, ids that repeat, rows in the order of time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.metrics import r2_score, roc_auc_score

from restt_app.workflow.columns import Column

LEAK = 0.999  # R² or ROC AUC of one column alone
LEAST_TIMES = 10  # fewer different dates in order may be chance
_ID = re.compile(r"(?:^|[\W_]|(?<=[a-z]))(?:id|uuid|ID|Id|key|code|no|nr)$")


def leaks(frame: Any, y: np.ndarray, classes: np.ndarray | None, target: str) -> list[str]:
    """A line for each column of a model's inputs that alone predicts the target nearly perfectly.

    A row's target is estimated from its neighbours in the order of the column, or from the rows of its value, itself
    left out: neither needs to know the form of the dependence. A line and an order count too.

    Examples
    --------
    >>> y = np.random.default_rng(0).normal(size=50)
    >>> leaks(pd.DataFrame({"a": y**3, "b": y[::-1]}), y, None, "y")[0][:45]
    "column 'a' alone predicts 'y' nearly perfectl"
    """
    metric = "R²" if classes is None else "ROC AUC"
    lines = []
    for name in frame.columns:
        score = _score_alone(frame[name], y) if classes is None else _score_classes_alone(frame[name], y)
        if score > LEAK:
            lines.append(
                f"column {name!r} alone predicts {target!r} nearly perfectly ({metric} {score:.4f}): if it is not "
                f"known when predicting, leave it out (--drop {name})"
            )
    return lines


def _score_alone(series: Any, y: np.ndarray) -> float:
    scores = [r2_score(y, _estimated(series, y))]
    if series.dtype != "category" and series.notna().all() and series.nunique() > 2:
        # Neighbours say little at the ends of few rows; a line and an order do.
        scores += [np.corrcoef(series, y)[0, 1] ** 2, spearmanr(series, y)[0] ** 2]
    return float(max(scores))


def _score_classes_alone(series: Any, y: np.ndarray) -> float:
    labels, counts = np.unique(y, return_counts=True)
    scores = []
    for label in labels[counts > 1] if len(labels) > 2 else labels[-1:]:
        truth = (y == label).astype(np.float64)
        areas = [roc_auc_score(truth, _estimated(series, truth))]
        if series.dtype != "category" and series.notna().all():
            own = roc_auc_score(truth, series)
            areas += [own, 1 - own]
        scores.append(max(areas))
    # One class may be plain where another is not: a leak gives all of them away.
    return float(min(scores, default=0.0))


def _estimated(series: Any, y: np.ndarray) -> np.ndarray:  # (B,)
    """The target of each row from the others: mean of those with the same value, else between its two neighbours."""
    codes, levels = pd.factorize(series, sort=series.dtype != "category", use_na_sentinel=False)
    counts, sums = np.bincount(codes), np.bincount(codes, weights=y)
    alone = np.full(len(levels), y.mean())
    if series.dtype != "category" and len(levels) > 2:
        places, means = np.asarray(levels, dtype=np.float64), sums / counts
        middle = np.clip(np.arange(len(places)), 1, len(places) - 2)
        share = (places[middle] - places[middle - 1]) / (places[middle + 1] - places[middle - 1])
        alone = means[middle - 1] + np.nan_to_num(share, nan=0.5) * (means[middle + 1] - means[middle - 1])
        alone[[0, -1]] = means[[1, -2]]
    return np.where(counts[codes] > 1, (sums[codes] - y) / np.maximum(counts[codes] - 1, 1), alone[codes])


def dependence(columns: Mapping[str, Column], values: Mapping[str, Any], rows: int) -> list[str]:
    """Lines on columns by which rows seem to belong together or to follow each other, and the option that heeds it."""
    lines = []
    for name, column in columns.items():
        if name not in values:
            continue
        if column.kind in ("number", "category") and 1 < column.distinct < rows - column.missing and _ID.search(name):
            lines.append(
                f"several rows share a value of {name!r} ({column.distinct} in {rows} rows): if new rows come from new "
                f"ones, score on whole groups (--group {name})"
            )
        if column.kind == "date" and column.distinct >= LEAST_TIMES and column.missing == 0:
            steps = np.diff(values[name])
            if (steps >= 0).all() or (steps <= 0).all():
                lines.append(
                    f"rows are sorted by {name!r}: if the model is to predict what comes later, score on the latest "
                    f"rows (--time {name})"
                )
    return lines
