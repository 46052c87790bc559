"""The target of a table: the task, the rows that have it, and its values or class labels."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from restt._common.errors import shown
from restt_app.workflow.layouts import label_text
from restt_app.workflow.table import Table

FEW_VALUES = 10  # a target of this few different whole numbers is taken as classes
MOST_CLASSES = 100
LEAST_ROWS = 10
IMBALANCED = 0.8  # share of the largest class; Google's course on machine learning calls 20 % and less imbalanced


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
    labels = class_labels(table.labels[target][rows]) if target in table.labels else None
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
