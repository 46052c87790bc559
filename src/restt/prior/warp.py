"""A monotone transform of y, learned: Yeo and Johnson's power of the robustly standardised target.

z = (y - shift)/width with the median and a robust width, v = YJ(z; power), and t = (v - mean)/std is what the Gaussian
process sees. A power of 1 leaves y as it is, below 1 the upper tail is shortened, above 1 the lower one:
YJ(-z; p) = -YJ(z; 2 - p), so that y -> a·y + b, for any a ≠ 0, changes nothing if the power's prior is symmetric about
1. Beyond the range of the fit both tails are straight, so that the inverse cannot explode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

# The width: the interquartile range of a normal y in its standard deviations, and the share of the mean absolute
# deviation that keeps it above 0 where most of y is one value.
_QUARTILES, _MEAN_SHARE, _MEAN_ABSOLUTE = 1.349, 0.05, 0.7979
# Quantiles of the leave-one-out residuals over which predictions of y are averaged.
SMEARS = 51
_ROWS_AT_ONCE = 4096


def yeo_johnson(z: Tensor, power: Tensor) -> Tensor:
    """The transform of z.

    >>> yeo_johnson(torch.tensor([-1.0, 0.0, 3.0]), torch.tensor(0.5))
    tensor([-1.2190,  0.0000,  2.0000])
    """
    above, below = z.clamp(min=0), (-z).clamp(min=0)
    return torch.where(z >= 0, _power(above, power), -_power(below, 2 - power))


def _power(size: Tensor, power: Tensor) -> Tensor:
    """((1 + size)^power - 1)/power."""
    return torch.expm1(power * torch.log1p(size)) / power


def log_slope(z: np.ndarray) -> np.ndarray:
    """Logarithm of dv/dz, divided by (power - 1)."""
    return np.sign(z) * np.log1p(np.abs(z))


@dataclass(frozen=True, eq=False)
class Warp:
    """The transform of every output, and back."""

    shift: np.ndarray  # (O,)
    width: np.ndarray  # (O,)
    low: np.ndarray  # (O,): the range of z in the fit
    high: np.ndarray  # (O,)
    power: np.ndarray  # (O,)
    mean: np.ndarray  # (O,)
    std: np.ndarray  # (O,)
    residuals: np.ndarray  # (Q, O): leave-one-out residuals of t over which predictions are averaged

    @classmethod
    def fit(cls, y: np.ndarray, weights: np.ndarray) -> Warp:
        """The identity, from y (B, O) and weights (B,)."""
        quantiles = np.stack([smooth_quantile(column, weights, np.array([0.25, 0.5, 0.75])) for column in y.T])
        shift = quantiles[:, 1]
        share = weights / weights.sum()
        spread = share @ np.abs(y - shift)
        width = (quantiles[:, 2] - quantiles[:, 0]) / _QUARTILES + _MEAN_SHARE * spread / _MEAN_ABSOLUTE
        width = np.where(width > 0, width, 1.0)
        z = (y - shift) / width
        none = np.zeros((1, y.shape[1]))
        empty = cls(shift, width, z.min(axis=0), z.max(axis=0), np.ones_like(shift), none[0], none[0] + 1, none)
        return empty.with_power(empty.power, y, weights)

    def standardised(self, y: np.ndarray) -> np.ndarray:  # (B, O)
        """Robustly standardised y, before the power."""
        return (y - self.shift) / self.width

    def with_power(self, power: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Warp:
        """Another power, t of y (B, O) again of mean 0 and variance 1."""
        raw = replace(self, power=power, mean=np.zeros_like(self.mean), std=np.ones_like(self.std))
        value = raw.encode(y)
        share = weights / weights.sum()
        mean = share @ value
        std = np.sqrt(share @ (value - mean) ** 2)
        return replace(raw, mean=mean, std=np.where(std > 0, std, 1.0))

    def smeared(self, residuals: np.ndarray, weights: np.ndarray) -> Warp:
        """With these leave-one-out residuals (B, O) of t (Duan's smearing estimate, 1983)."""
        levels = (np.arange(SMEARS) + 0.5) / SMEARS
        found = np.stack([smooth_quantile(column, weights, levels) for column in residuals.T], axis=1)
        return replace(self, residuals=found)

    def encode(self, y: np.ndarray) -> np.ndarray:  # (…, O)
        """T of y."""
        z = self.standardised(y)
        inside = np.clip(z, self.low, self.high)
        beyond = (z - inside) * np.where(z > inside, self.slope(self.high), self.slope(self.low))
        return (self.transformed(inside) + beyond - self.mean) / self.std

    def decode(self, t: np.ndarray) -> np.ndarray:  # (…, O)
        """Quantiles of t as quantiles of y."""
        return self._decoded(t) * self.width + self.shift

    def _decoded(self, t: np.ndarray) -> np.ndarray:  # (…, O)
        """Robustly standardised y of t."""
        value = t * self.std + self.mean
        inside = np.clip(value, self.transformed(self.low), self.transformed(self.high))
        size = np.abs(inside)
        power = np.where(inside >= 0, self.power, 2 - self.power)
        z = np.sign(inside) * np.expm1(np.log1p(size * power) / power)
        beyond = (value - inside) / np.where(value > inside, self.slope(self.high), self.slope(self.low))
        return np.asarray(z + beyond)

    def predict(self, t: np.ndarray) -> np.ndarray:  # (…, O)
        """The mean of y where the leave-one-out residuals lie about this t."""
        if (self.power == 1).all():
            return self.decode(t)
        # Averaged before the shift, which may be so much larger than y's width that sums lose its digits.
        return self._averaged(t, lambda z: z) * self.width + self.shift

    def prediction_slope(self, t: np.ndarray) -> np.ndarray:  # (…, O)
        """Derivative of :meth:`predict`; beyond the ends of the fit their slope holds."""
        inverse = self._averaged(t, lambda z: 1 / self.slope(np.clip(z, self.low, self.high)))
        return inverse * self.std * self.width

    def _averaged(self, t: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:  # (…, O)
        """A function of the robustly standardised y, averaged over the leave-one-out residuals about t."""
        rows = t.reshape(-1, t.shape[-1])
        parts = [rows[start : start + _ROWS_AT_ONCE] for start in range(0, max(1, len(rows)), _ROWS_AT_ONCE)]
        means = [function(self._decoded(part[:, None] + self.residuals)).mean(axis=1) for part in parts]
        return np.concatenate(means).reshape(t.shape)

    def log_slope(self, y: np.ndarray) -> np.ndarray:  # (…, O)
        """Logarithm of dt/dy."""
        z = np.clip(self.standardised(y), self.low, self.high)
        return (self.power - 1) * log_slope(z) - np.log(self.std * self.width)

    def transformed(self, z: np.ndarray) -> np.ndarray:  # (…, O)
        """Yeo and Johnson's transform of z."""
        return yeo_johnson(torch.from_numpy(np.asarray(z)), torch.from_numpy(self.power)).numpy()

    def slope(self, z: np.ndarray) -> np.ndarray:  # (…, O)
        """Slope dv/dz of the transform."""
        return np.exp((self.power - 1) * log_slope(z))

    def to_config(self) -> dict[str, Any]:
        """Plain values; floats survive the round trip through JSON exactly."""
        return {name: getattr(self, name).tolist() for name in self.__dataclass_fields__}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Warp:
        """The warp that :meth:`to_config` described; ValueError where its parts do not fit each other."""
        found = cls(**{name: np.array(config[name], dtype=np.float64) for name in cls.__dataclass_fields__})
        for name in cls.__dataclass_fields__:
            held = getattr(found, name)
            shape = held.shape[1:] if name == "residuals" else held.shape
            if shape != found.shift.shape or held.ndim != 1 + (name == "residuals") or not np.isfinite(held).all():
                raise ValueError(f"{name} of the transform of y does not fit: {held.shape}")
        if (found.width <= 0).any() or (found.std <= 0).any() or (np.abs(found.power - 1) >= 1).any():
            raise ValueError("width and std of the transform of y must be above 0, its power between 0 and 2")
        return found


def smooth_quantile(values: np.ndarray, weights: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Weighted quantiles, linear between the middles of the values' shares."""
    order = np.argsort(values, kind="stable")
    share = weights[order] / weights.sum()
    return np.interp(levels, np.cumsum(share) - share / 2, values[order])
