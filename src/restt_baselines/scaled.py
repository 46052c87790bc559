"""What the baselines from scikit-learn share: standardised columns, plain parameter names, an optional log target."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from restt_baselines.inputs import check_log_target


# A dataclass, so that each baseline only lists the settings it adds or changes: scikit-learn reads the parameters off
# the generated signature.
@dataclass(kw_only=True, eq=False, repr=False)
class Scaled(BaseEstimator):
    """A scikit-learn model on standardised columns, built from the settings when it is fitted.

    Attributes
    ----------
    model_ : scikit-learn estimator
        What was fitted: the scaler, the steps, and what was done to the target.
    """

    # Whether y may have several columns (B, O).
    multi_output: ClassVar[bool] = True

    model_: Any = field(init=False)

    @abstractmethod
    def steps(self, columns: int) -> list[Any]:
        """Estimators that follow the scaler, the model last, for X (B, columns)."""

    def _model(self, columns: int) -> Any:
        return make_pipeline(StandardScaler(), *self.steps(columns))

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model to X (B, C) and y (B,), or (B, O) where the model takes that."""
        rows, targets = self._read(X, y)
        self.model_ = self._model(rows.shape[1]).fit(rows, targets)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """One value or label for each row, in the shape of y."""
        rows = self._read_x(X)
        return np.asarray(self.model_.predict(rows))

    def _read(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        rows, targets = validate_data(self, X, y, dtype=np.float64, multi_output=self.multi_output)
        return rows, targets

    def _read_x(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


@dataclass(kw_only=True, eq=False, repr=False)
class ScaledRegressor(RegressorMixin, Scaled):
    """Regression, with ``log_target`` of the logarithm of a target above 0, which ``predict`` undoes."""

    # Whether the target is brought to mean 0 and variance 1 too, so that settings do not depend on its unit.
    scale_target: ClassVar[bool] = False

    log_target: bool = False

    def _model(self, columns: int) -> Any:
        changes: list[Any] = []
        if self.log_target:
            changes.append(FunctionTransformer(np.log, np.exp))
        if self.scale_target:
            changes.append(StandardScaler())
        model = super()._model(columns)
        return TransformedTargetRegressor(model, transformer=make_pipeline(*changes)) if changes else model

    def _read(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        rows, targets = validate_data(self, X, y, dtype=np.float64, multi_output=self.multi_output, y_numeric=True)
        if self.log_target:
            check_log_target(targets)
        return rows, targets

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.multi_output
        return tags
