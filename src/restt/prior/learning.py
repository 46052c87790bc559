"""How the prior is learned: its scales by marginal likelihood, from analytic gradients, on a bounded set of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from restt._common.devices import fitting_threads
from restt.prior.evidence import NOISE, SCALE, Evidence, HyperPrior, Objective, column_slices, effects_apart
from restt.prior.kernels import SMOOTH, Kernel, Number
from restt.prior.report import plot_relevance

# Entries of all columns' covariances together while learning, and the rows that are enough for any table.
_LEARNING_ENTRIES = 5_000_000
_FEWEST_ROWS, LEARNING_ROWS = 150, 700
ITERATIONS = 50
# Centre and spread of log σ², log s and of a column's log relevance, log length and logit of the line's share, and the
# bounds of the search. Targets have variance 1 and positions are of order 1, so that these fit any table.
GLOBAL = {"noise": (np.log(0.1), 3.0, np.log(1e-6), np.log(4.0)), "scale": (0.0, 3.0, -10.0, 8.0)}
_COLUMN = {"relevance": (-2.5, 2.0, -14.0, 6.0), "length": (0.5, 0.7, -3.0, 3.0), "line": (0.5, 1.0, -8.0, 8.0)}
# The same for functions that change fast and are seldom straight.
_ROUGH = {**_COLUMN, "length": (-1.0, 0.7, -3.0, 3.0), "line": (-1.0, 1.0, -8.0, 8.0)}
# Spread and bounds of the logarithm of a main effect's variance, where it is learned apart.
_APART_SPREAD, _APART_BOUNDS = 3.0, (-14.0, 6.0)
# The logarithm of the relevance that all columns have in the product, where there are only main effects.
_NEXT_TO_NOTHING = -8.0
# How far the logarithm of a column's relevance is from that of all columns alike, before it counts as one that differs.
UNLIKE = 1.5
# The same where main effects are learned apart: a column may matter and still take part in nothing.
_UNLIKE_APART = 2.0
# In which the search is told the parameters of columns with scales of their own. All rows speak of the noise and of s,
# a few of a column: in equal units, the first steps would be theirs alone.
_UNITS = {"noise": 0.15, "scale": 0.5, "relevance": 1.0, "length": 0.7, "line": 1.0, "apart": 1.0}
# The search ends when this many steps have together gained less than this many units of log evidence.
_PATIENCE, _LEAST_GAIN = 2, 0.05
# The scale of y, where a prior is printed.
_IN_WORDS = {
    "identity": "y as it is",
    "sqrt": "the root of y",
    "log": "the logarithm of y",
    "asinh": "y with shortened tails",
}


@dataclass(frozen=True, eq=False)
class Prior:
    """A learned prior over functions of a table.

    ``relevance`` is the variance of a column's main effect relative to the constant's, averaged over the rows of the
    fit; ``length`` the distance over which a smooth effect changes, on a scale where a column has variance 1 (NaN for
    categories); ``line`` the share of straight lines in it; ``noise`` the noise's share of the target's variance;
    ``scale`` s, by which interactions fall behind main effects: those of order d have a variance s Π a; ``power`` 2 for
    smooth functions, 1 for those that may jump; ``evened`` says that lengths and lines are of columns taken to a power
    that makes them even. ``apart`` is the share of a column's main effect that no other column changes, 0 where columns
    that matter by themselves matter together too: a is the rest of the relevance.
    """

    kernels: tuple[Kernel, ...]
    theta: np.ndarray
    names: tuple[str, ...]
    target_scale: str = "identity"
    evaluations: int = 0  # of the evidence, until it was learned
    alike: bool = False  # all columns of a kind have one relevance, length and share of straight lines
    sums: bool = False  # main effects alone: without interactions

    def on(self, device: torch.device) -> Self:
        """The same prior for states on another device."""
        return replace(self, kernels=tuple(kernel.on(device) for kernel in self.kernels))

    @property
    def noise(self) -> float:
        return float(np.exp(self.theta[NOISE]))

    @property
    def scale(self) -> float:
        return float(np.exp(self.theta[SCALE]))

    @property
    def power(self) -> float:
        """Of the distance in the covariance of numbers: 2 for smooth functions, 1 for those that may jump."""
        return next((kernel.power for kernel in self.kernels if isinstance(kernel, Number)), SMOOTH)

    @property
    def bend(self) -> float:
        """Of the functions of numbers, the share of parabolas."""
        return max((kernel.bend for kernel in self.kernels if isinstance(kernel, Number)), default=0.0)

    @property
    def evened(self) -> bool:
        """Whether numbers are taken to a power that makes them even."""
        return any(kernel.evened for kernel in self.kernels if isinstance(kernel, Number))

    @property
    def parts(self) -> list[np.ndarray]:
        """The parameters of each column's kernel."""
        return [self.theta[part] for part in column_slices(self.kernels)]

    @property
    def effects_apart(self) -> np.ndarray:  # (N,)
        """b_n/a_n, see :mod:`restt.prior.evidence`: all 0 where main effects are those of the product."""
        return effects_apart(self.kernels, self.theta)

    @property
    def relevance(self) -> np.ndarray:  # (N,)
        # Where all rows are in one state, nothing is learned of it.
        varies = [float(kernel.mean.max()) < 1 - 1e-12 for kernel in self.kernels]
        product = np.where(varies, [float(np.exp(values[0])) for values in self.parts], 0.0)
        return product * (1 + self.effects_apart / self.scale)

    @property
    def apart(self) -> np.ndarray:  # (N,)
        return 1 - 1 / (1 + self.effects_apart / self.scale)

    @property
    def length(self) -> np.ndarray:  # (N,)
        return np.array([float(np.exp(values[1])) if len(values) > 1 else np.nan for values in self.parts])

    @property
    def line(self) -> np.ndarray:  # (N,)
        return np.array([float(1 / (1 + np.exp(-values[2]))) if len(values) > 2 else np.nan for values in self.parts])

    def __str__(self) -> str:
        width = max(6, *(len(name) for name in self.names))
        words = _IN_WORDS[self.target_scale] + (", functions that may jump" if self.power < SMOOTH else "")
        words += ", columns evened by a power" if self.evened else ""
        lines = [f"Prior: noise {self.noise:.3g}, scale {self.scale:.3g}, {words}"]
        told = self.apart.any()
        lines.append(f"  {'column':{width}}  relevance  length  line{'  apart' if told else ''}")
        columns = zip(self.names, self.relevance, self.length, self.line, self.apart, strict=True)
        for name, a, l, line, apart in columns:
            rest = "       –     –" if np.isnan(l) else f"{l:8.3g}{line:6.2f}"
            lines.append(f"  {name:{width}}  {a:9.3g}{rest}{f'{apart:7.2f}' if told else ''}")
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """Relevance of each column as bars; matplotlib's axes."""
        return plot_relevance(self.names, self.relevance, ax)


def hyper_prior(
    kernels: Sequence[Kernel],
    around: np.ndarray | None = None,  # (T,)
    rough: bool = False,
    apart: bool = False,
    sums: bool = False,
) -> HyperPrior:
    """Weak densities of all parameters; ``rough`` leans towards short lengths, else to long ones and straight lines.

    ``around``: parameters of :func:`learn_alike`, near whose relevance that of each column is expected. ``apart``: with
    main effects that no other column changes. ``sums``: with these alone, the product being next to nothing.
    """
    columns = _ROUGH if rough else _COLUMN
    rows = [GLOBAL["noise"], GLOBAL["scale"], *(columns[name] for kernel in kernels for name in kernel.names)]
    centre, spread, low, high = np.array(rows).T.copy()
    heavy = np.zeros(len(rows), dtype=bool)
    if sums:
        centre[SCALE] = low[SCALE] = high[SCALE] = 0.0
        for each in (centre, low, high):
            each[_relevances(kernels)] = _NEXT_TO_NOTHING
    elif around is not None:
        heavy[_relevances(kernels)] = True
        centre[heavy], spread[heavy] = around[heavy], _UNLIKE_APART if apart else UNLIKE
    weak = HyperPrior(centre, spread, low, high, heavy)
    if not (apart or sums):
        return weak
    # Main effects of a column's own are expected to be as large as those of the product, where there is one.
    count, product = len(kernels), centre if around is None else around
    effects, size = product[SCALE] + product[_relevances(kernels)], _APART_SPREAD
    if sums and around is None:
        effects, size = np.full(count, -np.log(count)), columns["relevance"][1]
    elif sums:
        effects, size = product[-count:], UNLIKE
    return HyperPrior(
        np.r_[weak.centre, effects],
        np.r_[weak.spread, np.full(count, size)],
        np.r_[weak.low, np.full(count, _APART_BOUNDS[0])],
        np.r_[weak.high, np.full(count, _APART_BOUNDS[1])],
        np.r_[weak.heavy, np.full(count, around is not None or apart)],
    )


def _relevances(kernels: Sequence[Kernel]) -> list[int]:
    return [part.start for part in column_slices(kernels)]


def starting_point(kernels: Sequence[Kernel], rough: bool = False) -> np.ndarray:
    """All columns equally relevant, less so the more there are."""
    theta = hyper_prior(kernels, rough=rough).centre.copy()
    theta[_relevances(kernels)] = np.log(0.5 / np.sqrt(len(kernels)))
    return theta


def learning_rows(rows: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """The rows on which scales are learned: all of a small table, a random part of a large one."""
    count = int(np.clip(np.sqrt(_LEARNING_ENTRIES / max(1, columns)), _FEWEST_ROWS, LEARNING_ROWS))
    return np.arange(rows) if rows <= count else np.sort(rng.permutation(rows)[:count])


def learn(
    kernels: Sequence[Kernel],
    states: Sequence[Tensor],  # N of (B, I_n)
    targets: Tensor,  # (B, O), standardised
    weights: Tensor,  # (B,)
    start: np.ndarray | None = None,
    iterations: int = ITERATIONS,
    around: np.ndarray | None = None,
    trust: Tensor | None = None,  # (B,)
    rough: bool = False,
    apart: bool = False,
    sums: bool = False,
) -> tuple[np.ndarray, int]:
    """The parameters of largest evidence, by L-BFGS from ``start``, and how often the evidence was evaluated.

    ``around``, ``rough``, ``apart``, ``sums``: see :func:`hyper_prior`; without ``start`` the search begins there, but
    for the lengths and lines. ``trust``: see :class:`~restt.prior.evidence.Objective`.
    """
    hyper = hyper_prior(kernels, around, rough, apart, sums)
    if start is None:
        start = starting_point(kernels, rough)
        if around is not None:
            kept = [NOISE, SCALE, *_relevances(kernels)]
            start[kept] = around[kept]
        start = np.r_[start, hyper.centre[len(start) :]]
    names = ["noise", "scale", *(name for kernel in kernels for name in kernel.names)]
    names += ["apart"] * (len(start) - len(names))
    units = np.array([_UNITS[name] for name in names])
    return climb(Evidence(kernels, states, targets, weights, hyper, trust=trust), start, iterations, units)


def learn_alike(
    kernels: Sequence[Kernel],
    states: Sequence[Tensor],  # N of (B, I_n)
    targets: Tensor,  # (B, O), standardised
    weights: Tensor,  # (B,)
    straight: bool = False,
    trust: Tensor | None = None,  # (B,)
    sums: bool = False,
) -> tuple[np.ndarray, int]:
    """The same for a prior in which all columns of a kind have one relevance, length and share of straight lines.

    A handful of parameters, for which few rows of many columns are enough. ``straight``: straight lines and no
    interactions, which is ridge regression; ``sums``: no interactions.
    """
    columns = [f"{type(kernel).__name__} {name}" for kernel in kernels for name in kernel.names]
    own = ["noise", "scale", *columns, *(f"{type(kernel).__name__} apart" for kernel in kernels if sums)]
    distinct = list(dict.fromkeys(own))
    ties = np.array([distinct.index(entry) for entry in own])
    first = np.array([own.index(entry) for entry in distinct])
    weak = hyper_prior(kernels, sums=sums)
    start = (weak.centre if sums else starting_point(kernels))[first]
    centre, low, high = weak.centre[first], weak.low[first], weak.high[first]
    if straight:
        held = np.array([name.endswith(("scale", "length", "line")) for name in distinct])
        centre[held] = low[held] = high[held]
        relevance = np.array([name.endswith("relevance") for name in distinct])
        centre[relevance] = start[relevance] = -high[SCALE] - np.log(len(kernels))
    hyper = HyperPrior(centre, weak.spread[first], low, high, weak.heavy[first])
    objective = Evidence(kernels, states, targets, weights, hyper, ties, trust)
    theta, evaluations = climb(objective, start, ITERATIONS)
    return theta[ties], evaluations


class _Search:
    """The evidence over parameters in units of their own, the best that were seen, and when to stop."""

    def __init__(self, objective: Objective, units: np.ndarray) -> None:
        self.objective, self.units = objective, units
        self.best, self.value = np.empty(0), np.inf
        self._reached: list[float] = []  # after each step

    def __call__(self, scaled: np.ndarray) -> tuple[float, np.ndarray]:
        hyper = self.objective.hyper_prior
        theta = np.clip(scaled * self.units, hyper.low, hyper.high)
        value, gradient = self.objective(theta)
        if value < self.value:
            self.best, self.value = theta, value
        return value, gradient * self.units

    def after_step(self, _: np.ndarray) -> None:
        self._reached.append(self.value)
        if len(self._reached) > _PATIENCE and self._reached[-1 - _PATIENCE] - self.value < _LEAST_GAIN:
            raise StopIteration


def climb(
    objective: Objective, start: np.ndarray, iterations: int, units: np.ndarray | None = None
) -> tuple[np.ndarray, int]:
    """The best parameters that L-BFGS saw from ``start``, told them in these units, and how many it saw."""
    low, high = objective.hyper_prior.low, objective.hyper_prior.high
    units = np.ones(len(start)) if units is None else units
    search = _Search(objective, units)
    # The matrices of a search are small, and many small products on several threads wait for each other.
    with fitting_threads(0.0):
        minimize(
            search,
            np.clip(start, low, high) / units,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low / units, high / units, strict=True)),
            callback=search.after_step,
            options={"maxiter": iterations, "maxfun": int(1.5 * iterations), "ftol": 0.0, "gtol": 1e-3},
        )
    return search.best, objective.evaluations
