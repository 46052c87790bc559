"""Kinds of priors: which there are for a table, and what those of sums and of evened columns are."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import yeojohnson_normmax

from restt import prior
from restt.prior.kernels import JUMPING, SMOOTH, even_values, make_kernel, measure, reshaped
from restt.prior.kinds import FEW_ROWS, MOST_OWN_COLUMNS, is_shared, usual_weights, without_own
from restt.prior.posterior import condition
from restt.prior.sites import fit_sites
from tests.prior.problems import some_prior
from tests.prior.test_mixture import learner_of

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("rows", [10, 200, 201, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("columns", [3, MOST_OWN_COLUMNS + 1])
def test_usual_weights_are_shares(rows, columns):
    found, _ = usual_weights(rows, columns)
    assert sum(found.values()) == pytest.approx(1)
    assert min(found.values()) >= 0
    assert ("joint" in found) == (rows > 200 and columns == 3)
    if columns > MOST_OWN_COLUMNS:
        assert all(is_shared(kind) and without_own(kind) == kind for kind in found)


@pytest.mark.parametrize("column", [RNG.lognormal(size=300), -RNG.lognormal(size=300), RNG.standard_normal(300)])
def test_columns_are_evened_by_scipys_power(column):
    values = np.sort((column - column.mean()) / column.std())
    share = np.full(300, 1 / 300)
    found = even_values(values, share)
    power = yeojohnson_normmax(values)
    expected = prior.kernels.yeojohnson(values, power)
    np.testing.assert_allclose(found, (expected - expected.mean()) / expected.std(), atol=1e-3)
    assert (np.diff(found) > 0).all()
    assert abs((found**3).mean()) < max(0.1, abs((values**3).mean()))
    # A row of weight 2 is the row twice, and one without weight only comes along.
    twice = even_values(values, np.where(np.arange(300) < 100, 2.0, 1.0) / 400)
    np.testing.assert_allclose(twice[:100], even_values(np.r_[values[:100], values], np.full(400, 1 / 400))[:100])
    more = even_values(np.r_[values, values[-1] + 1], np.r_[share, 0.0])
    np.testing.assert_allclose(more[:-1], found)
    assert more[-1] > found[-1]


def test_what_lies_beyond_an_evened_column_does_not_run_away():
    # Nearly all rows have one value: the likeliest power is an extreme one.
    values = np.array([-4.0, -2.0, 0.0, 1.5, 3.0])
    share = np.array([0.0, 0.05, 0.9, 0.05, 0.0])
    mean, size = share @ values, np.sqrt(share @ values**2 - (share @ values) ** 2)
    values = (values - mean) / size
    found = even_values(values, share)
    assert (np.diff(found) > 0).all()
    for end in (0, -2):
        assert found[end + 1] - found[end] < values[end + 1] - values[end] + 1e-9


@pytest.mark.parametrize("ends", [(-1.0, 0.05), (1.0, -0.05)])
def test_columns_of_next_to_one_value_do_not_explode(ends):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((30, 3))
        x[:, 0] = np.r_[ends, np.zeros(28)]
        y = x[:, 1] + 0.3 * rng.standard_normal(30)
        fitted = prior.fit(x, y)
        asked = np.tile(x[5], (9, 1))
        asked[:, 0] = np.linspace(-1.5, 1.5, 9)
        low, high = fitted.predict_interval(asked)[:, :, 0].T
        assert np.abs(fitted.predict(asked)).max() < 2 * np.abs(y).max()
        assert (high - low).max() < 4 * np.ptp(y)


def test_two_values_stay_as_they_are():
    values = np.array([-0.5, 2.0, 3.0])
    assert np.array_equal(even_values(values, np.array([0.8, 0.2, 0.0])), values)


def kernels_of(x: np.ndarray, beyond: bool = True):
    ones = torch.ones(len(x), dtype=torch.float64)
    sites = fit_sites(x, ones.numpy(), beyond=beyond)
    states = [site.vectors(column) for site, column in zip(sites, x.T, strict=True)]
    return tuple(make_kernel(s, measure(s, v, ones)) for s, v in zip(sites, states, strict=True)), states


def test_evening_depends_on_neither_unit_nor_direction():
    x = np.random.default_rng(1).lognormal(size=(120, 2))
    columns, others = (reshaped(kernels_of(each, beyond=False)[0], JUMPING, evened=True) for each in (x, 5 - 3e4 * x))
    values = np.array([0.0, 0.3, -1.0])
    for one, other in zip(columns, others, strict=True):
        torch.testing.assert_close(one.table(values), other.table(values).flip(0, 1), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(columns[0].table(values), reshaped(columns, JUMPING)[0].table(values), atol=0.01)


def test_lines_of_an_evened_column_are_lines_in_its_logarithm():
    x = np.exp(np.linspace(-2, 2, 32))[:, None]
    (kernel,), _ = kernels_of(x)
    (evened,) = reshaped((kernel,), evened=True)
    line = torch.linalg.eigh(evened.line)[1][1:-1, -1].numpy()  # but for the knots beyond
    bends = [np.abs(np.diff(line, 2)).max() / np.abs(np.diff(line)).mean() for line in (line, np.asarray(x[:, 0]))]
    assert bends[0] < 0.3 * bends[1]


def test_sums_have_no_interactions():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 3))
    y = np.sin(2 * x[:, 0]) + np.abs(x[:, 1]) + 0.1 * rng.standard_normal(150)
    learner, targets = learner_of(x, y)
    shared = learner.learn("alike sums", targets, "identity")
    found = learner.learn("sums", targets, "identity", shared)
    assert (shared.alike, shared.sums, found.alike, found.sums) == (True, True, False, True)
    posterior = learner.condition(found, targets)
    assert float((targets - posterior.left_out).square().mean()) < 0.1
    # f(a, b) - f(a, b') = f(a', b) - f(a', b') for all of them.
    grid = np.array([[a, b, 0.1] for a in (-1.0, 0.5) for b in (-0.7, 1.2)])
    states = [kernel.site.vectors(column) for kernel, column in zip(found.kernels, grid.T, strict=True)]
    one, two, three, four = posterior.mean(states)[:, 0].tolist()
    assert one - two == pytest.approx(three - four, rel=1e-4)
    assert found.apart[:2].min() > 0.99
    # A product is nothing to them.
    product, wanted = learner_of(x, x[:, 0] * x[:, 1])
    around = product.learn("alike sums", wanted, "identity")
    residuals = wanted - product.condition(product.learn("sums", wanted, "identity", around), wanted).left_out
    assert float(residuals.square().mean()) > 0.9


def test_what_is_printed_is_no_sum():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (80, 4))
    y = np.sin(5 * x[:, 0]) + np.abs(x[:, 1]) + 0.1 * rng.standard_normal(80)
    fitted = prior.fit(x, y)
    assert any(one.sums and not one.alike for one in fitted.mixture.column_priors)
    assert not fitted.spread.prior.sums
    assert not fitted.spread.prior.alike


def test_a_saved_spread_knows_whether_columns_were_evened():
    rng = np.random.default_rng(0)
    x = rng.lognormal(size=(80, 2))
    fitted = prior.fit(x, np.log(x[:, 0]) + x[:, 1] + 0.3 * rng.standard_normal(80))
    plain = fitted.spread.prior
    evened = replace(plain, kernels=reshaped(plain.kernels, JUMPING, evened=True))
    spread = replace(fitted.spread, prior=evened)
    assert "evened by a power" in str(evened)
    assert "evened by a power" not in str(replace(plain, kernels=reshaped(plain.kernels)))
    states = spread.states(rng.lognormal(size=(50, 2)))
    config, tensors = json.loads(json.dumps(spread.to_config())), spread.tensors()
    same = prior.Spread.from_config(config, tensors)
    assert np.array_equal(same.deviations(states), spread.deviations(states))
    # Models of versions in which none were, say nothing of it.
    del config["evened"]
    older = prior.Spread.from_config(config, tensors)
    assert (older.prior.evened, older.prior.power) == (False, JUMPING)


def test_the_posterior_of_evened_columns_is_a_train():
    rng = np.random.default_rng(3)
    x = rng.lognormal(size=(40, 3))
    y = np.log(x[:, 0]) * x[:, 1] + 0.1 * rng.standard_normal(40)
    kernels, states = kernels_of(x)
    ones = torch.ones(40, dtype=torch.float64)
    targets = torch.from_numpy(((y - y.mean()) / y.std())[:, None])
    posterior = condition(some_prior(reshaped(kernels, SMOOTH, evened=True)), states, targets, ones)
    coefficients, factors = posterior.products()
    fresh = [kernel.site.vectors(column) for kernel, column in zip(kernels, rng.lognormal(size=(30, 3)).T, strict=True)]
    products = torch.ones(30, len(coefficients), dtype=torch.float64)
    for rows, factor in zip(fresh, factors, strict=True):
        products *= rows @ factor.T
    torch.testing.assert_close(products @ coefficients, posterior.mean(fresh), rtol=1e-9, atol=1e-9)
