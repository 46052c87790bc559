"""The distribution of new observations at rows: warped prediction + s(x)·q, q of tabulated quantiles, and back to y.

The quantiles of q are linear between the tabulated levels, and those of a Student density beyond them; the cumulative
distribution is their inverse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import t as student

from restt._common.errors import shown
from restt.prior.warp import Warp

# Levels at which quantiles of the residuals are kept.
LEVELS = np.concatenate([[0.0005, 0.001, 0.0025], np.arange(1, 200) / 200, [0.9975, 0.999, 0.9995]])
_MIDDLES = (np.arange(200) + 0.5) / 200
# The density is a difference quotient over this many standard deviations of q on either side: tabulated quantiles are
# as rough as the residuals they come from.
_HALF_WIDTH = 0.25
# Of a quantile that is divided by: those of a constant output are 0.
_LEAST = 1e-150


@dataclass(frozen=True, eq=False)
class Distribution:
    """The predictive distribution at B rows, of y as :class:`~restt.prior.Warp` sees it."""

    outputs: np.ndarray  # (B, O): warped predictions
    measure: Callable[[], np.ndarray]  # (B,): s, found when it is first asked for
    table: np.ndarray  # (len(LEVELS), O): quantiles of q
    degrees: float  # of the Student density of the tails
    warp: Warp

    @cached_property
    def deviations(self) -> np.ndarray:  # (B, 1)
        """Standard deviation s of the warped target."""
        return self.measure()[:, None]

    @property
    def mean(self) -> np.ndarray:  # (B, O)
        """The prediction of y."""
        return self.warp.predict(self.outputs)

    @property
    def std(self) -> np.ndarray:  # (B, O)
        """Root mean square of y about its prediction."""
        middle = self.mean
        size = np.maximum(*(np.abs(self.quantile(level) - middle) for level in _MIDDLES[[0, -1]]))
        unit = np.where(size > 0, size, 1.0)  # so that squares of an extreme y are no overflow
        squares = sum(((self.quantile(level) - middle) / unit) ** 2 for level in _MIDDLES)
        return np.asarray(unit * np.sqrt(squares / len(_MIDDLES)))

    def quantile(self, q: Any) -> np.ndarray:  # (B, O), or (B, Q, O) of several levels
        """The value below which an observation lies with probability ``q``, between 0 and 1."""
        levels = np.asarray(q, dtype=np.float64)
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"q must be a number between 0 and 1 or a list of them, got {shown(q)}")
        found = standard_quantile(self.table, self.degrees, np.atleast_1d(levels))  # (Q, O)
        values = self.warp.decode(self.outputs[:, None] + self.deviations[:, None] * found)
        return values if levels.ndim else values[:, 0]

    def cdf(self, y: np.ndarray) -> np.ndarray:  # (B, O) -> (B, O)
        """The probability of an observation of at most ``y``."""
        away = (self.warp.encode(y) - self.outputs) / self.deviations
        return np.stack([self._level(o, away[:, o]) for o in range(away.shape[1])], axis=1)

    def log_density(self, y: np.ndarray) -> np.ndarray:  # (B, O) -> (B, O)
        """The logarithm of the density at ``y``."""
        away = (self.warp.encode(y) - self.outputs) / self.deviations
        found = np.stack([self._log_slope(o, away[:, o]) for o in range(away.shape[1])], axis=1)
        return found - np.log(self.deviations) + self.warp.log_slope(y)

    def _tails(self, o: int) -> tuple[float, float]:
        """Factors of q below and above the tabulated levels, for Student's tails."""
        own = self.table[[0, -1], o]
        low, high = student.ppf(LEVELS[[0, -1]], self.degrees) / np.where(own == 0, [-_LEAST, _LEAST], own)
        return float(low), float(high)

    def _level(self, o: int, q: np.ndarray) -> np.ndarray:
        column, (low, high) = self.table[:, o], self._tails(o)
        found = np.interp(q, column, LEVELS)
        found = np.where(q < column[0], student.cdf(q * low, self.degrees), found)
        return np.where(q > column[-1], student.cdf(q * high, self.degrees), found)

    def _log_slope(self, o: int, q: np.ndarray) -> np.ndarray:
        """The logarithm of dlevel/dq."""
        column, (low, high) = self.table[:, o], self._tails(o)
        width = _HALF_WIDTH * float(np.sqrt(np.mean(np.interp(_MIDDLES, LEVELS, column) ** 2)))
        width = max(width, _LEAST)
        with np.errstate(divide="ignore"):  # replaced below
            found = np.log((self._level(o, q + width) - self._level(o, q - width)) / (2 * width))
        for outside, factor in ((q < column[0] - width, low), (q > column[-1] + width, high)):
            found = np.where(outside, student.logpdf(q * factor, self.degrees) + np.log(abs(factor)), found)
        return found


def standard_quantile(table: np.ndarray, degrees: float, levels: np.ndarray) -> np.ndarray:  # (L, O), (Q,) -> (Q, O)
    """Quantiles between the tabulated ones, with the tails of a Student density beyond them."""
    inside = np.clip(levels, LEVELS[0], LEVELS[-1])
    found = np.stack([np.interp(inside, LEVELS, column) for column in table.T], axis=1)
    beyond = inside != levels
    factor = np.ones_like(levels)
    factor[beyond] = student.ppf(levels[beyond], degrees) / student.ppf(inside[beyond], degrees)
    return found * factor[:, None]
