"""The covariance of one column: a table over its states, centred, with a mean variance of a (its relevance).

Centred under the rows of the fit: a function drawn from it averages to zero over them, so that the main effects, pairs
and higher orders in Π_n (1 + k_n) are separate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import yeojohnson
from torch import Tensor

from restt.features.base import tensor64
from restt.prior.sites import Site

# Less is a column of one value.
_LEAST_VARIANCE = 1e-14
# Powers of the distance in a number's covariance.
SMOOTH, JUMPING = 2.0, 1.0
# The share of parabolas in functions that are such in part.
BEND = 0.5
# Standard deviations from the mean beyond which a parabola is flat.
_TAIL = 2.5
# Less of a square that is not straight is rounding.
_LEAST_SHARE = 1e-9
# Between which Yeo and Johnson's power is searched; 1 leaves a column as it is.
_POWERS = (-3.0, 5.0)


class Kernel(ABC):
    """k(x, x') = a · (covariance of mean variance 1 over the rows of the fit). Parameters: log a, then others."""

    names: tuple[str, ...]

    def __init__(self, site: Site, measure: Tensor) -> None:
        self.site, self.measure = site, measure

    @abstractmethod
    def on(self, device: torch.device) -> Kernel:
        """The same kernel for states on another device."""

    @property
    @abstractmethod
    def mean(self) -> Tensor:  # (I,)
        """The mean site vector over the rows of the fit."""

    @abstractmethod
    def cross(self, states: Tensor, values: np.ndarray) -> Tensor:  # (B, I) -> (B, I)
        """The covariance of rows with each state of the column; 0 with the average state."""

    def factor(self, states: Tensor, others: Tensor, values: np.ndarray) -> Tensor:  # (B, I), (B2, I) -> (B, B2)
        """1 + k of rows with others."""
        return (self.cross(states, values) + 1) @ others.T  # site vectors sum to one

    def variance(self, states: Tensor, values: np.ndarray) -> Tensor:  # (B, I) -> (B,)
        """k of rows with themselves; a where a row is the average of the column's states.

        That stands for a level that the fit did not see, or a value missing where none was: it has an effect as far
        from the average as those of the fit have.
        """
        # Rows of the fit are in one state or between two knots; models saved long ago have an average of 0.
        count = (states != 0).sum(dim=1)
        average = (count == 0) | (count > (1 if self.site.knots is None else 2))
        if self.site.average:
            average |= states[:, -1] != 0
        return torch.where(average, float(np.exp(values[0])), (self.cross(states, values) * states).sum(dim=1))


class Number(Kernel):
    """A number: a function with a length, and a straight line, in learned shares.

    ``bend`` of the function is a parabola that is flat beyond the tails, of which it would else be all: a length that
    leaves room for little else leaves none for a curve that goes down and up again. ``evened``: distances and lines are
    those of :func:`even_values`, so that a straight line is one in the logarithm, say, of a column with a long tail.

    The function's covariance is exp(-½ (d/l)^power) in the distance d of the knots' positions: smooth functions for a
    power of 2, for one of 1 those that may jump (Ornstein and Uhlenbeck's).
    """

    names = ("relevance", "length", "line")

    def __init__(
        self, site: Site, measure: Tensor, power: float = SMOOTH, bend: float = 0.0, evened: bool = False
    ) -> None:
        super().__init__(site, measure)
        self.power, self.evened = power, evened
        size, knots = site.width, len(site.positions)
        position, value = (tensor64(each).to(measure) for each in (site.positions, site.values))
        if evened:
            even = even_values(np.array(site.values), self.mean[:knots].cpu().numpy())
            raw, value = value, tensor64(even).to(measure)
            position = position + (value - raw) / 2  # half of a position is the value, see restt.prior.sites
        self.distances = measure.new_zeros(size, size)
        self.distances[:knots, :knots] = (position[:, None] - position[None, :]).abs() ** power
        eye = torch.diag(measure.new_ones(size))
        self.within = eye.clone()
        self.within[:knots, :knots] = 1.0
        self.within[site.seen :, site.seen :] = 0.0
        self.centre = eye - self.mean  # (I, I): rows of 1_i - p
        if site.average:
            self.centre[-1] = 0.0
        line = measure.new_zeros(size)
        line[:knots] = value
        self.line = scaled_table(torch.outer(line, line), self.centre, measure)[0]
        self.parabola = _parabola(value.clamp(-_TAIL, _TAIL), self.centre, measure)
        # A column of two values has none.
        self.bend = bend if bool(self.parabola.any()) else 0.0

    def on(self, device: torch.device) -> Number:
        return Number(self.site, self.measure.to(device), self.power, self.bend, self.evened)

    @property
    def mean(self) -> Tensor:
        return self.measure.sum(dim=0)  # site vectors sum to one

    def table(self, values: np.ndarray) -> Tensor:  # (I, I)
        scale, share = float(np.exp(values[0])), float(1 / (1 + np.exp(-values[2])))
        curved = torch.exp(self.distances * (-0.5 * float(np.exp(-self.power * values[1])))) * self.within
        unit, _ = scaled_table(curved, self.centre, self.measure)
        unit = (1 - self.bend) * unit + self.bend * self.parabola
        return scale * ((1 - share) * unit + share * self.line)

    def cross(self, states: Tensor, values: np.ndarray) -> Tensor:
        return states @ self.table(values)


def even_values(values: np.ndarray, share: np.ndarray) -> np.ndarray:  # (K,), (K,) -> (K,)
    """Values to the power of Yeo and Johnson under which these shares of them are most nearly normal, standardised.

    The values are standardised before, so that nothing depends on a column's unit. Those without a share, beyond the
    others, come along, but no further away from them than they were: a power that suits a column of a few values may
    do anything there.

    >>> values = np.exp(np.linspace(-1, 1, 5))
    >>> values = (values - values.mean()) / values.std()
    >>> values.round(1), even_values(values, np.full(5, 0.2)).round(1)
    (array([-1.1, -0.8, -0.3,  0.5,  1.7]), array([-1.3, -0.8, -0.1,  0.7,  1.5]))
    """
    if (share > 0).sum() < 3:  # two values are as even as can be
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
    found[before] = np.maximum(found[before], found[first] + values[before] - values[first])
    found[after] = np.minimum(found[after], found[last] + values[after] - values[last])
    return found


def _parabola(
    value: Tensor,  # (K,)
    centre: Tensor,  # (I, I)
    measure: Tensor,  # (I, I)
) -> Tensor:  # (I, I)
    """The table of a value's square less what of it is straight; 0 where nothing is left."""
    powers = measure.new_zeros(len(measure), 2)
    powers[: len(value)] = torch.stack([value, value.square()], dim=1)
    centred = centre @ powers
    (variance, shared), (_, whole) = (centred.T @ measure @ centred).tolist()
    slope = shared / variance if variance > _LEAST_VARIANCE else 0.0
    if whole - slope * shared <= _LEAST_SHARE * whole:
        return torch.zeros_like(measure)
    rest = powers[:, 1] - slope * powers[:, 0]
    return scaled_table(torch.outer(rest, rest), centre, measure)[0]


def scaled_table(
    table: Tensor,  # (…, I, I)
    centre: Tensor,  # (…, I, I)
    measure: Tensor,  # (…, I, I)
) -> tuple[Tensor, Tensor]:  # (…, I, I), (…, 1, 1)
    """The table centred, with a mean variance of 1, and by what it was multiplied; 0 where it has no variance."""
    centred = centre @ table @ centre.mT
    variance = (measure * centred).sum((-2, -1), keepdim=True)
    # Chosen on the device, which a look at the variance would have to wait for.
    inverse = torch.where(variance > _LEAST_VARIANCE, 1 / variance, 0.0)
    return centred * inverse, inverse


@dataclass(frozen=True, eq=False)
class LevelRows:
    """What a category's covariance knows of rows."""

    codes: Tensor  # (B,): their levels
    share: Tensor  # (B,): of the rows of the fit that are in the same
    known: Tensor | None  # (B,), 0 for those that are the average of the levels; None where none is

    def take(self, rows: slice) -> LevelRows:
        return LevelRows(self.codes[rows], self.share[rows], None if self.known is None else self.known[rows])


class Levels(Kernel):
    """A category: every level (a missing value is one) has an effect of its own, centred over the rows."""

    names = ("relevance",)

    def __init__(self, site: Site, measure: Tensor) -> None:
        super().__init__(site, measure)
        self.constant = measure.square().sum()
        variance = 1.0 - self.constant
        self.inverse = float(1.0 / variance) if variance > _LEAST_VARIANCE else 0.0

    def on(self, device: torch.device) -> Levels:
        return Levels(self.site, self.measure.to(device))

    @property
    def mean(self) -> Tensor:
        return self.measure

    def cross(self, states: Tensor, values: np.ndarray) -> Tensor:
        own = (states @ self.measure)[:, None]
        table = states - own - self.measure + self.constant
        table *= self.inverse * float(np.exp(values[0]))
        if self.site.average:
            table[:, -1] = 0.0
            table[states[:, -1] > 0] = 0.0
        return table

    def factor(self, states: Tensor, others: Tensor, values: np.ndarray) -> Tensor:
        rows, columns = self.read(states), self.read(others)
        return self.compare(rows, columns, values, states.new_empty(len(states), len(others)))

    def read(self, states: Tensor) -> LevelRows:  # (B, I)
        """The rows, for :meth:`compare`."""
        largest, codes = states.max(dim=1)
        known = largest == 1
        if self.site.average:
            known &= states[:, -1] == 0
        return LevelRows(codes, states @ self.measure, None if bool(known.all()) else known.to(states))

    def compare(self, rows: LevelRows, others: LevelRows, values: np.ndarray, out: Tensor) -> Tensor:  # (B, B2)
        """:meth:`factor`, into ``out``, at the cost of a comparison whatever the number of levels."""
        size = self.inverse * float(np.exp(values[0]))
        left, right = size * (self.constant - rows.share), size * others.share
        out.copy_(rows.codes[:, None] == others.codes[None, :])
        torch.add(left[:, None], out, alpha=size, out=out)
        out -= right[None, :]
        if rows.known is not None:
            out *= rows.known[:, None]
        if others.known is not None:
            out *= others.known[None, :]
        return out.add_(1.0)


def measure(
    site: Site,
    states: Tensor,  # (B, I)
    weights: Tensor,  # (B,)
) -> Tensor:  # (I, I) for a number, (I,) for a category
    """The distribution of a column's states over rows, under which its kernel is centred: the mean of x xᵀ or of x."""
    share = weights / weights.sum()
    return share @ states if site.knots is None else (states * share[:, None]).T @ states


def make_kernel(site: Site, measure: Tensor, power: float = SMOOTH, bend: float = 0.0, evened: bool = False) -> Kernel:
    """The kernel of a column, centred under this measure; ``power``, ``bend``, ``evened``: see :class:`Number`."""
    return Levels(site, measure) if site.knots is None else Number(site, measure, power, bend, evened)


def reshaped(
    kernels: Sequence[Kernel], power: float = SMOOTH, bend: float = 0.0, evened: bool = False
) -> tuple[Kernel, ...]:
    """The same kernels for functions of another shape: see :class:`Number`."""
    return tuple(make_kernel(kernel.site, kernel.measure, power, bend, evened) for kernel in kernels)
