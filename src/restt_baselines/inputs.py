"""What a network sees: columns on a common scale, and the runs axis in front.

What baselines share that are fitted epoch by epoch, by gradients or by sweeps: ``fit``, and the reading of rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data
from torch import Tensor

from restt._common.errors import check_choice, shown
from restt.train import EpochRecord

SCALINGS = ("none", "standard", "minmax", "shared")


def check_log_target(y: np.ndarray) -> None:
    """Refuse targets whose logarithm ``log_target`` cannot take."""
    if (y <= 0).any():
        raise ValueError(f"y must be above 0 where log_target is True, got {y.min():g}")


@dataclass(frozen=True, eq=False)
class Inputs:
    """(x - shift) / scale for each column, in float32; with ``bounded`` kept within [0, 1] also for new rows."""

    shift: np.ndarray  # (C,)
    scale: np.ndarray  # (C,)
    bounded: bool

    @classmethod
    def fit(cls, rows: np.ndarray, scaling: str = "none") -> Inputs:
        """The scaling, learned from rows (B, C).

        ``"standard"``: mean 0 and variance 1; ``"minmax"``: [0, 1], constant columns 0 in both. ``"shared"``: divided
        by the largest absolute value of all columns, so that pixels of any range become at most 1. ``"none"``: as they
        are.

        >>> Inputs.fit(np.array([[1.0], [3.0]]), "minmax")(np.array([[2.0], [9.0]])).tolist()
        [[0.5], [1.0]]
        """
        check_choice("scaling", scaling, SCALINGS)
        if scaling == "none":
            return cls(np.zeros(rows.shape[1]), np.ones(rows.shape[1]), False)
        if scaling == "shared":
            largest = np.abs(rows).max()
            return cls(np.zeros(rows.shape[1]), np.full(rows.shape[1], largest if largest > 0 else 1.0), False)
        if scaling == "standard":
            shift, scale = rows.mean(axis=0), rows.std(axis=0)
        else:
            shift, scale = rows.min(axis=0), np.ptp(rows, axis=0)
        # By the range: rounding leaves a constant column a tiny standard deviation, and dividing by that a huge input.
        constant = np.ptp(rows, axis=0) == 0
        return cls(np.where(constant, rows[0], shift), np.where(constant, 1.0, scale), scaling == "minmax")

    def __call__(self, rows: np.ndarray) -> Tensor:  # (B, C)
        """Scale rows (B, C)."""
        values = torch.from_numpy((rows - self.shift) / self.scale).float()
        return values.clamp(0.0, 1.0) if self.bounded else values


def with_runs(
    x: Tensor,  # (B, …) or (S, B, …)
    runs: int,
    row: tuple[int, ...],  # shape of one row
) -> Tensor:  # (1 or S, B, …)
    """``x`` with the runs axis in front, of length 1 where all runs see the same rows.

    >>> import torch
    >>> with_runs(torch.zeros(5, 4), 3, (4,)).shape, with_runs(torch.zeros(3, 5, 4), 3, (4,)).shape
    (torch.Size([1, 5, 4]), torch.Size([3, 5, 4]))
    """
    leading, own = tuple(x.shape[: x.dim() - len(row)]), tuple(x.shape[x.dim() - len(row) :])
    if own != row or len(leading) not in (1, 2) or (len(leading) == 2 and leading[0] != runs):
        sizes = ", ".join(map(str, row))
        raise ValueError(f"x must have shape (B, {sizes}) or ({runs}, B, {sizes}), got {tuple(x.shape)}")
    return x if len(leading) == 2 else x.unsqueeze(0)


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
