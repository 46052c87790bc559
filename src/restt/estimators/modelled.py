"""Targets of the closed-form regressor: y on the scale that is modelled, and predictions and distributions back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from restt._common.errors import shown
from restt.estimators.columns import binary_exponents
from restt.estimators.saved import OldScale
from restt.estimators.tables import output_columns
from restt.prior import Warp
from restt.prior.distribution import Distribution as Standard

# y up to this power of two, and down to its inverse, has squares that are far from the ends of a float.
ORDINARY_EXPONENT = 300


@dataclass(frozen=True, eq=False)
class Modelled:
    """Numbers as the closed-form solver models them: transformed by a learned power (:class:`restt.prior.Warp`).

    Models saved by 0.8 have y itself, its root, its logarithm or shortened tails instead.

    y of extreme size is divided by a power of two, which changes no digit, before its ``model`` scale sees it. An
    output that was constant is predicted exactly.
    """

    model: Warp | OldScale
    exponents: np.ndarray  # (O,) of the powers of two
    constant: np.ndarray  # (O,): the value of an output that was constant, NaN for others
    flat: bool

    @classmethod
    def scaled(cls, y: np.ndarray, weights: np.ndarray) -> tuple[Modelled, np.ndarray]:
        """Make the target of y (B,) or (B, O), its model scale not yet chosen, and divide y (B, O)."""
        values = output_columns(y)
        exponents = binary_exponents(np.abs(values).max(axis=0))
        exponents = np.where(np.abs(exponents) > ORDINARY_EXPONENT, exponents, 0)
        constant = np.where(values.min(axis=0) == values.max(axis=0), values[0], np.nan)
        divided = _divided(values, exponents, constant)
        return cls(Warp.fit(divided, weights), exponents, constant, y.ndim == 1), divided

    def divided(self, y: np.ndarray) -> np.ndarray:  # (B, O)
        """Other rows' y (B,) or (B, O) as the ``model`` scale sees it."""
        return _divided(output_columns(y), self.exponents, self.constant)

    @property
    def outputs(self) -> int:
        """Number of columns of y."""
        return len(self.exponents)

    @property
    def label(self) -> str:
        """Name of the scale on which explanations add up."""
        if isinstance(self.model, Warp):
            return "y" if (self.model.power == 1).all() else "transformed y"
        return {"identity": "y", "sqrt": "√y", "log": "log y", "asinh": "asinh y"}[self.model.scale]

    @property
    def mean(self) -> np.ndarray:  # (O,)
        """Transformed y at outputs of 0 (decision = outputs · scale + mean), in y's units near its median."""
        if isinstance(self.model, Warp):
            middle = np.ldexp(self.model.mean * self.model.width + self.model.shift, self.exponents)
            return np.where(np.isnan(self.constant), middle, self.constant)
        if self.model.scale == "identity":
            return np.where(np.isnan(self.constant), np.ldexp(self.model.mean, self.exponents), self.constant)
        if self.model.scale == "log":
            return self.model.mean + self.exponents * np.log(2.0)
        return self._grown(self.model.mean)

    @property
    def scale(self) -> np.ndarray:  # (O,)
        """Transformed y of one unit of the outputs; 0 for a constant output."""
        return np.where(np.isnan(self.constant), self._grown(self.model.std), 0.0)

    def _grown(self, decisions: np.ndarray) -> np.ndarray:  # (O,)
        """Values of the divided y, except logarithms, in units of y."""
        if isinstance(self.model, Warp):
            return np.ldexp(decisions * self.model.width, self.exponents)
        if self.model.scale == "identity":
            return np.ldexp(decisions, self.exponents)
        return decisions * np.exp2(0.5 * self.exponents) if self.model.scale == "sqrt" else decisions

    def decode(self, outputs: np.ndarray) -> np.ndarray:  # (…, B, O) -> (…, B) where flat
        """Predictions of y."""
        return self.undivided(self.model.predict(outputs))

    def undivided(self, values: np.ndarray) -> np.ndarray:  # (…, O) -> (…) where flat
        """Values of the divided y in y's units, constant outputs as they are."""
        limit = np.finfo(np.float64).max
        with np.errstate(over="ignore"):
            found = np.clip(np.ldexp(values, self.exponents), -limit, limit)
        return self.shaped(np.where(np.isnan(self.constant), found, self.constant))

    def undivided_spread(self, spread: np.ndarray) -> np.ndarray:  # (B, O) -> (B,) where flat
        """Standard deviations of the divided y in y's units; 0 for a constant output."""
        return self.shaped(np.where(np.isnan(self.constant), np.ldexp(spread, self.exponents), 0.0))

    def shaped(self, values: np.ndarray) -> np.ndarray:  # (…, O) -> (…) where flat
        """Values in the shape that y had."""
        return np.asarray(values[..., 0]) if self.flat else values

    def to_config(self) -> dict[str, Any]:
        """Plain values that :meth:`from_config` reads."""
        assert isinstance(self.model, Warp)  # a model of 0.8 is saved as it was read
        return {
            "model": self.model.to_config(),
            "exponents": self.exponents.tolist(),
            "constant": [None if np.isnan(value) else value for value in self.constant.tolist()],
            "flat": self.flat,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Modelled:
        """The target that :meth:`to_config` wrote; ValueError where its parts do not fit each other."""
        new = "power" in config["model"]
        model: Warp | OldScale = (Warp if new else OldScale).from_config(config["model"])
        exponents = np.array(config["exponents"], dtype=np.int64)
        constant = np.array([np.nan if value is None else value for value in config["constant"]], dtype=np.float64)
        if exponents.ndim != 1 or not len(exponents) or constant.shape != exponents.shape:
            raise ValueError(f"exponents and constants of y do not fit: {shown(exponents)}, {shown(constant)}")
        for name in ("mean", "std", "shift", "width"):
            held = getattr(model, name)
            if held.shape != exponents.shape or not np.isfinite(held).all():
                raise ValueError(f"{name} of y must have {len(exponents)} finite entries, got {shown(held)}")
        if config["flat"] and len(exponents) != 1:
            raise ValueError(f"y cannot be flat with {len(exponents)} outputs")
        return cls(model, exponents, constant, bool(config["flat"]))


def _divided(values: np.ndarray, exponents: np.ndarray, constant: np.ndarray) -> np.ndarray:  # (B, O)
    """Values (B, O) divided by powers of two (O,); what was constant (O,), not NaN, is that."""
    return np.ldexp(np.where(np.isnan(constant), values, constant), -exponents)


class Distribution:
    """Predictive distribution of new observations at B rows: ``mean``, ``std``, quantiles, probabilities, density.

    Made by :meth:`ResTTRegressor.predict_distribution`. Arrays are of shape (B,), or (B, O) where y had O columns.
    """

    def __init__(self, standard: Standard, target: Modelled) -> None:
        self._standard, self._target = standard, target

    @property
    def mean(self) -> np.ndarray:
        """Predictions, as ``predict`` returns them."""
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
        certain = np.where(np.isnan(values), np.nan, values >= constant)
        return self._target.shaped(np.where(np.isnan(constant), found, certain))

    def log_density(self, y: Any) -> np.ndarray:
        """The logarithm of the density at ``y``; of a constant output ∞ at its value and -∞ elsewhere."""
        values, constant = self._read(y), self._target.constant
        found = self._standard.log_density(self._target.divided(values)) - self._target.exponents * np.log(2.0)
        certain = np.where(np.isnan(values), np.nan, np.where(values == constant, np.inf, -np.inf))
        return self._target.shaped(np.where(np.isnan(constant), found, certain))

    def _read(self, y: Any) -> np.ndarray:  # (B, O)
        shape = self._standard.outputs.shape
        expected = shape[:1] if self._target.flat else shape
        try:
            values = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"y must be a number or an array of shape {expected}, got {shown(y)}") from None
        if values.shape not in ((), expected):
            raise ValueError(f"y must be a number or have shape {expected}, got shape {values.shape}")
        return np.broadcast_to(values, expected).reshape(shape)
