"""From a table to a residual train in closed form: :func:`restt.prior.fit` in the estimators' terms."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from restt import prior
from restt._common.devices import available_memory, gibibytes, read_device
from restt.diagonal import DiagonalTT
from restt.estimators.closed import FitReport
from restt.estimators.columns import Column, read_numbers
from restt.estimators.compact import prior_bases, state_positions
from restt.estimators.encoding import Encoding, site_covariances, with_rare_unseen, with_site_means
from restt.estimators.modelled import Modelled
from restt.estimators.refinement import Rows, held_out, outputs_of, refine
from restt.estimators.tables import Examples
from restt.module import ResTT
from restt.prior import Predictive, Prior, Settings
from restt.prior.rows import FitRows, drop_implausible_targets, ordinary_range
from restt.train.runs import joined

if TYPE_CHECKING:
    from restt.estimators.regressor import ResTTRegressor

# More columns than this are left to gradients.
MOST_COLUMNS = 2_000
# Levels of a category that have a state of their own: the weights of every site are as wide as the widest, and a
# refinement trains all of them.
MOST_LEVELS, MOST_LEVELS_REFINED = 500, 250
# Wider sites of a refined table have vectors as large as the table.
WIDEST_REFINED = 512
# Held-out rows whose residuals set the width of intervals.
CALIBRATED_ROWS = 5_000
# About the bond of the trains that come out: the device is chosen before there is one.
USUAL_BOND = 10


@dataclass(frozen=True, eq=False)
class Solved:
    """A posterior in closed form, and what was done for it."""

    module: ResTT | DiagonalTT
    encoding: Encoding
    site_covariances: Tensor | None  # (N, I, I)
    target: Modelled
    spread: Predictive
    prior: Prior
    report: FitReport
    rows: FitRows | None = None  # those of a refined table are not kept


@dataclass(frozen=True, eq=False)
class FitTable:
    """All rows, read."""

    columns: tuple[Column, ...]
    numbers: np.ndarray  # (B, C)
    y: np.ndarray  # (B, O)
    weights: np.ndarray  # (B,)

    def take(self, rows: np.ndarray) -> FitTable:
        """The table of some rows."""
        return FitTable(self.columns, self.numbers[rows], self.y[rows], self.weights[rows])


def solve(given: Examples, parameters: ResTTRegressor, names: list[str], seed: int) -> Solved:
    """The posterior mean of the rows as a module with one run, with all that predicting and intervals need.

    A table of more than ``Settings.exact_rows`` is solved on a sample and refined on all rows.
    """
    began = time.monotonic()
    settings = Settings.of_effort(parameters.effort)
    device = read_device(parameters.device, 0.0)  # one that is not there is refused before any work is done
    if given.table.width > MOST_COLUMNS:
        raise ValueError(
            f"X has {given.table.width} columns and the closed form takes up to {MOST_COLUMNS}: select columns, or use "
            f"{parameters._trained}"
        )
    refined = len(given) > settings.exact_rows
    columns = parameters._fit_columns(given, MOST_LEVELS_REFINED if refined else MOST_LEVELS)
    widest = max(columns, key=lambda column: column.states)
    if refined and widest.states > WIDEST_REFINED:
        raise ValueError(
            f"X has {len(given)} rows and {widest.label} {widest.states} categories; in a table of more than "
            f'{settings.exact_rows} rows a column may have {WIDEST_REFINED}: handle_unknown="other" groups rare ones'
        )
    _check_fits(columns, len(given), min(len(given), settings.solved_rows) if refined else len(given), settings)
    numbers = read_numbers(columns, given.table)
    target, y = Modelled.scaled(given.y, given.weights)
    table = FitTable(columns, numbers, y, given.weights)
    if refined:
        found = _solve_sample(table, target, parameters, settings, names, seed)
    else:
        fitted = fit_prior(table, parameters, settings, names, seed)
        found = solved(fitted, table, target, settings, device)
    spent = {"effort": parameters.effort, "seconds": round(time.monotonic() - began, 2)}
    return replace(found, report=FitReport(spent | found.report))


def solved(fitted: prior.Fitted, table: FitTable, target: Modelled, settings: Settings, device: torch.device) -> Solved:
    """Convert a fitted prior to an estimator's attributes."""
    encoding = encoding_of(table.columns, fitted.order, fitted.sites, table.numbers, table.weights)
    return Solved(
        with_run(fitted.module).to(device),
        encoding,
        site_covariances(encoding, table.numbers, table.weights),
        replace(target, model=fitted.warp),
        fitted.predictive,
        fitted.prior,
        _report(fitted, table, settings),
        fitted.rows,
    )


def fit_prior(
    table: FitTable, parameters: ResTTRegressor, settings: Settings, names: list[str], seed: int, dense: bool = False
) -> prior.Fitted:
    """Fit the Gaussian process of a table, with as many threads as its size is worth."""
    began = time.monotonic()
    work = float(min(len(table.y), settings.scale_rows)) ** 2 * len(table.columns) * settings.fewest_knots
    device = read_device(parameters.device, work)
    fitted = prior.fit(
        table.numbers,
        table.y,
        table.weights,
        [None if column.levels is None else column.states for column in table.columns],
        names=names,
        bond_dim=parameters.bond_dim if isinstance(parameters.bond_dim, str) else int(parameters.bond_dim),
        seed=seed,
        device=device if device.type == "cuda" else None,  # others may have no float64
        settings=settings,
        dense=dense,
    )
    if parameters._shown:
        print(
            f"closed form · {fitted.evaluations} evaluations of the evidence · "
            f"bond {fitted.module.bond_dim}, {fitted.rounding.kind} · noise {fitted.prior.noise:.3g} · "
            f"leave-one-out r2 {1 - fitted.loo_error:.4g} · {time.monotonic() - began:.1f} s",
            flush=True,
        )
    return fitted


def _report(fitted: prior.Fitted, table: FitTable, settings: Settings) -> FitReport:
    low, high = ordinary_range(table.y, table.weights)
    dropped = int((~((low <= table.y) & (table.y <= high)).all(axis=1)).sum())
    return FitReport(
        rows=len(table.y),
        rows_for_scales=min(len(table.y), settings.scale_rows),
        evaluations=fitted.evaluations,
        members=fitted.prior.members,
        train=fitted.rounding.kind,
        bond_dim=fitted.rounding.bond_dim,
        rounding_error=fitted.rounding.distance,
        rounding_tolerance=fitted.tolerance,
        spread_error=fitted.spread_error,
        leave_one_out_r2=1 - fitted.loo_error,
        left_out={"rows of implausible y": dropped} if dropped else {},
    )


def _solve_sample(
    table: FitTable, target: Modelled, parameters: ResTTRegressor, settings: Settings, names: list[str], seed: int
) -> Solved:
    """Solve a sample, refine its module on all rows but some, and learn from those how wrong it is."""
    work = float(len(table.y)) * len(table.columns) * settings.fewest_knots * USUAL_BOND**2
    device = read_device(parameters.device, work)
    numbers = torch.from_numpy(table.numbers)
    if device.type == "cuda":  # others may have no float64
        numbers = numbers.to(device)
    held, kept, sample = _split(table, numbers, settings.solved_rows, np.random.default_rng(seed))
    fitted = fit_prior(table.take(sample), parameters, settings, names, seed, dense=True)
    encoding = encoding_of(table.columns, fitted.order, fitted.sites, table.numbers, table.weights, device)
    covariances = site_covariances(encoding, table.numbers, table.weights, device)
    rows = Rows(state_positions(encoding, numbers), torch.from_numpy(fitted.warp.encode(table.y)), table.weights)
    start = with_run(fitted.module)
    refined = refine(
        start,
        encoding,
        prior_bases(fitted.predictive, fitted.order),
        rows.take(kept),
        rows.take(held),
        loss="mse",
        penalty=fitted.prior.noise * start.bond_dim / len(kept),
        device=device,
        precision="float32",
        seed=seed,
        verbose=parameters._shown,
    )
    if parameters._shown:
        losses = (f"{loss:.4g}" for loss in (refined.start_loss, refined.loss))
        print(f"refined · {len(kept)} rows · held-out loss {' → '.join(losses)}", flush=True)
    judged = held[:CALIBRATED_ROWS]
    seen = rows.take(judged)
    outputs = outputs_of(refined.module, encoding, seen.positions).double().numpy()
    residuals = seen.targets.numpy() - outputs
    numbers_seen = with_rare_unseen(encoding, table.numbers[judged])
    spread = fitted.predictive.recalibrated(residuals, numbers_seen, outputs, seen.weights)
    return Solved(
        refined.module.to("cpu" if parameters.device == "auto" else device),
        encoding,
        covariances,
        replace(target, model=fitted.warp.smeared(residuals, seen.weights)),
        spread,
        fitted.prior,
        FitReport(
            _report(fitted, table, settings)
            | {
                "rows_solved": len(sample),
                "rows_held_out": len(held),
                "epochs_of_refinement": len(refined.history),
                "refined": refined.loss < refined.start_loss,
            }
        ),
    )


def _split(
    table: FitTable,
    numbers: Tensor,  # (B, C), the table's on the device
    solved: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows held out, rows to train on, and those of them that are solved.

    Solved are also the ends of every column and of y, and a missing value where there are any: the knots then span the
    table, and a scale that y is modelled on suits all of it.
    """
    usable = drop_implausible_targets(table.y, table.weights)
    places = np.flatnonzero(usable)
    ends: set[int] = set()
    for values in (numbers, torch.from_numpy(table.y)):
        given = values if usable.all() else values[torch.from_numpy(places).to(values.device)]
        ends |= {int(places[row]) for row in _end_rows(given)}
    fixed = np.array(sorted(ends))
    usable[fixed] = False
    free = rng.permutation(np.flatnonzero(usable))
    held, rest = np.split(free, [held_out(len(free))])
    return held, np.concatenate([fixed, rest]), np.concatenate([fixed, rest[: max(0, solved - len(fixed))]])


def _end_rows(values: Tensor) -> set[int]:  # (B, C)
    """Rows with the least and the largest value of each column, and with one that is missing."""
    ends: set[int] = set()
    least, most = values.argmin(dim=0), values.argmax(dim=0)  # of a NaN where there is one
    absent = values.gather(0, least[None])[0].isnan()
    ends.update(least.tolist(), most[~absent].tolist())
    for column in values.T[absent]:
        present = (~column.isnan()).nonzero()[:, 0]
        if len(present):
            known = column[present]
            ends.update(present[torch.stack([known.argmin(), known.argmax()])].tolist())
    return ends


def _check_fits(columns: tuple[Column, ...], rows: int, solved: int, settings: Settings) -> None:
    """ValueError where the numbers of all rows, or the site vectors and covariances of those solved, do not fit."""
    knots = settings.knots(solved)
    widths = [knots + 1 if column.levels is None else column.states + 1 for column in columns]
    own = min(solved, settings.exact_rows)
    # The table as numbers and a scratch copy, and a refinement's positions in half the bytes, once more as batches.
    held = 3 * rows * len(columns)
    # The posterior mean as a sum of products, four a row, while it is rounded; tables over pairs of levels.
    products = 6 * (4 * own + len(columns)) * sum(widths)
    levels = 40 * sum(column.states**2 for column in columns if column.levels is not None)
    matrices = max(4 * min(own, settings.scale_rows) ** 2, own**2 / 2)
    need = 8.0 * (held + solved * sum(widths) + products + levels + matrices)
    free = available_memory(torch.device("cpu"))
    if need > free:
        raise ValueError(
            f"X is too large: {len(columns)} columns as sites of width up to {max(widths)} on {rows} rows would need "
            f'{gibibytes(need)}, {gibibytes(free)} are available; use fewer columns, and handle_unknown="other" where '
            "a column has many categories"
        )


def encoding_of(
    columns: tuple[Column, ...],
    order: tuple[int, ...],
    sites: Sequence[prior.Site],  # in this order
    numbers: np.ndarray,  # (B, C)
    weights: np.ndarray,  # (B,)
    device: torch.device | None = None,
) -> Encoding:
    """Encode columns as the states of a prior's sites: hats at knots, one-hot levels, the missing state last."""
    hats, shift, scale = prior.hat_map(sites)
    encoding = Encoding(columns, order, hats, shift, scale, shift.clone(), None)
    return with_site_means(encoding, numbers, weights, device)


def with_run(module: ResTT | DiagonalTT) -> Any:
    """The module with a runs axis of one, as every estimator's has."""
    return module.with_runs(1) if isinstance(module, DiagonalTT) else joined([module])
