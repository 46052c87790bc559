"""Hyper-parameters by maximum a posteriori, one set for each component of the hyper-prior, and their average.

1. The first component, which has all terms, is fitted from several starts on a few hundred rows, and from the best of
   them on as many rows as lie in the middle (geometric mean) of these and all.
2. Its leave-one-out predictions give the tails of the noise and how it grows with the prediction. With these it is
   fitted to all rows, up to a few thousand, and every other component to the few hundred.
3. Members are averaged by stacking: weights, none below 0 and of sum 1, that minimise the squared error of
   leave-one-out predictions, with the components' own weights counting as a number of rows.

What is maximised is the log marginal likelihood of the rows plus the log prior of the hyper-parameters. With A = K +
diag(σ_i²/w_i) and t the warped, standardised targets (B, O), the negative objective is, up to constants,

    O/2 log det A + ½ Σ_o t_oᵀ A⁻¹ t_o + O/2 Σ_i (w_i - 1) log σ_i² - Σ_io log dt_io/dy_io - log p(θ)

The third sum makes a row of weight 2 the same as two rows. The noise σ_i² is log-linear in the columns of numbers and
in a leave-one-out prediction of the row. The gradient by K is ½ (O A⁻¹ - A⁻¹ t tᵀ A⁻¹); :mod:`restt.prior.pairs`
takes it back to the tables, automatic differentiation from there to the hyper-parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from scipy.optimize import lsq_linear, minimize, minimize_scalar
from scipy.special import gammaln
from threadpoolctl import threadpool_limits
from torch import Tensor

from restt.prior.gp import Data, Posterior, Process, condition, factorise, invert, log_noise, solve, term_mask
from restt.prior.kernel import Kernel
from restt.prior.pairs import covariance, pull_back
from restt.prior.rows import tail_precision
from restt.prior.settings import GLOBAL, Component, Settings, log_prior
from restt.prior.warp import Warp, log_slope, yeo_johnson

T = TypeVar("T")
# So many times the rows of the first searches take one thread as long as those of the other components together.
_ALONE = 1.5
_WORST = 1e10


def power_of(warp: Tensor) -> Tensor:
    """Yeo and Johnson's power, between 0 and 2, from its hyper-parameter."""
    return 1 + 0.99 * torch.tanh(warp)


class Objective:
    """The negative objective with its gradient, as a function of hyper-parameters in units of their prior."""

    def __init__(
        self,
        kernel: Kernel,
        component: Component,
        data: Data,
        constant: float,
        least_noise: float,
        fixed_warp: Tensor | None = None,  # (O,)
    ) -> None:
        self.kernel, self.data, self.constant, self.least_noise = kernel, data, constant, least_noise
        self.centre, self.scale, self.degrees = kernel.layout.densities(component.densities, data.z)
        self.mask = term_mask(component, data.z)
        self.features = kernel.noise_features(data.rows)
        self.fixed_warp = fixed_warp
        self.evaluations = 0
        slopes = log_slope(data.z.cpu().numpy())
        self._slopes = torch.from_numpy(data.weights.cpu().numpy() @ slopes).to(data.z)  # (O,)

    @property
    def starts(self) -> list[Tensor]:
        """Starts of searches: the centre of the prior, and little noise with columns that all matter."""
        other, columns = self.centre.clone(), float(np.log(self.kernel.layout.varying))
        for name, value in (("noise", -3.0), ("smooth", -0.5), ("a", 0.5 - columns), ("j", 0.5 - columns)):
            other[GLOBAL.index(name)] = value
        return [self.centre, other]

    def theta(self, units: np.ndarray) -> Tensor:
        """Hyper-parameters from units of their prior."""
        return self.centre + self.scale * torch.from_numpy(units).to(self.centre)

    def units(self, theta: Tensor) -> np.ndarray:
        """The inverse of :meth:`theta`."""
        return ((theta - self.centre) / self.scale).cpu().numpy()

    def __call__(self, units: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient; a large value where the covariance has no Cholesky factor."""
        self.evaluations += 1
        try:
            value, gradient = self._evaluate(self.theta(units))
        except torch.linalg.LinAlgError:
            return _WORST, np.zeros_like(units)
        if not (np.isfinite(value) and bool(gradient.isfinite().all())):
            return _WORST, np.zeros_like(units)
        return value, (gradient * self.scale).cpu().numpy()

    @torch.enable_grad()
    def _evaluate(self, theta: Tensor) -> tuple[float, Tensor]:
        theta = theta.requires_grad_()
        data, h = self.data, self.kernel.layout.split(theta)
        tables, scale = self.kernel.tables(theta)
        scale = scale * self.mask
        power = power_of(h["warp"] if self.fixed_warp is None else self.fixed_warp)
        value = yeo_johnson(data.z, power)
        share = data.weights / data.weights.sum()
        centred = value - share @ value
        std = (share @ centred.square()).sqrt().clamp(min=1e-12)
        targets = centred / std  # (B, O)
        variance = log_noise(h, self.features, data.level).exp() + self.least_noise
        noise = variance / (data.weights * data.precision)
        outputs, total = targets.shape[1], data.weights.sum()
        repeated = outputs / 2 * ((data.weights - 1) * variance.log()).sum()
        # The part that automatic differentiation sees: the prior, the Jacobian and the weights.
        rest = total * std.log().sum() - ((power - 1) * self._slopes).sum() + repeated
        rest = rest - log_prior(theta, self.centre, self.scale, self.degrees)
        plain, plain_scale = replace(tables, flat=tables.flat.detach()), scale.detach()
        matrix = covariance(plain, plain_scale, data.rows, half=True).add_(self.constant)
        matrix.diagonal().add_(noise.detach())
        lower = factorise(matrix)
        solved = solve(lower, targets.detach())  # (B, O)
        fit = outputs * lower.diagonal().log().sum() + 0.5 * (targets.detach() * solved).sum()
        slope = invert(lower).mul_(0.5 * outputs).addmm_(solved, solved.T, alpha=-0.5)
        by_table, by_scale = pull_back(plain, plain_scale, data.rows, slope)
        ends = [tables.flat, scale, noise, targets, rest]
        slopes = [by_table, by_scale, slope.diagonal().clone(), solved, torch.ones_like(rest)]
        # One sum, without gradients of its own: given them, torch imports sympy, a second of a process's first fit.
        parts = [(end * by).sum() for end, by in zip(ends, slopes, strict=True) if end.requires_grad]
        torch.stack(parts).sum().backward()
        assert theta.grad is not None
        return float(fit + rest.detach()), theta.grad


@dataclass(frozen=True, eq=False)
class Members:
    """Posteriors of one transform of y under several hyper-parameters, and their weights."""

    posteriors: tuple[Posterior, ...]
    weights: np.ndarray  # (M,)
    warp: Warp
    data: Data
    targets: Tensor  # (B, O)
    tail: float  # 1/ν of the noise
    evaluations: int

    @property
    def loo_mean(self) -> Tensor:  # (B, O)
        """Leave-one-out means of the average."""
        return weighted([one.loo_mean for one in self.posteriors], self.weights)

    @property
    def loo_variance(self) -> Tensor:  # (B,)
        """Leave-one-out variance of an observation: within the members, and between them."""
        within = weighted([one.loo_variance for one in self.posteriors], self.weights)
        middle = self.loo_mean
        return within + weighted([(one.loo_mean - middle).square().mean(1) for one in self.posteriors], self.weights)


def weighted(parts: Sequence[Tensor], weights: np.ndarray) -> Tensor:
    """Σ_m weight_m part_m."""
    return sum((float(weight) * part for weight, part in zip(weights, parts, strict=True)), torch.zeros_like(parts[0]))


def fit_members(
    kernel: Kernel, data: Data, warp: Warp, y: np.ndarray, sample: Tensor, settings: Settings, threads: int = 1
) -> Members:
    """Fit all members; ``sample`` are the rows of the first fits, done so many at a time."""
    first, *others = settings.components
    given = settings.constant, settings.least_noise
    start = Objective(kernel, first, data.take(sample), *given)
    theta = _best_of(start, start.starts, settings.first_iterations, threads)
    count = round((len(sample) * len(y)) ** 0.5)
    middle = Objective(kernel, first, data.take(torch.arange(count, device=sample.device)), *given)
    theta = climb(middle, theta, settings.iterations)
    warp_at = kernel.layout.split(theta)["warp"]
    begun_warp, targets = _warped(warp, warp_at, y, data)
    begun = condition(Process(kernel, theta, first, settings), data, targets)
    data, tail = _with_tails(data, begun, targets, settings.tail)
    part = data.take(sample)
    objectives = [Objective(kernel, first, data, *given)]
    objectives += [Objective(kernel, one, part, *given, warp_at) for one in others]
    starts = [theta, *(one.centre for one in objectives[1:])]
    counts = [settings.last_iterations] + [settings.other_iterations] * len(others)
    tasks = [partial(climb, one, begin, count) for one, begin, count in zip(objectives, starts, counts, strict=True)]
    # A search on many rows fills all threads by itself.
    alone = int(len(y) > _ALONE * len(sample))
    thetas = [task() for task in tasks[:alone]] + side_by_side(tasks[alone:], threads)
    warp, targets = _warped(begun_warp, kernel.layout.split(thetas[0])["warp"], y, data)
    posteriors = [
        condition(Process(kernel, theta, component, settings), data, targets)
        for theta, component in zip(thetas, settings.components, strict=True)
    ]
    usual = np.array([component.weight for component in settings.components])
    loo_mean = torch.stack([one.loo_mean for one in posteriors], -1).cpu().numpy()
    precision = (data.weights * data.precision).cpu().numpy()
    weights = stacked(loo_mean, targets.cpu().numpy(), precision, usual / usual.sum(), settings.stacking_rows)
    kept = [k for k in np.argsort(-weights, kind="stable") if weights[k] >= settings.LEAST_WEIGHT]
    weights = weights[kept] / weights[kept].sum()
    evaluations = sum(one.evaluations for one in (start, middle, *objectives))
    return Members(tuple(posteriors[k] for k in kept), weights, warp, data, targets, tail, evaluations)


def condition_members(
    processes: Sequence[Process], weights: np.ndarray, data: Data, warp: Warp, y: np.ndarray, tail: float
) -> Members:
    """Members whose hyper-parameters are known, given other rows."""
    targets = torch.from_numpy(warp.encode(y)).to(data.z)
    begun = condition(processes[0], data, targets)
    data, tail = _with_tails(data, begun, targets, Settings.tail, tail)
    posteriors = tuple(condition(process, data, targets) for process in processes)
    return Members(posteriors, weights, warp, data, targets, tail, 0)


def _best_of(objective: Objective, starts: Sequence[Tensor], iterations: int, threads: int) -> Tensor:
    """The best hyper-parameters that searches from the starts found."""
    found = side_by_side([partial(_climbed, objective, start, iterations) for start in starts], threads)
    return min(found, key=lambda end: end[0])[1]


def side_by_side(tasks: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """Results of searches, so many at a time, each on one of torch's threads: their matrices are small."""
    before = torch.get_num_threads()
    if threads == 1:
        return [task() for task in tasks]
    try:
        with (
            threadpool_limits(1, "blas"),
            ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
        ):
            return list(pool.map(lambda task: task(), tasks))
    finally:
        torch.set_num_threads(before)  # MKL's number is that of all threads


def climb(objective: Objective, start: Tensor, iterations: int) -> Tensor:
    """The best hyper-parameters that L-BFGS saw from ``start``."""
    return _climbed(objective, start, iterations)[1]


def _climbed(objective: Objective, start: Tensor, iterations: int) -> tuple[float, Tensor]:
    best: list[tuple[float, np.ndarray]] = [(np.inf, objective.units(start))]
    reached: list[float] = []

    def value(units: np.ndarray) -> tuple[float, np.ndarray]:
        found, gradient = objective(units)
        if found < best[0][0]:
            best[0] = found, units.copy()
        return found, gradient

    def after_step(_: np.ndarray) -> None:
        reached.append(best[0][0])
        if len(reached) > 3 and reached[-4] - reached[-1] < 3 * Settings.LEAST_GAIN:
            raise StopIteration

    minimize(
        value,
        best[0][1],
        jac=True,
        method="L-BFGS-B",
        callback=after_step,
        options={"maxiter": iterations, "maxfun": int(1.5 * iterations), "maxcor": 20},
    )
    return best[0][0], objective.theta(best[0][1])


def _warped(warp: Warp, at: Tensor, y: np.ndarray, data: Data) -> tuple[Warp, Tensor]:
    found = warp.with_power(power_of(at).cpu().numpy(), y, data.weights.cpu().numpy())
    return found, torch.from_numpy(found.encode(y)).to(data.z)


def _with_tails(
    data: Data, begun: Posterior, targets: Tensor, expected: float, tail: float | None = None
) -> tuple[Data, float]:
    """Precisions of the rows under Student's noise, as leave-one-out residuals tell, and levels of the noise.

    1/ν is ``tail`` or the likeliest, with an exponential prior of mean ``expected``; the precision of a row is its mean
    given the residual (an EM step).
    """
    away = (targets - begun.loo_mean).square().mean(1) / begun.loo_variance
    squares, weights = away.cpu().numpy(), data.weights.cpu().numpy()
    squares = squares / max(np.average(squares, weights=weights), 1e-300)

    def surprise(tail: float) -> float:
        return -float(weights @ student_log_density(squares, 1 / tail)) + tail / expected

    if tail is None:
        tail = float(minimize_scalar(surprise, bounds=Settings.TAILS, method="bounded").x)
    precision = student_precision(squares, weights, tail)
    residuals = (targets - begun.loo_mean).mean(1).cpu().numpy()
    if tail == Settings.TAILS[0] or one_sided(residuals, weights, precision):
        tail, precision = Settings.TAILS[0], np.ones_like(precision)
    level = begun.loo_mean.mean(1)
    return replace(data, precision=torch.from_numpy(precision).to(data.z), level=level), tail


def student_precision(squares: np.ndarray, weights: np.ndarray, tail: float) -> np.ndarray:  # (B,), (B,) -> (B,)
    """Expected precision of rows of these squared residuals, whose mean is 1, under 1/tail degrees of freedom."""
    precision = tail_precision(squares, tail)
    return np.asarray(precision / np.average(precision, weights=weights))


def one_sided(residuals: np.ndarray, weights: np.ndarray, precision: np.ndarray) -> bool:  # (B,), (B,), (B,)
    """Whether down-weighting moves the mean by more than two standard errors: rare values are then signal."""
    count = weights.sum() ** 2 / (weights**2).sum()
    error = np.sqrt(np.average((residuals - np.average(residuals, weights=weights)) ** 2, weights=weights) / count)
    moved = np.average(residuals, weights=weights * precision) - np.average(residuals, weights=weights)
    return bool(abs(moved) > 2 * error)


def student_log_density(squares: np.ndarray, degrees: float) -> np.ndarray:
    """Log density of values of these squares under Student's t of variance 1."""
    inner = degrees - 2
    constant = gammaln((degrees + 1) / 2) - gammaln(degrees / 2) - 0.5 * np.log(np.pi * inner)
    return np.asarray(constant - (degrees + 1) / 2 * np.log1p(squares / inner))


def stacked(
    predictions: np.ndarray,  # (B, O, M)
    targets: np.ndarray,  # (B, O)
    row_weights: np.ndarray,  # (B,)
    usual: np.ndarray,  # (M,)
    usual_rows: float,
) -> np.ndarray:  # (M,)
    """The weights, none below 0 and of sum 1, under which the predictions' mean has the least squared error.

    ``usual``: the weights before any row is seen, which count as much as ``usual_rows``.

    >>> y = np.random.default_rng(0).standard_normal((200, 1))
    >>> stacked(np.stack([y, -y], axis=-1), y, np.ones(200), np.array([0.5, 0.5]), 50).round(2)
    array([1., 0.])
    """
    members = predictions.shape[2]
    root = np.sqrt(row_weights / row_weights.mean())[:, None]
    rows = (predictions * root[..., None]).reshape(-1, members)
    weights, sure = usual, 1e3 * len(rows) ** 0.5
    # How much the usual weights count depends on the noise, which is what the weights leave.
    for _ in range(3):
        noise = float(np.average(((targets - predictions @ weights) ** 2).mean(1), weights=row_weights))
        pull = (usual_rows * targets.shape[1] * max(noise, 1e-8)) ** 0.5
        left = np.vstack([rows, pull * np.eye(members), np.full((1, members), sure)])
        right = np.concatenate([(targets * root).ravel(), pull * usual, [sure]])
        weights = lsq_linear(left, right, (0, np.inf), method="bvls", tol=1e-15, max_iter=100).x
        weights = weights / weights.sum()
    return weights
