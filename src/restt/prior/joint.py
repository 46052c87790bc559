"""A prior of functions that are alike where rows are near in all columns at once.

Its covariance is a mixture over scales of Gaussians of the distance between rows,

    K = 1 + Σ_q w_q exp(-½ s_q Σ_n λ_n d_n²)  =  1 + Σ_q w_q Π_n exp(-½ s_q λ_n d_n²),

as every covariance that falls with a distance in any number of columns is (Schoenberg 1938): near Matérn's before any
row is seen, with a long scale for straight lines. Each term is a product over columns, so the posterior mean is a sum
of products as under :class:`~restt.prior.learning.Prior` and rounds to a train like it. There a function is main
effects, pairs and so on; here it changes along any direction alike, which suits columns that matter by what they say
together.

Numbers differ by the distance of their positions, categories by whether they are the same; a missing value lies beside
the mean, as far from the others on average as these from each other. The scales are learned on these distances, with n²
work a parameter and an exponential for each term. The covariance that is conditioned on rows has them as tables over
the states, linear between knots, so that a train loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from restt.features.base import tensor64
from restt.prior.evidence import NOISE, HyperPrior, Objective, cholesky
from restt.prior.kernels import Kernel, Number
from restt.prior.learning import GLOBAL, ITERATIONS, UNLIKE, climb

# The scales s_q, and what the logarithms of their weights are expected to be, but for this much. Beside the first,
# which is of straight lines, these are Matérn's of order 3/2.
SCALES = (1 / 64, 1 / 2, 4.0, 32.0)
_WEIGHTS, _WEIGHT_SPREAD, _WEIGHT_BOUNDS = (0.0, -0.5, -1.5, -3.0), (2.0, 0.7, 0.7, 0.7), (-8.0, 6.0)
# The same for the logarithm of λ_n, less that of the number of columns, where all share it; and its bounds.
_NEARNESS, _NEARNESS_SPREAD, _NEARNESS_BOUNDS = -1.5, 2.0, (-14.0, 5.0)
# The squared distance of two categories, that of independent positions, whose variance is 1; and of a missing value
# from the mean.
_APART, _ASIDE = 2.0, 1.0
_UNITS = {"noise": 0.15, "weight": 0.5, "nearness": 1.0}
_FIRST = 1 + len(SCALES)  # where the columns' parameters begin
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class JointPrior:
    """A learned prior over functions of a table: log σ², the logarithms of all w_q, those of all λ_n."""

    kernels: tuple[Kernel, ...]  # for their columns' states and distributions only
    theta: np.ndarray
    evaluations: int = 0  # of the evidence, until it was learned

    def on(self, device: torch.device) -> Self:
        """The same prior for states on another device."""
        return replace(self, kernels=tuple(kernel.on(device) for kernel in self.kernels))

    @property
    def noise(self) -> float:
        return float(np.exp(self.theta[NOISE]))

    @property
    def weights(self) -> np.ndarray:  # (Q,)
        """Of the scales."""
        return np.exp(self.theta[1:_FIRST])

    @property
    def nearness(self) -> np.ndarray:  # (N,)
        """λ_n: how much less rows are alike that differ in a column; 0 for one that plays no part."""
        return np.exp(self.theta[_FIRST:])

    @cached_property
    def _tables(self) -> list[Tensor]:  # N of (Q, I_n, I_n) for numbers, (Q,) for categories: apart
        scales = np.array(SCALES)
        found = []
        for kernel, near in zip(self.kernels, self.nearness, strict=True):
            squares = _state_squares(kernel)
            falls = tensor64(0.5 * near * scales).to(squares)
            found.append(torch.exp(-falls.reshape(-1, *[1] * squares.dim()) * squares))
        return found

    def covariance(self, states: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:  # (B, I_n), (B2, I_n): (B, B2)
        """Between rows, a block of them at a time."""
        theirs = [_seen(kernel, rows) for kernel, rows in zip(self.kernels, others, strict=True)]
        parts = zip(*(column.split(_ROWS_AT_ONCE) for column in states), strict=True)
        return torch.cat([self._block(part, theirs) for part in parts])

    def _block(self, states: Sequence[Tensor], theirs: Sequence[Tensor]) -> Tensor:
        weights = tensor64(self.weights).to(states[0])
        terms = weights[:, None, None].repeat(1, len(states[0]), len(theirs[0]))  # (Q, b, B2)
        for kernel, table, rows, others in zip(self.kernels, self._tables, states, theirs, strict=True):
            terms *= _crossed(table, _seen(kernel, rows), others.T)
        return terms.sum(dim=0).add_(1.0)

    def products(self, states: Sequence[Tensor], alpha: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Coefficients (J, O) and factors, N of (J, I_n), of Σ_j α_j K(·, row j): a constant, then rows by scale."""
        weights = tensor64(self.weights).to(alpha)
        scaled = (weights[:, None, None] * alpha).flatten(end_dim=1)
        factors = []
        for kernel, table, rows in zip(self.kernels, self._tables, states, strict=True):
            site = kernel.site
            all_states = _seen(kernel, torch.eye(site.width, dtype=rows.dtype, device=rows.device))
            crossed = _crossed(table, _seen(kernel, rows), all_states.T).flatten(end_dim=1)  # (Q·B, I_n)
            factors.append(torch.cat([crossed.new_ones(1, site.width), crossed]))
        return torch.cat([alpha.sum(dim=0, keepdim=True), scaled]), factors


def _crossed(table: Tensor, rows: Tensor, others: Tensor) -> Tensor:  # (B, I), (I, B2) -> (Q, B, B2)
    """Factors of rows with others, at every scale."""
    if table.dim() == 1:
        apart = table[:, None, None]
        return apart + (1 - apart) * (rows @ others)  # site vectors sum to one
    return rows @ table @ others


def _state_squares(kernel: Kernel) -> Tensor:  # (I, I), or () for a category: of levels that differ
    """Squared distances of the states that rows of the fit can be in."""
    if not isinstance(kernel, Number):
        return kernel.measure.new_tensor(_APART)
    size, positions = kernel.site.seen, tensor64(kernel.site.positions).to(kernel.measure)
    beside = torch.arange(size, device=positions.device) >= len(positions)
    positions = torch.cat([positions, positions.new_zeros(size - len(positions))])
    return (positions[:, None] - positions[None, :]).square() + _ASIDE * (beside[:, None] != beside[None, :])


def _seen(kernel: Kernel, states: Tensor) -> Tensor:  # (B, I) -> (B, seen)
    """The states as a mean of those that rows of the fit can be in."""
    if not kernel.site.average:
        return states
    return states[:, :-1] + states[:, -1:] * kernel.mean[:-1]


def squared_distances(kernels: Sequence[Kernel], states: Sequence[Tensor]) -> Tensor:  # (N, P)
    """d_n² of all pairs of rows, each once: P = B(B-1)/2."""
    first, second = _pairs(states[0])
    found = states[0].new_empty(len(states), len(first))
    for kernel, rows, squares in zip(kernels, states, found, strict=True):
        if isinstance(kernel, Number):
            knots = len(kernel.site.positions)
            position = rows[:, :knots] @ tensor64(kernel.site.positions).to(rows)
            absent = rows[:, knots:].sum(dim=1) > 0
            torch.sub(position[first], position[second], out=squares).square_()
            squares += _ASIDE * (absent[first] != absent[second])
        else:
            codes = rows.argmax(dim=1)
            squares.copy_(codes[first] != codes[second]).mul_(_APART)
    return found


def _pairs(rows: Tensor) -> Tensor:  # (2, P)
    return torch.triu_indices(len(rows), len(rows), 1, device=rows.device)


class JointEvidence(Objective):
    """The objective of this prior."""

    def __init__(
        self,
        squares: Tensor,  # (N, P)
        targets: Tensor,  # (B, O)
        weights: Tensor,  # (B,)
        hyper_prior: HyperPrior,
        ties: np.ndarray | None = None,  # (T,)
        trust: Tensor | None = None,  # (B,)
    ) -> None:
        super().__init__(targets, weights, hyper_prior, ties, trust)
        self.squares = squares
        self._first, self._second = _pairs(targets)
        self._places = self._first * len(targets) + self._second
        self._halves = tensor64(np.array(SCALES) / 2).to(targets)[:, None]

    def likelihood(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        outputs, noise = self.targets.shape[1], float(np.exp(theta[NOISE]))
        weights, nearness = (tensor64(np.exp(part)).to(self.targets) for part in (theta[1:_FIRST], theta[_FIRST:]))
        terms = torch.exp(-self._halves * (nearness @ self.squares)) * weights[:, None]  # (Q, P)
        # What is read of it is right of the diagonal.
        self._covariance.view(-1)[self._places] = 1 + terms.sum(dim=0)
        self._covariance.diagonal().fill_(1 + float(weights.sum()))
        lower = cholesky(self._covariance, noise / self.precision, self._lower)
        inverse = torch.cholesky_inverse(lower, out=self._inverse.T).T
        solved = inverse @ self.targets
        repeated = 0.5 * outputs * float((self.weights - 1).sum())
        fit = outputs * lower.diagonal().log().sum() + 0.5 * (self.targets * solved).sum()
        by_diagonal = 0.5 * (outputs * inverse.diagonal() - solved.square().sum(dim=1))
        by_noise = noise * (by_diagonal / self.precision).sum() + repeated
        # By the entries; those of a pair of rows are two.
        by_pair = outputs * inverse.view(-1)[self._places] - (solved[self._first] * solved[self._second]).sum(dim=1)
        terms *= by_pair
        by_weight = terms.sum(dim=1) + weights * by_diagonal.sum()
        by_nearness = -nearness * (self.squares @ (self._halves * terms).sum(dim=0))
        value, *gradient = torch.cat([torch.stack([fit, by_noise]), by_weight, by_nearness]).tolist()
        return value + repeated * float(theta[NOISE]), np.array(gradient)


def learn_joint(
    kernels: Sequence[Kernel],
    states: Sequence[Tensor],  # N of (B, I_n)
    targets: Tensor,  # (B, O), standardised
    weights: Tensor,  # (B,)
    iterations: int = ITERATIONS,
    trust: Tensor | None = None,  # (B,)
) -> tuple[np.ndarray, int]:
    """The parameters of largest evidence, and how often it was evaluated.

    First of a prior in which all columns of a kind have one λ, then of one that has one for each, drawn around it.
    """
    given = squared_distances(kernels, states), targets, weights
    kinds = [isinstance(kernel, Number) for kernel in kernels]
    ties = np.array([*range(_FIRST), *(_FIRST + sorted(set(kinds)).index(kind) for kind in kinds)])
    objective = JointEvidence(*given, joint_hyper_prior(len(kernels), len(set(kinds))), ties, trust)
    shared, before = climb(objective, objective.hyper_prior.centre, iterations, _units(len(set(kinds))))
    start = shared[ties]
    objective = JointEvidence(*given, joint_hyper_prior(len(kernels), len(kernels), start), None, trust)
    theta, after = climb(objective, start, iterations, _units(len(kernels)))
    return theta, before + after


def joint_hyper_prior(columns: int, count: int, around: np.ndarray | None = None) -> HyperPrior:
    """Weak densities of all parameters, ``count`` of them nearness, and near those of ``around`` where it is given."""
    noise = GLOBAL["noise"]
    nearness = np.full(count, _NEARNESS - np.log(columns)) if around is None else around[_FIRST:]
    spread = _NEARNESS_SPREAD if around is None else UNLIKE
    bounds = zip(noise[2:], _WEIGHT_BOUNDS, _NEARNESS_BOUNDS, strict=True)
    low, high = (np.r_[one, np.full(len(SCALES), weight), np.full(count, near)] for one, weight, near in bounds)
    heavy = np.full(_FIRST + count, around is not None)
    heavy[:_FIRST] = False
    centre = np.r_[noise[0], _WEIGHTS, nearness]
    return HyperPrior(centre, np.r_[noise[1], _WEIGHT_SPREAD, np.full(count, spread)], low, high, heavy)


def _units(count: int) -> np.ndarray:
    return np.r_[_UNITS["noise"], np.full(len(SCALES), _UNITS["weight"]), np.full(count, _UNITS["nearness"])]
