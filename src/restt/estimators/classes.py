"""Parts of both classifiers: labels and their weights, probabilities from logits, log-loss and temperature."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from restt._common.errors import shown
from restt.estimators.base import BaseResTT, of_one_fit
from restt.estimators.targets import Labels, class_numbers


def read_labels(y: Any) -> np.ndarray:  # (B,)
    """Labels checked; ValueError where one is missing, TypeError for text beside numbers."""
    labels = column_or_1d(_as_given(y), warn=True)
    absent = np.ma.getmaskarray(y).ravel() if np.ma.is_masked(y) else np.zeros(0, dtype=bool)
    if labels.dtype.kind in "mM":
        absent = np.isnat(labels)
    if absent.any():
        raise ValueError(f"Input y contains NaN: the label in row {int(absent.argmax())} is missing")
    if labels.dtype.kind == "f":
        check_array(labels, ensure_2d=False, input_name="y")
    if labels.dtype == object:
        _refuse_missing_or_mixed(labels)
        if all(isinstance(label, (bool, Integral, np.bool_)) for label in labels):
            labels = np.array(labels.tolist())  # numbers that came as objects, as they do beside missing ones
    check_classification_targets(labels)
    return labels


def new_labels(
    y: np.ndarray,  # (B,)
    weights: np.ndarray,  # (B,)
    class_weight: Any,
    *,
    classes: np.ndarray | None = None,  # (K,) sorted, by default those in y
    logits: bool = True,
) -> Labels:
    """The classes, their shares in the rows and what each counts."""
    if classes is None:
        classes = np.unique(y)
    shares = np.bincount(class_numbers(y, classes), weights, minlength=len(classes))
    factors = _class_weights(class_weight, classes, y, shares)
    weighted = shares if factors is None else shares * factors
    return Labels(classes, weighted / weighted.sum(), factors, logits)


class LabelPredictions(ClassifierMixin, BaseResTT):
    """Labels and probabilities from the mean of the members' logits."""

    target_: Labels

    @of_one_fit
    def decision_function(self, X: Any) -> np.ndarray:
        """Logits (B, K), whose softmax is ``predict_proba``; for two classes (B,), the second's log-odds."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    @of_one_fit
    def predict_proba(self, X: Any) -> Any:
        """Probabilities (B, K)."""
        return softmax(self._logits(X), axis=1)

    @of_one_fit
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the probabilities, (B, K)."""
        return log_softmax(self._logits(X), axis=1)

    @of_one_fit
    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, (B,)."""
        best = self._logits(X).argmax(axis=1)
        return self.classes_[best]

    def _logits(self, X: Any) -> np.ndarray:  # (B, K)
        members = self._members(X)
        return members.mean(axis=0) / self.temperature_

    @property
    def classes_(self) -> np.ndarray:  # (K,)
        """The labels in sorted order."""
        return self.target_.classes

    @property
    def temperature_(self) -> float:
        """Divisor of the outputs before the softmax."""
        return self.target_.temperature

    def _read_y(self, y: Any) -> np.ndarray:
        return read_labels(y)


def log_loss(
    logits: np.ndarray,  # (…, B, K)
    labels: np.ndarray,  # (B,): numbers of classes
    weights: np.ndarray,  # (B,)
) -> np.ndarray:  # (…)
    """Weighted mean of -log softmax at each row's class.

    >>> round(float(log_loss(np.log([[0.8, 0.2]]), np.array([0]), np.ones(1))), 3)
    0.223
    """
    return np.asarray((row_losses(logits, labels) @ weights) / weights.sum())


def row_losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:  # (…, B, K), (B,) -> (…, B)
    """-log softmax at each row's class."""
    return -log_softmax(logits, axis=-1)[..., np.arange(len(labels)), labels]


def fitted_temperature(
    scores: np.ndarray,  # (B, K)
    labels: np.ndarray,  # (B,): numbers of classes
    weights: np.ndarray,  # (B,)
    bounds: tuple[float, float] = (0.1, 10.0),
) -> float:
    """The temperature under which softmax(scores / temperature) has the least log-loss.

    ``bounds``: rows that were fitted perfectly would ask for 0; held-out log-loss of outputs trained by squares on
    wine, breast-cancer and digits was best between 0.07 and 0.2.

    >>> sure = np.repeat([[0.0, 1.0]], 4, axis=0)
    >>> round(1 / fitted_temperature(sure, np.array([1, 1, 1, 0]), np.ones(4)), 3)  # log 3: three of four
    1.099
    """

    def loss(log_temperature: float) -> float:
        return float(log_loss(scores / np.exp(log_temperature), labels, weights))

    return float(np.exp(minimize_scalar(loss, bounds=np.log(bounds), method="bounded").x))


def _class_weights(class_weight: Any, classes: np.ndarray, y: np.ndarray, shares: np.ndarray) -> np.ndarray | None:
    if class_weight is None:
        return None
    if class_weight == "balanced":
        used = shares > 0  # a class may come later
        return np.where(used, shares.sum() / (used.sum() * np.where(used, shares, 1.0)), 0.0)
    factors = np.asarray(compute_class_weight(class_weight, classes=classes, y=y), dtype=np.float64)
    if not np.isfinite(factors).all() or (factors < 0).any() or not (factors * shares).any():
        raise ValueError(f"class_weight must be finite, at least 0, and above 0 for a class in y, got {class_weight}")
    return factors


def _as_given(y: Any) -> Any:
    """Labels of pandas' nullable types as numpy's of the same kind, where none is missing: else 1 would become 1.0."""
    kind = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    return y.to_numpy(dtype=kind) if kind is not None and kind.kind in "biu" and not y.isna().any() else y


def _refuse_missing_or_mixed(labels: np.ndarray) -> None:
    """ValueError for labels (B,) of which some are missing; TypeError for text beside numbers."""
    for row, label in enumerate(labels):
        # pandas' own missing value is not equal to itself, without saying so.
        if label is None or type(label).__name__ in ("NAType", "NaTType") or label != label:
            raise ValueError(f"Input y contains NaN: the label in row {row} is missing")
        if isinstance(label, str) != isinstance(labels[0], str):
            both = f"{shown(labels[0])} in row 0 and {shown(label)} in row {row}"
            raise TypeError(f"y must hold labels of one kind, got {both}")
