"""From a table to a residual train in closed form: columns, hyper-parameters, posterior, rounding, distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from restt._common.devices import fitting_threads
from restt._common.errors import check_int
from restt.diagonal import DiagonalTT
from restt.module import ResTT
from restt.prior.calibration import fit_predictive
from restt.prior.fitting import Members, Prior, fit_members, weighted
from restt.prior.gp import Posterior, condition_iteratively, condition_through
from restt.prior.kernel import Kernel
from restt.prior.objective import Data
from restt.prior.pairs import Rows
from restt.prior.predictive import Predictive
from restt.prior.rounding import (
    Rounding,
    diagonal_module,
    effects_as_products,
    residual_module,
    round_products,
    train_values,
)
from restt.prior.rows import (
    NORMAL_TAIL,
    FitRows,
    check_levels,
    checked,
    content_order,
    drop_implausible_targets,
    merge_copies,
    tail_precision,
)
from restt.prior.settings import Settings
from restt.prior.sites import Site, fit_sites, rows_of, site_vectors
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
    sites: tuple[Site, ...]  # in the module's order
    warp: Warp
    prior: Prior  # in the table's order
    predictive: Predictive
    rounding: Rounding
    tolerance: float  # that the rounding was asked to hold
    loo_error: float  # mean square error of leave-one-out predictions of y, relative to its variance
    spread_error: float  # root mean square of log(s / exact s) over the rows of the fit
    evaluations: int  # of the evidence
    rows: FitRows  # that it is conditioned on

    def vectors(self, numbers: np.ndarray) -> Tensor:  # (B, C) -> (B, N, I)
        """Site vectors as the module takes them."""
        return site_vectors(self.sites, numbers[:, self.order])

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
    average: bool = True,
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
    average : bool
        Whether categories have a state for levels that the fit did not see.
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
    table, targets, used = merge_copies(table[keep], targets[keep], used[keep])
    # Samples are the first rows of an order that depends on what rows hold, not on how they came.
    order = content_order(table, targets, seed)
    table, targets, used = table[order], targets[order], used[order]
    sites = fit_sites(table, used, levels, settings.knots(len(table)), average, beyond=True)
    check_levels(table, [None if site.knots is not None else site.levels for site in sites])
    place, count = device or _CPU, min(len(table), settings.scale_rows)
    rows, weight = rows_of(sites, table).to(place), torch.from_numpy(used).to(place)
    kernel = Kernel.measured(sites, rows, weight, targets.shape[1])
    warp = Warp.fit(targets, used)
    z = torch.from_numpy(warp.standardised(targets[:count])).to(place)
    ones = torch.ones_like(weight[:count])
    data = Data(rows.take(slice(count)), z, weight[:count], ones, torch.zeros_like(ones))
    sample = torch.arange(min(count, settings.first_rows), device=place)
    threads = torch.get_num_threads() if place == _CPU else 1
    # Several threads wait for each other more than they work on small matrices.
    with fitting_threads(float(count) ** 2 * table.shape[1] * settings.fewest_knots):
        members = fit_members(kernel, data, warp, targets[:count], sample, settings, threads)
        data = members.data if len(table) == count else _with_rest(members, rows, weight, targets)
        labels = tuple(f"column {n}" for n in range(len(sites))) if names is None else tuple(names)
        fit_rows = FitRows.of(table, targets, used, data, members.tail, seed)
        return finish(kernel, members, data, fit_rows, labels, bond_dim, settings, dense)


def _with_rest(members: Members, rows: Rows, weight: Tensor, targets: np.ndarray) -> Data:
    """All rows of a long table; the noise of rows that the members were not fitted to follows their predictions."""
    count = len(members.targets)
    encoded = torch.from_numpy(members.warp.encode(targets)).to(weight)
    level = weighted([one.mean(rows.take(slice(count, None))) for one in members.posteriors], members.weights)
    squares = (encoded[count:] - level).square().mean(1) / members.loo_variance.mean()
    precision = torch.cat([members.data.precision, tail_precision(squares, members.tail)])
    if members.tail < NORMAL_TAIL:
        precision = torch.ones_like(precision)
    return Data(rows, encoded, weight, precision, torch.cat([members.data.level, level.mean(1)]))


def finish(
    kernel: Kernel,
    members: Members,  # conditioned on the first rows
    data: Data,  # all rows
    fit_rows: FitRows,  # the same rows as a table
    labels: tuple[str, ...],
    bond_dim: int | str,
    settings: Settings,
    dense: bool,
) -> Fitted:
    """Turn fitted members into a train and a predictive distribution."""
    table, targets, weights = fit_rows.numbers, fit_rows.targets, fit_rows.weights
    count = len(members.targets)
    first, posteriors = slice(count), members.posteriors
    held_out: Tensor | None = None  # (H, O): predictions of the last rows from the others
    if len(table) > count:
        posteriors, held_out = _given_all(members, data, targets, settings)
    noise = weighted([one.process.noise(members.data.rows, members.data.level) for one in posteriors], members.weights)
    tolerance = settings.tolerance * float(noise.mean()) ** 0.5
    kernel, prior = kernel.to(_CPU), Prior.of(members, labels)
    order = tuple(np.argsort(-prior.relevance, kind="stable").tolist())
    module, rounding, moved = _train_of(
        replace(members, posteriors=posteriors), kernel, order, weights[first], tolerance, bond_dim, settings, dense
    )
    # Leave-one-out residuals, inflated for hyper-parameters that were fitted to the same rows.
    fitted_to = settings.optimism_rows + settings.optimism_columns * kernel.layout.varying
    growth = (1 + min(fitted_to / count, settings.MOST_GROWTH)) ** 0.5
    residuals = (members.targets - members.loo_mean).cpu().numpy()
    predictive, spread_error = fit_predictive(
        members, kernel, table[first], residuals * growth - moved, weights[first], settings, module.num_parameters()
    )
    # Centred where the noise's density is: rare values on one side of it are part of the mean of y, not a bias.
    trust = weights[first] * members.data.precision.cpu().numpy()
    warp = members.warp.smeared(residuals - np.average(residuals, axis=0, weights=trust), weights[first])
    predicted, judged = members.loo_mean.cpu().numpy(), first
    if held_out is not None:
        predicted, judged = held_out.cpu().numpy(), slice(len(table) - len(held_out), None)
        residuals = warp.encode(targets[judged]) - predicted
        predictive = predictive.recalibrated(residuals, table[judged], predicted, weights[judged])
        warp = warp.smeared(residuals, weights[judged])
    if not len(fit_rows.means):  # a first fit, not one conditioned on more rows
        variance = float(members.loo_variance.mean())
        fit_rows = replace(fit_rows, variance=variance, inducing=predictive.numbers, means=predictive.means)
    return Fitted(
        module,
        order,
        tuple(kernel.sites[n] for n in order),
        warp,
        prior,
        predictive,
        rounding,
        tolerance,
        _relative_error(warp.predict(predicted), targets[judged], weights[judged]),
        spread_error,
        members.evaluations,
        fit_rows,
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
    """The members' mean as a train, how it was rounded, and how far that moved the rows."""
    rows = members.data.rows
    exact = weighted([one.mean(rows) for one in members.posteriors], members.weights).cpu()
    states = _dense_states(kernel, rows.to(_CPU))
    cores, rounding, moved = _rounded(
        members, kernel, order, [states[n] for n in order], exact, weights, tolerance, bond_dim, settings
    )
    if bond_dim != "auto" or dense or rounding.distance <= tolerance:
        return residual_module(cores), rounding, moved
    module = diagonal_module(members.posteriors, members.weights, order)
    rounding = Rounding(module.bond_dim, (module.bond_dim,) * (len(order) - 1), 0.0, 0.0, kind="diagonal")
    return module, rounding, np.zeros_like(moved)


def _given_all(
    members: Members, data: Data, targets: np.ndarray, settings: Settings
) -> tuple[tuple[Posterior, ...], Tensor | None]:
    """Condition the members on all rows of a long table; predict held-out rows by their average."""
    encoded = torch.from_numpy(members.warp.encode(targets)).to(data.weights)
    inducing = members.data.rows
    if len(encoded) > settings.exact_rows:
        return tuple(condition_through(one.process, inducing, data, encoded) for one in members.posteriors), None
    inducing = inducing.take(slice(settings.preconditioner_rows))
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


def _dense_states(kernel: Kernel, rows: Rows) -> list[Tensor]:  # N of (B, I_n)
    """Site vectors of rows; a value that no state holds is the mean of the column, or the average state."""
    found = []
    for n, site in enumerate(kernel.sites):
        vectors, mean = rows.vectors(n, site.seen + 1), kernel.means[n]
        found.append(vectors if site.average else vectors[:, :-1] + vectors[:, -1:] * mean)
    return found


def _rounded(
    members: Members,
    kernel: Kernel,
    order: tuple[int, ...],
    states: Sequence[Tensor],  # N of (B, I_n), in the order
    exact: Tensor,  # (B, O): the mean there
    weights: np.ndarray,  # (B,)
    tolerance: float,
    bond_dim: int | str,
    settings: Settings,
) -> tuple[list[Tensor], Rounding, np.ndarray]:  # (B, O)
    """Cores of the members' mean, of the least bond that holds the tolerance (else the largest), and the rows' move."""
    bonds = [bond for bond in settings.FIRST_BONDS if bond < settings.largest_bond] + [settings.largest_bond]
    if bond_dim != "auto":
        bonds, tolerance = [check_int("bond_dim", bond_dim, minimum=1)], 0.0
    effects = [
        weighted(column, members.weights) for column in zip(*(one.effects() for one in members.posteriors), strict=True)
    ]
    products = [one.products() for one in members.posteriors]
    terms = [(float(w) * part[0], part[1]) for w, part in zip(members.weights, products, strict=True)]
    terms.append(effects_as_products(effects))
    coefficients = torch.cat([part[0] for part in terms])
    factors = [torch.cat([part[1][n] for part in terms]) for n in order]
    moments = [_moment(kernel, n, float(weights.sum())).to(coefficients) for n in order]
    sites = [(kernel.sites[n], kernel.means[n]) for n in order]

    def moved(cores: list[Tensor]) -> np.ndarray:
        return np.asarray((train_values(_with_average(cores, sites), states) - exact).numpy())

    def distance(cores: list[Tensor]) -> float:
        return float(np.sqrt(np.average(moved(cores) ** 2, axis=0, weights=weights).mean()))

    for largest in bonds:
        cores, rounding = round_products(coefficients, factors, moments, largest, tolerance, distance)
        if rounding.distance <= tolerance:
            break
    return _with_average(cores, sites), rounding, moved(cores)


def _moment(kernel: Kernel, n: int, rows: float) -> Tensor:  # (seen, seen) or (seen,)
    """The mean of x xᵀ over the rows and a new one, which may be beyond the ends of a column."""
    site = kernel.sites[n]
    if site.knots is None:
        return kernel.means[n]
    moment, (below, above), knots = kernel.moments[n].clone(), site.beyond, len(site.positions)
    for place in (*range(below), *range(knots - above, knots)):
        moment[place, place] += 1 / (rows + 1)
    return moment


def _with_average(cores: Sequence[Tensor], sites: Sequence[tuple[Site, Tensor]]) -> list[Tensor]:
    """The cores with the average state of sites that have one: the mean of the others."""
    found = []
    for core, (site, mean) in zip(cores, sites, strict=True):
        if site.average:
            core = torch.cat([core, torch.einsum("lir,i->lr", core, mean)[:, None]], dim=1)
        found.append(core)
    return found
