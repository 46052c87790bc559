"""The priors over which a posterior mean is averaged, and their weights.

Two have scales for each column, one for smooth functions and one for functions that may jump; with few rows a third
leans towards rough ones, and with many there is one of functions of all columns at once, see :mod:`restt.prior.joint`.
That many scales follow chance where rows are few or the noise is loud, so they are drawn around scales that all columns
share; and more priors have only these: for smooth functions, for straight lines without interactions and, with few
rows, for functions that may jump. They are weighed by the squared error of the mean of their left-out predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from scipy.optimize import lsq_linear
from torch import Tensor

from restt.prior.joint import JointPrior, learn_joint
from restt.prior.kernels import Kernel, bent, jumping
from restt.prior.learning import ITERATIONS, Prior, learn, learn_alike
from restt.prior.posterior import P, Posterior, condition
from restt.prior.target import weighted_quantile

# A quarter of the rows is kept from the learning at a time, until there are this many such rows.
_PARTS, _FRESH_ROWS = 4, 75
# Of fewer rows none is kept.
_FEWEST_ROWS = 8
# Before any fresh row is seen, left-out residuals of rows that were learned from are taken to be too small by this
# factor, which counts as much as that many rows.
_OPTIMISM, _OPTIMISM_ROWS, _MOST_OPTIMISM = 1.2, 20, 2.0
# The kinds of priors and their weights before any row is seen, which count as much as that many rows.
_USUAL, _USUAL_ROWS = {"straight": 0.0, "alike": 0.21, "smooth": 0.43, "jumping": 0.21, "joint": 0.15}, 12
# Up to this many rows leave much of the lengths to the density that they are given, and more kinds are tried. Their
# weights are near those of least squares over rows kept aside of 48 tables, with 60 to 300 rows to learn from.
_FEW_ROWS = 400
_USUAL_FEW, _USUAL_ROWS_FEW = (
    {"straight": 0.15, "alike": 0.05, "alike jumping": 0.25, "smooth": 0.1, "jumping": 0.3, "rough": 0.15},
    45,
)
# With more rows, kinds of priors in which columns have main effects of their own beside those of the product, and kinds
# whose functions are parabolas in part.
_LEARNED_APART, _BENT = ("smooth",), ("smooth", "alike")
_SHARED = ("straight", "alike", "alike jumping")
# More columns than this have no scales of their own: instead of kinds that would, those of shared ones are learned.
MOST_OWN_COLUMNS = 500
_WITHOUT_OWN = {"smooth": "alike", "rough": "alike", "jumping": "alike jumping"}
_USUAL_WIDE = {"straight": 0.4, "alike": 0.3, "alike jumping": 0.3}
# A distance in all columns is learned from more than so many rows, and from at most so many.
_FEWEST_JOINT_ROWS, _JOINT_ROWS = 200, 500
# Errors beyond this many times the median's do not count for more in the weights: one row does not decide.
_MOST_ERROR = 6.0
# Left-out residuals under scales of each column's own are too small beside those under shared ones, by this share for
# each column that there is for a row, up to this many columns; that of a joint prior is larger.
_OWN_OPTIMISM, _JOINT_OPTIMISM, _MOST_COLUMNS = 0.6, 0.9, 0.3
# A prior that weighs less is left out of the mean.
_LEAST_WEIGHT = 0.02


@dataclass(frozen=True, eq=False)
class Learner:
    """Learns priors on some of the rows and conditions them on all.

    ``trust``: how far each row's y is to be trusted, see :mod:`restt.prior.tails`; None: all alike.
    """

    kernels: tuple[Kernel, ...]
    states: list[Tensor]  # N of (B, I_n)
    weights: Tensor  # (B,)
    rows: np.ndarray  # which are learned from
    names: tuple[str, ...]
    trust: Tensor | None = None  # (B,)

    @property
    def precision(self) -> Tensor:  # (B,)
        """What the noise of each row is divided by."""
        return self.weights if self.trust is None else self.weights * self.trust

    def trusting(self, trust: Tensor) -> Learner:
        """The same learner with rows that are trusted this far."""
        return replace(self, trust=trust)

    @cached_property
    def jumping(self) -> tuple[Kernel, ...]:
        """The kernels for functions that may jump."""
        return jumping(self.kernels)

    @cached_property
    def bent(self) -> tuple[Kernel, ...]:
        """The kernels for functions that are parabolas in part."""
        return bent(self.kernels)

    def learn(
        self,
        kind: str,
        targets: Tensor,  # (B, O)
        scale: str,
        around: Prior | None = None,
        start: Prior | None = None,
        rows: np.ndarray | None = None,
        iterations: int = ITERATIONS,
    ) -> Prior:
        """The prior of this kind; scales of each column's own are drawn ``around`` those of the one alike."""
        kind = _WITHOUT_OWN.get(kind, kind) if len(self.kernels) > MOST_OWN_COLUMNS else kind
        given, trust = self._given(targets, rows)
        many = len(self.weights) > _FEW_ROWS and len(self.kernels) <= MOST_OWN_COLUMNS
        kernels = self.jumping if kind.endswith("jumping") else self.bent if many and kind in _BENT else self.kernels
        if kind in _SHARED:
            found = learn_alike(kernels, *given, kind == "straight", trust)
        else:
            first, shared = (None if one is None else one.theta for one in (start, around))
            apart = many and kind in _LEARNED_APART
            found = learn(kernels, *given, first, iterations, shared, trust, kind == "rough", apart)
        return Prior(kernels, found[0], self.names, scale, found[1], kind in _SHARED)

    def learn_joint(
        self,
        targets: Tensor,  # (B, O)
        rows: np.ndarray | None = None,
        iterations: int = ITERATIONS,
    ) -> JointPrior:
        """The prior of functions of all columns at once, from at most :data:`_JOINT_ROWS` of the rows."""
        chosen = self.rows if rows is None else rows
        if len(chosen) > _JOINT_ROWS:
            chosen = chosen[np.linspace(0, len(chosen) - 1, _JOINT_ROWS).astype(int)]
        given, trust = self._given(targets, chosen)
        return JointPrior(self.kernels, *learn_joint(self.kernels, *given, iterations, trust))

    def _given(
        self, targets: Tensor, rows: np.ndarray | None
    ) -> tuple[tuple[list[Tensor], Tensor, Tensor], Tensor | None]:
        """States, targets and weights of the rows that are learned from, and their trust."""
        part = torch.from_numpy(self.rows if rows is None else rows)
        trust = None if self.trust is None else self.trust[part]
        return ([column[part] for column in self.states], targets[part], self.weights[part]), trust

    def condition(self, prior: P, targets: Tensor) -> Posterior[P]:
        return condition(prior, self.states, targets, self.precision)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Posteriors whose weighted mean is the model."""

    posteriors: tuple[Posterior[Prior | JointPrior], ...]  # the heaviest first
    weights: np.ndarray  # as many, of sum 1
    residuals: Tensor  # (B, O): of each row predicted by the others, as large as if no prior had been learned from it

    def on(self, device: torch.device) -> Mixture:
        """The same mixture on another device."""
        return Mixture(tuple(one.on(device) for one in self.posteriors), self.weights, self.residuals.to(device))

    @property
    def column_priors(self) -> tuple[Prior, ...]:
        """The priors that have a covariance for each column, the heaviest first: all but the joint one."""
        return tuple(one.prior for one in self.posteriors if isinstance(one.prior, Prior))

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
    alike: Prior,
    smooth: Posterior[Prior],  # learned around it
    targets: Tensor,  # (B, O)
    rng: np.random.Generator,
) -> Mixture:
    """The posteriors beside ``smooth``, and the weights of all."""
    row_weights = learner.precision.cpu().numpy()
    usual, usual_rows = _usual_weights(len(targets), len(learner.kernels))
    kinds, weights = tuple(usual), np.array(list(usual.values()))
    there = {"alike": learner.condition(alike, targets), "smooth": smooth}
    posteriors: list[Posterior[Prior | JointPrior]] = [
        there[kind] if kind in there else learner.condition(_learned(learner, kind, alike, targets), targets)
        for kind in kinds
    ]
    left_out = torch.stack([one.left_out for one in posteriors], dim=-1)  # (B, O, K)
    if len(learner.rows) >= _FEWEST_ROWS:
        columns = min(len(learner.kernels) / len(learner.rows), _MOST_COLUMNS)
        optimism = {**dict.fromkeys(_SHARED, 0.0), "joint": _JOINT_OPTIMISM}
        own = left_out.new_tensor([1 + optimism.get(kind, _OWN_OPTIMISM) * columns for kind in kinds])
        grown = targets[..., None] + (left_out - targets[..., None]) * own
        weights = stacked(grown.cpu().numpy(), targets.cpu().numpy(), row_weights, weights, usual_rows)
    order = [k for k in np.argsort(-weights, kind="stable") if weights[k] >= _LEAST_WEIGHT]
    weights, left_out = weights[order] / weights[order].sum(), left_out[..., order]
    residuals = targets - weighted(left_out, weights)
    outside = np.setdiff1d(np.arange(len(targets)), learner.rows)
    if len(outside) >= _FRESH_ROWS:
        fresh, predicted = outside, left_out[outside]
    elif len(learner.rows) < _FEWEST_ROWS:
        fresh, predicted = outside[:0], left_out[:0]
    else:
        fresh, predicted = _predict_fresh(learner, [kinds[k] for k in order], alike, targets, rng)
    before = learner.rows if fresh is outside else fresh
    known = _mean_square(residuals[before], row_weights[before])
    new = _mean_square(targets[fresh] - weighted(predicted, weights), row_weights[fresh])
    share = len(fresh) / (len(fresh) + _OPTIMISM_ROWS)
    growth = share * (new / known if known > 0 else 1.0) + (1 - share) * _OPTIMISM**2
    residuals[learner.rows] *= min(max(growth, 1.0), _MOST_OPTIMISM**2) ** 0.5
    return Mixture(tuple(posteriors[k] for k in order), weights, residuals)


def _usual_weights(rows: int, columns: int) -> tuple[dict[str, float], int]:
    """The kinds of priors of a table with their usual weights, and how many rows these count as much as."""
    if columns > MOST_OWN_COLUMNS:
        return _USUAL_WIDE, _USUAL_ROWS
    if rows > _FEW_ROWS:
        return _USUAL, _USUAL_ROWS
    if rows <= _FEWEST_JOINT_ROWS:
        return _USUAL_FEW, _USUAL_ROWS_FEW
    joint = _USUAL["joint"]
    return {**{kind: (1 - joint) * weight for kind, weight in _USUAL_FEW.items()}, "joint": joint}, _USUAL_ROWS_FEW


def _learned(
    learner: Learner,
    kind: str,
    alike: Prior,
    targets: Tensor,
    rows: np.ndarray | None = None,
    iterations: int = ITERATIONS,
) -> Prior | JointPrior:
    if kind == "joint":
        return learner.learn_joint(targets, rows, iterations)
    return learner.learn(kind, targets, alike.target_scale, alike, None, rows, iterations)


def _predict_fresh(
    learner: Learner, kinds: Sequence[str], alike: Prior, targets: Tensor, rng: np.random.Generator
) -> tuple[np.ndarray, Tensor]:  # (F,), (F, O, K)
    """Rows, and their predictions from all others by priors that were learned without them.

    But around the scales that all columns share, which are too few to take from chance.
    """
    parts = np.array_split(rng.permutation(learner.rows), _PARTS)
    wide = len(learner.kernels) > MOST_OWN_COLUMNS  # and slow, but shared scales are few
    parts = parts[: 1 if wide else -(-_FRESH_ROWS * _PARTS // len(learner.rows))]
    found = []
    for part in parts:
        seen = np.setdiff1d(learner.rows, part)
        learned = [_learned(learner, kind, alike, targets, seen, ITERATIONS // 2) for kind in kinds]
        left_out = [learner.condition(prior, targets).left_out[part] for prior in learned]
        found.append(torch.stack(left_out, dim=-1))
    return np.concatenate(parts), torch.cat(found)


def stacked(
    predictions: np.ndarray,  # (F, O, K)
    targets: np.ndarray,  # (F, O)
    row_weights: np.ndarray,  # (F,)
    usual: np.ndarray,  # (K,)
    usual_rows: float = _USUAL_ROWS,
) -> np.ndarray:  # (K,)
    """The weights, none below 0 and of sum 1, under which the predictions' mean has the least squares.

    ``usual``: the weights before any row is seen, which count as much as ``usual_rows``. No row counts for more than if
    its error, under the usual weights, were a few times the median.

    >>> y = np.random.default_rng(0).standard_normal((200, 1))
    >>> stacked(np.stack([y, -y], axis=-1), y, np.ones(200), np.array([0.5, 0.5])).round(2)
    array([0.99, 0.01])
    """
    kinds = predictions.shape[2]
    if not len(predictions):
        return usual
    errors = np.sqrt(((targets - predictions @ usual) ** 2).mean(axis=1))
    most = _MOST_ERROR * weighted_quantile(errors, row_weights, [0.5])[0]
    if most > 0:
        row_weights = row_weights * (most / np.maximum(errors, most)) ** 2
    root = np.sqrt(row_weights / row_weights.mean())[:, None]
    rows = (predictions * root[..., None]).reshape(-1, kinds)
    noise = _mean_square(torch.from_numpy(targets - predictions @ usual), row_weights)
    # Beside targets of variance 1: weights that make no difference are the usual ones also where there is no noise.
    pull, sure = (usual_rows * targets.shape[1] * max(noise, 1e-8)) ** 0.5, 1e3 * len(rows) ** 0.5
    left = np.vstack([rows, pull * np.eye(kinds), np.full((1, kinds), sure)])
    right = np.concatenate([(targets * root).ravel(), pull * usual, [sure]])
    # Not nnls, which before SciPy 1.15 squares the condition of what is nearly the same in every column.
    weights = lsq_linear(left, right, (0, np.inf), method="bvls", tol=1e-15, max_iter=100).x
    return weights / weights.sum()


def _mean_square(values: Tensor, weights: np.ndarray) -> float:  # (F, O), (F,)
    return 0.0 if not len(values) else float(np.average(values.square().mean(dim=1).cpu().numpy(), weights=weights))
