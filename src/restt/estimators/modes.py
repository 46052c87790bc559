"""Candidate models of classes that are solved rather than trained: modes of a posterior with a logistic likelihood.

The prior is learned from the rows outside of each fold, and its modes are found for logits of several sizes, one search
along the penalties (see :mod:`restt.prior.classes`) for every fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from restt._common.devices import fitting_threads
from restt.estimators.additive import Sums, curve_candidates, path
from restt.estimators.candidates import ClassRows, Member
from restt.estimators.views import whole_view
from restt.module import ResTT
from restt.prior import Site
from restt.prior.classes import Axes
from restt.prior.evidence import column_slices
from restt.prior.kernels import JUMPING, Kernel, Number, make_kernel, measure, reshaped
from restt.prior.learning import Prior, learn
from restt.prior.posterior import covariance
from restt.prior.rounding import residual_module, round_products

# Rows on which a fold's prior is learned, and rows over which a mode is a sum.
_LEARNING_ROWS, _MODE_ROWS = 400, 1000
# Steps of that: scales that are not learned to the end fit the rows less closely, and do no worse on others.
_ITERATIONS = 20
# The most entries of all columns' covariances together while a prior is learned.
_LEARNING_ENTRIES = 3_000_000
# Where straight lines become flat, in standard deviations.
FURTHEST = 2.5
# The logit of a line's share that is as good as 1; the spread of a covariance that is as good as none.
_ALL_LINE, _SMALLEST_SPREAD = 20.0, 1e-12
# A column with less than this share of the largest relevance may as well have none: what nothing was learned of stays
# near where it began, and many such columns together are noise in every sum.
_RELEVANT = 0.02
# Fewer rows do not tell which of so many families is the best one, and functions that may jump are left out.
_JUMPING_ROWS = 300
# Multiplications (passes · rows · centres · classes) that modes may take together, and about how many passes they are:
# there are fewer centres where they would be more, and none below the fewest.
_MODE_WORK, _MODE_PASSES, _FEWEST_CENTRES = 5e10, 6300, 150
# Sizes of the penalty of a mode, in units of the inverse variance of the logits.
MODE_PENALTIES = (4.0, 1.0, 1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 1024, 1 / 4096, 1 / 16384)
# The train of a mode may be this far from it, relative to the spread of its logits.
_TOLERANCE, _LARGEST_BOND = 0.01, 40


@dataclass(frozen=True, eq=False)
class Modes:
    """Modes of the posterior under a learned prior: sums over ``centres`` with the coefficients α, and a constant."""

    name: str
    rows: ClassRows
    priors: tuple[Prior, ...]  # one per fold
    centres: tuple[Tensor, ...]  # N of (J, I_n)
    alphas: np.ndarray  # (P, folds, J, K)
    constants: np.ndarray  # (P, folds, K)
    held_out: np.ndarray  # (P, B, K)

    @property
    def names(self) -> list[str]:
        return [f"{self.name}, penalty {penalty:g}" for penalty in MODE_PENALTIES]

    @torch.no_grad()
    def members(self, shares: np.ndarray) -> list[Member]:  # (P,)
        """One train, the rounded mean of the modes."""
        total = float(shares.sum())
        if total == 0:
            return []
        folds = len(self.priors)
        alphas = np.einsum("p,pfjk->fjk", shares / total, self.alphas) / folds
        factors: list[list[Tensor]] = [[] for _ in self.centres]
        for prior in self.priors:
            for n, (kernel, values) in enumerate(zip(prior.kernels, prior.parts, strict=True)):
                factors[n].append(1 + kernel.cross(self.centres[n], values))
        scaled = [prior.scale * torch.from_numpy(alpha) for prior, alpha in zip(self.priors, alphas, strict=True)]
        kernels = self.priors[0].kernels
        share = torch.from_numpy(shares / total)
        spread = float((share[:, None, None] * torch.from_numpy(self.held_out)).sum(0).std(dim=0).mean())
        cores, _ = round_products(
            torch.cat(scaled),
            [torch.cat(parts) for parts in factors],
            [kernel.measure for kernel in kernels],
            self.rows.bond or _LARGEST_BOND,
            _TOLERANCE * spread,
        )
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
        constant = np.einsum("p,pfk->k", shares / total, self.constants) / folds
        made.bias.copy_(torch.from_numpy(constant).expand_as(made.bias))
        return [Member(made, whole_view(self.rows.sites), total)]


@torch.no_grad()
def mode_candidates(rows: ClassRows, rng: np.random.Generator) -> list[Modes | Sums]:
    """Modes under each of :data:`MODE_PENALTIES`; every fold learns a prior of its own, so that none is flattered.

    A second family has the same scales but straight lines only, whose products draw sharp borders where an interaction
    changes sign. Where some columns are hardly relevant, both are there without them too. Another has the curves of
    single columns and no interactions, and with rows enough one has functions that may jump, as where a class begins at
    a threshold. There are none where rows times classes are too many.
    """
    weights = torch.from_numpy(rows.weights)
    kernels = tuple(
        make_kernel(_bounded(site), measure(site, states, weights))
        for site, states in zip(rows.sites, rows.states, strict=True)
    )
    centres = min(_MODE_ROWS, int(_MODE_WORK / (_MODE_PASSES * len(rows) * rows.classes)))
    if centres < min(_FEWEST_CENTRES, len(rows)):
        return []
    chosen = np.arange(len(rows)) if len(rows) <= centres else np.sort(rng.permutation(len(rows))[:centres])
    targets = _standardised(rows)
    with fitting_threads(float(len(chosen)) ** 2 * len(kernels)):
        priors = [_learned(rows, kernels, targets, part, rng) for part in rows.parts]
        groups = {"prior": priors}
        if any("line" in kernel.names for kernel in kernels):
            groups["straight prior"] = [_straight(prior) for prior in priors]
        if not all(_is_relevant(prior).all() for prior in priors):
            groups |= {f"{name} of few": [_of_few(prior) for prior in each] for name, each in groups.items()}
        if len(rows) >= _JUMPING_ROWS and any(isinstance(kernel, Number) for kernel in kernels):
            jumping = reshaped(kernels, JUMPING)
            groups["jumping prior"] = [_learned(rows, jumping, targets, part, rng) for part in rows.parts]
        curves = curve_candidates(rows, priors, MODE_PENALTIES)
        return [curves, *(_modes(name, rows, each, chosen) for name, each in groups.items())]


def _bounded(site: Site) -> Site:
    """Straight lines that are flat beyond :data:`FURTHEST`, so that no tail decides alone."""
    return replace(site, values=tuple(np.clip(site.values, -FURTHEST, FURTHEST).tolist()))


def _straight(prior: Prior) -> Prior:
    theta = prior.theta.copy()
    for kernel, part in zip(prior.kernels, column_slices(prior.kernels), strict=True):
        if "line" in kernel.names:
            theta[part.start + kernel.names.index("line")] = _ALL_LINE
    return replace(prior, theta=theta)


def _is_relevant(prior: Prior) -> np.ndarray:  # (N,)
    return np.asarray(prior.relevance >= _RELEVANT * prior.relevance.max())


def _of_few(prior: Prior) -> Prior:
    """The prior of functions of the relevant columns alone."""
    theta = prior.theta.copy()
    for part, relevant in zip(column_slices(prior.kernels), _is_relevant(prior), strict=True):
        if not relevant:
            theta[part.start] = -np.inf
    return replace(prior, theta=theta)


def _modes(name: str, rows: ClassRows, priors: Sequence[Prior], chosen: np.ndarray) -> Modes:
    """Modes of every fold as sums over the ``chosen`` rows."""
    centres = tuple(states[torch.from_numpy(chosen)] for states in rows.states)
    alphas, constants, said = [], [], []
    for prior, part in zip(priors, rows.parts, strict=True):
        # Less the variance of a constant, which the logits have besides.
        own = covariance(prior, centres) - prior.scale
        size = max(float(own.diagonal().mean() - own.mean()), _SMALLEST_SPREAD)
        axes = Axes.of_covariance((own / size).numpy())
        if len(chosen) < len(rows):
            others = covariance(prior, rows.states, centres) - prior.scale
            axes = Axes((others / size).numpy() @ axes.directions, axes.directions)
        modes = path(rows, axes, part, MODE_PENALTIES)
        alpha = axes.directions @ modes[:, :-1] / size  # (P, J, K)
        alphas.append(alpha)
        constants.append(modes[:, -1] - prior.scale * alpha.sum(axis=1))
        said.append(axes.values @ modes[:, :-1] + modes[:, -1:])
    held_out = np.stack([rows.held_out(one) for one in np.stack(said, axis=1)])
    return Modes(name, rows, tuple(priors), centres, np.stack(alphas, axis=1), np.stack(constants, axis=1), held_out)


def _learned(
    rows: ClassRows, kernels: tuple[Kernel, ...], targets: Tensor, part: np.ndarray, rng: np.random.Generator
) -> Prior:
    """The prior of a fold: its scales by the evidence of the classes taken as numbers."""
    part = part[rows.weights[part] > 0]
    count = min(_LEARNING_ROWS, max(100, int((_LEARNING_ENTRIES / len(kernels)) ** 0.5)))
    used = torch.from_numpy(part if len(part) <= count else np.sort(rng.permutation(part)[:count]))
    theta, evaluations = learn(
        kernels,
        [states[used] for states in rows.states],
        targets[used],
        torch.from_numpy(rows.weights)[used],
        iterations=_ITERATIONS,
    )
    return Prior(kernels, theta, tuple(f"column {n}" for n in range(len(kernels))), "identity", evaluations)


def _standardised(rows: ClassRows) -> Tensor:  # (B, K), or (B, 1) for two classes
    """One-hot classes with mean 0 and variance 1."""
    target = np.zeros((len(rows), rows.classes))
    target[np.arange(len(rows)), rows.numbers] = 1.0
    share = rows.weights @ target / rows.weights.sum()
    spread = np.sqrt(share * (1 - share))
    standard = (target - share) / np.where(spread > 0, spread, 1.0)
    return torch.from_numpy(standard[:, 1:] if rows.classes == 2 else standard)
