"""What is optimised: the negative logarithm of the marginal likelihood, with its gradient.

The prior is the residual train over random weights at infinite bond: Gaussian, with the covariance

    K = s Π_n (1 + k_n)

of :func:`restt.meanfield.covariance`; s against the sizes of the k_n says how much interactions weigh beside main
effects. Under it, columns that matter by themselves matter together as well. Where they are learned apart, there are
main effects besides that no other column changes,

    K = s Π_n (1 + k_n) + Σ_n b_n k_n/a_n ,

with a_n the mean variance of k_n: more products, so the posterior mean is a train all the same. With A = K + σ²/w and
standardised targets y (B, O), the objective is, up to constants,

    O/2 log det A + ½ Σ_o y_oᵀ A⁻¹ y_o + O/2 Σ_i (w_i - 1) log σ²  +  hyper-priors

where the last sum makes a row of weight 2 the same as two rows. Its gradient by an entry of K is
½ (O A⁻¹ - A⁻¹ y yᵀ A⁻¹): one inverse, then B² work for each column, whose parameters share one pull-back. What is
symmetric is found from its diagonal on, a block of rows at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from restt.features.base import tensor64
from restt.prior.columns import side_by_side, upper_blocks
from restt.prior.kernels import Kernel

# Where a factor 1 + k_n is 0 and cannot be divided by, it is taken to be this; the product there is as good as 0.
_SMALLEST_FACTOR = 1e-10
# Tried in turn on the diagonal, relative to its mean, until the covariance has a Cholesky factor.
_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4)
NOISE, SCALE, COLUMNS = 0, 1, 2


@dataclass(frozen=True, eq=False)
class HyperPrior:
    """Independent densities of the parameters, and the bounds within which they are searched.

    Normal, but for those that are ``heavy``: Student's with two degrees of freedom, which hold a parameter at its
    centre as long as little speaks against it and let go of it where much does.
    """

    centre: np.ndarray
    spread: np.ndarray
    low: np.ndarray
    high: np.ndarray
    heavy: np.ndarray  # bool

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The negative log density up to a constant, and its gradient."""
        away = (theta - self.centre) / self.spread
        values = np.where(self.heavy, 1.5 * np.log1p(away**2 / 2), away**2 / 2)
        return float(values.sum()), np.where(self.heavy, 3 * away / (2 + away**2), away) / self.spread


def effects_apart(kernels: Sequence[Kernel], theta: np.ndarray) -> np.ndarray:  # (T,) -> (N,)
    """b_n/a_n of all columns, by which k_n is a main effect of its own; 0 where they are not learned apart."""
    parts = column_slices(kernels)
    if len(theta) == parts[-1].stop:
        return np.zeros(len(kernels))
    return np.exp(theta[parts[-1].stop :] - theta[[part.start for part in parts]])


def column_slices(kernels: Sequence[Kernel]) -> list[slice]:
    """Where each column's parameters are in the vector: after log σ² and log s, before log b_n where there are any."""
    ends = COLUMNS + np.cumsum([len(kernel.names) for kernel in kernels])
    return [slice(int(end) - len(kernel.names), int(end)) for kernel, end in zip(kernels, ends, strict=True)]


def cholesky(
    covariance: Tensor,  # (B, B), of which the diagonal and what is right of it is read
    noise: Tensor,  # (B,)
    out: Tensor | None = None,  # (B, B)
) -> Tensor:  # (B, B), lower
    """The factor of K + diag(noise), with as little added to the diagonal as it takes to have one.

    ``out``: memory for it.
    """
    size = covariance.diagonal().abs().mean()
    # Filled and factored in place, column by column as LAPACK has it: of thousands of rows, a copy is what a fit holds.
    found = (torch.empty_like(covariance) if out is None else out).T
    failed = covariance.new_empty((), dtype=torch.int32)
    for jitter in _JITTERS:
        found.T.copy_(covariance)
        found.diagonal().add_(noise + jitter * size)
        torch.linalg.cholesky_ex(found, out=(found, failed))
        # What is not finite in a row is not on its diagonal, either.
        if not bool(failed) and bool(found.diagonal().isfinite().all()):
            return found
    raise ValueError("the covariance of the rows has no Cholesky factor: a parameter of the prior is out of range")


class Objective(ABC):
    """What L-BFGS makes least over one set of rows; called with a parameter vector, returns (value, gradient).

    ``ties``: which of the given parameters each of the prior's is, where columns share them. ``trust``: how far each
    row's y is to be trusted, whose noise is σ²/(w·trust); unlike a weight it does not make more rows of one.
    """

    def __init__(
        self,
        targets: Tensor,  # (B, O)
        weights: Tensor,  # (B,)
        hyper_prior: HyperPrior,
        ties: np.ndarray | None = None,  # (T,)
        trust: Tensor | None = None,  # (B,)
    ) -> None:
        self.targets, self.weights = targets, weights
        self.precision = weights if trust is None else weights * trust
        self.hyper_prior, self.ties = hyper_prior, ties
        self.evaluations = 0
        # Matrices of all rows are made once: to have the system find that much memory for every evaluation takes longer
        # than what is done with it.
        rows = len(targets)
        self._covariance, self._lower, self._inverse = targets.new_empty(3, rows, rows)

    def __call__(self, given: np.ndarray) -> tuple[float, np.ndarray]:
        self.evaluations += 1
        penalty, by_penalty = self.hyper_prior(given)
        try:
            value, gradient = self.likelihood(given if self.ties is None else given[self.ties])
        except ValueError:
            # A step of the line search went too far: a wall that it turns back from.
            return 1e15, by_penalty
        if self.ties is not None:
            gradient = np.bincount(self.ties, gradient, len(given))
        return value + penalty, gradient + by_penalty

    @abstractmethod
    def likelihood(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Its negative logarithm and the gradient of that, without hyper-priors."""


class Evidence(Objective):
    """The objective of a prior with a covariance for each column."""

    def __init__(
        self,
        kernels: Sequence[Kernel],
        states: Sequence[Tensor],  # N of (B, I_n)
        targets: Tensor,  # (B, O)
        weights: Tensor,  # (B,)
        hyper_prior: HyperPrior,
        ties: np.ndarray | None = None,  # (T,)
        trust: Tensor | None = None,  # (B,)
    ) -> None:
        super().__init__(targets, weights, hyper_prior, ties, trust)
        self.states = states
        parts = column_slices(kernels)
        self.columns = side_by_side(kernels, states, parts)
        self.order = np.concatenate([one.places.ravel() for one in self.columns])
        # Where log b_n of them is, if columns are learned apart.
        self.apart: list[np.ndarray] = []
        self._product = self._covariance
        if len(hyper_prior.centre if ties is None else ties) > parts[-1].stop:
            self.apart = [parts[-1].stop + one.numbers for one in self.columns]
            self.order = np.concatenate([self.order, *self.apart])
            self._product = torch.empty_like(self._covariance)
        self._blocks = [
            (*block, [targets.new_empty(len(one.places), *self._covariance[block].shape) for one in self.columns])
            for block in upper_blocks(len(targets), targets.device)
        ]

    def likelihood(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self._likelihood(theta)
        return (value, gradient) if np.isfinite(gradient).all() else self._likelihood(theta, _SMALLEST_FACTOR)

    def _likelihood(self, theta: np.ndarray, smallest_factor: float = 0.0) -> tuple[float, np.ndarray]:
        """Without hyper-priors; factors of 0 are ``smallest_factor``."""
        self._multiply(theta, smallest_factor)
        outputs, noise = self.targets.shape[1], float(np.exp(theta[NOISE]))
        lower = cholesky(self._covariance, noise / self.precision, self._lower)
        inverse = torch.cholesky_inverse(lower, out=self._inverse.T)
        solved = inverse @ self.targets
        repeated = 0.5 * outputs * float((self.weights - 1).sum())
        fit = outputs * lower.diagonal().log().sum() + 0.5 * (self.targets * solved).sum()
        by_diagonal = 0.5 * (outputs * inverse.diagonal() - solved.square().sum(dim=1))
        by_noise = noise * (by_diagonal / self.precision).sum() + repeated
        total, everywhere = torch.zeros_like(fit), torch.zeros_like(fit)
        ratios = self._ratios(theta)
        by_effect = [torch.zeros_like(ratio) for ratio in ratios]
        for rows, others, factors in self._blocks:
            # By the entries; those beyond the diagonal block stand for two.
            by_entry = torch.addmm(
                inverse[rows, others], solved[rows], solved[others].T, beta=0.5 * outputs, alpha=-0.5
            )
            by_entry[:, len(by_entry) :] *= 2
            for slope, own in zip(by_effect, factors, strict=False):
                slope.addmv_(own.flatten(start_dim=1), by_entry.flatten())
            # By the logarithms of the product's.
            by_product = by_entry * self._product[rows, others]
            total += by_product.sum()
            everywhere += by_entry.sum()
            for place, (one, own) in enumerate(zip(self.columns, factors, strict=True)):
                torch.div(by_product, own, out=own)
                if ratios:
                    own.flatten(start_dim=1).addr_(ratios[place], by_entry.flatten())
                one.pull(own, rows, others)
        # What the main effects of their own have pulled is no slope of the products' sizes.
        totals = [total + ratio * everywhere for ratio in ratios] or [total] * len(self.columns)
        found = [torch.stack([fit, by_noise, total])]
        found += [one.slopes(own) for one, own in zip(self.columns, totals, strict=True)]
        found += [ratio * (slope - everywhere) for ratio, slope in zip(ratios, by_effect, strict=True)]
        # All at once: each number that is read waits for the device.
        value, *slopes = torch.cat(found).tolist()
        gradient = np.array(slopes)
        gradient[self.order] = slopes[COLUMNS:]
        return value + repeated * float(theta[NOISE]), gradient

    def _multiply(self, theta: np.ndarray, smallest_factor: float) -> None:
        """The covariance from its diagonal on, and every column's factor of its product."""
        for one in self.columns:
            one.set(theta)
        ratios = self._ratios(theta)
        for rows, others, factors in self._blocks:
            block = self._product[rows, others].fill_(float(np.exp(theta[SCALE])))
            for one, own in zip(self.columns, factors, strict=True):
                one.factors(rows, others, own)
                if smallest_factor:
                    own.masked_fill_(own.abs() <= smallest_factor, smallest_factor)
                block *= own.prod(dim=0)
            if ratios:
                covariance = self._covariance[rows, others].copy_(block)
                for ratio, own in zip(ratios, factors, strict=True):
                    covariance += torch.tensordot(ratio, own, 1) - ratio.sum()

    def _ratios(self, theta: np.ndarray) -> list[Tensor]:  # of (G,)
        """b_n/a_n of all columns side by side; none where they are not learned apart."""
        return [
            tensor64(np.exp(theta[apart] - theta[one.places[:, 0]])).to(self.targets)
            for one, apart in zip(self.columns, self.apart, strict=False)
        ]
