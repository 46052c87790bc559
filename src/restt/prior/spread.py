"""How uncertain a prediction is: the posterior's variance and the noise, with quantiles from left-out residuals.

A prediction's distribution is taken as mean + s(x)·q, where s² is the predictive variance of the prior and q has the
distribution of the left-out residuals divided by their own s. So heavy tails and skewed noise are in the intervals, and
a prior that is too sure of itself is corrected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_positive, shown
from restt.prior.evidence import cholesky
from restt.prior.kernels import SMOOTH, make_kernel
from restt.prior.learning import Prior
from restt.prior.posterior import covariance, variance
from restt.prior.reach import Reach
from restt.prior.sites import Site
from restt.prior.target import Target

# The most rows that a model keeps for its variance.
KEPT_ROWS = 1000
# The levels at which residuals are kept, and how many residuals of a Gaussian count beside those of the table.
LEVELS = np.concatenate([[0.0005, 0.001, 0.0025], np.arange(1, 200) / 200, [0.9975, 0.999, 0.9995]])
_GAUSSIAN_ROWS, _FEWEST_DEGREES = 20, 3
_MIDDLES = (np.arange(50) + 0.5) / 50  # of fifty parts of a distribution
_ROWS_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class Spread:
    """What a fitted model keeps to tell its uncertainty: at most :data:`KEPT_ROWS` rows, the prior and the residuals.

    It holds rows of the training table as numbers. The Cholesky factor is made when it is first needed.
    """

    prior: Prior
    numbers: np.ndarray  # (K, C)
    weights: np.ndarray  # (K,)
    quantiles: np.ndarray  # (len(LEVELS), O): of left-out residuals divided by their s
    extra: float = 0.0  # variance added for the rounding of the mean
    reach: Reach | None = None  # of y; None in models saved before it was kept

    @property
    def sites(self) -> tuple[Site, ...]:
        return tuple(kernel.site for kernel in self.prior.kernels)

    def states(self, numbers: np.ndarray) -> list[Tensor]:
        """Site vectors of each column of numbers (B, C)."""
        return [site.vectors(column) for site, column in zip(self.sites, numbers.T, strict=True)]

    @cached_property
    def _lower(self) -> tuple[list[Tensor], Tensor]:
        rows = self.states(self.numbers)
        return rows, cholesky(covariance(self.prior, rows), self.prior.noise / torch.from_numpy(self.weights))

    @torch.no_grad()
    def deviations(self, states: Sequence[Tensor]) -> np.ndarray:  # C of (B, I_n) -> (B,)
        """s of an observation of weight 1, in standard deviations of the target."""
        rows, lower = self._lower
        parts = []
        for start in range(0, len(states[0]), _ROWS_AT_ONCE):
            part = [column[start : start + _ROWS_AT_ONCE] for column in states]
            solved = torch.linalg.solve_triangular(lower, covariance(self.prior, rows, part), upper=False)
            known = variance(self.prior, part) - solved.square().sum(dim=0)
            parts.append(known.clamp(min=0) + self.prior.noise + self.extra)
        return torch.cat(parts).sqrt().numpy() if parts else np.zeros(0)

    def held(
        self,
        outputs: np.ndarray,  # (B, O): standardised predictions
        states_of: Callable[[np.ndarray], Sequence[Tensor]],  # row numbers (K,) -> C of (K, I_n)
    ) -> np.ndarray:  # (B, O)
        """Predictions, those beyond every y of the fit drawn back as far as little is known of them.

        How much is known is the posterior's variance, corrected by the size of the left-out residuals.
        """
        if self.reach is None or not self.reach.beyond(outputs).any():
            return outputs
        rows, found = np.flatnonzero(self.reach.beyond(outputs)), outputs.copy()
        size = np.mean([self.quantile(level) ** 2 for level in _MIDDLES], axis=0)  # (O,)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            known = self.deviations(states_of(part)) ** 2 - self.prior.noise - self.extra
            found[part] = self.reach.held(outputs[part], np.maximum(known, 0)[:, None] * size)
        return found

    @torch.no_grad()
    def term_deviations(
        self,
        points: Mapping[int, Tensor],  # column -> (G_n, I_n): the columns of the term, and their site vectors
        means: Sequence[Tensor],  # C of (I_n,)
    ) -> Tensor:  # (G_n of the first column, of the second, …)
        """The posterior's standard deviation of a centred term on a grid, in standard deviations of the target.

        The term of columns S is linear in the function: each column of S less its mean, every other one at its mean. So
        it is normal too, of covariance s Π_{n∈S} k_n(x - μ, x' - μ) Π_{n∉S} (1 + k_n(μ, μ)); at the means of the fit,
        where the kernels are centred, the second product is 1. A main effect of its own adds b_n k_n/a_n to that of n.
        """
        rows, lower = self._lower
        shape = [len(vectors) for vectors in points.values()]
        before, seen = self.prior.scale, torch.full((len(lower),), self.prior.scale, dtype=torch.float64)
        own: dict[int, tuple[Tensor, Tensor]] = {}  # variance (G_n,) and covariance with the rows (G_n, K)
        for n, (kernel, values, mean) in enumerate(zip(self.prior.kernels, self.prior.parts, means, strict=True)):
            level = kernel.cross(mean[None], values)  # (1, I_n)
            if n not in points:
                before *= 1 + float(level @ mean)
                seen *= 1 + (level @ rows[n].T)[0]
            else:
                away = kernel.cross(points[n], values) - level
                own[n] = (away * (points[n] - mean)).sum(dim=1), away @ rows[n].T
        parts = []
        for start in range(0, math.prod(shape), _ROWS_AT_ONCE):
            part = torch.arange(start, min(start + _ROWS_AT_ONCE, math.prod(shape)))
            total, cross = torch.full((len(part),), before, dtype=torch.float64), seen.expand(len(part), -1)
            for n, place in zip(points, torch.unravel_index(part, shape), strict=True):
                # What is no product is in the term of its column alone.
                ratio = self.prior.effects_apart[n] if len(points) == 1 else 0.0
                total, cross = (total + ratio) * own[n][0][place], (cross + ratio) * own[n][1][place]
            solved = torch.linalg.solve_triangular(lower, cross.T, upper=False)
            parts.append((total - solved.square().sum(dim=0)).clamp(min=0).sqrt())
        return torch.cat(parts).reshape(shape)

    def quantile(self, level: float) -> np.ndarray:  # (O,)
        """The quantile of the standardised residuals."""
        return np.array([np.interp(level, LEVELS, column) for column in self.quantiles.T])

    def interval(
        self,
        outputs: np.ndarray,  # (B, O): standardised predictions
        states: Sequence[Tensor],  # C of (B, I_n)
        target: Target,
        coverage: float = 0.9,
    ) -> np.ndarray:  # (B, 2, O), on y's own scale
        """Equal tails left and right of the interval that holds an observation with probability ``coverage``."""
        if not 0 < check_positive("coverage", coverage) < 1:
            raise ValueError(f"coverage must be between 0 and 1, got {coverage}")
        deviations = self.deviations(states)[:, None]
        tails = ((1 - coverage) / 2, (1 + coverage) / 2)
        return np.stack([target.decode(outputs + deviations * self.quantile(tail)) for tail in tails], axis=1)

    def std(
        self,
        outputs: np.ndarray,  # (B, O)
        states: Sequence[Tensor],  # C of (B, I_n)
        target: Target,
    ) -> np.ndarray:  # (B, O), in y's units
        """Root mean square of y about its prediction, over the distribution of the residuals."""
        deviations = self.deviations(states)[:, None]
        middle = target.predict(outputs)
        away = np.stack([target.decode(outputs + deviations * self.quantile(level)) - middle for level in _MIDDLES])
        size = np.abs(away).max(axis=0)
        unit = np.where(size > 0, size, 1.0)
        return unit * np.sqrt(np.mean((away / unit) ** 2, axis=0))

    def to_config(self) -> dict[str, Any]:
        """Plain values; the arrays are in :meth:`tensors`."""
        return {
            "sites": [site.to_config() for site in self.sites],
            "theta": self.prior.theta.tolist(),
            "names": list(self.prior.names),
            "target_scale": self.prior.target_scale,
            "power": self.prior.power,
            "bend": self.prior.bend,
            "evened": self.prior.evened,
            "extra": self.extra,
            "reach": None if self.reach is None else self.reach.to_config(),
        }

    def tensors(self) -> dict[str, Tensor]:
        """The arrays, for a safetensors file."""
        arrays = {"numbers": self.numbers, "weights": self.weights, "quantiles": self.quantiles}
        found = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        return {**found, **{f"measure.{n}": kernel.measure for n, kernel in enumerate(self.prior.kernels)}}

    @classmethod
    def from_config(cls, config: dict[str, Any], tensors: dict[str, Tensor]) -> Spread:
        """The spread that :meth:`to_config` and :meth:`tensors` described; ValueError where a size is none of its own.

        Sizes are compared with the tensors before anything is made of them, so that a file costs no more than it holds.
        """
        sites = [Site.from_config(site) for site in config["sites"]]
        shapes = [(site.width,) if site.knots is None else (site.width, site.width) for site in sites]
        if any(tuple(tensors[f"measure.{n}"].shape) != shape for n, shape in enumerate(shapes)):
            raise ValueError(f"measures of the columns' states must have the shapes {shown(shapes)}")
        if not 0 < len(tensors["numbers"]) <= KEPT_ROWS:
            raise ValueError(f"at most {KEPT_ROWS} rows are kept, got {shown(tensors['numbers'])}")
        # Models saved before there were others have none of these.
        shape = config.get("power", SMOOTH), config.get("bend", 0.0), config.get("evened", False)
        kernels = tuple(make_kernel(site, tensors[f"measure.{n}"], *shape) for n, site in enumerate(sites))
        prior = Prior(kernels, np.array(config["theta"]), tuple(config["names"]), config["target_scale"])
        arrays = {name: tensors[name].numpy() for name in ("numbers", "weights", "quantiles")}
        reach = None if config.get("reach") is None else Reach.from_config(config["reach"])
        return cls(prior, **arrays, extra=config["extra"], reach=reach)
