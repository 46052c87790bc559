"""Gaussian processes of the logits: four kernels, each times several factors, conditioned through inducing rows.

A function with covariance K = Φ Φᵀ over the rows is f = Φ u with u ~ N(0, 1). The mode of the posterior of u under the
softmax likelihood is a logistic regression on the features Φ with an L2 penalty, and so is the mode given only some of
the rows: folds share the features. They are the principal axes of the kernel among inducing rows (Nyström), in which
the curvature is nearly diagonal.

The first kernel is the regressor's, with hyper-parameters that maximise the evidence of the classes taken as numbers
(label regression); every fold learns them from the rows outside of it. In the others all columns count the same:
straight lines, which is logistic regression, smooth main effects, and a Gaussian kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from scipy.linalg import helmert
from scipy.linalg.lapack import dpstrf
from scipy.optimize import minimize
from torch import Tensor

from restt._common.devices import fitting_threads
from restt.diagonal import DiagonalTT
from restt.estimators.class_rows import ClassRows
from restt.prior.fitting import Objective, climb, side_by_side
from restt.prior.gp import Data, Posterior, Process
from restt.prior.kernel import Kernel, relevance_of
from restt.prior.laplace import MOST_UNKNOWNS, LogitPosterior, Mode
from restt.prior.rounding import Sample, diagonal_module, round_products
from restt.prior.settings import Component, Settings

# The logit of a straight line's share that is as good as 1; the logarithm of a relevance that is as good as 0.
_ALL_LINE, _NONE = 20.0, -40.0
# Variances, and shares of the largest variance of an axis and of the mean one of a row, that are as good as 0.
_LEAST, _LEAST_AXIS, _LEAST_PIVOT = 1e-12, 1e-6, 1e-7


@dataclass(frozen=True, eq=False)
class Axes:
    """Features of rows in the kernel's principal axes among inducing rows Z: ``values`` = K(rows, Z) ``directions``."""

    values: Tensor  # (B, M) float32, which halves the time of a search
    directions: Tensor  # (Z, M)
    size: float  # that the kernel is divided by, for a variance of 1 among Z

    def logits(self, modes: Tensor) -> Tensor:  # (…, M + 1, K) -> (…, B, K)
        """Logits of the rows under coefficients of the axes and a constant."""
        return (self.values @ modes[..., :-1, :].float()).double() + modes[..., -1:, :]


@dataclass(frozen=True, eq=False)
class Searched:
    """Modes of the posteriors of one kernel under every factor, given the rows outside of some folds."""

    axes: Axes
    modes: Tensor  # (P, F, M + 1, K)
    logits: Tensor  # (P, F, B, K)


@dataclass(frozen=True, eq=False)
class Kernels:
    """Kernels of the logits, each a candidate under several factors."""

    rows: ClassRows
    processes: dict[str, Process]  # of all rows
    by_fold: tuple[Process, ...]  # of the kernel whose hyper-parameters are learned

    @classmethod
    def learned(cls, rows: ClassRows, prior: Settings) -> Kernels:
        """The kernels that rows and columns leave time for, the first one's hyper-parameters learned."""
        settings = rows.settings
        outputs = 1 if rows.classes == 2 else rows.classes
        kernel = Kernel.measured(rows.sites, rows.codes, torch.from_numpy(rows.weights), outputs)
        processes = {"linear": _alike(kernel, prior, "sum", _ALL_LINE, "r", _NONE)}
        by_fold: list[Process] = []
        if not settings.is_costly(len(rows), len(rows.sites)):
            width = float(np.log(settings.width / kernel.layout.varying))
            if kernel.numbers:
                processes["additive"] = _alike(kernel, prior, "sum", 0.0, "r", _NONE)
            processes["gaussian"] = _alike(kernel, prior, "joint", 0.0, "w", width)
            if rows.is_judged and rows.learned >= min(len(rows), settings.fewest_learned):
                processes["process"], *by_fold = learn(rows, kernel, prior)
        return cls(rows, processes, tuple(by_fold))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the candidates: kernels · factors."""
        return tuple(f"{kind}, factor {1 / p:g}" for kind in self.processes for p in self.rows.settings.penalties)

    @property
    def relevance(self) -> np.ndarray:  # (N,): zeros where no process was learned
        """Prior variance of each column's main effect."""
        return relevance_of(self.processes["process"]) if self.by_fold else np.zeros(len(self.rows.sites))

    def searches(self) -> list[Callable[[], Searched]]:
        """Tasks that :meth:`held_out` and :meth:`solve` take the results of; none where rows are too few to judge by.

        Folds share the axes of a kernel of which nothing is learned, and are searched side by side.
        """
        parts = self.rows.parts
        shared = [(process, parts) for kind, process in self.processes.items() if kind != "process"]
        learned = [(process, (part,)) for process, part in zip(self.by_fold, parts, strict=False)]
        return [partial(self._search, *group) for group in [*shared, *learned]] if self.rows.is_judged else []

    @torch.no_grad()
    def _search(self, process: Process, parts: Sequence[np.ndarray]) -> Searched:
        axes = principal_axes(self.rows, process, len(parts))
        modes = class_modes(self.rows, axes, parts, self.rows.settings.penalties)
        return Searched(axes, modes, axes.logits(modes))

    def held_out(self, found: Sequence[Searched]) -> np.ndarray:  # (kernels · factors, B, K)
        """Logits of each row by the modes that did not see it."""
        if not found:
            return np.zeros((0, len(self.rows), self.rows.classes))
        shared = len(found) - len(self.by_fold)
        logits = [one.logits for one in found[:shared]]
        if self.by_fold:
            logits.append(torch.cat([one.logits for one in found[shared:]], 1))
        return self.rows.held_out(torch.cat(logits).numpy())

    @torch.no_grad()
    def solve(self, shares: np.ndarray, found: Sequence[Searched] = ()) -> LogitSum:  # (kernels · factors,)
        """The average under these shares, conditioned on all rows; searches of folds are begun from."""
        rows, settings = self.rows, self.rows.settings
        constant, posteriors, empty = np.zeros(rows.classes), [], torch.zeros(0, dtype=torch.float64)
        found_modes: list[Mode] = []
        begun = dict(zip(self.processes, found, strict=False))
        if len(self.by_fold) > 1:
            begun.pop("process", None)  # the folds' axes are of other hyper-parameters
        for kind, share in zip(self.processes, shares.reshape(len(self.processes), -1), strict=True):
            used = torch.from_numpy(np.flatnonzero(share))
            if not len(used):
                continue
            before = begun.get(kind)
            axes = principal_axes(rows, self.processes[kind], 1) if before is None else before.axes
            starts = None if before is None else before.modes[used, -1:]
            penalties = [settings.penalties[place] for place in used.tolist()]
            modes = class_modes(rows, axes, [np.arange(len(rows))], penalties, starts)[:, 0]
            logits = replace(axes, values=axes.values[:MOST_UNKNOWNS]).logits(modes).numpy()
            factors = [1 / (penalty * axes.size) for penalty in penalties]
            parts = zip(torch.from_numpy(share)[used].tolist(), factors, logits, strict=True)
            found_modes += [Mode(self.processes[kind], *each) for each in parts]
            mean = torch.tensordot(torch.from_numpy(share)[used], modes, 1)  # (M + 1, K)
            constant += mean[-1].numpy()
            inducing = rows.codes.take(slice(len(axes.directions)))
            posteriors.append(Posterior(self.processes[kind], inducing, axes.directions @ mean[:-1], empty, empty))
        return LogitSum(rows, tuple(posteriors), constant, tuple(found_modes))


@dataclass(frozen=True, eq=False)
class LogitSum:
    """A weighted sum of posterior means of the logits: main effects, and a sum of products over sites."""

    rows: ClassRows
    posteriors: tuple[Posterior, ...]
    constant: np.ndarray  # (K,)
    modes: tuple[Mode, ...]

    def posterior(self, shares: float) -> LogitPosterior | None:
        """The posterior of the kernels, and of the classes' shares with this weight; None without kernels."""
        if not self.modes or self.rows.classes < 2:
            return None
        process, logits = self.modes[0].process, np.tile(self.rows.shares, (len(self.modes[0].logits), 1))
        plain = replace(process, component=replace(process.component, name="shares", terms=()))
        modes = [*self.modes, *([Mode(plain, shares, 1.0, logits)] if shares > 0 else [])]
        return LogitPosterior.of(modes, self.rows.table, self.rows.weights)

    @cached_property
    def effects(self) -> list[Tensor]:  # N of (I_n, K)
        """Main effects of all posteriors together."""
        total = [torch.zeros(site.width, self.rows.classes, dtype=torch.float64) for site in self.rows.sites]
        for posterior in self.posteriors:
            for n, effect in enumerate(posterior.effects()):
                total[n] += effect.T
        return total

    def additive_cores(self, order: Sequence[int], largest: int) -> list[Tensor]:  # N of (left, I_n, right)
        """The train of the constant and the main effects, whose bond is the rank of the effects and one more."""
        effects, constant = [self.effects[n] for n in order], torch.from_numpy(self.constant)
        if len(effects) == 1:
            return [(effects[0] + constant)[None]]
        left, sizes, basis = torch.linalg.svd(torch.cat(effects), full_matrices=False)
        rank = min(int((sizes > _LEAST * sizes[0]).sum()), largest - 1)
        slopes = (left * sizes)[:, :rank].split([len(effect) for effect in effects])
        cores = []
        for own in slopes:
            core = own.new_zeros(rank + 1, len(own), rank + 1)
            core[torch.arange(rank + 1), :, torch.arange(rank + 1)] = 1.0
            core[rank, :, :rank] = own
            cores.append(core)
        cores[0] = cores[0][rank:]
        cores[-1] = cores[-1] @ torch.cat([basis[:rank], constant[None]])
        return cores

    def diagonal(self, order: Sequence[int]) -> DiagonalTT:
        """The sum without error, a state for each inducing row and product term."""
        module = diagonal_module(self.posteriors, np.ones(len(self.posteriors)), order)
        module.constant += torch.from_numpy(self.constant)
        return module

    @torch.no_grad()
    def product_cores(self, order: Sequence[int], largest: int, patient: bool = True) -> tuple[list[Tensor], float]:
        """The train of the products, of the least bond within the tolerance or the largest allowed, and its error.

        There are no cores where no kernel has products. The largest is not tried, unless ``patient``, where smaller
        ones are so far off that it is unlikely to do.
        """
        parts = [one.products() for one in self.posteriors if bool((one.process.scale[:3] > 0).any())]
        if not parts:
            return [], 0.0
        settings, kernel = self.rows.settings, self.posteriors[0].process.kernel
        coefficients = torch.cat([part[0] for part in parts])
        factors = [torch.cat([part[1][n] for part in parts]) for n in order]
        moments = [kernel.means[n] if kernel.sites[n].knots is None else kernel.moments[n] for n in order]
        sample = self.rows.first(settings.step_rows)
        states = sample.states
        exact = sum((one.mean(sample.codes) for one in self.posteriors), torch.zeros(()))
        for vectors, effect in zip(states, self.effects, strict=True):
            exact = exact - vectors @ effect
        measured = Sample([states[n] for n in order], exact, torch.from_numpy(sample.weights))
        bonds = sorted({min(bond, largest) for bond in (*settings.first_bonds, largest)})
        for left, bond in zip(reversed(range(len(bonds))), bonds, strict=True):
            cores, rounding = round_products(coefficients, factors, moments, bond, settings.tolerance, measured)
            # A bond of twice the size has seldom less than a quarter of the error.
            least, most = settings.tolerance, np.inf if patient else settings.tolerance * 4.0**left
            if not least < rounding.distance <= most:
                break
        return cores, rounding.distance


def _alike(kernel: Kernel, prior: Settings, term: str, line: float, name: str, value: float) -> Process:
    """A process of one term in which all columns count the same; ``name`` is a hyper-parameter that is not 0."""
    theta = torch.zeros(len(kernel.layout.names), dtype=torch.float64)
    kernel.layout.split(theta)["number.line"].fill_(line)
    theta[kernel.layout.names.index(name)] = value
    return _without_constant(kernel, theta, replace(prior.components[0], terms=(term,)), prior)


def _without_constant(kernel: Kernel, theta: Tensor, component: Component, prior: Settings) -> Process:
    """A process of logits, which have a constant of their own that is not penalised."""
    return Process(kernel, theta, component, replace(prior, constant=0.0))


def learn(rows: ClassRows, kernel: Kernel, prior: Settings) -> list[Process]:
    """Processes with the hyper-parameters of largest evidence for the one-hot classes: of all rows, and of each fold.

    All rows choose where the folds' searches start: at which of the prior's starts, not at what they found. A single
    fold's process, of a random sample of rows like any other, is also that of all rows.
    """
    settings, weights, targets = rows.settings, torch.from_numpy(rows.weights), _standardised(rows)
    component, count, threads = prior.components[0], rows.learned, torch.get_num_threads()

    def objective(part: np.ndarray) -> Objective:
        # Rows are in a random order.
        used = torch.from_numpy(part[rows.weights[part] > 0][:count])
        ones = torch.ones(len(used), dtype=torch.float64)
        data = Data(rows.codes.take(used), targets[used], weights[used], ones, torch.zeros_like(ones))
        plain = torch.zeros(targets.shape[1], dtype=torch.float64)
        return Objective(kernel, component, data, prior.constant, prior.least_noise, plain)

    parts = rows.parts if rows.searches == 1 else (np.arange(len(rows)), *rows.parts)
    with fitting_threads(float(count) ** 2 * len(rows.sites)):
        first, *others = [objective(part) for part in parts]
        starts = first.starts
        begun = side_by_side([partial(climb, first, start, settings.first_iterations) for start in starts], threads)
        best = int(np.argmin([first(first.units(theta))[0] for theta in begun]))
        tasks = [partial(climb, first, begun[best], settings.iterations)]
        tasks += [partial(climb, other, starts[best], settings.iterations) for other in others]
        thetas = side_by_side(tasks, threads)
    processes = [_without_constant(kernel, theta, component, prior) for theta in thetas]
    return processes if others else processes * 2


def _standardised(rows: ClassRows) -> Tensor:  # (B, K), or (B, 1) for two classes
    """One-hot classes with mean 0 and variance 1."""
    target = np.eye(rows.classes)[rows.labels]
    share = rows.weights @ target / rows.weights.sum()
    spread = np.sqrt(share * (1 - share))
    standard = (target - share) / np.where(spread > 0, spread, 1.0)
    return torch.from_numpy(standard[:, 1:] if rows.classes == 2 else standard)


def principal_axes(rows: ClassRows, process: Process, searches: int) -> Axes:
    """Principal axes of the kernel among the first rows, scaled to a variance of 1 over them."""
    settings = rows.settings
    inducing = rows.codes.take(slice(int(settings.inducing_rows / rows.searches**0.25)))
    cross = process.covariance(rows.codes, inducing)
    own = cross[: cross.shape[1]]
    size = max(float(own.diagonal().mean() - own.mean()), _LEAST)
    squares, directions = _principal(own / size)
    most = max(int(settings.mode_work / (searches * len(rows) * max(rows.classes - 1, 1))), settings.fewest_axes)
    first = max(int((squares <= _LEAST_AXIS * max(float(squares[-1]), _LEAST)).sum()), len(squares) - most)
    directions = directions[:, first:] / size
    return Axes((cross @ directions).float(), directions, size)


def _principal(matrix: Tensor) -> tuple[Tensor, Tensor]:  # (Z, Z) -> (M,), (Z, M)
    """Eigenvalues of a covariance, rising, and its eigenvectors over their roots.

    A kernel of few dimensions, such as straight lines, has few rows that all others follow from: of these it is solved.
    """
    factor, pivots, rank, _ = dpstrf(matrix.numpy(), lower=1, tol=_LEAST_PIVOT * float(matrix.diagonal().mean()))
    if not 0 < rank <= len(matrix) // 2:
        squares, vectors = torch.linalg.eigh(matrix)
        return squares, vectors / squares.clamp(min=_LEAST).sqrt()
    places, lower = torch.from_numpy(pivots[:rank] - 1).long(), torch.from_numpy(factor[:rank, :rank]).tril()
    axes = torch.linalg.solve_triangular(lower, matrix[places], upper=False)  # (M, Z)
    squares, turn = torch.linalg.eigh(axes @ axes.T)
    directions = matrix.new_zeros(len(matrix), rank)
    directions[places] = torch.linalg.solve_triangular(lower.T, turn, upper=True)
    return squares, directions


def class_modes(
    rows: ClassRows,
    axes: Axes,
    parts: Sequence[np.ndarray],
    penalties: Sequence[float],
    starts: Tensor | None = None,  # (P, F, M + 1, K); by default the modes of the penalty before
) -> Tensor:  # (P, F, M + 1, K)
    """Coefficients of the logits under each penalty given each part of the rows, the last one a constant.

    They minimise Σ_i w_i (-log softmax(φ_i u + b)_(y_i)) + penalty/2 ‖u‖² by L-BFGS. Logits of a row sum to 0 at the
    minimum, so that K - 1 coordinates are searched. Parts are searched side by side: features are read once for all.
    """
    settings, values = rows.settings, axes.values
    basis = torch.from_numpy(helmert(rows.classes) if rows.classes > 1 else np.ones((1, 1)))  # (C, K), orthonormal
    width, count, columns = values.shape[1], len(parts), len(basis)
    weights = torch.zeros(count, 1, len(rows), dtype=torch.float64)
    for own, part in zip(weights, parts, strict=True):
        own[0, part] = torch.from_numpy(rows.weights[part])
    label = torch.from_numpy(rows.labels).expand(count, 1, -1)
    squares = torch.cat([weights[:, 0].float() @ values.square(), weights.sum(2).float()], 1).double()  # (F, M + 1)
    shrunk = (torch.arange(width + 1) < width).double()[:, None]

    def objective(scaled: np.ndarray, penalty: float, roots: Tensor) -> tuple[float, np.ndarray]:
        modes = torch.from_numpy(scaled).reshape(count, width + 1, columns) / roots
        slopes = modes[:, :-1].mT.reshape(count * columns, width).float()
        # Products with few rows on the left are several times faster than with few columns on the right.
        scores = (slopes @ values.T).double().reshape(count, columns, len(rows)) + modes[:, -1, :, None]
        logs = (basis.T @ scores).log_softmax(1)  # (F, K, B)
        loss = 0.5 * penalty * (shrunk * modes.square()).sum() - (weights * logs.gather(1, label)).sum()
        residuals = basis @ (weights * logs.exp().scatter_add_(1, label, -torch.ones_like(weights)))  # (F, C, B)
        by_slope = (residuals.reshape(count * columns, -1).float() @ values).double().reshape(count, columns, width)
        gradient = torch.cat([by_slope, residuals.sum(2, keepdim=True)], 2).mT + penalty * shrunk * modes
        return float(loss), (gradient / roots).flatten().numpy()

    modes, found = torch.zeros(count, width + 1, columns, dtype=torch.float64), []
    least_slope = 1e2 * settings.mode_tolerance * float(weights[0].sum()) ** 0.5
    options = {"maxiter": settings.mode_iterations, "gtol": least_slope, "ftol": settings.mode_tolerance}
    for place, penalty in enumerate(penalties):
        roots = (0.25 * squares[:, :, None] + penalty * shrunk).sqrt()
        start = modes if starts is None else starts[place] @ basis.T
        given = (start * roots).flatten().numpy(), (penalty, roots)
        end = minimize(objective, *given, jac=True, method="L-BFGS-B", options=options)
        modes = torch.from_numpy(end.x).reshape(count, width + 1, columns) / roots
        found.append(modes @ basis)
    return torch.stack(found)
