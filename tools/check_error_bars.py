"""Measure how often the error bars of explanations hold the truth.

    python tools/check_error_bars.py --tables 200 --noise-tables 100 --workers 2

1. Coverage: tables of 60 rows and 4 columns are drawn from the model's own prior: a component and hyper-parameters
   from the hyper-prior, a function from the Gaussian process, and its Shapley values at fresh rows together with it, so
   that they are known. The share of them within two posterior standard deviations of those that the fitted regressor
   reports, in y's units; the same for deviations raised, like those of leave-one-out residuals, for hyper-parameters
   fitted to the same rows; and for the posterior with the hyper-parameters that the table was drawn with.
2. Noise: made tables whose last column has no part in y, 200 rows with noise of standard deviation 0.3 and 100 rows
   with 0.5; the posterior probability that all terms with it have more than one per cent of the variance.

Written to results/explain/error_bars.json.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from common import parser, spread, write_results

from restt import ResTTRegressor
from restt.explain import variance_shares
from restt.explain.sweeps import legendre
from restt.prior.functionals import product_covariance
from restt.prior.gp import Process
from restt.prior.kernel import Kernel
from restt.prior.settings import Density, Settings
from restt.prior.sites import fit_sites, rows_of

ROWS, COLUMNS, FRESH = 60, 4, 10
NOISE_TABLES = ((200, 0.3), (100, 0.5))


def drawn_theta(kernel: Kernel, densities: dict[str, Density], rng: np.random.Generator) -> torch.Tensor:
    """Hyper-parameters from the hyper-prior, but for the transform of y, which is the identity."""
    like = torch.zeros((), dtype=torch.float64)
    centre, scale, degrees = (part.numpy() for part in kernel.layout.densities(densities, like))
    normal = rng.standard_normal(len(centre))
    finite = np.where(np.isinf(degrees), 1.0, degrees)
    heavy = np.where(np.isinf(degrees), 1.0, np.sqrt(finite / rng.chisquare(finite)))
    theta = centre + scale * normal * heavy
    theta[[name == "warp" for name in kernel.layout.names]] = 0.0
    return torch.from_numpy(theta)


def drawn_table(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows, y, fresh rows, their true Shapley values (B, C), and their deviations under the true hyper-parameters."""
    rng = np.random.default_rng(seed)
    x, fresh = rng.standard_normal((ROWS, COLUMNS)), rng.standard_normal((FRESH, COLUMNS))
    settings = Settings()
    weights = np.array([part.weight for part in settings.components])
    component = settings.components[rng.choice(len(weights), p=weights / weights.sum())]
    sites = fit_sites(x, np.ones(ROWS), None, settings.knots(ROWS), beyond=True)
    rows = rows_of(sites, x)
    kernel = Kernel.measured(sites, rows, torch.ones(ROWS, dtype=torch.float64), 1)
    process = Process(kernel, drawn_theta(kernel, dict(component.densities), rng), component, settings)
    nodes, node_weights = legendre((COLUMNS + 1) // 2, torch.zeros((), dtype=torch.float64))
    at, products = kernel.vectors(rows_of(sites, fresh)), kernel.vectors(rows)
    for n in range(COLUMNS):
        for t in nodes:
            for m in range(COLUMNS):
                z = at[m] - kernel.means[m]
                products[m] = torch.cat([products[m], z if m == n else kernel.means[m] + t * z])
    covariance = product_covariance(process, products, products).numpy()
    values, vectors = np.linalg.eigh(covariance)
    draw = vectors @ (np.sqrt(np.maximum(values, 0)) * rng.standard_normal(len(values)))
    combine = np.kron(np.eye(COLUMNS), np.kron(node_weights.numpy(), np.eye(FRESH)))  # (C·B, C·K·B)
    truth = (combine @ draw[ROWS:]).reshape(COLUMNS, FRESH).T
    level = torch.zeros(ROWS, dtype=torch.float64)
    noise = process.noise(rows, level).numpy()
    y = draw[:ROWS] + np.sqrt(noise) * rng.standard_normal(ROWS)
    cross = combine @ covariance[ROWS:, :ROWS]
    solved = np.linalg.solve(covariance[:ROWS, :ROWS] + np.diag(noise), np.column_stack([y, cross.T]))
    mean = (cross @ solved[:, 0]).reshape(COLUMNS, FRESH).T
    own = combine @ covariance[ROWS:, ROWS:] @ combine.T - cross @ solved[:, 1:]
    std = np.sqrt(np.maximum(own.diagonal(), 0)).reshape(COLUMNS, FRESH).T
    return x, y, fresh, truth, np.abs(truth - mean) / np.maximum(std, 1e-12)


def coverage(seed: int) -> dict[str, Any]:
    """Share of a table's Shapley values that lie within two standard deviations."""
    settings = Settings()
    x, y, fresh, truth, known = drawn_table(seed)
    model = ResTTRegressor(random_state=0).fit(x, y)
    explained = model.explain_local(fresh).on("y")
    away = np.abs(truth - explained.values[..., 0]) / np.maximum(explained.std[..., 0], 1e-12 * np.abs(truth).max())
    growth = (1 + (settings.optimism_rows + settings.optimism_columns * COLUMNS) / ROWS) ** 0.5
    return {
        "seed": seed,
        "within_2_sd": float((away <= 2).mean()),
        "within_1_sd": float((away <= 1).mean()),
        "within_2_sd_raised": float((away <= 2 * growth).mean()),
        "within_2_sd_true_hyper_parameters": float((known <= 2).mean()),
        "r2": 1 - float(((y - model.predict(x)) ** 2).mean() / y.var()),
    }


def noise(given: tuple[int, int, float]) -> dict[str, Any]:
    """How probable a part of a column of noise is, of a table by its seed, rows and noise."""
    seed, rows, size = given
    rng = np.random.default_rng(10_000 + seed)
    x = rng.standard_normal((rows, COLUMNS))
    y = x[:, 0] + x[:, 1] * x[:, 2] + size * rng.standard_normal(rows)
    shares = variance_shares(ResTTRegressor(random_state=0).fit(x, y))
    share, probability = shares.total[-1, 0], shares.column_errors.probability[:, 0]
    return {
        "seed": seed,
        "rows": rows,
        "share": float(share),
        "probability": float(probability[-1]),
        "of_others": probability[:-1].tolist(),
    }


def main() -> None:
    reader = parser(__doc__, workers=1)
    reader.add_argument("--tables", type=int, default=200)
    reader.add_argument("--noise-tables", type=int, default=100)
    given = reader.parse_args()
    tables = list(spread(coverage, range(given.tables), given.workers))
    wanted = [(seed, rows, size) for rows, size in NOISE_TABLES for seed in range(given.noise_tables)]
    columns = list(spread(noise, wanted, given.workers))
    names = ("within_2_sd", "within_1_sd", "within_2_sd_raised", "within_2_sd_true_hyper_parameters")
    summary = {name: float(np.mean([table[name] for table in tables])) for name in names if tables}
    for rows, _ in NOISE_TABLES:
        own = [column for column in columns if column["rows"] == rows]
        summary[f"noise columns below 0.05, {rows} rows"] = sum(column["probability"] < 0.05 for column in own)
        others = [value for column in own for value in column["of_others"]]
        summary[f"other columns above 0.95, {rows} rows"] = sum(value > 0.95 for value in others)
    for name, value in summary.items():
        print(f"{name:40} {value:.4g}")
    title = "Coverage of error bars, and noise told from signal"
    content = {"title": title, "summary": summary, "tables": tables, "noise": columns}
    options = f"--tables {given.tables} --noise-tables {given.noise_tables}"
    write_results("explain/error_bars.json", content, f"check_error_bars.py {options}")


if __name__ == "__main__":
    main()
