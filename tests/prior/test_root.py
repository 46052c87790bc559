"""The low-rank posterior variance against the formula written out, and against the exact one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from restt import prior
from restt.prior import Settings
from restt.prior.calibration import _most_inducing, root_of


def problem(rows: int = 30, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A covariance, the rows' own noise, and targets of two outputs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 2, generator=generator, dtype=torch.float64)
    covariance = torch.exp(-0.5 * torch.cdist(x, x) ** 2) + 0.3 * torch.exp(-torch.cdist(x, x))
    noise = 0.05 + 0.2 * torch.rand(rows, generator=generator, dtype=torch.float64)
    return covariance, noise, torch.randn(rows, 2, generator=generator, dtype=torch.float64)


def written_out(
    covariance: Tensor, noise: Tensor, targets: Tensor, inducing: list[int], rows: list[int], at: int
) -> tuple[Tensor, Tensor]:
    """Mean and variance of one row given others through inducing rows."""
    among, cross, here = covariance[inducing][:, inducing], covariance[inducing][:, rows], covariance[inducing, at]
    both = among + (cross / noise[rows]) @ cross.T
    mean = here @ torch.linalg.solve(both, cross @ (targets[rows] / noise[rows, None]))
    return mean, covariance[at, at] - here @ (torch.linalg.inv(among) - torch.linalg.inv(both)) @ here


@pytest.mark.parametrize("count", [1, 8, 30])
def test_every_row_from_the_others_is_the_formula_without_it(count):
    covariance, noise, targets = problem()
    found = root_of(covariance, count, noise, targets)
    for i in range(30):
        inducing, rows = ([n for n in places if n != i] for places in (range(count), range(30)))
        if inducing:
            mean, variance = written_out(covariance, noise, targets, inducing, rows, i)
            torch.testing.assert_close(found.loo_mean[i], mean, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(found.loo_variance[i], variance, rtol=1e-5, atol=1e-6)


def test_as_many_rows_are_inducing_as_a_file_has_room_for():
    """Roots, as text, take 1.5 MB beside twice a train of 8 bytes a number; of each half of a square is written."""
    assert [_most_inducing(*given) for given in ((5, 1000), (1, 0), (3, 10**6), (10**9, 0))] == [238, 530, 1045, 1]


def test_the_root_of_all_rows_is_the_posterior_covariance():
    covariance, noise, targets = problem()
    found = root_of(covariance, 30, noise, targets)
    inverse = torch.linalg.inv(covariance + torch.diag(noise))
    torch.testing.assert_close(found.root.T @ found.root, inverse, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.mean, inverse @ targets, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.loo_variance, 1 / inverse.diagonal() - noise, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_the_unit_of_the_covariance_does_not_matter(size):
    covariance, noise, targets = problem()
    one, other = (root_of(unit * covariance, 8, unit * noise, unit**0.5 * targets) for unit in (1.0, size))
    torch.testing.assert_close(other.mean * size**0.5, one.mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(other.loo_mean / size**0.5, one.loo_mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(other.loo_variance / size, one.loo_variance, rtol=1e-6, atol=1e-6)


def test_few_inducing_rows_cover_as_well_and_say_how_far_they_are_off():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (900, 2))
    y = np.sin(3 * x[:, 0]) * x[:, 1] + 0.2 * rng.standard_normal(900)
    quick = {"first_iterations": 2, "iterations": 6, "last_iterations": 6, "spread_tolerance": 0.0}
    errors = []
    for count in (10, 60, 250):
        fitted = prior.fit(x[:250], y[:250], settings=Settings(**quick, inducing_rows=count))
        low, high = fitted.predict_interval(x[250:])[:, :, 0].T
        assert 0.86 < ((low <= y[250:]) & (y[250:] <= high)).mean() < 0.94
        errors.append(fitted.spread_error)
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-6
