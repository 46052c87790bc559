"""From a table to a residual train, in closed form: states, prior, scale of y, posterior, rounding, uncertainty."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from restt._common.devices import give_back_memory
from restt._common.errors import check_choice, check_int, shown
from restt.module import ResTT
from restt.prior.joint import JointPrior
from restt.prior.kernels import Kernel, make_kernel, measure
from restt.prior.learning import Prior, learning_rows
from restt.prior.mixture import Learner, Mixture, mix
from restt.prior.posterior import Posterior, condition_on_more
from restt.prior.rounding import Rounding, residual_module, round_products, train_values
from restt.prior.rows import checked, merged, without_accidents
from restt.prior.sites import KNOTS, Site, fit_sites, site_vectors
from restt.prior.spread import Spread, measure_spread
from restt.prior.tails import heavy_tailed, is_worth_it, surprise_trust
from restt.prior.target import SCALES, Target, candidate_scales, weighted_std

# The rows over which a posterior mean is a sum. More rows take part through these, at rows · these² work: beyond the
# limit there are fewer of them.
MAX_ROWS = 2000
_FEWEST_ROWS, _LARGEST_WORK = 500, 4e11
LARGEST_BOND = 32
# A train's distance from the exact posterior, against the noise: 0.03 adds a thousandth to the noise's variance.
_TOLERANCE = 0.03
# Another scale of y than the usual one has to lower the left-out error by this much, since it was chosen by it.
_SCALE_GAIN = 0.05
_CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Fitted:
    """A residual train out of a learned prior, and all that goes with it.

    ``module`` takes the site vectors of :meth:`vectors`, whose sites are the columns in ``order``, and gives the
    standardised target: ``target.predict`` of it is y, but for rows that ``spread`` holds back.
    """

    module: ResTT
    order: tuple[int, ...]  # which column each site reads
    sites: tuple[Site, ...]  # in the module's order
    target: Target
    prior: Prior  # in the table's order
    spread: Spread
    rounding: Rounding
    left_out_error: float  # mean square on y's own scale, relative to y's variance
    scale_errors: dict[str, float]  # the same under the prior of columns alike, for every scale of y that was tried
    mixture: Mixture

    def vectors(self, numbers: np.ndarray) -> Tensor:  # (B, C) -> (B, N, I)
        """Site vectors as the module takes them."""
        return site_vectors(self.sites, numbers[:, self.order])

    @torch.no_grad()
    def outputs(self, numbers: np.ndarray) -> np.ndarray:  # (B, C) -> (B, O)
        """The standardised target."""
        return self.module(self.vectors(numbers).to(self.module.first)).double().numpy()

    def held_outputs(self, numbers: np.ndarray) -> np.ndarray:  # (B, C) -> (B, O)
        """The same, not further beyond every y of the fit than is known."""
        return self.spread.held(self.outputs(numbers), lambda rows: self.spread.states(numbers[rows]))

    def predict(self, numbers: np.ndarray) -> np.ndarray:  # (B, C) -> (B, O)
        """y."""
        return self.target.predict(self.held_outputs(numbers))

    def predict_std(self, numbers: np.ndarray) -> np.ndarray:  # (B, C) -> (B, O)
        """Root mean square error expected of each prediction, in y's units."""
        return self.spread.std(self.held_outputs(numbers), self.spread.states(numbers), self.target)

    def predict_interval(self, numbers: np.ndarray, coverage: float = 0.9) -> np.ndarray:  # (B, C) -> (B, 2, O)
        """Between which an observation lies with probability ``coverage``."""
        return self.spread.interval(self.held_outputs(numbers), self.spread.states(numbers), self.target, coverage)


@torch.no_grad()
def fit(
    numbers: np.ndarray,  # (B, C)
    y: np.ndarray,  # (B,) or (B, O)
    weights: np.ndarray | None = None,  # (B,)
    levels: Sequence[int | None] | None = None,
    *,
    names: Sequence[str] | None = None,
    scale: str = "auto",
    bond_dim: int | str = "auto",
    site_order: Sequence[int] | str = "auto",
    knots: int = KNOTS,
    max_rows: int = MAX_ROWS,
    average: bool = True,
    seed: int = 0,
    device: torch.device | None = None,
) -> Fitted:
    """Learn a prior from a table, condition it on the rows, and round the posterior mean to a residual train.

    Several priors are learned, of smooth functions, of functions that may jump and others, and the train is the
    weighted mean of their posterior means, see :mod:`restt.prior.mixture`; ``Fitted.prior`` is the heaviest that tells
    columns apart and knows of interactions. Where the noise has heavy tails, rows are trusted unequally, see
    :mod:`restt.prior.tails`.

    Parameters
    ----------
    numbers : array (B, C)
        The table in float64: NaN is a missing value, a category the number of its level.
    y : array (B,) or (B, O)
        Targets; several outputs share one prior.
    weights : array (B,), optional
        A weight of 2 is a repeated row; rows of weight 0 are left out.
    levels : C of them, optional
        How many levels a category has, None for a column of numbers (all by default).
    names : C of them, optional
        Of the columns, for the printed prior.
    scale : {"auto", "identity", "sqrt", "log", "asinh"}
        On which y is modelled; ``"auto"`` by the left-out error on y's own scale, and the root of a skewed y of no
        negative values unless y itself or its logarithm is clearly better.
    bond_dim : "auto" or int
        r. ``"auto"`` is the least that keeps the train within 0.03 of the noise, at most :data:`LARGEST_BOND`.
    site_order : "auto" or a permutation of the columns
        ``"auto"`` takes the order of those tried that needs the smaller bonds.
    knots : int
        Most knots of a number, but for one beyond each end.
    max_rows : int
        Rows over which the posterior mean is a sum: of a longer table a random part, on which the scale of y is chosen
        too. All rows take part in the mean: see :func:`~restt.prior.posterior.condition_on_more`.
    average : bool
        Whether categories have a state for levels that the fit did not see.
    seed : int
        Of that part.
    device : torch.device, optional
        On which it is found, one with float64; the CPU by default. What comes back is on the CPU.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((120, 3))
    >>> y = x[:, 0] + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(120)
    >>> fitted = fit(x[:100], y[:100])
    >>> bool(np.corrcoef(fitted.predict(x[100:])[:, 0], y[100:])[0, 1] > 0.95)
    True
    >>> fitted.predict_interval(x[100:]).shape
    (20, 2, 1)
    """
    table, targets, used = checked(numbers, y, weights)
    rng = np.random.default_rng(seed)
    keep = without_accidents(targets, used)
    table, targets, used = merged(table[keep], targets[keep], used[keep])
    sites = fit_sites(table, used, levels, check_int("knots", knots, minimum=2), average, beyond=True)
    kernels = tuple(
        make_kernel(site, measure(site, _placed(site.vectors(column), device), _placed(used, device)))
        for site, column in zip(sites, table.T, strict=True)
    )
    whole = table, targets, used
    if len(table) > check_int("max_rows", max_rows, minimum=2):
        fewer = max(_FEWEST_ROWS, int((_LARGEST_WORK / len(table)) ** 0.5))
        part = np.sort(rng.permutation(len(table))[: min(max_rows, fewer)])
        table, targets, used = table[part], targets[part], used[part]
    states = [_placed(site.vectors(column), device) for site, column in zip(sites, table.T, strict=True)]
    labels = tuple(f"column {n}" for n in range(len(sites))) if names is None else tuple(names)
    learner = Learner(kernels, states, _placed(used, device), learning_rows(len(table), len(sites), rng), labels)
    scales = candidate_scales(targets, used) if scale == "auto" else (check_choice("scale", scale, SCALES),)
    begun, target, errors = best_scale(learner, scales, targets, used, device)
    (learner, _, smooth), mixture = _mixed(begun, _placed(target.encode(targets), device), used, rng)
    left_out = mixture.left_out.cpu().numpy()
    target = target.smeared(left_out, targets, used)
    if len(whole[0]) > len(table):
        give_back_memory()  # what the search for scales has freed, beside which all rows are the most that is held
        heavy = learner.trust is not None
        mixture = replace(mixture, posteriors=_given_all(mixture.posteriors, heavy, sites, target, *whole, device))
        give_back_memory()  # and what that has
    exact = mixture.mean(states).cpu()
    placed, mixture = mixture, mixture.on(_CPU)
    # The heaviest that tells columns apart, interactions among them, where there is one.
    told = sorted((*mixture.column_priors, smooth.prior.on(_CPU)), key=lambda one: one.alike or one.sums)[0]
    cores, order, rounding = _train(placed, told, bond_dim, site_order, states, exact, used)
    del placed
    module = residual_module(_with_average(cores, [told.kernels[n] for n in order]))
    ordered = tuple(sites[n] for n in order)
    distance = _distance(module(site_vectors(ordered, table[:, order])), exact, used)
    trust = None if learner.trust is None else learner.trust.cpu()
    return Fitted(
        module,
        order,
        ordered,
        target,
        told,
        measure_spread(told, target.encode(targets), mixture.residuals.numpy(), table, used, distance**2, rng, trust),
        replace(rounding, distance=distance),
        _relative_error(target.predict(left_out), targets, used),
        errors,
        mixture,
    )


def _placed(values: Tensor | np.ndarray, device: torch.device | None) -> Tensor:
    """Values where the prior is learned."""
    found = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    return found if device is None else found.to(device)


def _given_all(
    posteriors: Sequence[Posterior[Prior | JointPrior]],
    heavy_tails: bool,
    sites: Sequence[Site],
    target: Target,
    table: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    device: torch.device | None,
) -> tuple[Posterior[Prior | JointPrior], ...]:
    """The posteriors of a part of the rows conditioned on all of them."""
    states = [_placed(site.vectors(column), device) for site, column in zip(sites, table.T, strict=True)]
    encoded, given = _placed(target.encode(targets), device), _placed(weights, device)
    if not heavy_tails:
        return tuple(condition_on_more(one, states, encoded, given) for one in posteriors)
    return tuple(
        condition_on_more(one, states, encoded, given * surprise_trust(one, states, encoded)) for one in posteriors
    )


def _relative_error(predicted: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
    """Mean square error over outputs, each relative to its variance."""
    spread = weighted_std(targets, weights)
    scaled = (predicted - targets) / np.where(spread > 0, spread, 1.0)
    return float(np.average(scaled**2, axis=0, weights=weights).mean())


class Begun(NamedTuple):
    """What all other priors are learned with."""

    learner: Learner
    alike: Prior
    smooth: Posterior[Prior]  # learned around it


def best_scale(
    learner: Learner, scales: Sequence[str], targets: np.ndarray, weights: np.ndarray, device: torch.device | None
) -> tuple[tuple[Begun, ...], Target, dict[str, float]]:
    """The scale of y whose left-out predictions are best on y's own, with what is learned on it.

    They are those of the prior of columns alike: it has too few scales to take from chance, which a choice by the least
    error of left-out rows would pick. Where the noise has heavy tails on that scale, what is learned first trusts rows
    unequally, and what is learned without follows, where it is of the same scale.
    """
    found: dict[str, tuple[Target, Tensor, Prior]] = {}
    errors: dict[str, float] = {}
    for name in scales:
        target = Target.fit(targets, weights, name)
        encoded = _placed(target.encode(targets), device)
        alike = learner.learn("alike", encoded, name)
        left_out = learner.condition(alike, encoded).left_out.cpu().numpy()
        target = target.smeared(left_out, targets, weights)
        errors[name] = _relative_error(target.predict(left_out), targets, weights)
        found[name] = target, encoded, alike
    usual = scales[0]
    best = min(scales, key=lambda name: errors[name] / (1.0 if name == usual else 1 - _SCALE_GAIN))
    # The last scale shortens the tails of y; where they are the noise's, they are better taken as such.
    for name in (usual, best) if best == "asinh" else (best,):
        target, encoded, alike = found[name]
        posterior = learner.condition(learner.learn("smooth", encoded, name, alike), encoded)
        begun, heavy = Begun(learner, alike, posterior), heavy_tailed(learner, alike, posterior, encoded)
        if heavy is not None:
            return (Begun(*heavy), begun)[: 2 if name == best else 1], target, errors
    return (begun,), target, errors


def _mixed(
    begun: Sequence[Begun], encoded: Tensor, weights: np.ndarray, rng: np.random.Generator
) -> tuple[Begun, Mixture]:
    """The mixture of the first, unless its left-out rows speak for that of the one that follows."""
    again = copy.deepcopy(rng)  # both keep the same rows from the learning
    first = mix(*begun[0], encoded, rng)
    for other in begun[1:]:
        even = mix(*other, encoded, again)
        if not is_worth_it(first.residuals.cpu(), even.residuals.cpu(), torch.from_numpy(weights)):
            return other, even
    return begun[0], first


def _distance(found: Tensor, exact: Tensor, weights: np.ndarray) -> float:  # (B, O), (B, O), (B,)
    """The root mean square of what lies between."""
    return float(np.sqrt(np.average((found - exact).numpy() ** 2, axis=0, weights=weights).mean()))


def _train(
    mixture: Mixture,
    prior: Prior,
    bond_dim: int | str,
    site_order: Sequence[int] | str,
    states: Sequence[Tensor],  # N of (B, I_n)
    exact: Tensor,  # (B, O): the mixture's mean there
    weights: np.ndarray,  # (B,)
) -> tuple[list[Tensor], tuple[int, ...], Rounding]:
    """Cores of the mixture's mean in the best of the orders tried."""
    largest = LARGEST_BOND
    tolerance = _TOLERANCE * min(one.prior.noise for one in mixture.posteriors) ** 0.5
    if bond_dim != "auto":
        largest, tolerance = check_int("bond_dim", bond_dim, minimum=1), 0.0
    coefficients, factors = mixture.products()
    kernels = prior.kernels
    factors = [factor[:, : k.site.seen] for factor, k in zip(factors, kernels, strict=True)]
    moments = [_moment(kernel, weights.sum()) for kernel in kernels]
    found = []
    for order in _orders(prior, site_order):
        ordered = [factors[n] for n in order], [moments[n].to(factors[n]) for n in order]
        sites, rows = [kernels[n] for n in order], [states[n].cpu() for n in order]

        def distance(cores: list[Tensor], sites: list[Kernel] = sites, rows: list[Tensor] = rows) -> float:
            return _distance(train_values(_with_average(cores, sites), rows), exact, weights)

        measured = distance if bond_dim == "auto" else None
        found.append((*round_products(coefficients, *ordered, largest, tolerance, distance=measured), order))
    cores, rounding, order = min(found, key=lambda one: (sum(one[1].bonds), one[1].discarded))
    return cores, order, rounding


def _moment(kernel: Kernel, rows: float) -> Tensor:  # (seen, seen) or (seen,)
    """The mean of x xᵀ over the rows and a new one, which may be beyond the ends of a column."""
    seen = kernel.site.seen
    moment = kernel.measure[(slice(seen),) * kernel.measure.dim()].clone()
    below, above = kernel.site.beyond
    knots = len(kernel.site.positions)
    for place in (*range(below), *range(knots - above, knots)):
        moment[place, place] += 1 / (rows + 1)
    return moment


def _orders(prior: Prior, site_order: Sequence[int] | str) -> list[tuple[int, ...]]:
    columns = len(prior.kernels)
    if isinstance(site_order, str):
        check_choice("site_order", site_order, ("auto",))
        falling = tuple(np.argsort(-prior.relevance, kind="stable").tolist())
        # An order from behind has the same bonds.
        return [tuple(range(columns)), falling] if columns > 2 else [tuple(range(columns))]
    order = tuple(int(n) for n in site_order)
    if sorted(order) != list(range(columns)):
        raise ValueError(f'site_order must be "auto" or an order of the {columns} columns, got {shown(site_order)}')
    return [order]


def _with_average(cores: Sequence[Tensor], kernels: Sequence[Kernel]) -> list[Tensor]:
    """The cores with the average state of sites that have one: the mean of the others."""
    found = []
    for core, kernel in zip(cores, kernels, strict=True):
        if kernel.site.average:
            mean = kernel.mean[: kernel.site.seen]
            core = torch.cat([core, torch.einsum("lir,i->lr", core, mean)[:, None]], dim=1)
        found.append(core)
    return found
