"""Noise with heavy tails: how far each row's y is to be trusted.

Student's distribution is a normal one whose variance differs from row to row, σ²/τ, so a posterior under it is one with
noise σ²/τ_i, where τ_i is small for rows that the others did not expect. Trust and scales are found in turn (EM), from
predictions of each row by the others, which a wild y cannot pull towards itself. It is used where left-out rows are
likelier under it than under normal noise, and predicted no worse, by smooth functions and by the mean of all priors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.special import gammaln
from torch import Tensor

from restt.prior.joint import JointPrior
from restt.prior.learning import Prior
from restt.prior.mixture import Learner
from restt.prior.posterior import Posterior

DEGREES = 3.0
# Turns of trust and scales, and steps of the search in each. The first begins anew: scales that were learned from a
# wild y may be those of a function that runs through it.
_TURNS, _FIRST_STEPS, _STEPS = 3, 30, 12
# By this much the logarithm of the left-out likelihood has to grow. Squared errors may grow by that share of themselves
# for each unit that it grows per row: where it grows much, they are those of a few wild rows.
_LEAST_GAIN, _TOLERATED = 10.0, 0.1
# The same for the mean of all priors, which is known when they are learned both ways: what is unexpected to smooth
# functions may be known to others, and a group of like rows would be trusted by nobody.
_TOLERATED_IN_ALL = 0.7
_FEWEST_ROWS = 20
_ROWS_AT_ONCE = 2048


def trust_of(squares: Tensor, outputs: int) -> Tensor:  # (B,) -> (B,)
    """What rows are trusted whose squared residuals, summed over outputs, are these multiples of the noise.

    >>> trust_of(torch.tensor([0.0, 1.0, 97.0]), 1)
    tensor([1.3333, 1.0000, 0.0400])
    """
    return (DEGREES + outputs) / (DEGREES + squares)


def heavy_tailed(
    learner: Learner,
    alike: Prior,
    posterior: Posterior[Prior],  # learned around it
    targets: Tensor,  # (B, O)
) -> tuple[Learner, Prior, Posterior[Prior]] | None:
    """A learner that trusts rows unequally, with the prior of columns alike and the posterior that it finds then.

    None where normal noise is as good.
    """
    if len(targets) < _FEWEST_ROWS:
        return None
    normal, student, trust = _likelihoods(posterior, targets, learner.weights)
    if student < normal + _LEAST_GAIN:
        return None
    scale, found = posterior.prior.target_scale, posterior
    # Rows beside a jump are unexpected too, where functions are smooth.
    jumps = learner.condition(learner.learn("jumping", targets, scale, alike), targets)
    normal = max(normal, _likelihoods(jumps, targets, learner.weights)[0])
    before = min(_mean_square(one, targets, learner.weights) for one in (posterior, jumps))
    for turn in range(_TURNS):
        learner = learner.trusting(trust)
        alike = learner.learn("alike", targets, scale)
        start, steps = (found.prior, _STEPS) if turn else (None, _FIRST_STEPS)
        found = learner.condition(learner.learn("smooth", targets, scale, alike, start, iterations=steps), targets)
        _, student, trust = _likelihoods(found, targets, learner.weights)
    gain = student - normal
    tolerated = before * (1 + _TOLERATED * gain / float(learner.weights.sum()))
    worse = gain < _LEAST_GAIN or _mean_square(found, targets, learner.weights) > tolerated
    return None if worse else (learner, alike, found)


def is_worth_it(trusting: Tensor, even: Tensor, weights: Tensor) -> bool:  # (B, O), (B, O), (B,)
    """Whether left-out residuals of a mean that trusts rows unequally speak for it, beside those of one that does not.

    >>> residuals = torch.linspace(-1, 1, 100, dtype=torch.float64)[:, None]
    >>> wild = torch.where(torch.arange(100) % 20 == 0, 30.0, residuals.T).T
    >>> is_worth_it(0.1 * residuals + 1.1 * (wild - residuals), wild, torch.ones(100))
    True
    >>> is_worth_it(wild, residuals, torch.ones(100))
    False
    """
    weights = weights.to(torch.float64)
    gain = (_sized(trusting, weights)[1] - _sized(even, weights)[1]) / float(weights.sum())
    before, after = (float(weights @ residuals.square().mean(dim=1)) for residuals in (even, trusting))
    return after <= before * (1 + _TOLERATED_IN_ALL * max(gain, 0.0))


def _sized(scaled: Tensor, weights: Tensor) -> tuple[float, float, Tensor]:  # (B, O), (B,)
    """Log likelihoods of residuals under normal and Student's noise, each of its best size, and their trust."""
    outputs = scaled.shape[1]
    squares = scaled.square().sum(dim=1)
    floor = torch.finfo(torch.float64).tiny
    total = float(weights.sum())
    normal_size = max(float(weights @ squares) / (total * outputs), floor)
    size = normal_size
    for _ in range(100):  # a mean with the trust under the last size: EM once more
        size = max(float(weights @ (trust_of(squares / size, outputs) * squares)) / (total * outputs), floor)
    normal = -0.5 * outputs * total * (np.log(2 * np.pi * normal_size) + 1)
    constant = gammaln((DEGREES + outputs) / 2) - gammaln(DEGREES / 2) - 0.5 * outputs * np.log(DEGREES * np.pi * size)
    student = constant * total - 0.5 * (DEGREES + outputs) * float(weights @ torch.log1p(squares / (size * DEGREES)))
    return float(normal), float(student), trust_of(squares / size, outputs)


def surprise_trust(
    posterior: Posterior[Prior | JointPrior],
    states: Sequence[Tensor],  # N of (B, I_n)
    targets: Tensor,  # (B, O)
) -> Tensor:  # (B,)
    """How far to trust rows that a posterior is yet to be conditioned on."""
    parts = zip(*(column.split(_ROWS_AT_ONCE) for column in states), strict=True)
    mean = torch.cat([posterior.mean(part) for part in parts])
    return trust_of((targets - mean).square().sum(dim=1) / posterior.prior.noise, targets.shape[1])


def _likelihoods(posterior: Posterior[Prior], targets: Tensor, weights: Tensor) -> tuple[float, float, Tensor]:
    """Log likelihoods of left-out rows under normal and Student's noise, each of its best size, and their trust."""
    weights, variances = weights.cpu(), posterior.left_out_variance.cpu()
    scaled = (targets - posterior.left_out).cpu() / variances.sqrt()[:, None]
    normal, student, trust = _sized(scaled, weights)
    # The widths of left-out predictions are part of both, but differ between posteriors.
    widths = 0.5 * targets.shape[1] * float(weights @ variances.log())
    return normal - widths, student - widths, trust.to(targets)


def _mean_square(posterior: Posterior[Prior], targets: Tensor, weights: Tensor) -> float:
    return float(weights @ (targets - posterior.left_out).square().mean(dim=1))
