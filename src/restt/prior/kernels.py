"""The covariance of one column: a table over its states, centred, with a mean variance of a (its relevance).

Centred under the rows of the fit: a function drawn from it averages to zero over them, so that the main effects, pairs
and higher orders in Π_n (1 + k_n) are separate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import numpy as np
import torch
from torch import Tensor

from restt.features.base import tensor64
from restt.prior.sites import Site

# Less is a column of one value.
_LEAST_VARIANCE = 1e-14


class Kernel(ABC):
    """k(x, x') = a · (covariance of mean variance 1 over the rows of the fit). Parameters: log a, then others."""

    names: tuple[str, ...]

    def __init__(self, site: Site, measure: Tensor) -> None:
        self.site, self.measure = site, measure

    def on(self, device: torch.device) -> Self:
        """The same kernel for states on another device."""
        return type(self)(self.site, self.measure.to(device))

    @property
    @abstractmethod
    def mean(self) -> Tensor:  # (I,)
        """The mean site vector over the rows of the fit."""

    @abstractmethod
    def cross(self, states: Tensor, values: np.ndarray) -> Tensor:  # (B, I) -> (B, I)
        """The covariance of rows with each state of the column; 0 with the average state."""

    @abstractmethod
    def pull(self, states: Tensor, values: np.ndarray, weight: Tensor) -> Tensor:  # weight (B, B), symmetric -> (P,)
        """Σ_ij weight_ij ∂k(i, j)/∂parameter, for every parameter; still on the device."""

    def gram(self, states: Tensor, values: np.ndarray) -> Tensor:  # (B, I) -> (B, B)
        """The covariance of rows with each other."""
        return self.cross(states, values) @ states.T


class Smooth(Kernel):
    """A number: a smooth function with a length, and a straight line, in learned shares.

    The smooth part is exp(-½ d²/l²) in the distance d of the knots' positions.
    """

    names = ("relevance", "length", "line")

    def __init__(self, site: Site, measure: Tensor) -> None:
        super().__init__(site, measure)
        size, knots = site.width, len(site.positions)
        position, value = (tensor64(each).to(measure) for each in (site.positions, site.values))
        self.squares = measure.new_zeros(size, size)
        self.squares[:knots, :knots] = (position[:, None] - position[None, :]) ** 2
        eye = torch.diag(measure.new_ones(size))
        self.within = eye.clone()
        self.within[:knots, :knots] = 1.0
        self.within[site.seen :, site.seen :] = 0.0
        self.centre = eye - self.mean  # (I, I): rows of 1_i - p
        if site.average:
            self.centre[-1] = 0.0
        line = measure.new_zeros(size)
        line[:knots] = value
        self.line = self._scaled(torch.outer(line, line))[0]

    @property
    def mean(self) -> Tensor:
        return self.measure.sum(dim=0)  # site vectors sum to one

    def _scaled(self, table: Tensor) -> tuple[Tensor, Tensor]:  # (I, I) -> (I, I), ()
        """The table centred, with a mean variance of 1, and by what it was multiplied; 0 where it has no variance."""
        centred = self.centre @ table @ self.centre.T
        variance = (self.measure * centred).sum()
        # Chosen on the device, which a look at the variance would have to wait for.
        inverse = torch.where(variance > _LEAST_VARIANCE, 1 / variance, 0.0)
        return centred * inverse, inverse

    def _parts(self, values: np.ndarray) -> tuple[float, float, Tensor, Tensor]:
        """a, share of the line, smooth part and its derivative by log length."""
        scale, share = float(np.exp(values[0])), float(1 / (1 + np.exp(-values[2])))
        ratio = self.squares * float(np.exp(-2 * values[1]))
        smooth = torch.exp(-0.5 * ratio) * self.within
        unit, inverse = self._scaled(smooth)
        slope = self.centre @ (smooth * ratio) @ self.centre.T
        slope = (slope - unit * (self.measure * slope).sum()) * inverse
        return scale, share, unit, slope

    def table(self, values: np.ndarray) -> Tensor:  # (I, I)
        scale, share, unit, _ = self._parts(values)
        return scale * ((1 - share) * unit + share * self.line)

    def cross(self, states: Tensor, values: np.ndarray) -> Tensor:
        return states @ self.table(values)

    def pull(self, states: Tensor, values: np.ndarray, weight: Tensor) -> Tensor:
        scale, share, unit, slope = self._parts(values)
        pulled = states.T @ (weight @ states)
        table = (1 - share) * unit + share * self.line
        by_scale = scale * (pulled * table).sum()
        by_length = scale * (1 - share) * (pulled * slope).sum()
        by_share = scale * share * (1 - share) * (pulled * (self.line - unit)).sum()
        return torch.stack([by_scale, by_length, by_share])


class Levels(Kernel):
    """A category: every level (a missing value is one) has an effect of its own, centred over the rows."""

    names = ("relevance",)

    def __init__(self, site: Site, measure: Tensor) -> None:
        super().__init__(site, measure)
        self.constant = measure.square().sum()
        variance = 1.0 - self.constant
        self.inverse = float(1.0 / variance) if variance > _LEAST_VARIANCE else 0.0

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

    def gram(self, states: Tensor, values: np.ndarray) -> Tensor:
        codes, own = states.argmax(dim=1), states @ self.measure
        gram = (codes[:, None] == codes[None, :]).double()
        gram += self.constant - own[:, None] - own[None, :]
        gram *= self.inverse * float(np.exp(values[0]))
        if self.site.average:
            known = (states[:, -1] == 0).double()
            gram *= known[:, None] * known[None, :]
        return gram

    def pull(self, states: Tensor, values: np.ndarray, weight: Tensor) -> Tensor:
        return (weight * self.gram(states, values)).sum()[None]


def measure(
    site: Site,
    states: Tensor,  # (B, I)
    weights: Tensor,  # (B,)
) -> Tensor:  # (I, I) for a number, (I,) for a category
    """The distribution of a column's states over rows, under which its kernel is centred: the mean of x xᵀ or of x."""
    share = weights / weights.sum()
    return share @ states if site.knots is None else (states * share[:, None]).T @ states


def make_kernel(site: Site, measure: Tensor) -> Kernel:
    """The kernel of a column, centred under this measure."""
    return (Levels if site.knots is None else Smooth)(site, measure)
