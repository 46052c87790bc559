"""Volterra series on a generated Wiener–Hammerstein system, beside polynomial least squares on the same lags.

    python benchmarks/volterra_system.py       # writes results/bench/volterra_system.json

The system: a filter of 8 taps, a cubic, a filter of 4. Errors are those against the noise-free output of new inputs, in
standard deviations of it, means over seeds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from restt._common.files import write_json_atomic
from restt._common.provenance import provenance
from restt.volterra import VolterraRegressor

RESULT = Path(__file__).parents[1] / "results" / "bench" / "volterra_system.json"
ORDER, MEMORY, TEST = 3, 11, 1000
ROWS, NOISES, SEEDS = (700, 1500), (0.0, 0.03, 0.1, 0.3), range(5)


def system(u: np.ndarray) -> np.ndarray:
    """The noise-free output."""
    inner = np.convolve(u, 0.6 ** np.arange(8))[: len(u)]
    return np.convolve(inner + 0.4 * inner**2 + 0.1 * inner**3, (-0.5) ** np.arange(4))[: len(u)]


def windows(u: np.ndarray) -> np.ndarray:  # (T, MEMORY)
    """Now and the lags before, from rest."""
    return np.stack([np.concatenate([np.zeros(lag), u[: len(u) - lag]]) for lag in range(MEMORY)], axis=1)


def by_lags(regressor: Any) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """Polynomial features of the lags, then a linear model."""

    def fitted(u: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
        model = make_pipeline(PolynomialFeatures(ORDER), regressor)
        return np.asarray(model.fit(windows(u)[MEMORY - 1 :], y[MEMORY - 1 :]).predict(windows(new)))

    return fitted


def by_series(**options: Any) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """A VolterraRegressor."""
    return lambda u, y, new: VolterraRegressor(ORDER, MEMORY, random_state=0, **options).fit(u, y).predict(new)


METHODS = {
    "volterra, exact": by_series(),
    "volterra, train of bond 3": by_series(solver="train", bond_dim=3),
    "volterra, train of bond 4": by_series(solver="train", bond_dim=4),
    "polynomial least squares": by_lags(LinearRegression()),
    "polynomial ridge, cross-validated": by_lags(RidgeCV(np.logspace(-6, 4, 21))),
}


def row(name: str, rows: int, noise: float) -> dict[str, Any]:
    """Mean error and seconds of one method over the seeds."""
    errors, begin = [], time.perf_counter()
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        u = rng.normal(size=rows + TEST)
        y = system(u)
        noisy = y + noise * y.std() * rng.normal(size=len(y))
        expected = system(u[rows:])  # from rest
        found = METHODS[name](u[:rows], noisy[:rows], u[rows:])
        errors.append(float(np.sqrt(np.mean((found - expected) ** 2)) / expected.std()))
    taken = (time.perf_counter() - begin) / len(SEEDS)
    return {"method": name, "rows": rows, "noise": noise, "error": float(np.mean(errors)), "seconds": round(taken, 3)}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    origin = provenance(seed=list(SEEDS), command="python benchmarks/volterra_system.py")
    found = []
    for rows in ROWS:
        for noise in NOISES:
            for name in METHODS:
                found.append(row(name, rows, noise))
                print(found[-1], flush=True)
    print(write_json_atomic(options.output, {"provenance": origin, "order": ORDER, "memory": MEMORY, "rows": found}))


if __name__ == "__main__":
    main()
