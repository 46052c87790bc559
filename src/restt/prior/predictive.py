"""The predictive distribution: a mixture of the members' posteriors, the noise, and the transform of y.

On the scale of the warped target a new observation is mean + s(x)·q. s² is the variance of the mixture: posterior
variance and noise within the members, and the spread of their means between them. q has the distribution of the
leave-one-out residuals divided by their own s, so that skewed noise and heavy tails are in every quantile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.stats import t as student
from torch import Tensor

from restt._common.errors import check_int, check_positive
from restt.prior.distribution import LEVELS, Distribution, standard_quantile
from restt.prior.gp import Process
from restt.prior.kernel import Kernel
from restt.prior.mixture import Mixture, between
from restt.prior.pairs import Rows
from restt.prior.settings import Component, Settings
from restt.prior.sites import Site, rows_of
from restt.prior.warp import Warp, smooth_quantile

_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Predictive(Mixture):
    """Predictive distribution of a fitted model: inducing rows, a root of each member, and residual quantiles."""

    kernel: Kernel
    thetas: Tensor  # (S, T)
    components: tuple[Component, ...]  # S
    weights: np.ndarray  # (S,)
    settings: Settings
    numbers: np.ndarray  # (M, C): inducing rows
    roots: np.ndarray  # (S, M, M): of the members' posterior variances, see :mod:`restt.prior.calibration`
    means: np.ndarray  # (S, M, O): weights of the inducing rows in the members' means
    rows: int  # of the fit
    quantiles: np.ndarray  # (len(LEVELS), O)
    slopes: np.ndarray  # (numbers + 1,): of log s² in the columns of numbers and in the prediction
    extra: float = 0.0  # variance added where held-out rows ask for it

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """The members before they saw rows."""
        pairs = zip(self.thetas, self.components, strict=True)
        return tuple(Process(self.kernel, theta, component, self.settings) for theta, component in pairs)

    @property
    def members(self) -> Iterator[tuple[float, Process, Tensor, Tensor]]:
        """Weight, process, root and weights of the mean of each member."""
        roots, means = torch.from_numpy(self.roots), torch.from_numpy(self.means)
        return zip(self.weights.tolist(), self.processes, roots, means, strict=True)

    @torch.no_grad()
    def deviations(self, numbers: np.ndarray, outputs: np.ndarray) -> np.ndarray:  # (B, C), (B, O) -> (B,)
        """Standard deviation s of a new observation at rows whose warped prediction is ``outputs``."""
        parts = [np.zeros(0)]
        for start in range(0, len(numbers), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            rows = rows_of(self.kernel.sites, numbers[part])
            level = torch.from_numpy(outputs[part].mean(axis=1))
            # Below 0 where held-out rows asked for less variance, and none of them had as little as this row.
            variance = (self._variance(rows, level) + self.extra).clamp(min=self.settings.least_noise)
            parts.append(variance.sqrt().numpy() * np.exp(self.features(rows, level) @ self.slopes / 2))
        return np.concatenate(parts)

    def _variance(self, rows: Rows, level: Tensor) -> Tensor:  # (B,)
        within, means = torch.zeros_like(level), []
        for weight, process, root, mean in self.members:
            cross = process.covariance(self.inducing, rows)
            means.append(cross.T @ mean)
            known = (process.variance(rows) - (root @ cross).square().sum(0)).clamp(min=0)
            within += weight * (known + process.noise(rows, level))
        return within + between(means, self.weights)

    def features(self, rows: Rows, level: Tensor) -> np.ndarray:  # (B,) -> (B, numbers + 1)
        """Features in which the logarithm of s² is linear, beyond the members' own variances."""
        own = self.kernel.noise_features(rows)
        return torch.cat([own, level.clamp(-Settings.NOISE_END, Settings.NOISE_END)[:, None]], 1).numpy()

    def quantile(self, level: float) -> np.ndarray:  # (O,)
        """The quantile of the standardised residuals, with the tails of a Student density beyond the kept levels."""
        return standard_quantile(self.quantiles, self._degrees, np.array([level]))[0]

    @property
    def _degrees(self) -> int:
        return max(self.rows - 1, Settings.FEWEST_DEGREES)

    def at(
        self,
        outputs: np.ndarray,  # (B, O): warped predictions
        numbers: np.ndarray,  # (B, C)
        warp: Warp,
    ) -> Distribution:
        """The distribution of new observations at rows."""
        return Distribution(outputs, lambda: self.deviations(numbers, outputs), self.quantiles, self._degrees, warp)

    def interval(self, outputs: np.ndarray, numbers: np.ndarray, warp: Warp, coverage: float = 0.9) -> np.ndarray:
        """Equal tails left and right of the interval (B, 2, O) that holds y with probability ``coverage``.

        Where rare values carry the mean beyond such a quantile, the interval is widened to hold it.
        """
        if not 0 < check_positive("coverage", coverage) < 1:
            raise ValueError(f"coverage must be between 0 and 1, got {coverage}")
        found = self.at(outputs, numbers, warp)
        ends, mean = found.quantile([(1 - coverage) / 2, (1 + coverage) / 2]), found.mean
        return np.stack([np.minimum(ends[:, 0], mean), np.maximum(ends[:, 1], mean)], axis=1)

    def std(self, outputs: np.ndarray, numbers: np.ndarray, warp: Warp) -> np.ndarray:  # (B, O), in y's units
        """Root mean square of y about its prediction."""
        return self.at(outputs, numbers, warp).std

    def recalibrated(
        self,
        residuals: np.ndarray,  # (B, O): of the warped target
        numbers: np.ndarray,  # (B, C)
        outputs: np.ndarray,  # (B, O)
        weights: np.ndarray,  # (B,)
    ) -> Predictive:
        """The distribution of another model of the same target, from its residuals on held-out rows.

        How far s grows where the kept rows know little is fitted too: a model of more rows than these knows more there.
        """
        plain = replace(self, slopes=np.zeros_like(self.slopes))
        variances = plain.deviations(numbers, outputs) ** 2 - self.extra
        least = float(variances.min())
        constant = _constant_part(variances - least, (residuals**2).mean(axis=1), weights)
        scaled = residuals / np.sqrt(variances - least + constant)[:, None]
        features = self.features(rows_of(self.kernel.sites, numbers), torch.from_numpy(outputs.mean(axis=1)))
        slopes = scale_slopes(scaled, features, weights, self.settings.slope_scale)
        scaled = scaled * np.exp(features @ slopes / -2)[:, None]
        return replace(self, slopes=slopes, extra=constant - least, quantiles=residual_quantiles(scaled, weights))

    def to_config(self) -> dict[str, Any]:
        """Plain values; the arrays are in :meth:`tensors`."""
        return {
            "sites": [site.to_config() for site in self.kernel.sites],
            "components": [{"name": one.name, "terms": list(one.terms)} for one in self.components],
            "weights": self.weights.tolist(),
            "constant": self.settings.constant,
            "least_noise": self.settings.least_noise,
            "extra": self.extra,
            "rows": self.rows,
        }

    def tensors(self) -> dict[str, Tensor]:
        """The arrays, for a safetensors file."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        upper = np.triu_indices(len(self.numbers))
        arrays["roots"] = self.roots[:, *upper]  # the rest is 0
        found = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        for n, (mean, moment) in enumerate(zip(self.kernel.means, self.kernel.moments, strict=True)):
            found |= {f"mean.{n}": mean.contiguous(), f"moment.{n}": moment.contiguous()}
        return {**found, "thetas": self.thetas}

    @classmethod
    def from_config(cls, config: dict[str, Any], tensors: dict[str, Tensor]) -> Predictive:
        """The distribution that :meth:`to_config` and :meth:`tensors` described; ValueError where they do not fit."""
        sites = [Site.from_config(site) for site in config["sites"]]
        means, moments = ([tensors[f"{name}.{n}"] for n in range(len(sites))] for name in ("mean", "moment"))
        arrays = {name: tensors[name].numpy() for name in _ARRAYS}
        components = tuple(Component(one["name"], tuple(one["terms"])) for one in config["components"])
        members, inducing, outputs = arrays["means"].shape
        for n, (site, mean, moment) in enumerate(zip(sites, means, moments, strict=True)):
            square = (site.width, site.width) if site.knots is not None else (0, 0)
            if mean.shape != (site.width,) or moment.shape != square:
                raise ValueError(f"column {n} has states of shapes {tuple(mean.shape)} and {tuple(moment.shape)}")
        kernel = Kernel(sites, means, moments, outputs)
        weights, size = np.array(config["weights"], dtype=np.float64), len(kernel.layout.names)
        shapes: dict[str, tuple[int, ...]] = {"numbers": (inducing, len(sites)), "means": arrays["means"].shape}
        shapes["roots"] = (len(components), inducing * (inducing + 1) // 2)
        shapes |= {"quantiles": (len(LEVELS), outputs), "slopes": (kernel.layout.numbers + 1,)}
        for name, shape in shapes.items():
            if arrays[name].shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {arrays[name].shape}")
            if name != "numbers" and not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} must be finite")
        fits = len(components) == len(weights) == members and inducing > 0
        if tensors["thetas"].shape != (len(components), size) or not fits:
            raise ValueError(f"{len(components)} members do not fit {tuple(tensors['thetas'].shape)} hyper-parameters")
        if not bool(tensors["thetas"].isfinite().all()) or (weights < 0).any():
            raise ValueError("hyper-parameters must be finite, weights not below 0")
        if not (config["constant"] >= 0 and config["least_noise"] > 0):
            raise ValueError("the variances of the constant and of the least noise must not be below 0")
        if check_int("rows", config["rows"], minimum=1) < inducing:
            raise ValueError(f"{inducing} inducing rows are more than the {config['rows']} rows of the fit")
        arrays["roots"], packed = np.zeros((members, inducing, inducing)), arrays["roots"]
        arrays["roots"][:, *np.triu_indices(inducing)] = packed
        settings = Settings(constant=config["constant"], least_noise=config["least_noise"], components=components)
        plain: dict[str, Any] = {**arrays, "rows": config["rows"], "extra": config["extra"]}
        return cls(kernel, tensors["thetas"], components, weights, settings, **plain)


# Of a variance relative to the common one: a search may try any slope.
_LARGEST_LOG = 30.0
_ARRAYS = ("numbers", "roots", "means", "quantiles", "slopes")


def scale_slopes(
    scaled: np.ndarray,  # (B, O): residuals over their own s
    features: np.ndarray,  # (B, K)
    weights: np.ndarray,  # (B,)
    spread: float,
) -> np.ndarray:  # (K,)
    """Slopes of the log variance of residuals in features, by penalised maximum likelihood."""
    squares = (scaled**2).mean(axis=1)
    size = float(np.average(squares, weights=weights))
    if size == 0:
        return np.zeros(features.shape[1])
    squares = squares / size

    def surprise(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        log = np.clip(parameters[0] + features @ parameters[1:], -_LARGEST_LOG, _LARGEST_LOG)
        ratio = squares * np.exp(-log)
        by_log = weights * (1 - ratio) / 2
        # Student's density with two degrees of freedom: small slopes are shrunk to 0, large ones are not.
        inner = 1 + parameters[1:] ** 2 / (2 * spread**2)
        gradient = np.concatenate([[by_log.sum()], by_log @ features + 1.5 * parameters[1:] / (spread**2 * inner)])
        return float(weights @ (log + ratio) / 2 + 1.5 * np.log(inner).sum()), gradient

    return minimize(surprise, np.zeros(1 + features.shape[1]), jac=True, method="L-BFGS-B").x[1:]


def _constant_part(variances: np.ndarray, squares: np.ndarray, weights: np.ndarray) -> float:
    """Constant c such that squares are in proportion to variances + c, by the halves of small and large ones."""
    large = variances > np.median(variances)
    if not large.any():
        return max(float(np.average(squares, weights=weights)), 1e-12)
    (x0, y0), (x1, y1) = (
        (np.average(variances[half], weights=weights[half]), np.average(squares[half], weights=weights[half]))
        for half in (~large, large)
    )
    slope = (y1 - y0) / (x1 - x0)
    least, most = (bound * x1 for bound in Settings.CONSTANT_BOUNDS)
    return float(np.clip(y0 / slope - x0, least, most)) if slope > 0 else float(most)


def residual_quantiles(scaled: np.ndarray, weights: np.ndarray) -> np.ndarray:  # (B, O), (B,) -> (len(LEVELS), O)
    """Quantiles at :data:`LEVELS`, those of few values drawn towards a normal distribution's whose size they tell."""
    size = np.sqrt(np.average(scaled**2, axis=0, weights=weights))
    own = np.stack([smooth_quantile(column, weights, LEVELS) for column in scaled.T], axis=1)
    normal = student.ppf(LEVELS, max(len(scaled) - 1, Settings.FEWEST_DEGREES))[:, None] * size
    share = len(scaled) / (len(scaled) + Settings.NORMAL_ROWS)
    return share * own + (1 - share) * normal
