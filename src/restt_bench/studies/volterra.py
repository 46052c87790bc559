"""Volterra series on a generated Wiener–Hammerstein system, beside polynomial least squares on the same lags.

The system: a filter of 8 taps, a cubic, a filter of 4. Errors are those against the noise-free output of new inputs, in
standard deviations of it, means over seeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from restt.volterra import VolterraRegressor
from restt_bench.case import Settings

if TYPE_CHECKING:
    from rich.console import Console

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


def measured(name: str, rows: int, noise: float, seeds: range) -> dict[str, Any]:
    """Mean error and seconds of one method over the seeds."""
    errors, begin = [], time.perf_counter()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        u = rng.normal(size=rows + TEST)
        y = system(u)
        noisy = y + noise * y.std() * rng.normal(size=len(y))
        expected = system(u[rows:])  # from rest
        found = METHODS[name](u[:rows], noisy[:rows], u[rows:])
        errors.append(float(np.sqrt(np.mean((found - expected) ** 2)) / expected.std()))
    taken = (time.perf_counter() - begin) / len(seeds)
    return {"method": name, "rows": rows, "noise": noise, "error": float(np.mean(errors)), "seconds": round(taken, 3)}


def volterra(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """Errors by method, rows and noise. Everything here runs on the CPU."""
    lengths, noises, seeds = ((700,), (0.1,), range(1)) if settings.quick else (ROWS, NOISES, SEEDS)
    found = []
    for rows in lengths:
        for noise in noises:
            for name in METHODS:
                found.append(measured(name, rows, noise, seeds))
                console.print(found[-1])
    return {
        "title": "Volterra series of a Wiener–Hammerstein system",
        "order": ORDER,
        "lags": MEMORY,
        "seeds": len(seeds),
        "results": found,
        "targets": [],
    }
