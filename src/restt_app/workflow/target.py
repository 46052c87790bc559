"""The target of a table: the task, its values or class labels, and warnings before a fit.

Warnings are of columns that give the target away, of ids that repeat and of rows in the order of time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.metrics import r2_score, roc_auc_score

from restt._common.errors import shown
from restt_app.workflow.columns import LARGEST, Column
from restt_app.workflow.layouts import label_text
from restt_app.workflow.table import Table

FEW_VALUES = 10  # a target of this few different whole numbers is taken as classes
MOST_CLASSES = 100
LEAST_ROWS = 10
IMBALANCED = 0.8  # share of the largest class; Google's course on machine learning calls 20 % and less imbalanced
LEAK = 0.999  # R² or ROC AUC of one column alone
LEAST_TIMES = 10  # fewer different dates in order may be chance
_ID = re.compile(r"(?:^|[\W_])(?:id|uuid|ID|Id|key|code|no|nr)$|(?<=[a-z])(?:ID|Id)$")


def read_target(table: Table, target: str, task: str, notes: list[str]) -> tuple[str, np.ndarray, np.ndarray]:
    """The task, the target's values or labels, and the rows that have one; ValueError for what cannot be learned."""
    column, values = table.columns[target], table.values[target]
    rows = np.flatnonzero(~np.asarray(pd.isna(values)))
    if column.kind == "date":
        raise ValueError(f"target {target!r} holds dates: make a number of them first, such as days until then")
    if len(rows) < table.rows:
        notes.append(f"{table.rows - len(rows)} rows without a value in {target!r} were left out")
    if len(rows) < LEAST_ROWS:
        raise ValueError(f"{len(rows)} rows have a value in the target {target!r}: at least {LEAST_ROWS} are needed")
    first = values[rows[0]].item() if isinstance(values, np.ndarray) else values[rows[0]]
    labels = None
    if target in table.labels:
        spelled = table.labels[target][rows]
        labels = class_labels(_one_spelling(spelled) if column.kind == "boolean" else spelled)
    distinct = column.distinct if labels is None else len(np.unique(labels))
    if distinct == 1:
        raise ValueError(f"target {target!r} has one value, {shown(first)}, in all rows: there is nothing to predict")
    numeric = column.kind == "number"
    few = distinct == 2 or (distinct <= FEW_VALUES and numeric and (values[rows] == np.round(values[rows])).all())
    if task == "auto":
        task = "regression" if numeric and not few else "classification"
        counted = f"{distinct} different {'numbers' if numeric else 'labels'}"
        notes.append(f"{task}, since {target!r} has {counted}; the task can be named instead")
    if task == "regression":
        if not numeric:
            raise ValueError(
                f"target {target!r} must hold numbers for regression, got {shown(first)} in row {rows[0] + 1}"
            )
        largest = np.abs(values[rows]).max()
        if not 1 / LARGEST <= largest <= LARGEST:
            raise ValueError(
                f"target {target!r} must have values of sizes between {1 / LARGEST:g} and {LARGEST:g}, whose squares "
                f"are floats, got {largest:g} at most: use other units"
            )
        return task, values[rows], rows
    if labels is None or distinct > MOST_CLASSES:
        raise ValueError(
            f"target {target!r} has {distinct} different values, and at most {MOST_CLASSES} classes are taken: "
            "is it the right column, or are its numbers written as text?"
        )
    _note_classes(target, labels, notes)
    return task, labels, rows


def _note_classes(target: str, labels: np.ndarray, notes: list[str]) -> None:
    """Notes on rare classes and imbalance; ValueError where fewer than two classes have two rows."""
    counts = dict(zip(*(part.tolist() for part in np.unique(labels, return_counts=True)), strict=True))
    rare = [label for label, count in counts.items() if count < 2]
    if len(counts) - len(rare) < 2:
        some = ", ".join(f"{shown(label)} {count} times" for label, count in list(counts.items())[:4])
        raise ValueError(
            f"target {target!r} must have two classes of at least 2 rows each, got {some}"
            f"{', …' if len(counts) > 4 else ''}: name another task or target"
        )
    if rare:
        notes.append(f"the class {shown(rare[0])} of {target!r} is in one row only: little is learned about it")
    most, least = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    share = counts[most] / len(labels)
    if share > IMBALANCED:
        notes.append(
            f"the classes of {target!r} are imbalanced: {shown(most)} is in {100 * share:.3g} % of the rows, "
            f"{shown(least)} in {100 * counts[least] / len(labels):.2g} %; always saying {shown(most)} has an accuracy "
            f"of {share:.3g}, so read average precision and the confusion matrix instead"
        )


def _one_spelling(spelled: Any) -> Any:
    """Truth values, a Categorical, each as it is spelled most often: Yes and yes are one class.

    >>> list(_one_spelling(pd.Categorical(["Yes", "no", "yes", "Yes"])))
    ['Yes', 'no', 'Yes', 'Yes']
    """
    usual: dict[str, Any] = {}
    for value in pd.Series(spelled).value_counts().index:
        usual.setdefault(str(value).lower(), value)
    return pd.Categorical([usual[str(value).lower()] for value in spelled])


def class_labels(spelled: Any) -> np.ndarray:  # (B,)
    """Classes of a target's values, a Categorical without missing ones, as the table spells them.

    Labels are booleans where all are True and False, integers where all are whole numbers of at most 64 bits in their
    usual form, else texts.

    >>> class_labels(pd.Categorical(["1", "2"])), class_labels(pd.Categorical(["1.0", "2"]))
    (array([1, 2]), array(['1.0', '2'], dtype=object))
    """
    spelled = spelled.remove_unused_categories()
    values = spelled.categories.tolist()
    if all(isinstance(value, bool) for value in values):
        return np.asarray(spelled, dtype=bool)
    names: Any = [label_text(value) for value in values]
    whole = all(re.fullmatch(r"0|-?[1-9]\d{0,18}", name, re.ASCII) and abs(int(name)) < 2**63 for name in names)
    return np.array([int(name) for name in names] if whole else names, dtype=np.int64 if whole else object)[
        spelled.codes
    ]


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
