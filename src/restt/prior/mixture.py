"""The priors over which a posterior mean is averaged, and their weights.

Where rows are plenty there are two, with scales for each column, leaning towards smooth or towards rough functions, of
equal weight. With fewer rows for the columns, so many scales take from chance. Then those of each column are drawn
around scales that all columns share; two more priors have only these, one of them straight lines without interactions;
and the four are weighed by the squared error of their mean on rows that they were not learned from.
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

# Rows for each column that are plenty.
_PLENTY = 10
# A quarter of the rows is kept from the learning at a time, until there are this many such rows.
_PARTS, _FRESH_ROWS = 4, 75
# Of fewer rows none is kept.
_FEWEST_ROWS = 8
# Before any fresh row is seen, left-out residuals of rows that were learned from are taken to be too small by this
# factor, which counts as much as that many rows.
_OPTIMISM, _OPTIMISM_ROWS, _MOST_OPTIMISM = 1.2, 20, 2.0
# And the weights of the priors, straight, alike, smooth and rough, to be these, which count as much as so many.
_USUAL = (0.0, 0.25, 0.5, 0.25)
_USUAL_ROWS = 12
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

    @property
    def plenty(self) -> bool:
        """Whether there are rows enough to learn the scales of each column by itself."""
        return len(self.weights) >= _PLENTY * len(self.kernels)

    def alike(self, targets: Tensor, scale: str, straight: bool = False, rows: np.ndarray | None = None) -> Prior:
        """All columns alike, or straight lines without interactions."""
        return self._prior(scale, *learn_alike(self.kernels, *self._given(targets, rows), straight))

    def own(
        self,
        targets: Tensor,
        scale: str,
        alike: Prior | None = None,
        start: Prior | None = None,
        rough: bool = False,
        rows: np.ndarray | None = None,
        iterations: int = ITERATIONS,
    ) -> Prior:
        """Scales of each column's own, around those of ``alike``."""
        first, around = (None if one is None else one.theta for one in (start, alike))
        found = learn(self.kernels, *self._given(targets, rows), first, rough, iterations, around)
        return self._prior(scale, *found)

    def condition(self, prior: Prior, targets: Tensor) -> Posterior:
        return condition(prior, self.states, targets, self.weights)

    def _given(self, targets: Tensor, rows: np.ndarray | None) -> tuple[list[Tensor], Tensor, Tensor]:
        part = torch.from_numpy(self.rows if rows is None else rows)
        return [column[part] for column in self.states], targets[part], self.weights[part]

    def _prior(self, scale: str, theta: np.ndarray, evaluations: int) -> Prior:
        return Prior(self.kernels, theta, self.names, scale, evaluations)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Posteriors whose weighted mean is the model."""

    posteriors: tuple[Posterior, ...]  # the heaviest first
    weights: np.ndarray  # as many, of sum 1
    residuals: Tensor  # (B, O): of each row predicted by the others, as large as if no prior had been learned from it

    def on(self, device: torch.device) -> Mixture:
        """The same mixture on another device."""
        return Mixture(tuple(one.on(device) for one in self.posteriors), self.weights, self.residuals.to(device))

    @property
    def left_out(self) -> Tensor:  # (B, O)
        """Each row's prediction from the others."""
        return weighted(torch.stack([one.left_out for one in self.posteriors], dim=-1), self.weights)

    def mean(self, states: Sequence[Tensor]) -> Tensor:  # N of (B2, I_n) -> (B2, O)
        return weighted(torch.stack([one.mean(states) for one in self.posteriors], dim=-1), self.weights)


def weighted(parts: Tensor, weights: np.ndarray) -> Tensor:  # (B, O, K), (K,) -> (B, O)
    """Σ_k weight_k part_k."""
    return parts @ torch.from_numpy(weights).to(parts)


def mix(
    learner: Learner,
    smooth: Posterior,
    alike: Prior | None,  # around which it was learned; None where rows are plenty
    targets: Tensor,  # (B, O)
    rng: np.random.Generator,
) -> Mixture:
    """The posteriors beside ``smooth``, and the weights of all."""
    scale = smooth.prior.target_scale
    rough = learner.condition(learner.own(targets, scale, alike, rough=True), targets)
    posteriors, usual = [smooth, rough], np.full(2, 0.5)
    if alike is not None:
        priors = learner.alike(targets, scale, straight=True), alike
        posteriors, usual = [*(learner.condition(one, targets) for one in priors), smooth, rough], np.array(_USUAL)
    left_out = torch.stack([one.left_out for one in posteriors], dim=-1)  # (B, O, K)
    outside = np.setdiff1d(np.arange(len(targets)), learner.rows)
    if len(outside) >= _FRESH_ROWS:
        fresh, predicted = outside, left_out[outside]
    elif len(learner.rows) < _FEWEST_ROWS:
        fresh, predicted = outside[:0], left_out[:0]
    else:
        fresh, predicted = _predict_fresh(learner, scale, targets, rng)
    row_weights, weights = learner.weights.cpu().numpy(), usual
    if alike is not None:
        weights = stacked(predicted.cpu().numpy(), targets[fresh].cpu().numpy(), row_weights[fresh], usual)
    residuals = targets - weighted(left_out, weights)
    before = learner.rows if fresh is outside else fresh
    known = _mean_square(residuals[before], row_weights[before])
    new = _mean_square(targets[fresh] - weighted(predicted, weights), row_weights[fresh])
    share = len(fresh) / (len(fresh) + _OPTIMISM_ROWS)
    growth = share * (new / known if known > 0 else 1.0) + (1 - share) * _OPTIMISM**2
    residuals[learner.rows] *= min(max(growth, 1.0), _MOST_OPTIMISM**2) ** 0.5
    order = [k for k in np.argsort(-weights, kind="stable") if weights[k] >= _LEAST_WEIGHT]
    kept = weights[order] / weights[order].sum()
    return Mixture(tuple(posteriors[k] for k in order), kept, residuals)


def _predict_fresh(
    learner: Learner, scale: str, targets: Tensor, rng: np.random.Generator
) -> tuple[np.ndarray, Tensor]:  # (F,), (F, O, K)
    """Rows, and their predictions from all others by priors that were learned without them."""
    parts = np.array_split(rng.permutation(learner.rows), _PARTS)
    parts = parts[: -(-_FRESH_ROWS * _PARTS // len(learner.rows))]
    found = []
    for part in parts:
        seen = np.setdiff1d(learner.rows, part)
        shared: list[Prior] = []
        if not learner.plenty:
            shared = [learner.alike(targets, scale, straight, seen) for straight in (True, False)]
        around = shared[-1] if shared else None
        own = [learner.own(targets, scale, around, None, rough, seen, ITERATIONS // 2) for rough in (False, True)]
        left_out = [learner.condition(prior, targets).left_out[part] for prior in (*shared, *own)]
        found.append(torch.stack(left_out, dim=-1))
    return np.concatenate(parts), torch.cat(found)


def stacked(
    predictions: np.ndarray,  # (F, O, K)
    targets: np.ndarray,  # (F, O)
    row_weights: np.ndarray,  # (F,)
    usual: np.ndarray,  # (K,)
) -> np.ndarray:  # (K,)
    """The weights, none below 0 and of sum 1, under which the predictions' mean has the least squares.

    >>> y = np.random.default_rng(0).standard_normal((200, 1))
    >>> stacked(np.stack([y, -y], axis=-1), y, np.ones(200), np.array([0.5, 0.5])).round(2)
    array([0.99, 0.01])
    """
    kinds = predictions.shape[2]
    if not len(predictions):
        return usual
    root = np.sqrt(row_weights / row_weights.mean())[:, None]
    rows = (predictions * root[..., None]).reshape(-1, kinds)
    noise = _mean_square(torch.from_numpy(targets - predictions @ usual), row_weights)
    # Beside targets of variance 1: weights that make no difference are the usual ones also where there is no noise.
    pull, sure = (_USUAL_ROWS * targets.shape[1] * max(noise, 1e-8)) ** 0.5, 1e3 * len(rows) ** 0.5
    left = np.vstack([rows, pull * np.eye(kinds), np.full((1, kinds), sure)])
    right = np.concatenate([(targets * root).ravel(), pull * usual, [sure]])
    weights = nnls(left, right)[0]
    return weights / weights.sum()


def _mean_square(values: Tensor, weights: np.ndarray) -> float:  # (F, O), (F,)
    return 0.0 if not len(values) else float(np.average(values.square().mean(dim=1).cpu().numpy(), weights=weights))
