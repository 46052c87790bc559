"""The covariance of one column: a table over its states, centred, with a mean variance of a (its relevance).

Centred under the rows of the fit: a function drawn from it averages to zero over them, so that the main effects, pairs
and higher orders in Π_n (1 + k_n) are separate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from restt.features.base import tensor64
from restt.prior.sites import Site

# Less is a column of one value.
_LEAST_VARIANCE = 1e-14
# Powers of the distance in a number's covariance.
SMOOTH, JUMPING = 2.0, 1.0


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

    @abstractmethod
    def pull(self, states: Tensor, values: np.ndarray, weight: Tensor) -> Tensor:  # weight (B, B), symmetric -> (P,)
        """Σ_ij weight_ij ∂k(i, j)/∂parameter, for every parameter; still on the device."""

    def gram(self, states: Tensor, values: np.ndarray, out: Tensor | None = None) -> Tensor:  # (B, I) -> (B, B)
        """The covariance of rows with each other, in ``out`` where it is given."""
        return torch.mm(self.cross(states, values), states.T, out=out)

    def gram_and_pull(
        self, states: Tensor, values: np.ndarray, out: Tensor | None = None
    ) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """:meth:`gram`, and :meth:`pull` of a weight that is not known yet; what both need is found once."""
        return self.gram(states, values, out), lambda weight: self.pull(states, values, weight)


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
        position, value = (tensor64(each).to(measure) for each in (site.positions, site.values))
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
        self.line = self._scaled(torch.outer(line, line))[0]

    def on(self, device: torch.device) -> Number:
        return Number(self.site, self.measure.to(device), self.power)

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
        """a, share of the line, the other part and its derivative by log length."""
        scale, share = float(np.exp(values[0])), float(1 / (1 + np.exp(-values[2])))
        ratio = self.distances * float(np.exp(-self.power * values[1]))
        curved = torch.exp(-0.5 * ratio) * self.within
        unit, inverse = self._scaled(curved)
        slope = self.centre @ (0.5 * self.power * curved * ratio) @ self.centre.T
        slope = (slope - unit * (self.measure * slope).sum()) * inverse
        return scale, share, unit, slope

    def table(self, values: np.ndarray) -> Tensor:  # (I, I)
        scale, share, unit, _ = self._parts(values)
        return scale * ((1 - share) * unit + share * self.line)

    def cross(self, states: Tensor, values: np.ndarray) -> Tensor:
        return states @ self.table(values)

    def pull(self, states: Tensor, values: np.ndarray, weight: Tensor) -> Tensor:
        return self.gram_and_pull(states, values)[1](weight)

    def gram_and_pull(
        self, states: Tensor, values: np.ndarray, out: Tensor | None = None
    ) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        scale, share, unit, slope = self._parts(values)
        table = scale * ((1 - share) * unit + share * self.line)

        def pull(weight: Tensor) -> Tensor:
            by_length = scale * (1 - share) * slope
            by_share = scale * share * (1 - share) * (self.line - unit)
            pulled = states.T @ (weight @ states)
            return torch.stack([table, by_length, by_share]).flatten(1) @ pulled.flatten()

        return torch.mm(states @ table, states.T, out=out), pull


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

    def gram(self, states: Tensor, values: np.ndarray, out: Tensor | None = None) -> Tensor:
        codes, own = states.argmax(dim=1), states @ self.measure
        gram = own.new_empty(len(codes), len(codes)) if out is None else out
        gram.copy_(codes[:, None] == codes[None, :])
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


def make_kernel(site: Site, measure: Tensor, power: float = SMOOTH) -> Kernel:
    """The kernel of a column, centred under this measure; ``power``: see :class:`Number`."""
    return Levels(site, measure) if site.knots is None else Number(site, measure, power)


def jumping(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """The same kernels for functions that may jump."""
    return tuple(make_kernel(kernel.site, kernel.measure, JUMPING) for kernel in kernels)
