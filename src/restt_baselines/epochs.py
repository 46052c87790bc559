"""What baselines share that are fitted epoch by epoch, by gradients or by sweeps: ``fit``, and the reading of rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from restt._common.errors import shown
from restt.train import EpochRecord


class FittedInEpochs(BaseEstimator):
    """A subclass says how targets are read and what an epoch is."""

    # Whether rows may be images (B, H, W), which are flattened.
    images: ClassVar[bool] = False

    @abstractmethod
    def fit_epochs(self, X: Any, y: Any, validation: Any = None) -> Iterator[EpochRecord]:
        """Fit, one epoch for each step of the iteration. ``validation`` (X, y) is scored after each of them."""

    @abstractmethod
    def _read_y(self, y: Any) -> np.ndarray:
        """Targets checked."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model to X (B, C), for models of images also (B, H, W), and y (B,)."""
        for _ in self.fit_epochs(X, y):
            pass
        return self

    def _read_x(self, X: Any, *, reset: bool) -> np.ndarray:  # (B, C)
        rows = X
        # Sparse rows are refused by name below; SciPy 1.12 fails to make an array of them.
        if self.images and not issparse(X) and (values := np.asarray(X)).ndim == 3:
            rows = values.reshape(len(values), -1)
        return np.asarray(validate_data(self, rows, reset=reset, dtype=(np.float64, np.float32)))

    def _read_training(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:  # (B, C), (B,)
        """The rows of a fit."""
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None")
        rows, targets = self._read_x(X, reset=True), self._read_y(y)
        if len(rows) != len(targets):
            raise ValueError(f"X and y must have the same number of rows, got {len(rows)} and {len(targets)}")
        return rows, targets

    def _read_validation(self, validation: Any) -> tuple[np.ndarray, np.ndarray] | None:  # (B, C), (B,)
        """The rows that are scored after each epoch, once those of the fit were read."""
        if validation is None:
            return None
        if not isinstance(validation, (tuple, list)) or len(validation) != 2:
            raise TypeError(f"validation must be (X, y), got {shown(validation)}")
        return self._read_x(validation[0], reset=False), self._read_y(validation[1])


def read_labels(y: Any) -> np.ndarray:  # (B,)
    """Classes checked."""
    labels = column_or_1d(y, warn=True)
    check_classification_targets(labels)
    return labels


def as_shares(outputs: np.ndarray) -> np.ndarray:  # (B, K) -> (B, K)
    """Outputs that estimate one-hot targets, cut below 0 and brought to sum 1.

    Where all outputs of a row are at most 0, the largest takes all.

    >>> as_shares(np.array([[3.0, 1.0], [0.5, -2.0], [-1.0, -2.0]]))
    array([[0.75, 0.25],
           [1.  , 0.  ],
           [1.  , 0.  ]])
    """
    shares = outputs.clip(min=0.0)
    none = shares.sum(axis=1) == 0
    shares[none, outputs[none].argmax(axis=1)] = 1.0
    return shares / shares.sum(axis=1, keepdims=True)
