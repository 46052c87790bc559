"""The log marginal likelihood with its prior: value against a Gaussian's, gradient against differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import yeojohnson

from restt.chain.cpu import build
from restt.prior import Settings
from restt.prior.fitting import _WORST, Objective, power_of
from restt.prior.gp import Data, Process, log_noise
from restt.prior.settings import log_prior
from tests.prior.problems import dense_covariance, random_problem

FULL, *OTHERS = Settings().components
CASES = {
    "numbers": {"categories": 0},
    "categories": {"numbers": 0, "categories": 2},
    "both": {},
    "outputs": {"outputs": 3},
    "plain weights": {"weighted": False},
}


def objective_of(seed: int = 0, component=FULL, least_noise: float = 1e-8, fixed: bool = False, **shape):
    kernel, _, data, theta = random_problem(seed, **{"rows": 25, **shape})
    warp = 0.3 * torch.ones(data.z.shape[1], dtype=torch.float64) if fixed else None
    return Objective(kernel, component, data, 0.25, least_noise, warp), theta


def assert_matches_differences(objective: Objective, theta: torch.Tensor) -> None:
    units = objective.units(theta)
    _, gradient = objective(units)
    assert np.abs(gradient).max() > 0.1
    for k, slope in enumerate(gradient):
        step = np.zeros(len(units))
        step[k] = 1e-5
        difference = (objective(units + step)[0] - objective(units - step)[0]) / 2e-5
        assert slope == pytest.approx(difference, rel=1e-5, abs=2e-6), objective.kernel.layout.names[k]


@pytest.mark.parametrize(("case", "compiled"), [*((case, True) for case in CASES), ("both", False)])
def test_gradients_match_differences(case, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setenv(build.DISABLE_VARIABLE, "1")
    assert_matches_differences(*objective_of(**CASES[case]))


@pytest.mark.parametrize("component", OTHERS, ids=lambda one: one.name)
def test_gradients_match_differences_where_terms_are_missing(component):
    assert_matches_differences(*objective_of(component=component))


def test_gradients_match_differences_with_a_fixed_transform_and_much_of_the_least_noise():
    objective, theta = objective_of(fixed=True, least_noise=0.05)
    assert_matches_differences(objective, theta)
    at = objective.kernel.layout.names.index("warp")
    away = theta.clone()
    away[at] += 1
    prior = [-log_prior(one, objective.centre, objective.scale, objective.degrees).item() for one in (theta, away)]
    values = [objective(objective.units(one))[0] for one in (theta, away)]
    assert values[1] - values[0] == pytest.approx(prior[1] - prior[0])


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_value_is_the_density_of_y(outputs):
    kernel, _, data, theta = random_problem(5, rows=20, outputs=outputs, weighted=False)
    objective = Objective(kernel, FULL, data, 0.25, 1e-8)
    h = kernel.layout.split(theta)
    powers = power_of(h["warp"]).numpy()
    process = Process(kernel, theta, FULL, Settings())
    noise = (log_noise(h, kernel.noise_features(data.rows), data.level).exp() + 1e-8) / data.precision
    matrix = dense_covariance(process, data.rows, data.rows) + torch.diag(noise)
    density = torch.distributions.MultivariateNormal(torch.zeros(20, dtype=torch.float64), matrix)
    expected = -log_prior(theta, objective.centre, objective.scale, objective.degrees).item()
    for z, power in zip(data.z.numpy().T, powers, strict=True):
        warped = yeojohnson(z, power)
        # dv/dz by differences: the density is one of z, not of v.
        slopes = (yeojohnson(z + 1e-6, power) - yeojohnson(z - 1e-6, power)) / 2e-6
        t = torch.from_numpy((warped - warped.mean()) / warped.std())
        expected -= density.log_prob(t).item() + np.log(slopes / warped.std()).sum()
    assert objective(objective.units(theta))[0] == pytest.approx(expected - 10 * outputs * np.log(2 * np.pi), rel=1e-8)


@pytest.mark.parametrize("least_noise", [1e-8, 0.05])
def test_a_row_of_weight_two_is_the_row_twice(least_noise):
    kernel, _, data, theta = random_problem(2, rows=20, outputs=2, weighted=False)
    weights = torch.ones(20, dtype=torch.float64)
    weights[4] = 2
    twice = torch.cat([torch.arange(20), torch.tensor([4])])
    once, again = (
        Objective(kernel, FULL, part, 0.25, least_noise) for part in (replace(data, weights=weights), data.take(twice))
    )
    values, slopes = zip(*(each(each.units(theta)) for each in (once, again)), strict=True)
    # A repeated row's determinant has a factor that no hyper-parameter changes: half of log 2 for each output, and the
    # precision of its own.
    constant = 2 / 2 * np.log(2 / float(data.precision[4]))
    assert values[0] + constant == pytest.approx(values[1], rel=1e-9)
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-7, atol=1e-8)


def test_units_are_those_of_the_prior():
    objective, theta = objective_of()
    torch.testing.assert_close(objective.theta(objective.units(theta)), theta)
    assert not objective.units(objective.centre).any()
    first, second = objective.starts
    assert torch.equal(first, objective.centre)
    assert all(np.isfinite(objective(objective.units(start))[0]) for start in (first, second))
    assert objective.evaluations == 2


@pytest.mark.parametrize("size", [1e3, np.nan])
def test_where_there_is_no_likelihood_the_value_is_large_and_finite(size):
    objective, theta = objective_of()
    value, gradient = objective(objective.units(theta) + size)
    assert value == _WORST
    assert not gradient.any()


def test_powers_lie_between_0_and_2_and_1_is_the_middle():
    found = power_of(torch.tensor([-50.0, -1.0, 0.0, 1.0, 50.0]))
    assert found[2] == 1
    assert (found > 0).all()
    assert (found < 2).all()
    torch.testing.assert_close(found + found.flip(0), torch.full((5,), 2.0))
    torch.testing.assert_close(found[3:], torch.tensor([1 + 0.99 * float(np.tanh(1.0)), 1.99]))


def test_some_rows_are_taken_with_all_that_belongs_to_them():
    _, _, data, _ = random_problem(0)
    part = data.take(torch.tensor([3, 1]))
    assert isinstance(part, Data)
    for name in ("z", "weights", "precision", "level"):
        assert torch.equal(getattr(part, name), getattr(data, name)[[3, 1]])
    assert torch.equal(part.rows.code, data.rows.code[[3, 1]])
