"""What of a table is predicted: the task, the rows that have a target, and its values or class labels."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import numpy as np

from restt._common.errors import shown
from restt_app.workflow.columns import Column, exact
from restt_app.workflow.table import Table

FEW_VALUES = 10  # a target of this few different whole numbers is taken as classes
MOST_CLASSES = 100
LEAST_ROWS = 10


def present_rows(table: Table, target: str) -> np.ndarray:  # (B,)
    """Numbers of the rows that have the target."""
    values = table.values[target]
    return np.flatnonzero(~(np.isnan(values) if isinstance(values, np.ndarray) else values.isna()))


def read_target(table: Table, target: str, task: str, notes: list[str]) -> tuple[str, np.ndarray, np.ndarray]:
    """The task, the target's values or labels, and the rows that have one; ValueError for what cannot be learned."""
    column, values = table.columns[target], table.values[target]
    rows = present_rows(table, target)
    if column.kind == "date":
        raise ValueError(f"target {target!r} holds dates: make a number of them first, such as days until then")
    if len(rows) < table.rows:
        notes.append(f"{table.rows - len(rows)} rows without a value in {target!r} were left out")
    if len(rows) < LEAST_ROWS:
        raise ValueError(f"{len(rows)} rows have a value in the target {target!r}: at least {LEAST_ROWS} are needed")
    labels = class_labels(column, table.labels[target][rows]) if target in table.labels else None
    distinct = column.distinct if labels is None else len(np.unique(labels))
    if distinct == 1:
        only = values[rows[0]]
        raise ValueError(
            f"target {target!r} has one value, {shown(_plain(only))}, in all rows: there is nothing to predict"
        )
    numeric = column.kind == "number"
    whole = bool(numeric and (values[rows] == np.round(values[rows])).all())
    few = distinct == 2 or (whole and distinct <= FEW_VALUES)
    if task == "auto":
        task = "regression" if numeric and not few else "classification"
        counted = f"{distinct} different {'numbers' if numeric else 'labels'}"
        notes.append(f"{task}, since {target!r} has {counted}; the task can be named instead")
    if task == "regression":
        if not numeric:
            wrong = shown(_plain(values[rows[0]]))
            raise ValueError(f"target {target!r} must hold numbers for regression, got {wrong} in row {rows[0] + 1}")
        return task, values[rows], rows
    if labels is None or distinct > MOST_CLASSES:
        raise ValueError(
            f"target {target!r} has {distinct} different values, and at most {MOST_CLASSES} classes are taken: "
            "is it the right column, or are its numbers written as text?"
        )
    found, counts = np.unique(labels, return_counts=True)
    rare = found[counts < 2].tolist()
    if len(found) - len(rare) < 2:
        raise ValueError(
            f"target {target!r} must have two classes of at least 2 rows each, got {_counted(found, counts)}: "
            "name another task or target"
        )
    if rare:
        notes.append(f"the class {shown(rare[0])} of {target!r} is in one row only: little is learned about it")
    return task, labels, rows


def _counted(labels: np.ndarray, counts: np.ndarray) -> str:
    pairs = list(zip(labels.tolist(), counts.tolist(), strict=True))
    return ", ".join(f"{shown(label)} {count} times" for label, count in pairs[:4]) + (", …" if len(pairs) > 4 else "")


def class_labels(column: Column, spelled: Any) -> np.ndarray:  # (B,)
    """Classes of a target's values, a Categorical without missing ones, as the table spells them.

    Labels are integers where all are whole numbers in their usual form, booleans where all are True and False, else
    texts. Values that mean the same, such as 1 and 1.0 or yes and YES, get the spelling that is most frequent.

    >>> import pandas as pd
    >>> class_labels(Column("y", "number", "1234.5", 0, 2), pd.Categorical(["1.0", "2", "1.0", "1"]))
    array(['1.0', '2', '1.0', '1.0'], dtype=object)
    """
    counts = np.bincount(spelled.codes, minlength=len(spelled.categories))
    order = [place for place in np.argsort(-counts, kind="stable") if counts[place]]
    found = [spelled.categories[place] for place in order]
    usual: dict[Any, Any] = {}
    for key, label in zip(keys := exact(column.kind, column.layout, found), found, strict=True):
        usual.setdefault(key, label)
    chosen: Any = [usual[key] for key in keys]
    if all(isinstance(label, (bool, np.bool_)) for label in chosen):
        names = np.array(chosen, dtype=bool)
    elif None not in (whole := [_integer(label) for label in chosen]):
        names = np.array(whole, dtype=np.int64)
    else:
        names = np.array([str(label) for label in chosen], dtype=object)
    placed = np.zeros(len(counts), dtype=np.int64)
    placed[order] = np.arange(len(order))
    return names[placed[spelled.codes]]


def _integer(label: Any) -> int | None:
    """The integer that a label is or is spelled as, if it has 64 bits at most."""
    if isinstance(label, str):
        number = int(label) if re.fullmatch(r"0|-?[1-9]\d{0,18}", label, re.ASCII) else None
    else:
        number = int(label) if isinstance(label, (int, float, np.number, Decimal)) and label == int(label) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
