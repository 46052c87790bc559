"""The covariance of one column: a table over its states, centred, with a mean variance of a (its relevance).

Centred under the rows of the fit: a function drawn from it averages to zero over them, so that the main effects, pairs
and higher orders in Π_n (1 + k_n) are separate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from restt.features.base import tensor64
from restt.prior.sites import Site

# Powers of the distance in a number's covariance.
SMOOTH, JUMPING = 2.0, 1.0


class Kernel(ABC):
    """k(x, x') = a · (covariance of mean variance 1 over the rows of the fit). Parameters: log a, then others."""

    names: tuple[str, ...]

    def __init__(self, site: Site, measure: Tensor) -> None:
        self.site, self.measure = site, measure

    @property
    @abstractmethod
    def mean(self) -> Tensor:  # (I,)
        """The mean site vector over the rows of the fit."""

    @abstractmethod
    def cross(self, states: Tensor, values: np.ndarray) -> Tensor:  # (B, I) -> (B, I)
        """The covariance of rows with each state of the column; 0 with the average state."""

    @abstractmethod
    def pull(self, states: Tensor, values: np.ndarray, weight: Tensor) -> np.ndarray:  # weight (B, B), symmetric
        """Σ_ij weight_ij ∂k(i, j)/∂parameter, for every parameter."""

    def gram(self, states: Tensor, values: np.ndarray, out: Tensor | None = None) -> Tensor:  # (B, I) -> (B, B)
        """The covariance of rows with each other, in ``out`` where it is given."""
        return torch.mm(self.cross(states, values), states.T, out=out)


class Number(Kernel):
    """A number: a function with a length, and a straight line, in learned shares.

    The function's covariance is exp(-½ (d/l)^power) in the distance d of the knots' positions: smooth functions for a
    power of 2, for one of 1 those that may jump (Ornstein and Uhlenbeck's).
    """

    names = ("relevance", "length", "line")

    def __init__(self, site: Site, measure: Tensor, power: float = SMOOTH) -> None:
        super().__init__(site, measure)
        self.power = power
        size, knots = site.width, len(site.positions)
        position, value = tensor64(site.positions), tensor64(site.values)
        self.distances = torch.zeros(size, size, dtype=torch.float64)
        self.distances[:knots, :knots] = (position[:, None] - position[None, :]).abs() ** power
        self.within = torch.eye(size, dtype=torch.float64)
        self.within[:knots, :knots] = 1.0
        self.within[site.seen :, site.seen :] = 0.0
        self.centre = torch.eye(size, dtype=torch.float64) - self.mean  # (I, I): rows of 1_i - p
        if site.average:
            self.centre[-1] = 0.0
        line = torch.zeros(size, dtype=torch.float64)
        line[:knots] = value
        self.line = self._scaled(torch.outer(line, line))[0]

    @property
    def mean(self) -> Tensor:
        return self.measure.sum(dim=0)  # site vectors sum to one

    def _scaled(self, table: Tensor) -> tuple[Tensor, Tensor]:
        centred = self.centre @ table @ self.centre.T
        variance = (self.measure * centred).sum()
        return (centred / variance, variance) if variance > 1e-14 else (torch.zeros_like(centred), variance)

    def _parts(self, values: np.ndarray) -> tuple[float, float, Tensor, Tensor]:
        """a, share of the line, the other part and its derivative by log length."""
        scale, share = float(np.exp(values[0])), float(1 / (1 + np.exp(-values[2])))
        ratio = self.distances * float(np.exp(-self.power * values[1]))
        curved = torch.exp(-0.5 * ratio) * self.within
        unit, variance = self._scaled(curved)
        if variance <= 1e-14:
            return scale, share, unit, torch.zeros_like(unit)
        slope = self.centre @ (0.5 * self.power * curved * ratio) @ self.centre.T
        slope = (slope - unit * (self.measure * slope).sum()) / variance
        return scale, share, unit, slope

    def table(self, values: np.ndarray) -> Tensor:  # (I, I)
        scale, share, unit, _ = self._parts(values)
        return scale * ((1 - share) * unit + share * self.line)

    def cross(self, states: Tensor, values: np.ndarray) -> Tensor:
        return states @ self.table(values)

    def pull(self, states: Tensor, values: np.ndarray, weight: Tensor) -> np.ndarray:
        scale, share, unit, slope = self._parts(values)
        pulled = states.T @ (weight @ states)
        table = (1 - share) * unit + share * self.line
        by_scale = scale * (pulled * table).sum()
        by_length = scale * (1 - share) * (pulled * slope).sum()
        by_share = scale * share * (1 - share) * (pulled * (self.line - unit)).sum()
        return np.array([by_scale.item(), by_length.item(), by_share.item()])


class Levels(Kernel):
    """A category: every level (a missing value is one) has an effect of its own, centred over the rows."""

    names = ("relevance",)

    def __init__(self, site: Site, measure: Tensor) -> None:
        super().__init__(site, measure)
        self.constant = measure.square().sum()
        variance = 1.0 - self.constant
        self.inverse = float(1.0 / variance) if variance > 1e-14 else 0.0

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

    def gram(self, states: Tensor, values: np.ndarray, out: Tensor | None = None) -> Tensor:
        codes, own = states.argmax(dim=1), states @ self.measure
        gram = torch.empty(len(codes), len(codes), dtype=torch.float64) if out is None else out
        gram.copy_(codes[:, None] == codes[None, :])
        gram += self.constant - own[:, None] - own[None, :]
        gram *= self.inverse * float(np.exp(values[0]))
        if self.site.average:
            known = (states[:, -1] == 0).double()
            gram *= known[:, None] * known[None, :]
        return gram

    def pull(self, states: Tensor, values: np.ndarray, weight: Tensor) -> np.ndarray:
        return np.array([(weight * self.gram(states, values)).sum().item()])


def measure(
    site: Site,
    states: Tensor,  # (B, I)
    weights: Tensor,  # (B,)
) -> Tensor:  # (I, I) for a number, (I,) for a category
    """The distribution of a column's states over rows, under which its kernel is centred: the mean of x xᵀ or of x."""
    share = weights / weights.sum()
    return share @ states if site.knots is None else (states * share[:, None]).T @ states


def make_kernel(site: Site, measure: Tensor, power: float = SMOOTH) -> Kernel:
    """The kernel of a column, centred under this measure; ``power``: see :class:`Number`."""
    return Levels(site, measure) if site.knots is None else Number(site, measure, power)


def jumping(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """The same kernels for functions that may jump."""
    return tuple(make_kernel(kernel.site, kernel.measure, JUMPING) for kernel in kernels)
