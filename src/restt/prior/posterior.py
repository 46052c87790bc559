"""The exact posterior under a learned prior: its mean, its left-out predictions, and itself as a sum of products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import torch
from torch import Tensor

from restt._common.devices import give_back_memory
from restt.features.base import tensor64
from restt.prior.columns import side_by_side, upper_blocks
from restt.prior.evidence import cholesky, column_slices
from restt.prior.learning import Prior

# Rows whose covariance with those of a posterior is there at once, and those whose main effects are summed at once.
_ROWS_AT_ONCE, _ROWS_OF_SUMS = 512, 128
# From so many rows on, 8 MB for every matrix, those of one posterior are not to be held beside those of the next.
_MANY_ROWS = 1000

P = TypeVar("P", bound=Prior)
P_co = TypeVar("P_co", bound=Prior, covariant=True)


@dataclass(frozen=True, eq=False)
class Posterior(Generic[P_co]):
    """A prior conditioned on rows. Targets and variances are of the standardised target."""

    prior: P_co
    states: tuple[Tensor, ...]  # N of (B, I_n)
    alpha: Tensor  # (B, O): A⁻¹ y
    left_out: Tensor  # (B, O): each row's prediction from the others
    left_out_variance: Tensor  # (B,): of an observation of weight 1 there

    def on(self, device: torch.device) -> Posterior[Prior]:
        """The same posterior on another device."""
        parts = (part.to(device) for part in (self.alpha, self.left_out, self.left_out_variance))
        return Posterior(self.prior.on(device), tuple(column.to(device) for column in self.states), *parts)

    def mean(self, states: Sequence[Tensor]) -> Tensor:  # N of (B2, I_n) -> (B2, O)
        """The posterior mean of other rows."""
        parts = zip(*(column.split(_ROWS_AT_ONCE) for column in states), strict=True)
        return torch.cat([covariance(self.prior, part, self.states) @ self.alpha for part in parts])

    def products(self) -> tuple[Tensor, list[Tensor]]:  # (J, O), N of (J, I_n)
        """Coefficients and factors of the mean as a sum over rows of products over sites, less its :meth:`effects`."""
        return self.prior.scale * self.alpha, [1 + cross for cross in self._crosses(self.prior)]

    def effects(self) -> list[Tensor]:  # N of (O, I_n)
        """The main effects that are no part of these products."""
        if not self.prior.effects_apart.any():
            return [self.alpha.new_zeros(self.alpha.shape[1], column.shape[1]) for column in self.states]
        crosses = zip(self.prior.effects_apart, self._crosses(self.prior), strict=True)
        return [size * self.alpha.T @ cross for size, cross in crosses]

    def _crosses(self, prior: Prior) -> list[Tensor]:  # N of (B, I_n)
        columns = zip(prior.kernels, self.states, prior.parts, strict=True)
        return [kernel.cross(rows, values) for kernel, rows, values in columns]


@torch.no_grad()
def condition_on_more(
    posterior: Posterior[P],
    states: Sequence[Tensor],  # N of (B, I_n)
    targets: Tensor,  # (B, O)
    weights: Tensor,  # (B,)
) -> Posterior[P]:
    """The posterior given other rows than its own, as a sum over its own all the same.

    The weights of its J rows Z are normal, N(0, K_ZZ⁻¹), and conditioned on all B rows (subset of regressors): exact
    where these lie in the span of k(·, Z), and B·J² work. Left-out predictions stay those of its own rows.
    """
    prior, rows = posterior.prior, posterior.states
    _make_room(len(posterior.alpha))
    seen = torch.zeros_like(posterior.alpha)
    lower = cholesky(covariance(prior, rows), seen.new_zeros(len(seen)))
    square = torch.zeros_like(lower)
    for start in range(0, len(targets), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        root = weights[part].sqrt()
        cross = covariance(prior, rows, [column[part] for column in states])
        solved = torch.linalg.solve_triangular(lower, cross, upper=False).mul_(root)
        square.addmm_(solved, solved.T)
        seen.addmm_(solved, targets[part] * root[:, None])
    inner = cholesky(square, seen.new_full((len(seen),), prior.noise))
    del square
    alpha = torch.linalg.solve_triangular(lower.T, torch.cholesky_solve(seen, inner), upper=True)
    return replace(posterior, alpha=alpha)


@torch.no_grad()
def condition(
    prior: P,
    states: Sequence[Tensor],  # N of (B, I_n)
    targets: Tensor,  # (B, O)
    weights: Tensor,  # (B,)
) -> Posterior[P]:
    """The posterior given rows, with predictions of each row from all others in closed form.

    With A = K + σ²/w, a row left out is predicted by y_i - (A⁻¹y)_i/(A⁻¹)_ii with variance 1/(A⁻¹)_ii.
    """
    noise = prior.noise / weights
    _make_room(len(targets))
    inverse = torch.cholesky_inverse(cholesky(covariance(prior, states), noise))
    alpha, diagonal = inverse @ targets, inverse.diagonal()
    variance = (1 / diagonal - noise).clamp(min=0) + prior.noise
    return Posterior(prior, tuple(states), alpha, targets - alpha / diagonal[:, None], variance)


def _make_room(rows: int) -> None:
    """Before matrices of so many rows are made: what was freed of others is the system's again."""
    if rows >= _MANY_ROWS:
        give_back_memory()


def covariance(
    prior: Prior,
    states: Sequence[Tensor],  # N of (B, I_n)
    states2: Sequence[Tensor] | None = None,  # N of (B2, I_n)
) -> Tensor:  # (B, B2)
    """s Π_n (1 + k_n) + Σ_n b_n k_n/a_n between rows."""
    if states2 is None:
        return _own_covariance(prior, states)
    found = states[0].new_full((len(states[0]), len(states2[0])), prior.scale)
    apart = prior.effects_apart.tolist()
    if not any(apart):
        for kernel, rows, others, values in zip(prior.kernels, states, states2, prior.parts, strict=True):
            found *= kernel.factor(rows, others, values)
        return found
    for start in range(0, len(found), _ROWS_OF_SUMS):
        part = slice(start, start + _ROWS_OF_SUMS)
        block = found[part]
        effects = torch.full_like(block, -sum(apart))
        for kernel, rows, others, values, ratio in zip(prior.kernels, states, states2, prior.parts, apart, strict=True):
            factor = kernel.factor(rows[part], others, values)
            block *= factor
            effects.add_(factor, alpha=ratio)
        block += effects
    return found


def _own_covariance(prior: Prior, states: Sequence[Tensor]) -> Tensor:  # N of (B, I_n) -> (B, B)
    count = len(states[0])
    found = states[0].new_empty(count, count)
    columns = side_by_side(prior.kernels, states, column_slices(prior.kernels))
    ratios = [tensor64(prior.effects_apart[one.numbers]).to(found) for one in columns]
    for one in columns:
        one.set(prior.theta)
    for rows, others in upper_blocks(count, found.device, len(states)):
        block = found[rows, others].fill_(prior.scale)
        effects = torch.zeros_like(block)
        for one, ratio in zip(columns, ratios, strict=True):
            factors = block.new_empty(len(one.places), *block.shape)
            one.factors(rows, others, factors)
            block *= factors.prod(dim=0)
            effects += torch.tensordot(ratio, factors, 1) - ratio.sum()
        block += effects
        found[rows.stop :, rows] = block[:, len(block) :].T
    return found


def variance(prior: Prior, states: Sequence[Tensor]) -> Tensor:  # N of (B, I_n) -> (B,)
    """The prior's variance of rows: the diagonal of their covariance, and more where a column is averaged."""
    total = states[0].new_full((len(states[0]),), prior.scale)
    effects = torch.zeros_like(total)
    for kernel, rows, values, apart in zip(prior.kernels, states, prior.parts, prior.effects_apart, strict=True):
        own = kernel.variance(rows, values)
        total *= 1 + own
        effects += apart * own
    return total + effects
