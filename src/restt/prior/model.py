"""From a table to a residual train in closed form: columns, hyper-parameters, posterior, rounding, distribution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from restt._common.devices import fitting_threads
from restt._common.errors import check_int
from restt.diagonal import DiagonalTT
from restt.module import ResTT
from restt.prior.calibration import fit_predictive
from restt.prior.coded import coded_products
from restt.prior.fitting import Members, condition_members, fit_members, weighted
from restt.prior.gp import Data, Posterior, condition_iteratively
from restt.prior.kernel import Kernel, Prior
from restt.prior.predictive import Predictive
from restt.prior.rounding import (
    Rounding,
    Sample,
    diagonal_module,
    residual_module,
    round_products,
    train_values,
)
from restt.prior.rows import (
    NORMAL_TAIL,
    FitRows,
    check_levels,
    checked,
    drop_implausible_targets,
    tail_precision,
)
from restt.prior.settings import Settings
from restt.prior.sites import Site, fit_sites, rows_of
from restt.prior.warp import Warp

_CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Fitted:
    """A residual train from a fitted Gaussian process, with its prior and predictive distribution.

    ``module`` takes the site vectors of :meth:`vectors`, whose sites are the columns in ``order``, and gives the warped
    target: ``warp.predict`` of it is y.
    """

    module: ResTT | DiagonalTT
    order: tuple[int, ...]  # the column that each site reads
    warp: Warp
    prior: Prior  # in the table's order
    predictive: Predictive
    rounding: Rounding
    tolerance: float  # that the rounding was asked to hold
    loo_error: float  # mean square error of leave-one-out predictions of y, relative to its variance
    spread_error: float  # root mean square of log(s / exact s) over the rows of the fit
    evaluations: int  # of the evidence
    rows: FitRows  # that it is conditioned on

    @property
    def sites(self) -> tuple[Site, ...]:
        """States of the columns in the module's order."""
        return tuple(self.predictive.kernel.sites[n] for n in self.order)

    def vectors(self, numbers: np.ndarray) -> Tensor:  # (B, C) -> (B, N, I)
        """Site vectors as the module takes them; what the fit did not see is the average of its column."""
        kernel = self.predictive.kernel
        states = kernel.vectors(rows_of(kernel.sites, np.asarray(numbers, dtype=np.float64)))
        return nn.utils.rnn.pad_sequence([states[n].T for n in self.order]).permute(2, 1, 0)

    @torch.no_grad()
    def outputs(self, numbers: np.ndarray) -> np.ndarray:  # (B, C) -> (B, O)
        """The mean of the warped target."""
        return self.module(self.vectors(numbers).to(self.module.dtype)).double().numpy()

    def predict(self, numbers: np.ndarray) -> np.ndarray:  # (B, C) -> (B, O)
        """The mean of y."""
        return self.warp.predict(self.outputs(numbers))

    def predict_std(self, numbers: np.ndarray) -> np.ndarray:  # (B, C) -> (B, O)
        """Root mean square error expected of each prediction, in y's units."""
        return self.predictive.std(self.outputs(numbers), numbers, self.warp)

    def predict_interval(self, numbers: np.ndarray, coverage: float = 0.9) -> np.ndarray:  # (B, C) -> (B, 2, O)
        """Interval that holds an observation with probability ``coverage``."""
        return self.predictive.interval(self.outputs(numbers), numbers, self.warp, coverage)


@torch.no_grad()
def fit(
    numbers: np.ndarray,  # (B, C)
    y: np.ndarray,  # (B,) or (B, O)
    weights: np.ndarray | None = None,  # (B,)
    levels: Sequence[int | None] | None = None,
    *,
    names: Sequence[str] | None = None,
    bond_dim: int | str = "auto",
    seed: int = 0,
    device: torch.device | None = None,
    settings: Settings | None = None,
    dense: bool = False,
) -> Fitted:
    """Fit a Gaussian process to a table; its posterior mean is a residual train, see docs/table_model.md.

    It is rounded where a bond of the settings' largest or less holds the error, else it keeps its diagonal cores.

    Parameters
    ----------
    numbers : array (B, C)
        The table in float64: NaN is a missing value, a category the number of its level.
    y : array (B,) or (B, O)
        Targets; several outputs share one kernel.
    weights : array (B,), optional
        A weight of 2 is a repeated row; rows of weight 0 are left out.
    levels : C of them, optional
        How many levels a category has, None for a column of numbers (all by default).
    names : C of them, optional
        Of the columns, for the printed prior.
    bond_dim : "auto" or int
        r. ``"auto"`` is the least that keeps the train within a small share of the noise. To an integer it is rounded
        whatever the error, which ``rounding`` reports.
    seed : int
        Of the sample of rows in a long table.
    device : torch.device, optional
        On which it is fitted, one with float64; the CPU by default. What comes back is on the CPU.
    settings : Settings, optional
    dense : bool
        Round to the largest bond also where it does not hold the error.

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
    settings = Settings() if settings is None else settings
    table, targets, used = checked(numbers, y, weights)
    keep = drop_implausible_targets(targets, used)
    kept = FitRows.of(table[keep], targets[keep], used[keep], seed)
    if len(kept) > settings.exact_rows:
        raise ValueError(f"numbers must have at most {settings.exact_rows} rows, got {len(kept)}: fit a sample of them")
    sites = fit_sites(kept.numbers, kept.weights, levels, settings.knots(len(kept)), beyond=True)
    check_levels(kept.numbers, [None if site.knots is not None else site.levels for site in sites])
    place, count = device or _CPU, min(len(kept), settings.scale_rows)
    warp = Warp.fit(kept.targets, kept.weights)
    everything = _data(sites, warp, kept, place)
    kernel = Kernel.measured(sites, everything.rows, everything.weights, targets.shape[1])
    sample = torch.arange(min(count, settings.first_rows), device=place)
    threads = torch.get_num_threads() if place == _CPU else 1
    labels = tuple(f"column {n}" for n in range(len(sites))) if names is None else tuple(names)
    with _threads(float(count) ** 2 * len(sites) * settings.fewest_knots):
        data = everything.take(slice(count))
        members = fit_members(kernel, data, warp, kept.targets[:count], sample, settings, threads)
        kept = replace(kept, tail=members.tail)
        return _finished(members, everything, kept, labels, bond_dim, settings, dense)


@torch.no_grad()
def condition_on(
    spread: Predictive,
    kernel: Kernel,  # its own, with the levels that came later
    warp: Warp,
    rows: FitRows,  # all rows
    names: tuple[str, ...],
    *,
    bond_dim: int | str = "auto",
    settings: Settings,
) -> Fitted:
    """The model of a first fit conditioned on these rows: its scales, knots, transform and tails of the noise.

    Nothing depends on the order in which rows came, so batches one after the other give what all rows at once do.
    Columns stay centred under the rows of the first fit, where a level that came later had no share.
    """
    settings = replace(settings, constant=spread.settings.constant, least_noise=spread.settings.least_noise)
    count = min(len(rows), settings.scale_rows)
    everything = _data(kernel.sites, warp, rows, _CPU)
    with _threads(float(count) ** 2 * len(kernel.sites) * settings.fewest_knots):
        processes, data = replace(spread, kernel=kernel, settings=settings).processes, everything.take(slice(count))
        members = condition_members(processes, spread.weights, data, warp, rows.targets[:count], rows.tail)
        return _finished(members, everything, rows, names, bond_dim, settings, dense=False)


@contextmanager
def _threads(work: float) -> Iterator[None]:
    """One thread for small matrices, where several wait for each other more than they work; LAPACK as many as torch."""
    with fitting_threads(work), threadpool_limits(torch.get_num_threads(), "blas"):
        yield


def _data(sites: Sequence[Site], warp: Warp, rows: FitRows, place: torch.device) -> Data:
    """Rows before anything is known of their noise."""
    z, weights = (torch.from_numpy(part).to(place) for part in (warp.standardised(rows.targets), rows.weights))
    return Data(rows_of(sites, rows.numbers).to(place), z, weights, torch.ones_like(weights), torch.zeros_like(weights))


def _finished(
    members: Members,  # conditioned on the first rows
    everything: Data,
    rows: FitRows,
    names: tuple[str, ...],
    bond_dim: int | str,
    settings: Settings,
    dense: bool,
) -> Fitted:
    """Turn fitted members into a train and a predictive distribution."""
    table, targets, weights = rows.numbers, rows.targets, rows.weights
    count = len(members.targets)
    first, posteriors = slice(count), members.posteriors
    held_out: Tensor | None = None  # (H, O): predictions of the last rows from the others
    if len(table) > count:
        posteriors, held_out = _given_all(members, everything, targets, settings)
    noise = weighted([one.process.noise(members.data.rows, members.data.level) for one in posteriors], members.weights)
    tolerance = settings.tolerance * float(noise.mean()) ** 0.5
    kernel, prior = posteriors[0].process.kernel.to(_CPU), Prior.of(members, names)
    order = tuple(np.argsort(-prior.relevance, kind="stable").tolist())
    averaged = replace(members, posteriors=posteriors)
    module, rounding, moved = _train_of(averaged, kernel, order, weights[first], tolerance, bond_dim, settings, dense)
    # Leave-one-out residuals, inflated for hyper-parameters that were fitted to the same rows.
    fitted_to = settings.optimism_rows + settings.optimism_columns * kernel.layout.varying
    growth = (1 + min(fitted_to / count, settings.MOST_GROWTH)) ** 0.5
    predicted, judged = members.loo_mean.cpu().numpy(), first
    residuals = members.targets.cpu().numpy() - predicted
    predictive, spread_error = fit_predictive(
        members, kernel, table[first], residuals * growth - moved, weights[first], settings, module.num_parameters()
    )
    # Centred where the noise's density is: rare values on one side of it are part of the mean of y, not a bias.
    trust = weights[first] * members.data.precision.cpu().numpy()
    warp = members.warp.smeared(residuals - np.average(residuals, axis=0, weights=trust), weights[first])
    if held_out is not None:
        predicted, judged = held_out.cpu().numpy(), slice(len(table) - len(held_out), None)
        residuals = warp.encode(targets[judged]) - predicted
        predictive = predictive.recalibrated(residuals, table[judged], predicted, weights[judged])
        warp = warp.smeared(residuals, weights[judged])
    return Fitted(
        module,
        order,
        warp,
        prior,
        predictive,
        rounding,
        tolerance,
        _relative_error(warp.predict(predicted), targets[judged], weights[judged]),
        spread_error,
        members.evaluations,
        rows,
    )


def _train_of(
    members: Members,
    kernel: Kernel,
    order: tuple[int, ...],
    weights: np.ndarray,  # (B,)
    tolerance: float,
    bond_dim: int | str,
    settings: Settings,
    dense: bool,
) -> tuple[ResTT | DiagonalTT, Rounding, np.ndarray]:  # (B, O)
    """The members' mean as a train of the least bond that holds the tolerance, and how far that moves the rows.

    Where the largest bond does not hold it, the train keeps its diagonal cores, or has that bond if it must be dense.
    """
    posteriors, rows = members.posteriors, members.data.rows
    exact = weighted([one.mean(rows) for one in posteriors], members.weights).cpu()
    states, allowed = kernel.vectors(rows.to(_CPU)), tolerance
    largest, first = settings.largest_bond, settings.FIRST_BONDS
    if bond_dim != "auto":
        largest, first, allowed = check_int("bond_dim", bond_dim, minimum=1), (), 0.0
    coefficients, factors = coded_products(posteriors, members.weights, order)
    moments = kernel.widened_moments(float(weights.sum()))

    measures = [moments[n].to(coefficients) for n in order]
    sample = Sample([states[n] for n in order], exact, torch.from_numpy(weights))
    cores, rounding = round_products(coefficients, factors, measures, largest, allowed, sample, first)
    if bond_dim != "auto" or dense or rounding.distance <= tolerance:
        return residual_module(cores), rounding, (train_values(cores, sample.states) - exact).numpy()
    module = diagonal_module(posteriors, members.weights, order)
    rounding = Rounding(module.bond_dim, (module.bond_dim,) * (len(order) - 1), 0.0, 0.0, kind="diagonal")
    return module, rounding, np.zeros(exact.shape)


def _given_all(
    members: Members, everything: Data, targets: np.ndarray, settings: Settings
) -> tuple[tuple[Posterior, ...], Tensor]:
    """Condition the members on all rows of a long table; predict held-out rows by their average.

    The noise of rows that the members were not fitted to follows their predictions.
    """
    count = len(members.targets)
    encoded = torch.from_numpy(members.warp.encode(targets)).to(everything.weights)
    rest = everything.rows.take(slice(count, None))
    level = weighted([one.mean(rest) for one in members.posteriors], members.weights)
    precision = everything.precision[count:]
    if members.tail >= NORMAL_TAIL:
        squares = (encoded[count:] - level).square().mean(1) / members.loo_variance.mean()
        precision = tail_precision(squares, members.tail)
    known = members.data
    data = replace(
        everything,
        precision=torch.cat([known.precision, precision]),
        level=torch.cat([known.level, level.mean(1)]),
    )
    inducing = known.rows.take(slice(settings.preconditioner_rows))
    held = min(settings.held_rows, int(settings.held_share * len(encoded)))
    limits = held, settings.residual, settings.gradient_steps
    found = [condition_iteratively(one.process, inducing, data, encoded, *limits) for one in members.posteriors]
    return tuple(one for one, _ in found), weighted([predicted for _, predicted in found], members.weights)


def _relative_error(predicted: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
    """Mean square error over outputs, each relative to its variance."""
    away = targets - np.average(targets, axis=0, weights=weights)
    variance = np.average(away**2, axis=0, weights=weights)
    errors = np.average((predicted - targets) ** 2, axis=0, weights=weights)
    return float((errors / np.where(variance > 0, variance, 1.0)).mean())
