"""Candidates for classes that are Gaussian processes of the logits: several kernels, each times several factors.

Under a kernel the mode of the posterior with a softmax likelihood is a logistic regression in the kernel's principal
axes (:mod:`restt.prior.softmax`). Three kernels have hyper-parameters that maximise the evidence of the classes taken
as numbers (label regression): the regressor's; products and sums of straight lines of the relevant columns, which draw
sharp borders where an interaction changes sign; and main effects alone. Every fold learns them from the rows outside of
it, so that no row judges what it was learned from. In the others all columns count the same: straight lines alone,
which is logistic regression, and Gaussian kernels of several widths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from restt._common.devices import fitting_threads
from restt.estimators.class_rows import ClassRows
from restt.estimators.class_settings import ClassSettings
from restt.prior.fitting import climb, side_by_side
from restt.prior.gp import Posterior, Process
from restt.prior.kernel import Kernel
from restt.prior.objective import Data, Objective
from restt.prior.pairs import Rows
from restt.prior.report import relevance_of
from restt.prior.rounding import round_products, train_values
from restt.prior.settings import Settings
from restt.prior.softmax import Axes, class_modes

# The logit of a straight line's share that is as good as 1; the logarithm of a relevance that is as good as 0.
_ALL_LINE, _NONE = 20.0, -40.0
_LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class KernelCandidates:
    """Modes of the posteriors of every kernel and factor, judged on held-out rows."""

    rows: ClassRows
    prior: Settings
    kinds: tuple[str, ...]
    names: tuple[str, ...]  # kinds · factors
    held_out: np.ndarray  # (kinds · factors, B, K)
    learned: Process | None  # from all rows

    @property
    def relevance(self) -> np.ndarray:  # (N,)
        """Relevance of the columns; zeros where no process was learned."""
        return np.zeros(len(self.rows.sites)) if self.learned is None else relevance_of(self.learned)

    @property
    def default(self) -> str:
        """Logistic regression with slopes of variance 1 altogether."""
        return self.names[self.kinds.index("linear") * len(self.rows.settings.penalties)]

    @torch.no_grad()
    def solve(self, shares: np.ndarray, rows: ClassRows) -> Solved:  # (kinds · factors,)
        """The average under these shares, conditioned on all rows that memory allows."""
        rows = rows.first(rows.settings.solved_rows)
        by_kind = shares.reshape(len(self.kinds), -1)
        chosen = dict(zip(self.kinds, by_kind, strict=True))
        kernel, constant = _kernel(rows), np.zeros(rows.classes)
        processes = fixed_kernels(kernel, self.prior, rows.settings)
        if self.learned is not None:
            processes |= learned_kernels(self.learned, rows.settings.relevant)
        posteriors = []
        for kind, share in chosen.items():
            if share.any():
                axes, centres = principal_axes(rows, processes[kind])
                penalties = [each for each, own in zip(rows.settings.penalties, share, strict=True) if own > 0]
                modes = _path(rows, axes, [np.arange(len(rows))], penalties)[:, 0]
                alpha = axes.directions @ np.tensordot(share[share > 0], modes[:, :-1], 1)
                constant += share[share > 0] @ modes[:, -1]
                empty = torch.zeros(0, dtype=torch.float64)
                posteriors.append(Posterior(processes[kind], centres, torch.from_numpy(alpha), empty, empty))
        return Solved(rows, tuple(posteriors), constant)


@dataclass(frozen=True, eq=False)
class Solved:
    """A weighted sum of posterior means of the logits: main effects, and a sum of products over sites."""

    rows: ClassRows
    posteriors: tuple[Posterior, ...]
    constant: np.ndarray  # (K,)

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

    @torch.no_grad()
    def product_cores(self, order: Sequence[int], largest: int) -> tuple[list[Tensor], float]:
        """The train of the products, of the least bond within the tolerance or the largest allowed, and its error.

        There are no cores where no kernel has products.
        """
        parts = [one.products() for one in self.posteriors if bool((one.process.scale[:3] > 0).any())]
        if not parts:
            return [], 0.0
        settings, kernel = self.rows.settings, self.posteriors[0].process.kernel
        coefficients = torch.cat([part[0] for part in parts])
        factors = [torch.cat([part[1][n] for part in parts]) for n in order]
        moments = [kernel.means[n] if kernel.sites[n].knots is None else kernel.moments[n] for n in order]
        sample = self.rows.first(settings.most_rows)
        states = sample.states
        exact = sum((one.mean(sample.codes) for one in self.posteriors), torch.zeros(()))
        for vectors, effect in zip(states, self.effects, strict=True):
            exact = exact - vectors @ effect
        weights = torch.from_numpy(sample.weights / sample.weights.sum())
        states = [states[n] for n in order]

        def distance(cores: list[Tensor]) -> float:
            return float((weights @ (train_values(cores, states) - exact).square()).mean().sqrt())

        for bond in [bond for bond in settings.first_bonds if bond < largest] + [largest]:
            cores, rounding = round_products(
                coefficients, factors, moments, bond, settings.tolerance, distance=distance
            )
            if (rounding.distance or 0.0) <= settings.tolerance:
                break
        return cores, rounding.distance or 0.0


@torch.no_grad()
def kernel_candidates(rows: ClassRows, prior: Settings) -> KernelCandidates:
    """Modes of every kernel and factor, fitted to the rows outside each fold."""
    settings, kernel = rows.settings, _kernel(rows)
    fixed = fixed_kernels(kernel, prior, settings)
    by_fold: list[Mapping[str, Process]] = [fixed] * len(rows.parts)
    learned = None
    if not rows.is_judged:
        by_fold = []
    elif len(rows.sites) <= settings.most_columns:
        learned, *by_part = learn(rows, kernel, prior)
        by_fold = [learned_kernels(process, settings.relevant) | fixed for process in by_part]
    kinds = tuple(by_fold[0] if by_fold else fixed)
    held_out = [np.zeros((0, len(rows), rows.classes))]
    with fitting_threads(float(min(len(rows), settings.centres)) ** 2 * len(rows.sites)):
        for kind in kinds if by_fold else ():
            logits = []
            # Folds have the axes of a kernel that nothing is learned of in common, and are searched side by side.
            groups = [rows.parts] if kind in fixed else [(part,) for part in rows.parts]
            for processes, parts in zip(by_fold, groups, strict=False):
                axes, _ = principal_axes(rows, processes[kind])
                modes = _path(rows, axes, parts, settings.penalties)
                logits.append(axes.values @ modes[:, :, :-1] + modes[:, :, -1:])
            held_out.append(rows.held_out(np.concatenate(logits, axis=1)))
    names = tuple(f"{kind}, factor {1 / penalty:g}" for kind in kinds for penalty in settings.penalties)
    return KernelCandidates(rows, prior, kinds, names, np.concatenate(held_out), learned)


def principal_axes(rows: ClassRows, process: Process) -> tuple[Axes, Rows]:
    """Principal axes of the kernel, scaled to a variance of 1 over the rows, and the rows that they are sums over."""
    settings = rows.settings
    centres = rows.codes.take(slice(settings.centres))
    cross = process.covariance(rows.codes, centres)
    own = cross[: len(centres)]
    size = max(float(own.diagonal().mean() - own.mean()), _LEAST)
    most = int(settings.mode_work / (len(rows) * rows.classes))
    axes = Axes.of_covariance((own / size).numpy(), max(most, settings.fewest_axes))
    if len(centres) < len(rows):
        axes = Axes((cross / size).numpy() @ axes.directions, axes.directions)
    return Axes(axes.values, axes.directions / size), centres


def _path(
    rows: ClassRows, axes: Axes, parts: Sequence[np.ndarray], penalties: Sequence[float]
) -> np.ndarray:  # (P, F, M + 1, K)
    """Modes given each part of the rows, those of each penalty searched from those of the one before."""
    weights, modes, found = np.zeros((len(parts), len(rows))), None, []
    for own, part in zip(weights, parts, strict=True):
        own[part] = rows.weights[part]
    for penalty in penalties:
        modes = class_modes(
            axes,
            rows.labels,
            weights,
            rows.classes,
            penalty,
            modes,
            rows.settings.mode_tolerance,
            rows.settings.mode_iterations,
        )
        found.append(modes)
    return np.stack(found)


def _kernel(rows: ClassRows) -> Kernel:
    outputs = 1 if rows.classes == 2 else rows.classes
    return Kernel.measured(rows.sites, rows.codes, torch.from_numpy(rows.weights), outputs)


def learn(rows: ClassRows, kernel: Kernel, prior: Settings) -> list[Process]:
    """Processes with the hyper-parameters of largest evidence for the one-hot classes: of all rows, and of each fold.

    All rows choose where the folds' searches start: at which of the prior's starts, not at what they found.
    """
    settings, weights, targets = rows.settings, torch.from_numpy(rows.weights), _standardised(rows)
    most = (settings.learning_entries / len(rows.sites)) ** 0.5
    count = int(np.clip(most, min(100, settings.learning_rows), settings.learning_rows))
    component, threads = prior.components[0], torch.get_num_threads()

    def objective(part: np.ndarray) -> Objective:
        # Rows are in a random order.
        used = torch.from_numpy(part[rows.weights[part] > 0][:count])
        ones = torch.ones(len(used), dtype=torch.float64)
        data = Data(rows.codes.take(used), targets[used], weights[used], ones, torch.zeros_like(ones))
        plain = torch.zeros(targets.shape[1], dtype=torch.float64)
        return Objective(kernel, component, data, prior.constant, prior.least_noise, plain)

    with fitting_threads(float(count) ** 2 * len(rows.sites)):
        whole = objective(np.arange(len(rows)))
        starts = whole.starts
        begun = side_by_side([partial(climb, whole, start, settings.first_iterations) for start in starts], threads)
        best = int(np.argmin([whole(whole.units(theta))[0] for theta in begun]))
        tasks = [partial(climb, whole, begun[best], settings.iterations)]
        tasks += [partial(climb, objective(part), starts[best], settings.iterations) for part in rows.parts]
        thetas = side_by_side(tasks, threads)
    # Logits have a constant of their own, which is not penalised.
    return [Process(kernel, theta, component, replace(prior, constant=0.0)) for theta in thetas]


def learned_kernels(process: Process, relevant: float) -> dict[str, Process]:
    """The process itself, and kernels out of its terms."""
    component, kernel = process.component, process.kernel
    found = {"process": process, "curves": replace(process, component=replace(component, terms=("sum",)))}
    if kernel.numbers:
        theta = process.theta.clone()
        h = kernel.layout.split(theta)  # views
        h["number.line"].fill_(_ALL_LINE)
        sizes = relevance_of(process)
        # Many columns of little relevance together are noise in every product of lines.
        for kind, places in (("number", kernel.numbers), ("level", kernel.categories)):
            h[f"{kind}.relevance"][torch.from_numpy(sizes[places] < relevant * sizes.max())] = _NONE
        theta[kernel.layout.names.index("r")] = _NONE
        found["straight process"] = replace(process, theta=theta, component=replace(component, terms=("smooth", "sum")))
    return found


def fixed_kernels(kernel: Kernel, prior: Settings, settings: ClassSettings) -> dict[str, Process]:
    """Kernels in which all columns count the same: straight lines, and Gaussian kernels of several widths."""

    def process(terms: tuple[str, ...], line: float, **logarithms: float) -> Process:
        theta = torch.zeros(len(kernel.layout.names), dtype=torch.float64)
        kernel.layout.split(theta)["number.line"].fill_(line)
        for name, value in logarithms.items():
            theta[kernel.layout.names.index(name)] = value
        component = replace(prior.components[0], terms=terms)
        return Process(kernel, theta, component, replace(prior, constant=0.0))

    found = {"linear": process(("sum",), _ALL_LINE, r=_NONE)}
    for width in settings.widths if len(kernel.sites) <= settings.most_columns else ():
        found[f"gaussian {width:g}"] = process(("joint",), 0.0, w=float(np.log(width / kernel.layout.varying)))
    return found


def _standardised(rows: ClassRows) -> Tensor:  # (B, K), or (B, 1) for two classes
    """One-hot classes with mean 0 and variance 1."""
    target = np.eye(rows.classes)[rows.labels]
    share = rows.weights @ target / rows.weights.sum()
    spread = np.sqrt(share * (1 - share))
    standard = (target - share) / np.where(spread > 0, spread, 1.0)
    return torch.from_numpy(standard[:, 1:] if rows.classes == 2 else standard)
