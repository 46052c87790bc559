"""Models saved by restt 0.8: their parameters by today's names, the scale of y, and the predictive distribution.

The prior of a closed-form model was s Π_n (1 + k_n) + Σ_n b_n k_n/a_n, where k_n is a table over the states of a
column, centred under the rows of the fit, with a mean variance of a_n. Its parameters are log noise, log s, those of
each column (log a_n, and of a number the log length and the logit of a straight line's share), and log b_n where there
are any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import yeojohnson
from torch import Tensor

from restt._common.errors import check_positive, shown
from restt.estimators.encoding import Encoding, with_rare_unseen
from restt.prior.gp import cholesky
from restt.prior.sites import Site

# Levels at which 0.8 kept standardised leave-one-out residuals, and the most rows that it kept.
LEVELS = np.concatenate([[0.0005, 0.001, 0.0025], np.arange(1, 200) / 200, [0.9975, 0.999, 0.9995]])
KEPT_ROWS = 1000
_MIDDLES = (np.arange(50) + 0.5) / 50  # of fifty parts of a distribution
_ROWS_AT_ONCE = 512
# Posterior variance, in y's, below which 0.8 did not shrink extrapolation.
_SMALL_VARIANCE = 0.1
# Less is a column of one value; less of a square that is not straight is rounding.
_LEAST_VARIANCE, _LEAST_SHARE = 1e-14, 1e-9
# Standard deviations from the mean beyond which a parabola is flat; between which Yeo and Johnson's power was searched.
_TAIL, _POWERS = 2.5, (-3.0, 5.0)
# bond_dim="auto" of a training.
_TRAINED_BOND = 10
# What closed-form estimators still have of the parameters of then.
_CLOSED = ("bond_dim", "categorical_features", "handle_unknown", "device", "random_state", "verbose", "class_weight")


def current_kind(state: Mapping[str, Any], parameters: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Translate an estimator saved before closed form and training were two classes to today's name and parameters."""
    missing = "average" if parameters["handle_missing"] == "learn" else parameters["handle_missing"]
    if state["solver"] != "gradient":
        kept = {name: value for name, value in parameters.items() if name in _CLOSED}
        return str(state["kind"]), {**kept, "handle_missing": missing}
    kept = {name: value for name, value in parameters.items() if name != "solver"}
    bond = _TRAINED_BOND if kept["bond_dim"] == "auto" else kept["bond_dim"]
    return str(state["kind"]).replace("ResTT", "ResTTNet"), {**kept, "handle_missing": missing, "bond_dim": bond}


@dataclass(frozen=True, eq=False)
class OldScale:
    """The transform of y in 0.8: identity, root, logarithm or inverse hyperbolic sine, standardised."""

    scale: str
    mean: np.ndarray  # (O,)
    std: np.ndarray  # (O,)
    shift: np.ndarray  # (O,), asinh: subtracted from y, which is
    width: np.ndarray  # (O,), then divided by this
    lift: np.ndarray  # (O,), added to predictions
    smear: float  # what they are multiplied by

    def decode(self, outputs: np.ndarray) -> np.ndarray:  # (…, O)
        """Transform quantiles of the standardised target to quantiles of y."""
        values, limit = outputs * self.std + self.mean, np.finfo(float).max
        with np.errstate(over="ignore"):
            if self.scale == "log":
                values = np.exp(values)
            elif self.scale == "sqrt":
                values = np.maximum(values, 0.0) ** 2
            elif self.scale == "asinh":
                values = np.sinh(values) * self.width + self.shift
        return np.clip(values, -limit, limit)

    def predict(self, outputs: np.ndarray) -> np.ndarray:  # (…, O)
        """Return the mean of y where the standardised target has this mean."""
        return self.decode(outputs) * self.smear + self.lift

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> OldScale:
        """Read the scale that 0.8 wrote; ValueError where it is none."""
        arrays = {name: np.array(config[name]) for name in ("mean", "std", "shift", "width", "lift")}
        if not np.isfinite(config["smear"]) or config["scale"] not in ("identity", "sqrt", "log", "asinh"):
            raise ValueError(f"y cannot be on the scale {shown(config['scale'])} with {shown(config['smear'])}")
        if arrays["lift"].shape != arrays["mean"].shape or not np.isfinite(arrays["lift"]).all():
            raise ValueError(f"lift of y must have {len(arrays['mean'])} finite entries, got {shown(arrays['lift'])}")
        return cls(config["scale"], **arrays, smear=config["smear"])


@dataclass(frozen=True, eq=False)
class SavedSpread:
    """The predictive distribution of 0.8, with deviations and intervals like :class:`restt.prior.Predictive`.

    Mean + s(x)·q: s² is the posterior variance and the noise, q has the distribution of leave-one-out residuals
    divided by their own s.
    """

    state: dict[str, Any]  # what the file says of the estimator
    encoding: Encoding
    tables: list[Tensor]  # C of (I_n, I_n): k_n
    theta: np.ndarray  # log noise, log s
    sizes: np.ndarray  # (C,): a_n
    effects: np.ndarray  # (C,): b_n/a_n
    numbers: np.ndarray  # (K, C)
    weights: np.ndarray  # (K,)
    quantiles: np.ndarray  # (len(LEVELS), O)
    extra: float  # variance added for the rounding of the mean
    reach: dict[str, np.ndarray]  # of y: low, high, below, above, (O,) each

    @classmethod
    def read(cls, state: dict[str, Any], tensors: dict[str, Tensor], encoding: Encoding) -> SavedSpread:
        """Read the distribution of an estimator's file; ValueError where its parts do not fit each other.

        Sizes are compared with the tensors before anything is made of them, so that a file costs no more than it holds.
        """
        config = state["spread"]["config"]
        sites = [Site.from_config(site) for site in config["sites"]]
        measures = [tensors[f"measure.{n}"] for n in range(len(sites))]
        shapes = [(site.width,) if site.knots is None else (site.width, site.width) for site in sites]
        if [tuple(measure.shape) for measure in measures] != shapes:
            raise ValueError(f"measures of the columns' states must have the shapes {shown(shapes)}")
        numbers, weights, quantiles = (tensors[name].numpy() for name in ("numbers", "weights", "quantiles"))
        if not 0 < len(numbers) <= KEPT_ROWS or numbers.shape != (len(weights), len(encoding.columns)):
            raise ValueError(f"at most {KEPT_ROWS} rows of {len(sites)} columns are kept, got {shown(numbers)}")
        theta = np.array(config["theta"])
        counts = [1 if site.knots is None else 3 for site in sites]
        parts = np.split(theta[2:], np.cumsum(counts))
        tables = [
            _level_table(measure, values)
            if site.knots is None
            else _number_table(site, measure, values, config["power"], config["bend"], config["evened"])
            for site, measure, values in zip(sites, measures, parts[:-1], strict=True)
        ]
        logs = np.array([values[0] for values in parts[:-1]])
        effects = np.exp(parts[-1] - logs) if len(parts[-1]) else np.zeros(len(sites))
        reach = {name: np.array(config["reach"][name], float) for name in ("low", "high", "below", "above")}
        low, high, below, above = reach.values()
        fits = low.ndim == 1 and len({values.shape for values in reach.values()}) == 1
        if not fits or not (low <= high).all() or not ((below > 0) & (above > 0)).all():
            raise ValueError(f"the reach of y does not fit together: {config['reach']}")
        plain = (np.exp(logs), effects, numbers, weights, quantiles, config["extra"], reach)
        return cls(state, encoding, tables, theta[:2], *plain)

    def shrunk(self, outputs: np.ndarray, numbers: np.ndarray) -> np.ndarray:  # (B, O), (B, C) -> (B, O)
        """Shrink extrapolation of standardised predictions to the training range where the variance is large."""
        low, high, below, above = self.reach.values()
        rows = np.flatnonzero(((outputs < low) | (outputs > high)).any(axis=1))
        size = np.mean([self._quantile(level) ** 2 for level in _MIDDLES], axis=0)  # (O,)
        variance = self._deviations(numbers[rows]) ** 2 - np.exp(self.theta[0]) - self.extra
        variance = np.maximum(np.maximum(variance, 0)[:, None] * size - _SMALL_VARIANCE, 0)
        own, predictions = outputs[rows], outputs.copy()
        down, up = np.maximum(high, own - variance / above), np.minimum(low, own + variance / below)
        predictions[rows] = np.where(own > high, down, np.where(own < low, up, own))
        return predictions

    def std(self, outputs: np.ndarray, numbers: np.ndarray, model: OldScale) -> np.ndarray:  # (B, O)
        """Root mean square of y about its prediction."""
        deviations, middle = self._deviations(numbers)[:, None], model.predict(outputs)
        away = np.stack([model.decode(outputs + deviations * self._quantile(level)) - middle for level in _MIDDLES])
        size = np.abs(away).max(axis=0)
        unit = np.where(size > 0, size, 1.0)
        return np.asarray(unit * np.sqrt(np.mean((away / unit) ** 2, axis=0)))

    def interval(self, outputs: np.ndarray, numbers: np.ndarray, model: OldScale, coverage: float) -> np.ndarray:
        """Bounds of a new y with probability ``coverage``, (B, 2, O)."""
        if not check_positive("coverage", coverage) < 1:
            raise ValueError(f"coverage must be between 0 and 1, got {coverage}")
        deviations, tails = self._deviations(numbers)[:, None], ((1 - coverage) / 2, (1 + coverage) / 2)
        return np.stack([model.decode(outputs + deviations * self._quantile(tail)) for tail in tails], axis=1)

    @cached_property
    def _kept(self) -> tuple[list[Tensor], Tensor]:
        """Site vectors of the kept rows, and the Cholesky factor of their covariance."""
        rows = self._vectors(self.numbers)
        noise = float(np.exp(self.theta[0])) / torch.from_numpy(self.weights)
        kernels = [x @ table @ x.T for x, table in zip(rows, self.tables, strict=True)]
        return rows, cholesky(self._combined(kernels), noise)

    def _vectors(self, numbers: np.ndarray) -> list[Tensor]:  # C of (B, I_n)
        """Site vectors of rows, by columns."""
        vectors, encoding = self.encoding.vectors(torch.from_numpy(numbers)), self.encoding
        sites = [encoding.order.index(n) for n in range(len(encoding.columns))]
        return [vectors[:, site, : encoding.widths[site]] for site in sites]

    def _combined(self, kernels: list[Tensor]) -> Tensor:
        """Return s Π_n (1 + k_n) + Σ_n b_n k_n/a_n."""
        product, effects = torch.full_like(kernels[0], float(np.exp(self.theta[1]))), torch.zeros_like(kernels[0])
        for kernel, ratio in zip(kernels, self.effects.tolist(), strict=True):
            product, effects = product * (1 + kernel), effects + ratio * kernel
        return product + effects

    @torch.no_grad()
    def _deviations(self, numbers: np.ndarray) -> np.ndarray:  # (B, C) -> (B,)
        """Scale s of an observation of weight 1, in standard deviations of the target."""
        kept, lower = self._kept
        parts = [np.zeros(0)]
        for start in range(0, len(numbers), _ROWS_AT_ONCE):
            part = with_rare_unseen(self.encoding, numbers[start : start + _ROWS_AT_ONCE])
            cross, variances = [], []
            for n, (z, x, table) in enumerate(zip(kept, self._vectors(part), self.tables, strict=True)):
                column, image = self.encoding.columns[n], x @ table
                unseen = np.isnan(part[:, n]) & (not column.missing) | (part[:, n] < 0) & (column.levels is not None)
                cross.append(z @ image.T)
                variances.append(torch.where(torch.from_numpy(unseen), self.sizes[n], (image * x).sum(1)))
            solved = torch.linalg.solve_triangular(lower, self._combined(cross), upper=False)
            known = (self._combined(variances) - solved.square().sum(dim=0)).clamp(min=0)
            parts.append((known + float(np.exp(self.theta[0])) + self.extra).sqrt().numpy())
        return np.concatenate(parts)

    def _quantile(self, level: float) -> np.ndarray:  # (O,)
        return np.array([np.interp(level, LEVELS, column) for column in self.quantiles.T])


def _level_table(share: Tensor, values: np.ndarray) -> Tensor:  # (I,) -> (I, I)
    """The covariance of a category's levels."""
    constant = share.square().sum()
    table = torch.eye(len(share), dtype=share.dtype) - share[:, None] - share + constant
    variance = 1.0 - constant
    return table * float(np.exp(values[0]) / variance) if variance > _LEAST_VARIANCE else torch.zeros_like(table)


def _number_table(
    site: Site, measure: Tensor, values: np.ndarray, power: float, bend: float, transformed: bool
) -> Tensor:  # (I, I)
    """The covariance of a number's knots and its missing state."""
    size, knots, mean = site.width, len(site.positions), measure.sum(dim=0)
    position, value = np.array(site.positions), np.array(site.values)
    if transformed:
        even = _yeo_johnson(value, mean[:knots].numpy())
        position, value = position + (even - value) / 2, even  # half of a position is the value
    curved = torch.eye(size, dtype=torch.float64)
    distances = np.abs(position[:, None] - position) ** power
    curved[:knots, :knots] = torch.from_numpy(np.exp(-0.5 * np.exp(-power * values[1]) * distances))
    powers = measure.new_zeros(size, 3)  # value, and value and square without tails
    bounded = np.clip(value, -_TAIL, _TAIL)
    powers[:knots] = torch.from_numpy(np.stack([value, bounded, bounded**2], axis=1))
    centred = powers - mean @ powers
    (variance, shared), (_, whole) = (centred[:, 1:].T @ measure @ centred[:, 1:]).tolist()
    slope = shared / variance if variance > _LEAST_VARIANCE else 0.0
    unit = _unit_table(curved, mean, measure)
    # A column of two values has no parabola beside its line.
    if whole - slope * shared > _LEAST_SHARE * whole:
        rest = powers[:, 2] - slope * powers[:, 1]
        unit = (1 - bend) * unit + bend * _unit_table(torch.outer(rest, rest), mean, measure)
    share = float(1 / (1 + np.exp(-values[2])))
    line = _unit_table(torch.outer(powers[:, 0], powers[:, 0]), mean, measure)
    return float(np.exp(values[0])) * ((1 - share) * unit + share * line)


def _yeo_johnson(values: np.ndarray, share: np.ndarray) -> np.ndarray:  # (K,), (K,) -> (K,)
    """Yeo–Johnson transform of values, with the power under which these shares of them are most nearly normal."""
    if (share > 0).sum() < 3:
        return values
    share = share / share.sum()
    logarithms = float(share @ (np.sign(values) * np.log1p(np.abs(values))))

    def standardised(power: float) -> tuple[np.ndarray, float]:
        moved = yeojohnson(values, power)
        moved = moved - share @ moved
        return moved, float(np.sqrt(share @ moved**2))

    def surprise(power: float) -> float:
        return float(np.log(standardised(power)[1])) - (power - 1) * logarithms

    moved, size = standardised(minimize_scalar(surprise, bounds=_POWERS, method="bounded").x)
    moved = moved / size
    first, last = np.flatnonzero(share > 0)[[0, -1]]
    before, after = slice(None, first), slice(last + 1, None)
    # Values beyond those of the rows are no further away from them than they were.
    moved[before] = np.maximum(moved[before], moved[first] + values[before] - values[first])
    moved[after] = np.minimum(moved[after], moved[last] + values[after] - values[last])
    return moved


def _unit_table(table: Tensor, mean: Tensor, measure: Tensor) -> Tensor:  # (I, I), (I,), (I, I) -> (I, I)
    """The table centred, with a mean variance of 1; 0 where it has no variance."""
    centre = torch.eye(len(mean), dtype=mean.dtype) - mean
    centred = centre @ table @ centre.T
    variance = (measure * centred).sum()
    return centred / variance if variance > _LEAST_VARIANCE else torch.zeros_like(centred)
