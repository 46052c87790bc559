"""A fitted model conditioned on more rows: the scales, knots, transform and noise of the first fit, a new posterior.

Nothing that is kept depends on the order in which rows came: the noise of a new row (its ``level`` and, under Student's
noise, its precision) is what the first fit says of it, and rows are solved in an order that depends on what they hold.
So batches one after the other give what all rows at once do.

A level of a category that the first fit did not see becomes a state of its own. Columns stay centred under the rows of
the first fit, where the level had no share, so that the covariance of all others is what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.stats import gamma

from restt._common.devices import fitting_threads
from restt.prior.fitting import Members, weighted
from restt.prior.gp import cholesky, condition
from restt.prior.joint import Joint, members_of
from restt.prior.kernel import Kernel
from restt.prior.model import Fitted, finish
from restt.prior.objective import Data
from restt.prior.predictive import Predictive
from restt.prior.rows import NORMAL_TAIL, FitRows, content_order, copies, tail_precision
from restt.prior.settings import Settings
from restt.prior.sites import rows_of
from restt.prior.warp import Warp


@torch.no_grad()
def with_new(
    spread: Predictive,
    kernel: Kernel,
    warp: Warp,
    seen: FitRows,
    numbers: np.ndarray,  # (B, C)
    targets: np.ndarray,  # (B, O)
    weights: np.ndarray,  # (B,)
) -> FitRows:
    """The rows and new ones, with the noise that the first fit expects of them."""
    rows, inducing = rows_of(kernel.sites, numbers), rows_of(kernel.sites, seen.inducing)
    found = [
        process.covariance(rows, inducing) @ torch.from_numpy(mean)
        for process, mean in zip(replace(spread, kernel=kernel).processes, seen.means, strict=True)
    ]
    level = weighted(found, spread.weights)
    precision = np.ones(len(weights))
    if seen.tail >= NORMAL_TAIL:
        squares = (torch.from_numpy(warp.encode(targets)) - level).square().mean(1) / seen.variance
        precision = tail_precision(squares, seen.tail).numpy()
    new = replace(seen, numbers=numbers, targets=targets, weights=weights, precision=precision)
    return seen.beside(replace(new, level=level.mean(1).numpy()))


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


def with_levels(kernel: Kernel, levels: Sequence[tuple[int, int]]) -> Kernel:
    """The kernel with more levels: (place, count) of those inserted among the states of each column."""
    sites, means = list(kernel.sites), list(kernel.means)
    for n, (place, count) in enumerate(levels):
        if count:
            sites[n] = replace(sites[n], levels=sites[n].levels + count)
            means[n] = torch.cat([means[n][:place], means[n].new_zeros(count), means[n][place:]])
    return Kernel(sites, means, kernel.moments, kernel.layout.outputs)


@torch.no_grad()
def condition_on(
    spread: Predictive,
    kernel: Kernel,  # its own, with the levels that came later
    warp: Warp,
    seen: FitRows,  # all rows
    names: tuple[str, ...],
    *,
    bond_dim: int | str = "auto",
    settings: Settings,
) -> Fitted:
    """The model of a first fit conditioned on these rows."""
    kept, weights = copies(seen.numbers, seen.targets, seen.weights)
    seen = replace(seen.take(kept), weights=weights)
    seen = seen.take(content_order(seen.numbers, seen.targets, seen.seed))
    settings = replace(settings, constant=spread.settings.constant, least_noise=spread.settings.least_noise)
    count = min(len(seen), settings.scale_rows)
    encoded = torch.from_numpy(warp.encode(seen.targets))
    parts = (torch.from_numpy(part) for part in (seen.weights, seen.precision, seen.level))
    data = Data(rows_of(kernel.sites, seen.numbers), encoded, *parts)
    some = data.take(torch.arange(count))
    with fitting_threads(float(count) ** 2 * len(kernel.sites) * settings.fewest_knots):
        processes = replace(spread, kernel=kernel, settings=settings).processes
        posteriors = tuple(condition(process, some, some.z) for process in processes)
        members = Members(posteriors, spread.weights, warp, some, some.z, seen.tail, 0)
        return finish(kernel, members, data, seen, names, bond_dim, settings, dense=False)
