"""The predictive distribution of the regressor: quantiles, probabilities and density of one another, in y's units."""

from __future__ import annotations

import numpy as np
import pytest

from restt import ResTTNetRegressor, ResTTRegressor, load
from restt.estimators.modelled import Modelled
from tests.estimators.test_old_files import FIXTURES
from tests.hasty import hasty_solvers

LEVELS = np.array([1e-5, 0.001, 0.05, 0.3, 0.5, 0.77, 0.95, 0.9999])


def skewed(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 3))
    return x, np.exp(x[:, 0] + 0.5 * x[:, 1] + 0.3 * rng.standard_normal(rows))


@pytest.fixture(scope="module")
def model() -> ResTTRegressor:
    return ResTTRegressor(random_state=0).fit(*skewed(300))


@pytest.fixture(scope="module", params=[1.0, 1e200])
def several(request) -> tuple[ResTTRegressor, float]:
    x, y = skewed(120)
    with hasty_solvers():
        fitted = ResTTRegressor(random_state=0).fit(x, request.param * np.column_stack([y, np.full(120, 2.0), -y]))
    return fitted, request.param


def test_predictions_deviations_and_intervals_are_of_it(model):
    x, _ = skewed(30, seed=1)
    found = model.predict_distribution(x)
    mean, std = model.predict(x, return_std=True)
    np.testing.assert_array_equal(found.mean, mean)
    np.testing.assert_array_equal(found.std, std)
    np.testing.assert_allclose(found.quantile([0.05, 0.95]), model.predict_interval(x, 0.9), rtol=1e-12)
    ends = model.predict_interval(x, 0.1)
    median = found.quantile(0.5)
    assert ((ends[:, 0] < median) & (median < ends[:, 1])).all()


def test_quantiles_grow_and_probabilities_are_their_inverse(model):
    x, _ = skewed(30, seed=1)
    found = model.predict_distribution(x)
    quantiles = found.quantile(LEVELS)
    assert quantiles.shape == (30, len(LEVELS))
    assert (np.diff(quantiles, axis=1) > 0).all()
    for place, level in enumerate(LEVELS):
        np.testing.assert_allclose(found.cdf(quantiles[:, place]), level, rtol=1e-6)
        np.testing.assert_array_equal(found.quantile(level), quantiles[:, place])


def test_the_density_is_the_slope_of_the_probability_and_its_integral_one(model):
    x, _ = skewed(5, seed=1)
    found = model.predict_distribution(x)
    low, high = found.quantile(1e-6), found.quantile(1 - 1e-6)
    grid = np.linspace(low, high, 1001)  # (G, B)
    density = np.exp([found.log_density(y) for y in grid])
    steps = np.diff(grid, axis=0)
    mass = (density[1:] + density[:-1]) / 2 * steps
    np.testing.assert_allclose(mass.sum(0), 1.0, atol=0.01)
    # The density is a mean over a quarter of a deviation to either side: at 0.4 a deviation that moves 0.4/4/2 at most.
    below = np.array([found.cdf(y) for y in grid[1:]])
    np.testing.assert_allclose(np.cumsum(mass, axis=0), below, atol=0.05)
    assert np.isfinite(found.log_density(found.quantile(0.5) + 1e3 * found.std)).all()


def test_it_is_that_of_new_rows(model):
    x, y = skewed(2000, seed=2)
    found = model.predict_distribution(x)
    for level in (0.1, 0.5, 0.9):
        # Of 300 rows the median is known to two standard errors of 0.03.
        assert np.mean(y <= found.quantile(level)) == pytest.approx(level, abs=0.06)
    assert np.mean(found.cdf(y)) == pytest.approx(0.5, abs=0.04)
    # That of the normal distribution with the same mean and deviation is worse, as y is skewed.
    normal = -0.5 * ((y - found.mean) / found.std) ** 2 - np.log(found.std * np.sqrt(2 * np.pi))
    assert found.log_density(y).mean() > normal.mean() + 0.02


def test_several_outputs_one_of_them_constant(several):
    fitted, size = several
    x, y = skewed(7, seed=1)
    found = fitted.predict_distribution(x)
    both = size * np.column_stack([y, np.full(7, 2.0), -y])
    assert found.mean.shape == found.std.shape == found.quantile(0.2).shape == (7, 3)
    assert found.cdf(both).shape == found.log_density(both).shape == (7, 3)
    assert found.quantile([0.2, 0.5]).shape == (7, 2, 3)
    assert (found.quantile(0.2)[:, 1] == 2.0 * size).all()
    assert found.cdf(both)[:, 1].tolist() == [1.0] * 7
    assert (found.cdf(0.999 * both)[:, 1] == 0).all()
    assert (found.log_density(both)[:, 1] == np.inf).all()
    assert (found.log_density(0.999 * both)[:, 1] == -np.inf).all()
    # -y is the mirror image of y.
    np.testing.assert_allclose(found.cdf(both)[:, 2], 1 - found.cdf(both)[:, 0], atol=1e-3)
    np.testing.assert_allclose(found.cdf(found.quantile(0.3))[:, [0, 2]], 0.3, rtol=1e-6)
    grid = size * np.linspace(-20, 20, 8001)[:, None] * np.ones(3)
    density = np.exp(fitted.predict_distribution(np.zeros((len(grid), 3))).log_density(grid)[:, [0, 2]])
    np.testing.assert_allclose(density.sum(0) * size * 5e-3, 1.0, atol=0.01)


def test_a_saved_model_has_it(model, tmp_path):
    x, y = skewed(9, seed=1)
    again = load(model.save(tmp_path / "model")).predict_distribution(x)
    np.testing.assert_array_equal(again.log_density(y), model.predict_distribution(x).log_density(y))


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, [0.5, 1.5], [[0.5]]])
def test_levels_are_between_0_and_1(model, q):
    with pytest.raises(ValueError, match="q must be a number between 0 and 1 or a list of them, got"):
        model.predict_distribution(skewed(2)[0]).quantile(q)


@pytest.mark.parametrize("method", ["cdf", "log_density"])
def test_y_has_a_value_for_each_row(model, method):
    found = model.predict_distribution(skewed(2)[0])
    assert getattr(found, method)(1.0).tolist() == getattr(found, method)([1.0, 1.0]).tolist()
    with pytest.raises(ValueError, match=r"y must be a number or have shape \(2,\), got"):
        getattr(found, method)(np.ones(3))
    with pytest.raises(TypeError, match=r"y must be a number or an array of shape \(2,\), got 'x'"):
        getattr(found, method)("x")


@pytest.mark.parametrize("method", ["cdf", "log_density"])
def test_nothing_is_known_of_a_missing_y_even_where_y_was_constant(method):
    x = np.zeros((3, 1))
    for y in ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]):
        found = ResTTRegressor(effort="quick").fit(x, y).predict_distribution(x[:1])
        assert np.isnan(getattr(found, method)(np.nan)).all()


def test_models_without_it_say_so():
    assert not hasattr(ResTTNetRegressor, "predict_distribution")
    old = load(FIXTURES / "posterior-log.safetensors")
    with pytest.raises(ValueError, match=r"this one was saved by 0\.8: fit it again"):
        old.predict_distribution([[0.1, "red", True]])


@pytest.mark.filterwarnings("ignore:.*misses")
def test_a_number_that_was_never_missing_in_the_fit_is_less_certain_without_it(model):
    x, _ = skewed(30, seed=1)
    without = x.copy()
    without[:, 0] = np.nan
    with_it, without_it = (model.predict(table, return_std=True)[1] for table in (x, without))
    assert without_it.mean() > 1.5 * with_it.mean()


def test_a_target_is_divided_by_powers_of_two_where_it_is_of_extreme_size():
    rng = np.random.default_rng(0)
    sizes = np.ldexp(1.0, [0, 300, 301, -900, 0])
    y, weights = rng.random((30, 5)) * 0.5 * sizes, rng.random(30) + 0.5
    y[0], y[:, 4] = 0.75 * sizes, -7.5
    target, divided = Modelled.scaled(y, weights)
    assert target.exponents.tolist() == [0, 0, 301, -900, 0]
    np.testing.assert_array_equal(divided, np.ldexp(y, -target.exponents))
    assert np.abs(divided[:, 2:4]).max(axis=0).tolist() == [0.75, 0.75]
    # Without a power its mean and scale are those of y; a constant has none.
    unit = np.r_[sizes[:4], 1]
    mean = np.average(y / unit, axis=0, weights=weights)
    np.testing.assert_allclose(target.mean / unit, mean, rtol=1e-10)
    spread = np.sqrt(np.average((y / unit - mean) ** 2, axis=0, weights=weights))
    np.testing.assert_allclose(target.scale / unit, np.r_[spread[:4], 0], rtol=1e-10)
    np.testing.assert_allclose(target.divided(y), divided, rtol=0)
    assert target.divided(y + 1)[:, 4].tolist() == [-7.5] * 30
