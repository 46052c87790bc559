"""The scale on which y is modelled: itself, its root or logarithm, or an inverse hyperbolic sine for long tails.

Which one is decided by the leave-one-out error on y's own scale, not by the evidence: a scale on which y looks Gaussian
need not be the one on which its mean is predicted best. The usual one is kept unless another is clearly better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from restt._common.errors import check_choice

SCALES = ("identity", "sqrt", "log", "asinh")
_LARGEST_EXPONENT = 100.0


@dataclass(frozen=True, eq=False)
class Target:
    """y as the prior sees it, (g(y) - mean)/std for each output, and back.

    y's mean is above what the mean of its root or logarithm says: ``lift``, the variance of the root about its
    prediction, is added to the square of that, and ``smear`` multiplies the exponential.
    """

    scale: str
    mean: np.ndarray  # (O,)
    std: np.ndarray  # (O,)
    shift: np.ndarray  # (O,), asinh: subtracted from y, which is
    width: np.ndarray  # (O,), then divided by this
    lift: np.ndarray  # (O,)
    smear: float = 1.0

    @classmethod
    def fit(cls, y: np.ndarray, weights: np.ndarray, scale: str = "identity") -> Target:
        """From y (B, O) and weights (B,)."""
        check_choice("scale", scale, SCALES)
        quantiles = np.stack([weighted_quantile(column, weights, (0.25, 0.5, 0.75)) for column in y.T])
        width = quantiles[:, 2] - quantiles[:, 0]
        spread = weighted_std(y, weights)
        width = np.where(width > 0, width, np.where(spread > 0, spread, 1.0))
        none = np.zeros(y.shape[1])
        empty = cls(scale, none, np.ones(y.shape[1]), quantiles[:, 1], width, none)
        seen = empty.encode(y)
        mean = np.average(seen, axis=0, weights=weights)
        std = weighted_std(seen, weights)
        constant = std <= 1e3 * np.finfo(float).eps * np.abs(mean)
        return replace(empty, mean=mean, std=np.where(constant | (std == 0), 1.0, std))

    def encode(self, y: np.ndarray) -> np.ndarray:  # (B, O)
        """Standardised targets."""
        if self.scale == "log":
            y = np.log(y)
        elif self.scale == "sqrt":
            y = np.sqrt(y)
        elif self.scale == "asinh":
            y = np.arcsinh((y - self.shift) / self.width)
        return (y - self.mean) / self.std

    def decode(self, outputs: np.ndarray) -> np.ndarray:  # (…, O)
        """Quantiles of the standardised target as quantiles of y."""
        seen = outputs * self.std + self.mean
        with np.errstate(over="ignore"):
            if self.scale == "log":
                return np.minimum(np.exp(seen), np.finfo(float).max)
            if self.scale == "sqrt":
                return np.minimum(np.maximum(seen, 0.0) ** 2, np.finfo(float).max)
            if self.scale == "asinh":
                limit = np.finfo(float).max
                return np.clip(np.sinh(seen) * self.width + self.shift, -limit, limit)
        return seen

    def predict(self, outputs: np.ndarray) -> np.ndarray:  # (…, O)
        """The mean of y where the standardised target has this mean."""
        return self.decode(outputs) * self.smear + self.lift

    def smeared(self, outputs: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Target:
        """With what lifts left-out predictions (B, O) of a root or logarithm to the mean of y (B, O).

        The mean of a square is the square of the mean and the variance; the factor of an exponential is the mean of
        the exponential of what is left (Duan, 1983), between 1 and 1.5. The factor of least squares would be that of
        the few largest y.
        """
        if self.scale not in ("sqrt", "log"):
            return self
        left = (self.encode(y) - outputs) * self.std
        if self.scale == "sqrt":
            return replace(self, lift=np.average(left**2, axis=0, weights=weights))
        factors = np.exp(np.clip(left, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))
        smear = np.average(factors, axis=0, weights=weights).mean()
        return replace(self, smear=float(np.clip(smear, 1.0, 1.5)))

    def to_config(self) -> dict[str, Any]:
        """Plain values; floats survive the round trip through JSON exactly."""
        arrays = {name: getattr(self, name).tolist() for name in ("mean", "std", "shift", "width", "lift")}
        return {"scale": self.scale, **arrays, "smear": self.smear}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Target:
        """The target that :meth:`to_config` described."""
        arrays = {name: np.array(config[name]) for name in ("mean", "std", "shift", "width")}
        lift = np.array(config["lift"]) if "lift" in config else np.zeros_like(arrays["mean"])  # of models saved before
        return cls(config["scale"], **arrays, lift=lift, smear=config["smear"])


def weighted_std(values: np.ndarray, weights: np.ndarray) -> np.ndarray:  # (B, O), (B,) -> (O,)
    """Weighted standard deviations, of numbers of any size: their squares may be beyond float64."""
    away = values - np.average(values, axis=0, weights=weights)
    size = np.abs(away).max(axis=0)
    unit = np.where(size > 0, size, 1.0)
    return unit * np.sqrt(np.average((away / unit) ** 2, axis=0, weights=weights))


def weighted_quantile(values: np.ndarray, weights: np.ndarray, levels: Any) -> np.ndarray:  # (B,), (B,), (K,) -> (K,)
    """The values at which the weighted distribution function reaches each level."""
    if (weights == 1).all():
        # Only these places of the sorted values are needed, which a partition finds in a fraction of the time.
        places = np.ceil(np.asarray(levels) * len(values)).astype(np.int64) - 1
        places = np.clip(places, 0, len(values) - 1)
        return np.partition(values, np.unique(places))[places]
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    index = np.searchsorted(cumulative, np.asarray(levels) * cumulative[-1])
    return values[order][np.minimum(index, len(values) - 1)]
