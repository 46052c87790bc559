"""The joint covariance of several rows under the averaged posteriors.

    C(x, x') = Σ_m w_m C_m(x, x') + Σ_m w_m (μ_m(x) - μ(x)) (μ_m(x') - μ(x')),       C_m = k - k_Z WᵀW k_Z

Of the members' posteriors, by their roots W over inducing rows Z (:mod:`restt.prior.calibration`), and of their means:
what members disagree on is unknown too. Outputs are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import gamma
from torch import Tensor

from restt.prior.gp import Process, cholesky
from restt.prior.pairs import Rows
from restt.prior.predictive import Predictive
from restt.prior.settings import learned_components
from restt.prior.sites import rows_of
from restt.prior.warp import Warp


@dataclass(frozen=True, eq=False)
class Member:
    """A process conditioned on inducing rows, and its share in the average."""

    weight: float
    process: Process
    inducing: Rows
    root: Tensor  # (M, M)
    mean: Tensor | None  # (M, O): None where the average takes its covariance only


def members_of(spread: Predictive) -> list[Member]:
    """The members of a fitted model."""
    return [Member(weight, process, spread.inducing, root, mean) for weight, process, root, mean in spread.members]


@torch.no_grad()
def with_centre(spread: Predictive) -> list[Member]:
    """The members and the centre of the hyper-prior, which counts as many rows as in the stacking of members.

    Scales learned on a few dozen rows may miss what matters; under the centre all columns are alike.
    """
    settings, component = spread.settings, learned_components()[0]
    share = settings.stacking_rows / (settings.stacking_rows + spread.rows)
    members = [
        Member((1 - share) * one.weight, one.process, one.inducing, one.root, one.mean) for one in members_of(spread)
    ]
    centre, _, _ = spread.kernel.layout.densities(component.densities, spread.thetas)
    process = Process(spread.kernel, centre, component, settings)
    noise = process.noise(spread.inducing, centre.new_zeros(len(spread.inducing)))
    lower = cholesky(process.covariance(spread.inducing), noise)
    root = torch.linalg.solve_triangular(lower, torch.eye(len(lower)).to(lower), upper=False)
    return [*members, Member(share, process, spread.inducing, root, None)]


class Joint:
    """Rows whose joint covariance with others is asked for."""

    @torch.no_grad()
    def __init__(self, members: Sequence[Member], numbers: np.ndarray) -> None:  # (B, C)
        self.members, self.rows = members, rows_of(members[0].process.kernel.sites, numbers)
        self.known: list[Tensor] = []  # of each member W k_Z, (M, B)
        means, total = [], sum(one.weight for one in members if one.mean is not None)
        for one in members:
            cross = one.process.covariance(one.inducing, self.rows)
            self.known.append(one.root @ cross)
            means.append(None if one.mean is None else cross.T @ one.mean)
        parts = zip(members, means, strict=True)
        self.mean = torch.stack([one.weight / total * mean for one, mean in parts if mean is not None]).sum(0)  # (B, O)
        size = self.mean.shape[1] ** 0.5
        self.away = [torch.zeros_like(self.mean) if mean is None else (mean - self.mean) / size for mean in means]

    @torch.no_grad()
    def covariance(self, other: Joint, places: slice | list[int] = slice(None)) -> Tensor:  # (B, places)
        """C between these rows and some of the other's."""
        theirs = other.rows.take(places if isinstance(places, slice) else torch.tensor(places))
        found = self.mean.new_zeros(len(self.rows), len(theirs))
        for one, mine, known, near, far in zip(
            self.members, self.known, other.known, self.away, other.away, strict=True
        ):
            own = one.process.covariance(self.rows, theirs) - mine.T @ known[:, places] + near @ far[places].T
            found += one.weight * own
        return found

    @torch.no_grad()
    def variance(self) -> Tensor:  # (B,)
        """C of each row with itself."""
        found = self.mean.new_zeros(len(self.rows))
        for one, known, away in zip(self.members, self.known, self.away, strict=True):
            found += one.weight * (one.process.variance(self.rows) - known.square().sum(0) + away.square().sum(1))
        return found.clamp(min=0)

    @torch.no_grad()
    def noise(self, level: Tensor) -> Tensor:  # (B,) -> (B,)
        """Variance of the noise of rows of weight 1 whose predictions are these."""
        return torch.stack([one.weight * one.process.noise(self.rows, level) for one in self.members]).sum(0)


def surprise(
    spread: Predictive,
    warp: Warp,
    numbers: np.ndarray,  # (B, C)
    targets: np.ndarray,  # (B, O)
    weights: np.ndarray,  # (B,)
    most: int,
) -> float:
    """Probability, under the model, of new rows whose log predictive density is at least as far from what it expects.

    The whitened residuals of the rows, jointly normal under the model, have a sum of squares whose mean and variance
    are those of the residuals that its intervals are made from; it is taken as gamma distributed. Two-sided. Of more
    than ``most`` rows, these are judged.
    """
    if not len(weights):
        return 1.0
    some = np.linspace(0, len(weights) - 1, min(len(weights), most)).astype(np.int64)
    numbers, targets, weights = numbers[some], targets[some], weights[some]
    joint = Joint(members_of(spread), numbers)
    level = joint.mean.mean(1)
    matrix = joint.covariance(joint)
    lower = cholesky(matrix, joint.noise(level) / torch.from_numpy(weights) + max(spread.extra, 0.0))
    away = torch.from_numpy(warp.encode(targets)) - joint.mean
    squares = torch.linalg.solve_triangular(lower, away, upper=False).square().numpy()
    levels = (np.arange(400) + 0.5) / 400
    usual = np.stack([spread.quantile(one) for one in levels]) ** 2  # (400, O)
    mean, variance = len(squares) * usual.mean(axis=0).sum(), len(squares) * usual.var(axis=0).sum()
    if not mean > 0 < variance:  # y was constant
        return 1.0
    expected = gamma(a=mean**2 / variance, scale=variance / mean)
    return float(2 * min(expected.cdf(squares.sum()), expected.sf(squares.sum())))
