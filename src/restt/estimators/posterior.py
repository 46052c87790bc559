"""The posterior solver: from a table to a residual train in closed form, in the estimators' terms."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from restt import prior
from restt._common.devices import available_memory, fitting_threads, gibibytes, read_device
from restt.estimators.columns import Column, site_columns
from restt.estimators.encoding import Encoding, fit_columns, with_site_means
from restt.estimators.gradient import Examples
from restt.estimators.parameters import Parameters
from restt.estimators.settings import PRECISIONS
from restt.estimators.targets import Modelled
from restt.module import ResTT
from restt.prior import Spread
from restt.prior.fit import MAX_ROWS
from restt.prior.learning import LEARNING_ROWS
from restt.prior.sites import KNOTS

# Parameters that only the training by gradients has: any that is not at its default chooses it.
ONLY_GRADIENT = (
    "feature_map",
    "topology",
    "sigma2",
    "epochs",
    "lr",
    "schedule",
    "batch_size",
    "penalty",
    "dropout",
    "runs",
    "early_stopping",
    "warm_start",
    "checkpoint_dir",
)
# More columns than this are left to gradients: each is three scales to be learned.
MOST_COLUMNS = 500


@dataclass(frozen=True, eq=False)
class Solved:
    """What the posterior solver found."""

    module: ResTT
    encoding: Encoding
    target: Modelled
    spread: Spread
    evaluations: int
    precision: str


def solve(given: Examples, parameters: Parameters, names: list[str], seed: int) -> Solved:
    """The posterior mean of the rows as a module with one run, with all that predicting and intervals need."""
    began = time.monotonic()
    device = torch.device("cpu") if parameters.device == "auto" else read_device(parameters.device, 0.0)
    columns = fit_columns(
        given.table,
        given.weights,
        parameters.categorical_features,
        parameters.handle_unknown,
        parameters.handle_missing,
    )
    numbers = np.stack([column.read(given.table, index).values for index, column in enumerate(columns)], axis=1)
    _check_fits(columns, len(given))
    order = parameters.site_order
    target, y = Modelled.scaled(given.y, given.weights)
    with fitting_threads(float(min(len(y), MAX_ROWS)) ** 2 * len(columns) * KNOTS):
        fitted = prior.fit(
            numbers,
            y,
            given.weights,
            [None if column.levels is None else column.states for column in columns],
            names=names,
            bond_dim=parameters.bond_dim if isinstance(parameters.bond_dim, str) else int(parameters.bond_dim),
            site_order=order if isinstance(order, str) and order == "auto" else site_columns(order, given.table),
            average=False,
            seed=seed,
        )
    encoding = _encoding(columns, fitted, numbers, given.weights)
    precision = "float64" if parameters.precision == "auto" else parameters.precision
    evaluations = sum(one.prior.evaluations for one in fitted.mixture.posteriors)
    if parameters.verbose:
        print(
            f"posterior · {evaluations} evaluations of the evidence · bond {fitted.module.bond_dim} · "
            f"noise {fitted.prior.noise:.3g} · left-out r2 {1 - fitted.left_out_error:.4g} · "
            f"{time.monotonic() - began:.1f} s",
            flush=True,
        )
    module = _with_run(fitted.module, PRECISIONS[precision]).to(device)
    return Solved(module, encoding, target.of(fitted.target), fitted.spread, evaluations, precision)


def _check_fits(columns: tuple[Column, ...], rows: int) -> None:
    """ValueError where the site vectors, the covariances of all columns and those of the rows do not fit in memory."""
    widths = [KNOTS + 1 if column.levels is None else column.states + 1 for column in columns]
    own, learned = min(rows, MAX_ROWS), min(rows, LEARNING_ROWS)
    need = 8.0 * (rows * sum(widths) + len(columns) * (learned**2 + own * max(widths)) + 4 * own**2)
    free = available_memory(torch.device("cpu"))
    if need > free:
        raise ValueError(
            f"X is too large: {len(columns)} columns as sites of width up to {max(widths)} on {rows} rows would need "
            f'{gibibytes(need)}, {gibibytes(free)} are available; use fewer columns, and handle_unknown="other" where '
            "a column has many categories"
        )


def spread_states(encoding: Encoding, numbers: np.ndarray) -> list[Tensor]:  # (B, C) -> C of (B, I_n)
    """Site vectors of each column of the table, as a :class:`~restt.prior.Spread` takes them."""
    vectors = torch.cat(list(encoding.chunks(torch.from_numpy(numbers))))
    states = {column: vectors[:, n, : encoding.widths[n]] for n, column in enumerate(encoding.order)}
    return [states[column] for column in range(len(encoding.columns))]


def _encoding(columns: tuple[Column, ...], fitted: prior.Fitted, numbers: np.ndarray, weights: np.ndarray) -> Encoding:
    """The prior's states as the estimators' encoding: hats at its knots, one-hot levels, the missing state last."""
    hats, shift, scale = prior.hat_map(fitted.sites)
    encoding = Encoding(columns, fitted.order, hats, shift, scale, shift.clone(), None)
    return with_site_means(encoding, numbers, weights)


@torch.no_grad()
def _with_run(module: ResTT, dtype: torch.dtype) -> ResTT:
    """The module with a runs axis of one, as every estimator's has."""
    made = ResTT(
        module.sites,
        list(module.feature_dims),
        module.bond_dim,
        module.outputs,
        topology=module.topology,
        bias=module.bias is not None,
        runs=1,
        dtype=dtype,
    )
    for name, parameter in made.named_parameters():
        parameter.copy_(module.get_parameter(name)[None])
    return made
