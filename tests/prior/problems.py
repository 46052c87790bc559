"""Small tables with every kind of column."""

from __future__ import annotations

import numpy as np
import torch

from restt.prior.gp import Data, Process
from restt.prior.kernel import Kernel
from restt.prior.pairs import Rows
from restt.prior.settings import Settings
from restt.prior.sites import fit_sites, rows_of

LEVELS = (None, None, 4)


def mixed_table(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two columns of numbers, one with missing values, and one of four categories; y has an interaction."""
    rng = np.random.default_rng(seed)
    first, second, third = rng.standard_normal(rows), rng.standard_normal(rows), rng.integers(0, 4, rows)
    y = np.sin(first) + second * (third == 2) + 0.2 * rng.standard_normal(rows)
    return np.column_stack([first, np.where(rng.random(rows) < 0.1, np.nan, second), third]), y


def random_problem(
    seed: int, rows: int = 12, numbers: int = 2, categories: int = 1, outputs: int = 1, weighted: bool = True
) -> tuple[Kernel, np.ndarray, Data, torch.Tensor]:
    """A kernel with hyper-parameters drawn around the prior's centre, its table, and data of it.

    The first number has missing values, the last category a missing one and levels that no row has.
    """
    rng = np.random.default_rng(seed)
    columns = [rng.standard_normal((rows, numbers)), rng.integers(0, 3, (rows, categories))]
    table = np.column_stack(columns).astype(float)
    if numbers:
        table[rng.random(rows) < 0.2, 0] = np.nan
    if categories:
        table[0, -1] = np.nan
    levels = [None] * numbers + [4] * categories
    weights = rng.random(rows) + 0.5 if weighted else np.ones(rows)
    sites = fit_sites(table, weights, levels, knots=5, beyond=True)
    states = rows_of(sites, table)
    kernel = Kernel.measured(sites, states, torch.from_numpy(weights), outputs)
    z, precision, level = rng.standard_normal((rows, outputs)), rng.random(rows) + 0.5, rng.standard_normal(rows)
    data = Data(states, *(torch.from_numpy(part) for part in (z, weights, precision, level)))
    centre, scale, _ = kernel.layout.densities(Settings().components[0].densities, data.z)
    theta = centre + 0.5 * scale * torch.from_numpy(rng.standard_normal(len(centre)))
    return kernel, table, data, theta


def dense_covariance(process: Process, rows: Rows, others: Rows) -> torch.Tensor:  # (B, B2)
    """The definition of the kernel, out of whole site vectors."""
    products, total = torch.ones(3, len(rows), len(others), dtype=torch.float64), 0.0
    for n, table in enumerate(process.tables):
        left, right = rows.vectors(n, len(table)), others.vectors(n, len(table))
        for k in range(3):
            products[k] *= left @ table[:, :, k] @ right.T
        total = total + left @ table[:, :, 3] @ right.T
    found = sum(process.scale[k] * products[k] for k in range(3)) + process.scale[3] * total
    return found + process.settings.constant
