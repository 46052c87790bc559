"""Any function of a table's rows, fitted by a train: explanations of the train, with its error beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_int, check_positive, shown
from restt.explain.global_explanation import GlobalExplanation, explain_global
from restt.explain.local_explanation import LocalExplanation, explain_local
from restt.explain.subject import Subject


@dataclass(frozen=True, eq=False)
class Distilled:
    """A train that stands for a black box, read by every function of :mod:`restt.explain`.

    Attributes
    ----------
    model : ResTTRegressor
        Fitted to what the black box predicts.
    error : (O,)
        Root mean square difference between the two on fresh points, over the standard deviation of the black box
        there: 0.1 leaves a hundredth of the variance unexplained.
    rows, fresh : int
        Points that the train was fitted to, and that its error was measured on.
    """

    model: Any
    error: Tensor
    rows: int
    fresh: int

    def __repr__(self) -> str:
        errors = ", ".join(f"{value:.2g}" for value in self.error.tolist())
        return (
            f"Distilled into {type(self.model).__name__}: off by {errors} standard deviations of the black box on "
            f"{self.fresh} fresh points, fitted to {self.rows}"
        )

    def subject(self) -> Subject:
        """The fitted train, with its error, as explanations read it."""
        return replace(Subject.of(self.model), error=self.error)

    def explain_local(self, X: Any, background: Any = None) -> LocalExplanation:
        """Shapley values and orders of rows, see :func:`restt.explain.explain_local`."""
        return explain_local(self, X, background)

    def explain_global(self, background: Any = None) -> GlobalExplanation:
        """Columns and interactions, see :func:`restt.explain.explain_global`."""
        return explain_global(self, background)


def distil(
    predict: Callable[[Any], Any],
    X: Any,
    *,
    rows: int = 2000,
    fresh: int = 500,
    max_error: float | None = None,
    effort: str = "auto",
    categorical_features: Any = None,
    random_state: int = 0,
) -> Distilled:
    """A black box as a train: fitted to its predictions of rows and of points between them.

    Points between rows have some columns of one row and the others of another: those that Shapley values ask a model
    about. Half of the points are rows, as far as there are so many.

    Parameters
    ----------
    predict : callable
        From a table like X to finite numbers (B,) or (B, O): a model's ``predict``, ``predict_proba`` or
        ``decision_function``.
    X : numpy array or pandas data frame
    rows, fresh : int
        Points to fit to, and others on which the error is measured.
    max_error : float, optional
        The largest ``error`` of any output that is accepted; beyond it a ValueError is raised.
    effort, categorical_features
        As in :class:`restt.ResTTRegressor`.
    random_state : int
        Of the points.

    Examples
    --------
    >>> import numpy as np
    >>> from restt import explain
    >>> X = np.random.default_rng(0).random((100, 3))
    >>> distilled = explain.distil(lambda rows: rows[:, 0] * rows[:, 1], X, rows=300, effort="quick")
    >>> bool(distilled.error < 0.05)
    True
    >>> distilled.explain_local(X[:2]).values.shape
    (2, 3, 1)
    """
    if not callable(predict):
        raise TypeError(f"predict must be a function of a table, got {shown(predict)}")
    rows, fresh = check_int("rows", rows, minimum=10), check_int("fresh", fresh, minimum=10)
    limit = np.inf if max_error is None else check_positive("max_error", max_error)
    table = X if hasattr(X, "iloc") else np.asarray(X)
    if len(table.shape) != 2 or len(table) < 2:
        raise ValueError(f"X must be a table of at least 2 rows, got {shown(X)}")
    from restt import ResTTRegressor  # above this package

    rng = np.random.default_rng(random_state)
    own = rng.permutation(len(table))[: rows // 2, None]
    columns = table.shape[1]
    between = _between(len(table), columns, rows - len(own), rng)
    points = _points(table, np.concatenate([np.broadcast_to(own, (len(own), columns)), between]))
    model = ResTTRegressor(effort=effort, categorical_features=categorical_features, random_state=random_state)
    targets = _predictions(predict, points)
    model.fit(points, targets[:, 0] if targets.shape[1] == 1 else targets)
    others = _points(table, _between(len(table), columns, fresh, rng))
    wanted = _predictions(predict, others)
    deviation = wanted.std(0)
    squares = (wanted - np.asarray(model.predict(others)).reshape(wanted.shape)) ** 2
    error = np.sqrt(squares.mean(0)) / np.where(deviation > 0, deviation, 1.0)
    if error.max() > limit:
        raise ValueError(
            f"max_error is {limit:g}, but the train is off by {error.max():.3g} standard deviations of predict on "
            f"{len(others)} fresh points; more rows or a larger effort may help"
        )
    return Distilled(model, torch.from_numpy(error), len(points), len(others))


def _between(count: int, columns: int, points: int, rng: np.random.Generator) -> np.ndarray:  # (P, C) rows of the table
    """Row that each point has each column from: one of two, the number of columns of each uniform."""
    first, second = rng.integers(0, count, (2, points, 1))
    size = rng.integers(0, columns + 1, (points, 1))
    return np.where(rng.random((points, columns)).argsort(1).argsort(1) < size, first, second)


def _points(table: Any, places: np.ndarray) -> Any:  # (P, C)
    """Points of the table's entries, each once: copies would count as rows seen twice."""
    if not hasattr(table, "iloc"):
        points = np.take_along_axis(table, places, 0)
        return points[np.sort(np.unique(points.astype(str), axis=0, return_index=True)[1])]  # text: objects too
    columns = [table.iloc[places[:, n], n].reset_index(drop=True) for n in range(places.shape[1])]
    return type(table)(dict(enumerate(columns))).set_axis(table.columns, axis=1).drop_duplicates(ignore_index=True)


def _predictions(predict: Callable[[Any], Any], points: Any) -> np.ndarray:  # (P, O)
    predicted = predict(points)
    try:
        values = np.asarray(predicted, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"predict must return numbers, got {shown(predicted)}; of classes, explain predict_proba or "
            "decision_function"
        ) from None
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != len(points) or not values.shape[1]:
        raise ValueError(
            f"predict must return {len(points)} numbers, or rows of them, for as many rows, got {shown(predicted)}"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"predict must return finite numbers, got {int((~np.isfinite(values)).sum())} NaN or infinite")
    return values
