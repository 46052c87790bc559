"""The posterior means that are averaged, one for each kind of prior, and their weights.

Kinds, see :mod:`restt.prior.kinds`, differ in what they take a function to be. Some have scales for each column. That
many follow chance where rows are few or the noise is loud, so they are drawn around scales that all columns share; and
other kinds have only these. They are weighed by the squared error of the mean of their left-out predictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from scipy.optimize import lsq_linear
from torch import Tensor

from restt.prior.joint import JointPrior, learn_joint
from restt.prior.kernels import Kernel, reshaped
from restt.prior.kinds import (
    USUAL_ROWS,
    has_many_rows,
    is_apart,
    is_shared,
    is_wide,
    shape,
    shared_kind,
    usual_weights,
    without_own,
)
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
# A distance in all columns is learned from at most so many rows.
_JOINT_ROWS = 500
# Errors beyond this many times the median's do not count for more in the weights: one row does not decide.
_MOST_ERROR = 6.0
# Left-out residuals under scales of each column's own are too small beside those under shared ones, by this share for
# each column that there is for a row, up to this many columns; that of a joint prior is larger.
_OWN_OPTIMISM, _JOINT_OPTIMISM, _MOST_COLUMNS = 0.6, 0.9, 1.0
# Of weights and the noise that they leave.
_TURNS = 3
# A prior that weighs less is left out of the mean.
_LEAST_WEIGHT = 0.02
# Of the largest, what is left of the main effects' dimensions.
_LEAST_SINGULAR = 1e-13


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
    def _reshaped(self) -> dict[tuple[float, float, bool], tuple[Kernel, ...]]:
        """The kernels for functions of other shapes, as they are asked for."""
        return {}

    def _kernels(self, shape: tuple[float, float, bool]) -> tuple[Kernel, ...]:
        if shape not in self._reshaped:
            self._reshaped[shape] = reshaped(self.kernels, *shape)
        return self._reshaped[shape]

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
        kind = without_own(kind) if is_wide(len(self.kernels)) else kind
        given, trust = self._given(targets, rows)
        many = has_many_rows(len(self.weights), len(self.kernels))
        kernels, sums = self._kernels(shape(kind, many)), "sums" in kind
        if is_shared(kind):
            straight = kind == "straight"
            theta, evaluations = learn_alike(kernels, *given, straight, trust, sums)
            return Prior(kernels, theta, self.names, scale, evaluations, alike=True, sums=sums)
        first, shared = (None if one is None else one.theta for one in (start, around))
        how = kind.startswith("rough"), is_apart(kind, many), sums
        theta, evaluations = learn(kernels, *given, first, iterations, shared, trust, *how)
        return Prior(kernels, theta, self.names, scale, evaluations, sums=sums)

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

    def products(self) -> tuple[Tensor, list[Tensor]]:  # (J, O), N of (J, I_n)
        """Coefficients and factors of the mean as a sum of products over sites."""
        parts = [one.products() for one in self.posteriors]
        effects = [
            sum(weight * part for weight, part in zip(self.weights, column, strict=True))
            for column in zip(*(one.effects() for one in self.posteriors), strict=True)
        ]
        scaled = [(float(weight) * part[0], part[1]) for weight, part in zip(self.weights, parts, strict=True)]
        scaled.append(_effects_as_products(effects))
        coefficients = torch.cat([part[0] for part in scaled])
        return coefficients, [torch.cat([part[1][n] for part in scaled]) for n in range(len(effects))]


def _effects_as_products(effects: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:  # N of (O, I_n)
    """Coefficients (J, O) and factors N of (J, I_n) of Σ_n effect_n(x_n): a factor is 1 but for that of one column.

    As many products a column as its effects on several outputs have dimensions, not one for each output.
    """
    split = [torch.linalg.svd(effect, full_matrices=False) for effect in effects]
    least = _LEAST_SINGULAR * max(float(sizes[0]) for _, sizes, _ in split)
    kept = [int((sizes > least).sum()) for _, sizes, _ in split]
    places = torch.repeat_interleave(torch.arange(len(effects)), torch.tensor(kept)).to(effects[0].device)
    coefficients = torch.cat([(u * sizes)[:, :k].T for (u, sizes, _), k in zip(split, kept, strict=True)])
    factors = []
    for n, (_, _, directions) in enumerate(split):
        factor = directions.new_ones(len(places), directions.shape[1])
        factor[places == n] = directions[: kept[n]]
        factors.append(factor)
    return coefficients, factors


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
    usual, usual_rows = usual_weights(len(targets), len(learner.kernels))
    kinds, weights = tuple(usual), np.array(list(usual.values()))
    shared = shared_priors(learner, kinds, alike, targets)
    posteriors: list[Posterior[Prior | JointPrior]] = [
        smooth if kind == "smooth" else learner.condition(learn_kind(learner, kind, shared, targets), targets)
        for kind in kinds
    ]
    left_out = torch.stack([one.left_out for one in posteriors], dim=-1)  # (B, O, K)
    if len(learner.rows) >= _FEWEST_ROWS:
        own = left_out.new_tensor(optimism(kinds, len(learner.kernels), len(learner.rows)))
        grown = targets[..., None] + (left_out - targets[..., None]) * own
        weights = stacked(grown.cpu().numpy(), targets.cpu().numpy(), row_weights, weights, usual_rows)
    weights = without_least(weights)
    order = [k for k in np.argsort(-weights, kind="stable") if weights[k] > 0]
    weights, left_out = weights[order], left_out[..., order]
    residuals = targets - weighted(left_out, weights)
    outside = np.setdiff1d(np.arange(len(targets)), learner.rows)
    if len(outside) >= _FRESH_ROWS:
        fresh, predicted = outside, left_out[outside]
    elif len(learner.rows) < _FEWEST_ROWS:
        fresh, predicted = outside[:0], left_out[:0]
    else:
        fresh, predicted = _predict_fresh(learner, [kinds[k] for k in order], shared, targets, rng)
    before = learner.rows if fresh is outside else fresh
    known = _mean_square(residuals[before], row_weights[before])
    new = _mean_square(targets[fresh] - weighted(predicted, weights), row_weights[fresh])
    share = len(fresh) / (len(fresh) + _OPTIMISM_ROWS)
    growth = share * (new / known if known > 0 else 1.0) + (1 - share) * _OPTIMISM**2
    residuals[learner.rows] *= min(max(growth, 1.0), _MOST_OPTIMISM**2) ** 0.5
    return Mixture(tuple(posteriors[k] for k in order), weights, residuals)


def optimism(kinds: Iterable[str], columns: int, rows: int) -> np.ndarray:  # (K,)
    """What left-out residuals of each kind are multiplied by, so that none gains by the scales it has learned."""
    share = min(columns / rows, _MOST_COLUMNS)
    own = {kind: _JOINT_OPTIMISM if kind == "joint" else _OWN_OPTIMISM for kind in kinds}
    return np.array([1.0 if is_shared(kind) else 1 + share * size for kind, size in own.items()])


def without_least(weights: np.ndarray) -> np.ndarray:  # (K,) -> (K,)
    """Without those that are hardly any: 0, and the others of sum 1."""
    kept = np.where(weights >= _LEAST_WEIGHT, weights, 0.0)
    return np.asarray(kept / kept.sum())


def shared_priors(learner: Learner, kinds: Sequence[str], alike: Prior, targets: Tensor) -> dict[str, Prior]:
    """``alike`` and the others around whose scales those of these kinds are drawn."""
    around = {shared_kind(kind) for kind in kinds if not is_shared(kind) and kind != "joint"} - {"alike"}
    return {"alike": alike} | {kind: learner.learn(kind, targets, alike.target_scale) for kind in sorted(around)}


def learn_kind(
    learner: Learner,
    kind: str,
    shared: dict[str, Prior],
    targets: Tensor,
    rows: np.ndarray | None = None,
    iterations: int = ITERATIONS,
) -> Prior | JointPrior:
    """The prior of a kind, its scales drawn around those of ``shared``, which all rows have been learned from."""
    if kind == "joint":
        return learner.learn_joint(targets, rows, iterations)
    if rows is None and kind in shared:
        return shared[kind]
    around = None if is_shared(kind) else shared[shared_kind(kind)]
    return learner.learn(kind, targets, shared["alike"].target_scale, around, None, rows, iterations)


def _predict_fresh(
    learner: Learner, kinds: Sequence[str], shared: dict[str, Prior], targets: Tensor, rng: np.random.Generator
) -> tuple[np.ndarray, Tensor]:  # (F,), (F, O, K)
    """Rows, and their predictions from all others by priors that were learned without them.

    But around the scales that all columns share, which are too few to take from chance.
    """
    parts = np.array_split(rng.permutation(learner.rows), _PARTS)
    wide = is_wide(len(learner.kernels))  # and slow, but shared scales are few
    parts = parts[: 1 if wide else -(-_FRESH_ROWS * _PARTS // len(learner.rows))]
    found = []
    for part in parts:
        seen = np.setdiff1d(learner.rows, part)
        learned = [learn_kind(learner, kind, shared, targets, seen, ITERATIONS // 2) for kind in kinds]
        left_out = [learner.condition(prior, targets).left_out[part] for prior in learned]
        found.append(torch.stack(left_out, dim=-1))
    return np.concatenate(parts), torch.cat(found)


def stacked(
    predictions: np.ndarray,  # (F, O, K)
    targets: np.ndarray,  # (F, O)
    row_weights: np.ndarray,  # (F,)
    usual: np.ndarray,  # (K,)
    usual_rows: float = USUAL_ROWS,
) -> np.ndarray:  # (K,)
    """The weights, none below 0 and of sum 1, under which the predictions' mean has the least squares.

    ``usual``: the weights before any row is seen, which count as much as ``usual_rows``. No row counts for more than if
    its error, under the usual weights, were a few times the median.

    >>> y = np.random.default_rng(0).standard_normal((200, 1))
    >>> stacked(np.stack([y, -y], axis=-1), y, np.ones(200), np.array([0.5, 0.5])).round(2)
    array([1., 0.])
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
    weights, sure = usual, 1e3 * len(rows) ** 0.5
    # How far the usual weights hold depends on the noise, which is what the weights leave: where there is next to none,
    # the usual ones leave the errors of priors that do not suit the table.
    for _ in range(_TURNS):
        noise = _mean_square(torch.from_numpy(targets - predictions @ weights), row_weights)
        # Beside targets of variance 1: weights that make no difference are the usual ones also where there is no noise.
        pull = (usual_rows * targets.shape[1] * max(noise, 1e-8)) ** 0.5
        left = np.vstack([rows, pull * np.eye(kinds), np.full((1, kinds), sure)])
        right = np.concatenate([(targets * root).ravel(), pull * usual, [sure]])
        # Not nnls, which before SciPy 1.15 squares the condition of what is nearly the same in every column.
        weights = lsq_linear(left, right, (0, np.inf), method="bvls", tol=1e-15, max_iter=100).x
        weights = weights / weights.sum()
    return weights


def _mean_square(values: Tensor, weights: np.ndarray) -> float:  # (F, O), (F,)
    return 0.0 if not len(values) else float(np.average(values.square().mean(dim=1).cpu().numpy(), weights=weights))
