"""Several tasks in one train: the task is a column, and so a site, beside the others.

A residual train over [task, columns] holds every interaction of columns alone, which all tasks share, and every one of
the task with columns, in which they differ; how much of each is learned. Tasks of few rows lean on the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from restt._common.errors import shown
from restt.estimators.base import BaseResTT
from restt.explain import sobol_indices

__all__ = ["TASK", "Shared", "as_task", "join", "join_outputs", "shared"]

# The name of the column.
TASK = "task"


def join(tables: Mapping[str, tuple[Any, Any]]) -> tuple[Any, np.ndarray]:
    """Tables of several tasks as one, with a column ``task`` of the tasks' names.

    Parameters
    ----------
    tables : mapping from a task's name to (X, y)
        X a data frame or an array (B, C), with the same columns in every task.

    Returns
    -------
    X : data frame (ΣB, 1 + C)
        Fit a closed-form estimator with ``handle_unknown="error"``, which refuses a task that it was not fitted to.
    y : ndarray (ΣB,)

    Examples
    --------
    >>> X, y = join({"a": (np.zeros((2, 1)), [1.0, 2.0]), "b": (np.ones((1, 1)), [3.0])})
    >>> X["task"].tolist(), y.tolist()
    (['a', 'a', 'b'], [1.0, 2.0, 3.0])
    """
    pandas = _pandas()
    if not isinstance(tables, Mapping):
        raise TypeError(f"tables must be a mapping from tasks to (X, y), got {type(tables).__name__}")
    if not tables:
        raise ValueError("tables must hold at least one task, got none")
    parts, targets, columns = [], [], None
    for name, (x, y) in tables.items():
        part, values = as_task(x, name), np.asarray(y)
        if columns is not None and list(part.columns) != columns:
            raise ValueError(f"task {name!r} has the columns {shown(list(part.columns))}, others have {shown(columns)}")
        if len(values) != len(part):
            raise ValueError(f"y of task {name!r} must have {len(part)} entries, got {len(values)}")
        columns = list(part.columns)
        parts.append(part)
        targets.append(values)
    return pandas.concat(parts, ignore_index=True), np.concatenate(targets)


def join_outputs(X: Any, Y: Any, names: Sequence[str] | None = None) -> tuple[Any, np.ndarray]:
    """A table whose Y (B, O) has several outputs as one of O tasks; what is not finite in Y is left out.

    >>> X, y = join_outputs(np.array([[0.0], [1.0]]), np.array([[1.0, np.nan], [2.0, 3.0]]), ["u", "v"])
    >>> X["task"].tolist(), y.tolist()
    (['u', 'u', 'v'], [1.0, 2.0, 3.0])
    """
    values = np.asarray(Y, dtype=np.float64)
    if values.ndim != 2:
        raise ValueError(f"Y must have shape (B, O), got {values.shape}")
    labels = [f"y{k}" for k in range(values.shape[1])] if names is None else list(names)
    if len(labels) != values.shape[1] or len(set(labels)) != len(labels):
        raise ValueError(f"names must be {values.shape[1]} different ones, got {shown(names)}")
    frame = _pandas().DataFrame(X)
    known = np.isfinite(values)
    return join({name: (frame[known[:, k]], values[known[:, k], k]) for k, name in enumerate(labels)})


def as_task(X: Any, task: str) -> Any:
    """Rows (B, C) as those of one task: the data frame that a model of :func:`join` predicts."""
    if not isinstance(task, str):
        raise TypeError(f"task must be a name, got {shown(task)}")
    frame = _pandas().DataFrame(X).rename(columns=str)
    if TASK in frame.columns:
        raise ValueError(f"X has a column {TASK!r} already")
    frame.insert(0, TASK, task)
    return frame


@dataclass(frozen=True)
class Shared:
    """Shares of the variance of a model's predictions; they sum to 1."""

    common: float  # of columns alone: the same in all tasks
    level: float  # of the task alone: a constant for each
    own: float  # of interactions of the task with columns


def shared(model: BaseResTT) -> Shared:
    """Shares of the predictions' variance that tasks have in common or not: exact, by Sobol indices of their column.

    >>> from restt import ResTTRegressor
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (60, 1))
    >>> X, y = join({"a": (x, x[:, 0]), "b": (x, x[:, 0] + 5)})
    >>> shares = shared(ResTTRegressor(effort="quick", handle_unknown="error", random_state=0).fit(X, y))
    >>> bool(shares.level > 0.8), bool(shares.own < 0.05)
    (True, True)
    """
    names = list(getattr(model, "feature_names_in_", []))
    if TASK not in names:
        raise ValueError(f"model must be fitted to a table of restt.tasks.join, got one without a column {TASK!r}")
    place = names.index(TASK)
    indices = sobol_indices(model, max_order=1)
    weights = indices.variance / indices.variance.sum()
    first, total = (float((part[place] * weights).sum()) for part in (indices.first, indices.total))
    return Shared(1 - total, first, total - first)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("tasks are joined as data frames: pip install 'restt[app]' brings pandas") from error
    return pandas
