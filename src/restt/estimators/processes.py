"""Candidate models of classes that are Gaussian processes of the logits, under the regressor's kernel.

Every fold learns its hyper-parameters from the rows outside of it, by the evidence of the classes taken as numbers
(label regression), so that no row judges what it was learned from. Under a kernel K the mode of the posterior with a
softmax likelihood is a logistic regression in K's axes (:mod:`restt.prior.softmax`); it is found for logits of several
sizes. Three kernels have the same hyper-parameters: the whole one; products and sums of straight lines of the relevant
columns, which draw sharp borders where an interaction changes sign; and main effects alone. A fourth has none that are
learned: the Gaussian kernel of all columns together, with the width that support vector machines have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from restt._common.devices import fitting_threads
from restt.estimators.candidates import ClassRows, Member
from restt.estimators.logistic import path
from restt.estimators.views import whole_view
from restt.module import ResTT
from restt.prior.fitting import climb, side_by_side
from restt.prior.gp import Posterior, Process
from restt.prior.kernel import Kernel
from restt.prior.objective import Data, Objective
from restt.prior.report import relevance_of
from restt.prior.rounding import effects_as_products, residual_module, round_products, train_values
from restt.prior.settings import Settings
from restt.prior.softmax import Axes

# The logit of a straight line's share that is as good as 1; the logarithm of a relevance that is as good as 0.
_ALL_LINE, _NONE = 20.0, -40.0
_SMALLEST_SPREAD = 1e-12
# Where lines are straight, a column with less than this share of the largest relevance has none: many such columns
# together are noise in every product.
_RELEVANT = 0.02
# w of the Gaussian kernel exp(-w d²/2) times the number of columns: scikit-learn's gamma="scale" where these vary by 1.
_GAUSSIAN = 2.0
# Largest bonds that are tried before the largest of the settings.
_FIRST_BONDS = (8, 20)


@torch.no_grad()
def learn_processes(rows: ClassRows, prior: Settings) -> tuple[Process, ...]:
    """A process for each fold, with the hyper-parameters of largest evidence for the standardised one-hot classes."""
    own, weights, targets = rows.settings, torch.from_numpy(rows.weights), _standardised(rows)
    kernel = Kernel.measured(rows.sites, rows.codes, weights, targets.shape[1])
    most = (own.learning_entries / len(rows.sites)) ** 0.5
    count = int(np.clip(most, min(100, own.first_rows), own.first_rows))
    component = prior.components[0]
    threads = torch.get_num_threads()

    def learned(part: np.ndarray) -> Tensor:
        # Rows are in a random order.
        used = torch.from_numpy(part[rows.weights[part] > 0][:count])
        ones = torch.ones(len(used), dtype=torch.float64)
        data = Data(rows.codes.take(used), targets[used], weights[used], ones, torch.zeros_like(ones))
        plain = torch.zeros(targets.shape[1], dtype=torch.float64)
        objective = Objective(kernel, component, data, prior.constant, prior.least_noise, plain)
        begun = [climb(objective, start, own.first_iterations) for start in objective.starts]
        values = [objective(objective.units(theta))[0] for theta in begun]
        return climb(objective, begun[int(np.argmin(values))], own.iterations)

    with fitting_threads(float(count) ** 2 * len(rows.sites)):
        thetas = side_by_side([partial(learned, part) for part in rows.parts], threads)
    # Logits have a constant of their own, which is not penalised.
    return tuple(Process(kernel, theta, component, replace(prior, constant=0.0)) for theta in thetas)


def relevance(processes: Sequence[Process]) -> np.ndarray:  # (N,)
    """The mean over folds."""
    return np.asarray(np.mean([relevance_of(process) for process in processes], axis=0))


def _kinds(process: Process) -> dict[str, Process]:
    """The whole kernel, and others out of its terms."""
    component, kernel = process.component, process.kernel
    found = {"process": process, "curves": replace(process, component=replace(component, terms=("sum",)))}
    if kernel.numbers:
        theta = process.theta.clone()
        h = kernel.layout.split(theta)  # views
        h["number.line"].fill_(_ALL_LINE)
        sizes = relevance_of(process)
        for kind, places in (("number", kernel.numbers), ("level", kernel.categories)):
            h[f"{kind}.relevance"][torch.from_numpy(sizes[places] < _RELEVANT * sizes.max())] = _NONE
        theta[kernel.layout.names.index("r")] = _NONE
        found["straight process"] = replace(process, theta=theta, component=replace(component, terms=("smooth", "sum")))
    theta = process.theta.clone()
    h = kernel.layout.split(theta)
    for name in ("relevance", "w"):
        for kind in ("number", "level"):
            h[f"{kind}.{name}"].zero_()
    h["number.position"].zero_()
    theta[kernel.layout.names.index("w")] = float(np.log(_GAUSSIAN / kernel.layout.varying))
    theta[kernel.layout.names.index("joint")] = 0.0
    found["gaussian"] = replace(process, theta=theta, component=replace(component, terms=("joint",)))
    return found


@dataclass(frozen=True, eq=False)
class Modes:
    """Modes of the posteriors under several kernels and penalties: sums over ``centres``, and constants."""

    rows: ClassRows
    order: tuple[int, ...]  # which of the rows' sites each site of the train is
    kinds: tuple[str, ...]
    processes: tuple[tuple[Process, ...], ...]  # of each kind, one per fold
    centres: Tensor  # (J,): which rows
    alphas: np.ndarray  # (kinds, P, folds, J, K)
    constants: np.ndarray  # (kinds · P, folds, K)
    fitted: np.ndarray  # (kinds · P, B, K): the mean over folds, without constants
    held_out: np.ndarray  # (kinds · P, B, K)

    @property
    def names(self) -> list[str]:
        penalties = self.rows.settings.process_penalties
        return [f"{kind}, penalty {penalty:g}" for kind in self.kinds for penalty in penalties]

    @torch.no_grad()
    def members(self, shares: np.ndarray) -> list[Member]:  # (kinds · P,)
        """One train, the rounded mean of all modes that have a share."""
        total = float(shares.sum())
        if total == 0:
            return []
        share, folds = shares / total, len(self.rows.parts)
        centres = self.rows.codes.take(self.centres)
        empty = torch.zeros(0, dtype=torch.float64)
        posteriors = []
        for own, processes, alphas in zip(share.reshape(len(self.kinds), -1), self.processes, self.alphas, strict=True):
            if own.any():
                mean = np.tensordot(own, alphas, 1) / folds  # (folds, J, K)
                posteriors += [
                    Posterior(process, centres, torch.from_numpy(alpha), empty, empty)
                    for process, alpha in zip(processes, mean, strict=True)
                ]
        exact = torch.from_numpy(np.tensordot(share, self.fitted, 1))
        cores, error = _rounded(self.rows, posteriors, exact, self.order)
        module = residual_module(cores)
        made = ResTT(
            module.sites,
            list(module.feature_dims),
            module.bond_dim,
            module.outputs,
            bias=True,
            runs=1,
            dtype=torch.float64,
        )
        for name, parameter in module.named_parameters():
            made.get_parameter(name).copy_(parameter[None])
        assert made.bias is not None
        made.bias.copy_(torch.from_numpy(share @ self.constants.mean(1)).expand_as(made.bias))
        return [Member(made, whole_view([self.rows.sites[n] for n in self.order]), total, error)]


def _rounded(
    rows: ClassRows,
    posteriors: Sequence[Posterior],
    exact: Tensor,  # (B, K)
    order: Sequence[int],
) -> tuple[list[Tensor], float]:
    """Cores of the posteriors' sum, of the least bond within the tolerance or the largest allowed, and their error."""
    own, kernel = rows.settings, posteriors[0].process.kernel
    parts = [one.products() for one in posteriors]
    effects = [torch.stack(column).sum(0) for column in zip(*(one.effects() for one in posteriors), strict=True)]
    parts.append(effects_as_products(effects))
    coefficients = torch.cat([part[0] for part in parts])
    factors = [torch.cat([part[1][n] for part in parts]) for n in order]
    used = torch.from_numpy(rows.weights / rows.weights.sum())
    moments = [kernel.means[n] if kernel.sites[n].knots is None else kernel.moments[n] for n in order]
    states = [rows.states[n] for n in order]

    def distance(cores: list[Tensor]) -> float:
        return float((used @ (train_values(cores, states) - exact).square()).mean().sqrt())

    largest, away = rows.bond or own.largest_bond, np.inf
    for bond in [bond for bond in _FIRST_BONDS if bond < largest] + [largest]:
        cores, rounding = round_products(coefficients, factors, moments, bond, own.tolerance, distance=distance)
        away = rounding.distance or 0.0
        if away <= own.tolerance:
            break
    return cores, away


@torch.no_grad()
def process_candidates(rows: ClassRows, processes: Sequence[Process], order: tuple[int, ...]) -> list[Modes]:
    """Modes under every kernel and penalty; none where rows times classes, or classes alone, are too many."""
    own = rows.settings
    count = min(own.centres, int(own.mode_work / (own.mode_passes * len(rows) * rows.classes)))
    if count < min(own.fewest_centres, len(rows)) or rows.classes > (rows.bond or own.largest_bond):
        return []
    centres = torch.arange(min(count, len(rows)))
    kinds: dict[str, list[Process]] = {}
    for process in processes:
        for kind, each in _kinds(process).items():
            kinds.setdefault(kind, []).append(each)
    with fitting_threads(float(len(centres)) ** 2 * len(rows.sites)):
        found = [_modes(rows, each, centres) for each in kinds.values()]
    alphas, constants, fitted, held_out = zip(*found, strict=True)
    parts = (np.concatenate(each) for each in (constants, fitted, held_out))
    return [Modes(rows, order, tuple(kinds), tuple(map(tuple, kinds.values())), centres, np.stack(alphas), *parts)]


def _modes(
    rows: ClassRows, processes: Sequence[Process], centres: Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients (P, folds, J, K), constants (P, folds, K), logits of all rows and held-out ones (P, B, K)."""
    alphas, constants, said = [], [], []
    for process, part in zip(processes, rows.parts, strict=True):
        cross = process.covariance(rows.codes, rows.codes.take(centres))
        own = cross[: len(centres)]
        size = max(float(own.diagonal().mean() - own.mean()), _SMALLEST_SPREAD)
        axes = Axes.of_covariance((own / size).numpy())
        if len(centres) < len(rows):
            axes = Axes((cross / size).numpy() @ axes.directions, axes.directions)
        modes = path(rows, axes, part, rows.settings.process_penalties)
        alphas.append(axes.directions @ modes[:, :-1] / size)
        constants.append(modes[:, -1])
        said.append(axes.values @ modes[:, :-1])
    logits, constant = np.stack(said, axis=1), np.stack(constants, axis=1)
    held_out = np.stack([rows.held_out(one) for one in logits + constant[:, :, None]])
    return np.stack(alphas, axis=1), constant, logits.mean(1), held_out


def _standardised(rows: ClassRows) -> Tensor:  # (B, K), or (B, 1) for two classes
    """One-hot classes with mean 0 and variance 1."""
    target = np.zeros((len(rows), rows.classes))
    target[np.arange(len(rows)), rows.numbers] = 1.0
    share = rows.weights @ target / rows.weights.sum()
    spread = np.sqrt(share * (1 - share))
    standard = (target - share) / np.where(spread > 0, spread, 1.0)
    return torch.from_numpy(standard[:, 1:] if rows.classes == 2 else standard)
