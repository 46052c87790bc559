"""Main effects that no other column changes, and parabolas, against plain dense computations."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from restt import prior
from restt.features.base import tensor64
from restt.prior.evidence import Evidence
from restt.prior.kernels import BEND, Number, reshaped
from restt.prior.learning import Prior, hyper_prior, learn, learn_alike
from restt.prior.mixture import Mixture
from restt.prior.posterior import condition, covariance, variance
from restt.prior.rounding import round_products, train_values
from tests.prior.problems import assert_gradient_matches_differences, bound, mixed_table, some_prior

SIZES = np.array([0.4, 0.1, 1.3])  # b_n


def apart_problem(rows: int) -> tuple[Prior, list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """A prior with effects apart, states, targets of two outputs and weights."""
    numbers, y = mixed_table(rows)
    weights = np.random.default_rng(3).random(rows) + 0.5
    kernels, states = bound(numbers, weights)
    usual = some_prior(reshaped(kernels, bend=BEND))
    found = replace(usual, theta=np.r_[usual.theta, np.log(SIZES)])
    return found, states, torch.from_numpy(np.stack([y, y**2 - 1], axis=1)), torch.from_numpy(weights)


def dense(found: Prior, states: list[torch.Tensor], others: list[torch.Tensor]) -> torch.Tensor:
    """The definition: s Π (1 + a k̃) + Σ b k̃ with kernels k̃ of mean variance 1."""
    tables = []
    for kernel, values in zip(found.kernels, found.parts, strict=True):
        states_of_its_own = torch.eye(kernel.site.width, dtype=torch.float64)
        tables.append(kernel.cross(states_of_its_own, np.r_[0.0, values[1:]]))
    units = [rows @ table @ cols.T for rows, table, cols in zip(states, tables, others, strict=True)]
    product = torch.ones_like(units[0])
    for unit, values in zip(units, found.parts, strict=True):
        product *= 1 + np.exp(values[0]) * unit
    return found.scale * product + sum(size * unit for size, unit in zip(SIZES, units, strict=True))


def test_the_covariance_is_a_product_and_main_effects_of_their_own():
    found, states, _, _ = apart_problem(90)  # more than a block
    fewer = [column[20:50] for column in states]
    expected = dense(found, states, states)
    torch.testing.assert_close(covariance(found, states), expected, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(covariance(found, states, fewer), expected[:, 20:50], rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(variance(found, states), expected.diagonal(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("outputs", [1, 2])
def test_gradients_match_differences(outputs):
    found, states, targets, weights = apart_problem(40)
    evidence = Evidence(found.kernels, states, targets[:, :outputs], weights, hyper_prior(found.kernels, apart=True))
    assert_gradient_matches_differences(evidence, found.theta)


def test_the_value_is_the_gaussian_likelihood_and_blocks_change_nothing(monkeypatch):
    found, states, targets, _ = apart_problem(150)
    hyper, ones = hyper_prior(found.kernels, apart=True), torch.ones(150, dtype=torch.float64)
    value, gradient = Evidence(found.kernels, states, targets[:, :1], ones, hyper)(found.theta)
    full = dense(found, states, states) + found.noise * torch.eye(150, dtype=torch.float64)
    density = torch.distributions.MultivariateNormal(torch.zeros(150, dtype=torch.float64), full)
    expected = -density.log_prob(targets[:, 0]).item() - 75 * np.log(2 * np.pi)
    assert value - hyper(found.theta)[0] == pytest.approx(expected, rel=1e-10)
    monkeypatch.setattr("restt.prior.columns._ROWS_AT_ONCE", 150)
    whole, slopes = Evidence(found.kernels, states, targets[:, :1], ones, hyper)(found.theta)
    assert value == pytest.approx(whole, rel=1e-12)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-9, atol=1e-9)


def test_the_posterior_mean_is_a_train():
    found, states, targets, weights = apart_problem(60)
    posterior = condition(found, states, targets, weights)
    other = [column[torch.randperm(60, generator=torch.Generator().manual_seed(0))] for column in states]
    full = dense(found, states, states) + torch.diag(found.noise / weights)
    expected = dense(found, other, states) @ torch.linalg.solve(full, targets)
    torch.testing.assert_close(posterior.mean(other), expected, rtol=1e-8, atol=1e-9)
    coefficients, factors = Mixture((posterior,), np.ones(1), targets).products()
    # A term for each row, and one for each column and output.
    assert len(coefficients) == 60 + 3 * 2
    seen = [factor[:, : kernel.site.seen] for factor, kernel in zip(factors, found.kernels, strict=True)]
    moments = [kernel.measure[(slice(kernel.site.seen),) * kernel.measure.dim()] for kernel in found.kernels]
    cores, _ = round_products(coefficients, seen, moments, 60, 0.0)
    rows = [column[:, : kernel.site.seen] for column, kernel in zip(other, found.kernels, strict=True)]
    torch.testing.assert_close(train_values(cores, rows), expected, rtol=1e-5, atol=1e-6)


def test_main_effects_on_many_outputs_are_few_products():
    found, states, targets, weights = apart_problem(60)
    many = targets @ torch.randn(2, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    posteriors = condition(found, states, many, weights), condition(replace(found, sums=True), states, many, weights)
    mixture = Mixture(posteriors, np.array([0.7, 0.3]), many)
    coefficients, factors = mixture.products()
    # Those on thirty outputs that are two in truth, of both posteriors, have two dimensions a column.
    assert len(coefficients) == 2 * 60 + 3 * 2
    values = torch.ones(60, len(coefficients), dtype=torch.float64)
    for rows, factor in zip(states, factors, strict=True):
        values *= rows @ factor.T
    torch.testing.assert_close(values @ coefficients, mixture.mean(states), rtol=1e-9, atol=1e-9)


def test_parabolas_are_centred_and_apart_from_straight_lines():
    found, _, _, _ = apart_problem(90)
    for kernel in found.kernels:
        if isinstance(kernel, Number):
            assert float((kernel.measure * kernel.parabola).sum()) == pytest.approx(1)
            assert kernel.bend == 0.5
            value = torch.zeros(kernel.site.width, dtype=torch.float64)
            value[: len(kernel.site.values)] = tensor64(kernel.site.values).clamp(-2.5, 2.5)
            moments = kernel.parabola @ kernel.measure @ torch.stack([torch.ones_like(value), value], dim=1)
            assert moments.abs().max() < 1e-10
    two, _ = bound(np.column_stack([np.arange(20) % 2, np.arange(20), np.arange(20) % 4]).astype(float), np.ones(20))
    assert [kernel.bend for kernel in reshaped(two, bend=BEND)[:2]] == [0.0, 0.5]


def test_columns_that_are_added_are_told_from_those_that_interact():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (250, 4))
    y = 3 * x[:, 0] * x[:, 1] + 4 * x[:, 2] + 0.3 * rng.standard_normal(250)
    sites = prior.sites.fit_sites(x, np.ones(250))
    states = [site.vectors(column) for site, column in zip(sites, x.T, strict=True)]
    ones = torch.ones(250, dtype=torch.float64)
    kernels = tuple(
        prior.kernels.make_kernel(s, prior.kernels.measure(s, v, ones)) for s, v in zip(sites, states, strict=True)
    )
    targets = torch.from_numpy(y[:, None] / y.std())
    around, _ = learn_alike(kernels, states, targets, ones)
    theta, _ = learn(kernels, states, targets, ones, around=around, apart=True)
    found = Prior(kernels, theta, ("first", "second", "added", "nothing"))
    assert found.apart[2] > 0.95
    assert found.apart[:2].max() < 0.7
    assert found.relevance[3] < 0.01 * found.relevance[:3].min()
    assert str(found).splitlines()[1].split() == ["column", "relevance", "length", "line", "apart"]
    plain, _ = learn(kernels, states, targets, ones, around=around)
    weak = hyper_prior(kernels)
    evidence = [
        Evidence(kernels, states, targets, ones, weak if len(one) == len(plain) else hyper_prior(kernels, apart=True))
        for one in (plain, theta)
    ]
    assert evidence[1].likelihood(theta)[0] < evidence[0].likelihood(plain)[0] - 3


def test_a_saved_spread_knows_of_both():
    numbers, _ = mixed_table(60)
    found, _, _, weights = apart_problem(60)
    spread = prior.Spread(found, numbers, weights.numpy(), np.zeros((len(prior.spread.LEVELS), 1)))
    same = prior.Spread.from_config(json.loads(json.dumps(spread.to_config())), spread.tensors())
    np.testing.assert_array_equal(same.prior.theta, found.theta)
    np.testing.assert_array_equal(same.prior.apart, found.apart)
    states = spread.states(mixed_table(30, seed=1)[0])
    np.testing.assert_array_equal(same.deviations(states), spread.deviations(states))
    # Models of versions without parabolas say nothing of them.
    config = spread.to_config()
    del config["bend"]
    assert prior.Spread.from_config(config, spread.tensors()).prior.bend == 0.0
