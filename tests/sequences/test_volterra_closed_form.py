"""Volterra kernels in closed form, against kernel ridge regression and brute force."""

from __future__ import annotations

import numpy as np
import pytest

from restt import VolterraRegressor
from restt.sequences.kernels import exact_kernels, leave_one_out


@pytest.fixture
def sequence():
    rng = np.random.default_rng(0)
    u = rng.standard_normal(60)
    y = u + 0.5 * np.roll(u, 1) * u + 0.1 * rng.standard_normal(60)
    return u, y


def test_the_penalty_is_that_of_the_polynomial_kernel(sequence):
    """Ridge over weighted products is kernel ridge regression with (1 + u·u')² and a free constant."""
    u, y = sequence
    alpha = 0.05
    windows = np.column_stack([np.roll(u, lag) for lag in range(3)])[2:]
    centring = np.eye(len(windows)) - 1 / len(windows)
    kernel = centring @ (1 + windows @ windows.T) ** 2 @ centring
    targets = y[2:]
    ridge = alpha * np.linalg.eigvalsh(kernel)[-1] * np.eye(len(windows))
    expected = targets.mean() + kernel @ np.linalg.solve(kernel + ridge, targets - targets.mean())
    (constant, linear, square), _ = exact_kernels(windows, targets, 2, alpha)
    found = constant + windows @ linear + np.einsum("ti,ij,tj->t", windows, square, windows)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_leave_one_out_errors_are_those_of_fits_without_the_row():
    rng = np.random.default_rng(1)
    table, targets = rng.standard_normal((12, 3)), rng.standard_normal(12)
    penalty = 0.7
    residuals = []
    for row in range(12):
        others = np.delete(np.arange(12), row)
        mean, level = table[others].mean(axis=0), targets[others].mean()
        x = table[others] - mean
        weights = np.linalg.solve(x.T @ x + penalty * np.eye(3), x.T @ (targets[others] - level))
        residuals.append(targets[row] - level - (table[row] - mean) @ weights)
    u, s, _ = np.linalg.svd(table - table.mean(axis=0), full_matrices=False)
    centred = targets - targets.mean()
    found = leave_one_out(u, s, u.T @ centred, centred, penalty)
    assert found == pytest.approx(np.mean(np.square(residuals)), rel=1e-9)


def test_only_complete_windows_are_fitted(sequence):
    u, y = sequence

    def kernels(changed, **given):
        model = VolterraRegressor(order=1, memory=3, solver="exact", alpha=0.01, **given)
        return model.fit(u, np.where(np.arange(len(y)) < changed, 9.0, y)).kernels_[1]

    np.testing.assert_array_equal(kernels(0), kernels(2))
    assert not np.allclose(kernels(0), kernels(3))
