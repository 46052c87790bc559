"""The predictive distribution of a fitted regressor at rows, in y's own units and shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from restt._common.errors import shown
from restt.estimators.modelled import Modelled
from restt.prior.distribution import Distribution as Standard


class Distribution:
    """What a regressor expects of new observations at B rows: ``mean``, ``std``, quantiles, probabilities, density.

    Made by :meth:`ResTTRegressor.predict_distribution`. Arrays are of shape (B,), or (B, O) where y had O columns.
    """

    def __init__(self, standard: Standard, target: Modelled) -> None:
        self._standard, self._target = standard, target

    @property
    def mean(self) -> np.ndarray:
        """What ``predict`` returns."""
        return self._target.undivided(self._standard.mean)

    @property
    def std(self) -> np.ndarray:
        """Root mean square error to be expected of ``mean``."""
        return self._target.undivided_spread(self._standard.std)

    def quantile(self, q: Any) -> np.ndarray:
        """The value below which an observation lies with probability ``q``; of a list of Q levels (B, Q) or (B, Q, O).

        It grows with q.
        """
        return self._target.undivided(self._standard.quantile(q))

    def cdf(self, y: Any) -> np.ndarray:
        """The probability of an observation of at most ``y``: a number, or one for each row, in the shape of y."""
        values = self._read(y)
        found = self._standard.cdf(self._target.divided(values))
        constant = self._target.constant
        return self._target.shaped(np.where(np.isnan(constant), found, values >= constant))

    def log_density(self, y: Any) -> np.ndarray:
        """The logarithm of the density at ``y``; of a constant output ∞ at its value and -∞ elsewhere."""
        values, constant = self._read(y), self._target.constant
        found = self._standard.log_density(self._target.divided(values)) - self._target.exponents * np.log(2.0)
        certain = np.where(values == constant, np.inf, -np.inf)
        return self._target.shaped(np.where(np.isnan(constant), found, certain))

    def _read(self, y: Any) -> np.ndarray:  # (B, O)
        shape = self._standard.outputs.shape
        expected = shape[:1] if self._target.flat else shape
        values = np.asarray(y, dtype=np.float64)
        if values.shape not in ((), expected):
            raise ValueError(f"y must be a number or have shape {expected}, got {shown(y)} of shape {values.shape}")
        return np.broadcast_to(values, expected).reshape(shape)
