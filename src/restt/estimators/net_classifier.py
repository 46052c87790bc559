"""Classification by a residual tensor train that is trained by gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import softmax
from sklearn.utils.validation import column_or_1d

from restt._common.compat_sklearn import StrOptions, fit_context
from restt.estimators.base import of_one_fit
from restt.estimators.classes import LabelPredictions, fitted_temperature, new_labels
from restt.estimators.gradient import member_outputs
from restt.estimators.net import BaseNet
from restt.estimators.tables import Examples
from restt.estimators.targets import Labels, class_numbers


@dataclass(kw_only=True, eq=False, repr=False)
class ResTTNetClassifier(LabelPredictions, BaseNet):
    """Classification by a residual tensor train over the columns of a table, trained by gradients: the paper's model.

    Members (``runs``) are averaged before the softmax, so that the explanation of the average is exact.

    Parameters are those of :class:`ResTTNetRegressor`, and:

    Parameters
    ----------
    loss : {"auto", "cross-entropy", "mse"}
        ``"auto"`` is ``"cross-entropy"``: outputs are logits. ``"mse"`` (the paper's choice) fits one-hot targets;
        probabilities are then the softmax of the outputs over a temperature that is fitted, after the training, to
        the log-loss of the training rows, or of the held-out rows with ``early_stopping``.
    class_weight : "balanced", dict or None
        Factors of the rows' weights by class; ``"balanced"`` makes all classes weigh the same.

    Attributes
    ----------
    classes_ : ndarray (K,)
        The labels in sorted order; those of rows that weigh 0 are not there.
    temperature_ : float
        What outputs are divided by; 1 for cross-entropy.
    module_, history_, n_iter_, encoding_, feature_importances_, n_features_in_, feature_names_in_
        As in :class:`ResTTNetRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from restt.estimators import ResTTNetClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> model = ResTTNetClassifier(epochs=20, random_state=0).fit(X, y)
    >>> model.n_iter_, model.predict_proba(X).shape
    (20, (150, 3))
    """

    class_weight: Any = None

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseNet._parameter_constraints,
        "loss": [StrOptions({"auto", "cross-entropy", "mse"})],
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Make one pass over these rows. The first call needs all ``classes`` and learns knots and levels."""
        first = not self.__sklearn_is_fitted__()
        if self.class_weight == "balanced":
            raise ValueError('class_weight="balanced" needs all rows at once: give partial_fit the weights as a dict')
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit")
        given = None if classes is None else np.unique(column_or_1d(classes))
        if given is not None and not first and not np.array_equal(given, self.classes_):
            raise ValueError(f"classes must be those of the first call, {self.classes_.tolist()}, got {given.tolist()}")
        return self._pass_once(X, y, sample_weight, given)

    @of_one_fit
    def predict_proba(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return probabilities (B, K), and with ``return_std`` the standard deviation over members, (B, K)."""
        members = self._members(X, at_least=1 + return_std) / self.temperature_
        mean = softmax(members.mean(axis=0), axis=1)
        return (mean, softmax(members, axis=2).std(axis=0)) if return_std else mean

    def _new_target(self, y: np.ndarray, weights: np.ndarray, classes: np.ndarray | None = None) -> Labels:
        return new_labels(y, weights, self.class_weight, classes=classes, logits=self._loss == "cross-entropy")

    def _split_labels(self, y: np.ndarray, held: int) -> np.ndarray | None:
        _, counts = np.unique(y, return_counts=True)
        enough = counts.min() >= 2 and min(held, len(y) - held) >= len(counts)
        return y if enough else None

    def _finish(self, examples: Examples) -> None:
        if not self.target_.logits:
            numbers = self.encoding_.numbers(examples.table)
            scores = member_outputs(self.module_, self.encoding_, numbers, self.precision_).mean(axis=0)
            shares = self.target_.row_weights(examples.y, examples.weights)
            temperature = fitted_temperature(scores, class_numbers(examples.y, self.classes_), shares)
            self.target_ = replace(self.target_, temperature=temperature)

    @property
    def _loss(self) -> str:
        return "cross-entropy" if self.loss == "auto" else self.loss
