"""The prior of closed-form models of 0.8: s Π_n (1 + k_n) + Σ_n b_n k_n/a_n.

k_n is a table over the states of a column, centred under the rows of that fit, with a mean variance of a_n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import yeojohnson
from torch import Tensor

from restt.features.base import tensor64
from restt.prior.sites import Site

SMOOTH = 2.0
# Less is a column of one value; less of a square that is not straight is rounding.
_LEAST_VARIANCE, _LEAST_SHARE = 1e-14, 1e-9
# Standard deviations from the mean beyond which a parabola is flat; between which Yeo and Johnson's power was searched.
_TAIL, _POWERS = 2.5, (-3.0, 5.0)


@dataclass(frozen=True, eq=False)
class OldKernel:
    """The covariance of one column; a category's parameter is log a, a number's also log length and a line's share."""

    site: Site
    measure: Tensor  # (I, I) mean of x xᵀ of a number, (I,) mean of x of a category
    power: float = SMOOTH
    bend: float = 0.0
    evened: bool = False

    @property
    def count(self) -> int:
        """Number of parameters."""
        return 1 if self.site.knots is None else 3

    @property
    def mean(self) -> Tensor:  # (I,)
        """The mean site vector over the rows of the fit."""
        return self.measure if self.site.knots is None else self.measure.sum(dim=0)

    def cross(self, states: Tensor, values: np.ndarray) -> Tensor:  # (B, I) -> (B, I)
        """The covariance of rows with each state of the column; 0 with the average state."""
        if self.site.knots is not None:
            return states @ self._number_table(values)
        share, constant = self.measure, self.measure.square().sum()
        variance = 1.0 - constant
        table = states - (states @ share)[:, None] - share + constant
        table *= (float(1.0 / variance) if variance > _LEAST_VARIANCE else 0.0) * float(np.exp(values[0]))
        if self.site.average:
            table[:, -1] = 0.0
            table[states[:, -1] > 0] = 0.0
        return table

    def variance(self, states: Tensor, values: np.ndarray) -> Tensor:  # (B, I) -> (B,)
        """Variance of rows: k with themselves, a where a row is the average of the column's states."""
        # Rows of the fit are in one state or between two knots; models saved long ago have an average of 0.
        count = (states != 0).sum(dim=1)
        average = (count == 0) | (count > (1 if self.site.knots is None else 2))
        if self.site.average:
            average |= states[:, -1] != 0
        return torch.where(average, float(np.exp(values[0])), (self.cross(states, values) * states).sum(dim=1))

    @cached_property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Distances, which states are numbers, centring, and the tables of a line and of a parabola, (I, I) each."""
        site, measure = self.site, self.measure
        size, knots = site.width, len(site.positions)
        position, value = (tensor64(each).to(measure) for each in (site.positions, site.values))
        if self.evened:
            even = tensor64(_even_values(np.array(site.values), self.mean[:knots].numpy())).to(measure)
            position, value = position + (even - value) / 2, even  # half of a position is the value
        distances = measure.new_zeros(size, size)
        distances[:knots, :knots] = (position[:, None] - position[None, :]).abs() ** self.power
        eye = torch.diag(measure.new_ones(size))
        within = eye.clone()
        within[:knots, :knots] = 1.0
        within[site.seen :, site.seen :] = 0.0
        centre = eye - self.mean
        if site.average:
            centre[-1] = 0.0
        line = measure.new_zeros(size)
        line[:knots] = value
        straight = _scaled_table(torch.outer(line, line), centre, measure)
        return distances, within, centre, straight, _parabola(value.clamp(-_TAIL, _TAIL), centre, measure)

    def _number_table(self, values: np.ndarray) -> Tensor:  # (I, I)
        distances, within, centre, straight, parabola = self._parts
        scale, share = float(np.exp(values[0])), float(1 / (1 + np.exp(-values[2])))
        curved = torch.exp(distances * (-0.5 * float(np.exp(-self.power * values[1])))) * within
        bend = self.bend if bool(parabola.any()) else 0.0  # a column of two values has no parabola
        unit = (1 - bend) * _scaled_table(curved, centre, self.measure) + bend * parabola
        return scale * ((1 - share) * unit + share * straight)


@dataclass(frozen=True, eq=False)
class OldPrior:
    """Hyper-parameters of a model of 0.8: log noise, log s, those of all columns, and log b_n where there are any."""

    kernels: tuple[OldKernel, ...]
    theta: np.ndarray
    names: tuple[str, ...]

    @property
    def noise(self) -> float:
        """The noise's share of the target's variance."""
        return float(np.exp(self.theta[0]))

    @property
    def scale(self) -> float:
        """The factor s, by which interactions fall behind main effects."""
        return float(np.exp(self.theta[1]))

    @cached_property
    def parts(self) -> list[np.ndarray]:
        """The parameters of each column's kernel."""
        return np.split(self.theta[2:], np.cumsum([kernel.count for kernel in self.kernels]))[:-1]

    @cached_property
    def effects_apart(self) -> np.ndarray:  # (N,)
        """b_n/a_n: all 0 where main effects are those of the product."""
        rest = self.theta[2 + sum(kernel.count for kernel in self.kernels) :]
        return np.exp(rest - [values[0] for values in self.parts]) if len(rest) else np.zeros(len(self.kernels))

    def covariance(self, states: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:  # N of (B, I_n) -> (B, B2)
        """The prior's covariance between rows."""
        found = states[0].new_full((len(states[0]), len(others[0])), self.scale)
        effects = torch.zeros_like(found)
        for kernel, rows, right, values, ratio in zip(
            self.kernels, states, others, self.parts, self.effects_apart, strict=True
        ):
            own = kernel.cross(rows, values) @ right.T
            found *= 1 + own
            effects += float(ratio) * own
        return found + effects

    def variance(self, states: Sequence[Tensor]) -> Tensor:  # N of (B, I_n) -> (B,)
        """Variance of rows: the diagonal of their covariance, and more where a column is averaged."""
        total = states[0].new_full((len(states[0]),), self.scale)
        effects = torch.zeros_like(total)
        for kernel, rows, values, ratio in zip(self.kernels, states, self.parts, self.effects_apart, strict=True):
            own = kernel.variance(rows, values)
            total *= 1 + own
            effects += float(ratio) * own
        return total + effects


def _even_values(values: np.ndarray, share: np.ndarray) -> np.ndarray:  # (K,), (K,) -> (K,)
    """Yeo–Johnson transform of values, with the power under which these shares of them are most nearly normal."""
    if (share > 0).sum() < 3:
        return values
    share = share / share.sum()
    logarithms = float(share @ (np.sign(values) * np.log1p(np.abs(values))))

    def scaled(power: float) -> tuple[np.ndarray, float]:
        found = yeojohnson(values, power)
        found = found - share @ found
        return found, float(np.sqrt(share @ found**2))

    def surprise(power: float) -> float:
        return float(np.log(scaled(power)[1])) - (power - 1) * logarithms

    found, size = scaled(minimize_scalar(surprise, bounds=_POWERS, method="bounded").x)
    found = found / size
    first, last = np.flatnonzero(share > 0)[[0, -1]]
    before, after = slice(None, first), slice(last + 1, None)
    # Values beyond those of the rows are no further away from them than they were.
    found[before] = np.maximum(found[before], found[first] + values[before] - values[first])
    found[after] = np.minimum(found[after], found[last] + values[after] - values[last])
    return found


def _parabola(value: Tensor, centre: Tensor, measure: Tensor) -> Tensor:  # (K,), (I, I), (I, I) -> (I, I)
    """The table of a value's square less what of it is straight; 0 where nothing is left."""
    powers = measure.new_zeros(len(measure), 2)
    powers[: len(value)] = torch.stack([value, value.square()], dim=1)
    centred = centre @ powers
    (variance, shared), (_, whole) = (centred.T @ measure @ centred).tolist()
    slope = shared / variance if variance > _LEAST_VARIANCE else 0.0
    if whole - slope * shared <= _LEAST_SHARE * whole:
        return torch.zeros_like(measure)
    rest = powers[:, 1] - slope * powers[:, 0]
    return _scaled_table(torch.outer(rest, rest), centre, measure)


def _scaled_table(table: Tensor, centre: Tensor, measure: Tensor) -> Tensor:  # (I, I) each
    """The table centred, with a mean variance of 1; 0 where it has no variance."""
    centred = centre @ table @ centre.T
    variance = (measure * centred).sum()
    return centred / variance if variance > _LEAST_VARIANCE else torch.zeros_like(centred)
