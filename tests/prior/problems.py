"""Small tables with every kind of column."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from restt.prior.evidence import Evidence
from restt.prior.kernels import make_kernel, measure
from restt.prior.learning import Prior, starting_point
from restt.prior.sites import fit_sites

LEVELS = (None, None, 4)


def mixed_table(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two columns of numbers, one with missing values, and one of four categories; y has an interaction."""
    rng = np.random.default_rng(seed)
    first, second, third = rng.standard_normal(rows), rng.standard_normal(rows), rng.integers(0, 4, rows)
    y = np.sin(first) + second * (third == 2) + 0.2 * rng.standard_normal(rows)
    return np.column_stack([first, np.where(rng.random(rows) < 0.1, np.nan, second), third]), y


def bound(numbers: np.ndarray, weights: np.ndarray, like: tuple | None = None):
    """Kernels and states of a table; ``like``: kernels that are there already."""
    sites = fit_sites(numbers, weights, LEVELS) if like is None else [kernel.site for kernel in like]
    states = [site.vectors(column) for site, column in zip(sites, numbers.T, strict=True)]
    given = torch.from_numpy(weights)
    found = like or tuple(make_kernel(s, measure(s, x, given)) for s, x in zip(sites, states, strict=True))
    return found, states


def some_prior(kernels, noise: float = 0.1) -> Prior:
    theta = starting_point(kernels)
    theta[0] = np.log(noise)
    theta[1:] += np.random.default_rng(1).normal(0, 0.3, len(theta) - 1)
    return Prior(kernels, theta, tuple(f"column {n}" for n in range(len(kernels))))


def assert_gradient_matches_differences(evidence: Evidence, theta: np.ndarray) -> None:
    _, gradient = evidence(theta)
    for k in range(len(theta)):
        step = np.zeros(len(theta))
        step[k] = 1e-5
        difference = (evidence(theta + step)[0] - evidence(theta - step)[0]) / 2e-5
        assert gradient[k] == pytest.approx(difference, rel=1e-5, abs=1e-6)
