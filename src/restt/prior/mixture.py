"""The priors over which a posterior mean is averaged, and their weights.

Three are learned: one in which all columns are alike, and two in which each column has scales of its own, drawn around
those, leaning towards smooth or towards rough functions. The more columns there are for the rows, the more a prior with
many scales takes from chance; that shows on rows it was not learned from. So weights are chosen there, by the squared
error of the mean of the three predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from restt.prior.kernels import Kernel
from restt.prior.learning import ITERATIONS, Prior, learn, learn_alike
from restt.prior.posterior import Posterior, condition

# Rows enough for the scales that all columns share, and to begin with where each has its own.
_FIRST_ROWS = 250
# A quarter of the rows is kept from the learning at a time, until there are this many such rows.
_PARTS, _FRESH_ROWS = 4, 100
# Of fewer rows none is kept.
_FEWEST_ROWS = 8
# Before any fresh row is seen, left-out residuals of rows that were learned from are taken to be too small by this
# factor, which counts as much as that many rows; and so do equal weights of the priors.
_OPTIMISM, _OPTIMISM_ROWS, _MOST_OPTIMISM = 1.2, 20, 2.0
_EQUAL_ROWS = 12
# A prior that weighs less is left out of the mean.
_LEAST_WEIGHT = 0.02


@dataclass(frozen=True, eq=False)
class Learner:
    """Learns priors on some of the rows and conditions them on all."""

    kernels: tuple[Kernel, ...]
    states: list[Tensor]  # N of (B, I_n)
    weights: Tensor  # (B,)
    rows: np.ndarray  # which are learned from
    names: tuple[str, ...]

    def alike(self, targets: Tensor, scale: str, rows: np.ndarray | None = None) -> Prior:
        """All columns alike."""
        part = self.rows if rows is None else rows
        return self._prior(scale, *learn_alike(self.kernels, *self._given(targets, _thinned(part))))

    def own(
        self,
        targets: Tensor,
        scale: str,
        alike: Prior,
        start: Prior | None = None,
        rough: bool = False,
        rows: np.ndarray | None = None,
        iterations: int = ITERATIONS,
    ) -> Prior:
        """Scales of each column's own, around those of ``alike``."""
        part = self.rows if rows is None else rows
        theta, spent = None if start is None else start.theta, 0
        if theta is None and len(part) > 2 * _FIRST_ROWS:
            few = self._given(targets, _thinned(part))
            theta, spent = learn(self.kernels, *few, None, rough, iterations, alike.theta)
        given = self._given(targets, part)
        theta, count = learn(self.kernels, *given, theta, rough, iterations, alike.theta)
        return self._prior(scale, theta, spent + count)

    def condition(self, prior: Prior, targets: Tensor) -> Posterior:
        return condition(prior, self.states, targets, self.weights)

    def _given(self, targets: Tensor, rows: np.ndarray) -> tuple[list[Tensor], Tensor, Tensor]:
        part = torch.from_numpy(rows)
        return [column[part] for column in self.states], targets[part], self.weights[part]

    def _prior(self, scale: str, theta: np.ndarray, evaluations: int) -> Prior:
        return Prior(self.kernels, theta, self.names, scale, evaluations)


def _thinned(rows: np.ndarray) -> np.ndarray:
    """At most :data:`_FIRST_ROWS` of rows, evenly spread over their order, which is by value."""
    return rows[:: -(-len(rows) // _FIRST_ROWS)]


@dataclass(frozen=True, eq=False)
class Mixture:
    """Posteriors whose weighted mean is the model."""

    posteriors: tuple[Posterior, ...]  # the heaviest first
    weights: np.ndarray  # as many, of sum 1
    residuals: Tensor  # (B, O): of each row predicted by the others, as large as if no prior had been learned from it

    @property
    def left_out(self) -> Tensor:  # (B, O)
        """Each row's prediction from the others."""
        return weighted([one.left_out for one in self.posteriors], self.weights)

    def mean(self, states: Sequence[Tensor]) -> Tensor:  # N of (B2, I_n) -> (B2, O)
        return weighted([one.mean(states) for one in self.posteriors], self.weights)


def weighted(parts: Sequence[Tensor], weights: np.ndarray) -> Tensor:
    """Σ_k weight_k part_k."""
    return torch.stack(list(parts), dim=-1) @ torch.from_numpy(weights)


def mix(
    learner: Learner,
    posteriors: Sequence[Posterior],  # alike, smooth and rough
    targets: Tensor,  # (B, O)
    rng: np.random.Generator,
) -> Mixture:
    """Weigh posteriors by how they predict rows that their priors were not learned from."""
    left_out = torch.stack([one.left_out for one in posteriors], dim=-1)  # (B, O, K)
    outside = np.setdiff1d(np.arange(len(targets)), learner.rows)
    if len(outside) >= _FRESH_ROWS:
        fresh, predicted = outside, left_out[outside]
    elif len(learner.rows) < _FEWEST_ROWS:
        fresh, predicted = outside[:0], left_out[:0]
    else:
        fresh, predicted = _predict_fresh(learner, posteriors[0].prior.target_scale, targets, rng)
    row_weights = learner.weights.numpy()
    weights = stacked(predicted.numpy(), targets[fresh].numpy(), row_weights[fresh])
    residuals = targets - weighted(left_out.unbind(-1), weights)
    before = learner.rows if fresh is outside else fresh
    known = _mean_square(residuals[before], row_weights[before])
    new = _mean_square(targets[fresh] - weighted(predicted.unbind(-1), weights), row_weights[fresh])
    share = len(fresh) / (len(fresh) + _OPTIMISM_ROWS)
    growth = share * (new / known if known > 0 else 1.0) + (1 - share) * _OPTIMISM**2
    residuals[learner.rows] *= min(max(growth, 1.0), _MOST_OPTIMISM**2) ** 0.5
    order = [k for k in np.argsort(-weights, kind="stable") if weights[k] >= _LEAST_WEIGHT]
    kept = weights[order] / weights[order].sum()
    return Mixture(tuple(posteriors[k] for k in order), kept, residuals)


def _predict_fresh(
    learner: Learner, scale: str, targets: Tensor, rng: np.random.Generator
) -> tuple[np.ndarray, Tensor]:  # (F,), (F, O, 3)
    """Rows, and their predictions from all others by priors that were learned without them."""
    parts = np.array_split(rng.permutation(learner.rows), _PARTS)
    parts = parts[: -(-_FRESH_ROWS * _PARTS // len(learner.rows))]
    found = []
    for part in parts:
        seen = np.setdiff1d(learner.rows, part)
        alike = learner.alike(targets, scale, seen)
        own = [learner.own(targets, scale, alike, None, rough, seen, ITERATIONS // 2) for rough in (False, True)]
        left_out = [learner.condition(prior, targets).left_out[part] for prior in (alike, *own)]
        found.append(torch.stack(left_out, dim=-1))
    return np.concatenate(parts), torch.cat(found)


def stacked(
    predictions: np.ndarray,  # (F, O, K)
    targets: np.ndarray,  # (F, O)
    row_weights: np.ndarray,  # (F,)
) -> np.ndarray:  # (K,)
    """The weights, none below 0 and of sum 1, under which the predictions' mean has the least squares.

    >>> y = np.random.default_rng(0).standard_normal((200, 1))
    >>> stacked(np.stack([y, -y], axis=-1), y, np.ones(200)).round(2)
    array([1., 0.])
    """
    kinds = predictions.shape[2]
    if not len(predictions):
        return np.full(kinds, 1 / kinds)
    root = np.sqrt(row_weights / row_weights.mean())[:, None]
    rows = (predictions * root[..., None]).reshape(-1, kinds)
    noise = _mean_square(torch.from_numpy(targets - predictions.mean(axis=-1)), row_weights)
    # Beside targets of variance 1: weights that make no difference are equal also where there is no noise.
    pull, sure = (_EQUAL_ROWS * targets.shape[1] * max(noise, 1e-8)) ** 0.5, 1e3 * len(rows) ** 0.5
    left = np.vstack([rows, pull * np.eye(kinds), np.full((1, kinds), sure)])
    right = np.concatenate([(targets * root).ravel(), np.full(kinds, pull / kinds), [sure]])
    weights = nnls(left, right)[0]
    return weights / weights.sum()


def _mean_square(values: Tensor, weights: np.ndarray) -> float:  # (F, O), (F,)
    return 0.0 if not len(values) else float(np.average(values.square().mean(dim=1).numpy(), weights=weights))
