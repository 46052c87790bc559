"""The linear and kernel baselines: their mathematics on small tables, and that they learn a real one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from restt_baselines import make
from tests.restt_baselines.cases import diabetes, score_after_fit

LINEAR = ("lr", "rr", "lar")
POLYNOMIAL = ("pr", "prr", "plar")
ALL = (*LINEAR, *POLYNOMIAL, "svr")


def regressor(name, **settings):
    return make(name, task="regression", **settings)


def table(rows=50, columns=3, seed=0):
    """Columns of very different units."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns)) * 10.0 ** np.arange(columns) + 5.0
    return x, rng.normal(size=rows)


def standardised(x):
    return (x - x.mean(0)) / x.std(0)


def test_ridge_is_its_closed_form_on_standardised_columns():
    x, y = table()
    z = standardised(x)
    weights = np.linalg.solve(z.T @ z + 3.0 * np.eye(3), z.T @ (y - y.mean()))
    predicted = regressor("rr", alpha=3.0).fit(x, y).predict(x)
    np.testing.assert_allclose(predicted, y.mean() + z @ weights, rtol=1e-10)


def test_polynomial_ridge_is_its_closed_form_on_unscaled_products():
    x, y = table(columns=2)
    z = standardised(x)
    products = np.stack([z[:, 0], z[:, 1], z[:, 0] ** 2, z[:, 0] * z[:, 1], z[:, 1] ** 2], axis=1)
    centred = products - products.mean(0)
    weights = np.linalg.solve(centred.T @ centred + 2.0 * np.eye(5), centred.T @ (y - y.mean()))
    predicted = regressor("prr", alpha=2.0).fit(x, y).predict(x)
    np.testing.assert_allclose(predicted, y.mean() + centred @ weights, rtol=1e-10)


def test_lasso_is_the_soft_threshold_on_orthogonal_columns():
    signs = np.array([[a, b, c] for a in (-1.0, 1.0) for b in (-1.0, 1.0) for c in (-1.0, 1.0)])
    y = 7.0 + signs @ [2.0, -0.5, 0.1]
    weights = np.array([2.0 - 0.3, -(0.5 - 0.3), 0.0])
    fitted = regressor("lar", alpha=0.3).fit(signs * [1.0, 20.0, 300.0], y)
    np.testing.assert_allclose(fitted.predict(signs * [1.0, 20.0, 300.0]), 7.0 + signs @ weights, atol=1e-8)


def test_least_squares_finds_a_plane():
    x, _ = table()
    y = 1.0 + x @ [2.0, -0.3, 0.04]
    np.testing.assert_allclose(regressor("lr").fit(x, y).predict(x + 1.0), y + 1.74, rtol=1e-9)


@pytest.mark.parametrize(("name", "settings"), [("pr", {}), ("prr", {"alpha": 1e-9}), ("plar", {"alpha": 1e-6})])
def test_polynomial_models_hold_interactions_and_squares(name, settings):
    x, _ = table()
    z = standardised(x)
    y = 1.0 + z[:, 0] - 2.0 * z[:, 0] * z[:, 2] + 0.5 * z[:, 1] ** 2
    fitted = regressor(name, **settings).fit(x[:40], y[:40])
    assert fitted.score(x[40:], y[40:]) > 1 - 1e-8
    without_squares = regressor(name, interaction_only=True, **settings).fit(x[:40], y[:40])
    assert without_squares.score(x[:40], y[:40]) < 0.99


@pytest.mark.parametrize("name", POLYNOMIAL)
def test_degree_bounds_the_order_of_the_products(name):
    x = np.random.default_rng(1).choice([-1.0, 1.0], size=(200, 3))
    y = x.prod(axis=1)
    settings = {} if name == "pr" else {"alpha": 1e-4}
    assert regressor(name, degree=2, **settings).fit(x, y).score(x, y) < 0.2
    assert regressor(name, degree=3, **settings).fit(x, y).score(x, y) > 0.99


@pytest.mark.parametrize("name", [*ALL, "gp"])
def test_units_of_the_columns_do_not_matter(name):
    x, y = table()
    other = x * [1e-3, 1e2, 7.0] - [4.0, 0.0, 9.0]
    first, second = regressor(name).fit(x, y).predict(x), regressor(name).fit(other, y).predict(other)
    np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["svr", "gp"])
def test_the_unit_of_the_target_does_not_matter_to_kernels(name):
    x, y = table()
    first, second = regressor(name).fit(x, y).predict(x), regressor(name).fit(x, 100.0 * y + 7.0).predict(x)
    np.testing.assert_allclose(100.0 * first + 7.0, second, rtol=1e-4, atol=1e-3)


def test_support_vectors_only_where_the_tube_is_left():
    x = np.linspace(-1.0, 1.0, 41)[:, None]
    y = np.sin(3.0 * x[:, 0])
    fitted = regressor("svr", C=1e4, epsilon=0.1, gamma=1.0).fit(x, y)
    # libsvm stops at 1e-3, in units of the standardised target.
    assert np.abs(fitted.predict(x) - y).max() <= (0.1 + 2e-3) * y.std()
    assert np.ptp(regressor("svr", C=1e4, epsilon=10.0).fit(x, y).predict(x)) == 0.0


@pytest.mark.parametrize("name", [*ALL, "gp"])
def test_the_log_of_a_target_is_taken_and_undone(name):
    x, y = table()
    of_the_log = regressor(name, log_target=True).fit(x, np.exp(y))
    # libsvm stops early enough for a rounded target to show, so both get the same one.
    plain = regressor(name).fit(x, np.log(np.exp(y)))
    np.testing.assert_allclose(of_the_log.predict(x), np.exp(plain.predict(x)), rtol=1e-12)


@pytest.mark.parametrize("name", ["lr", "svr"])
def test_a_log_target_must_be_positive(name):
    with pytest.raises(ValueError, match="y must be above 0 where log_target is True, got -2"):
        regressor(name, log_target=True).fit([[0.0], [1.0]], [1.0, -2.0])


@pytest.mark.parametrize(
    ("name", "settings"),
    [("lr", {}), ("pr", {}), ("rr", {}), ("prr", {}), ("lar", {"alpha": 0.01}), ("plar", {"alpha": 0.01})],
)
def test_several_targets_are_those_one_by_one(name, settings):
    x, y = table()
    targets = np.stack([y, x[:, 0]], axis=1)
    predicted = regressor(name, **settings).fit(x, targets).predict(x)
    for column in range(2):
        alone = regressor(name, **settings).fit(x, targets[:, column]).predict(x)
        np.testing.assert_allclose(predicted[:, column], alone, atol=1e-8)


@pytest.mark.parametrize("name", ["svr", "gp"])
def test_one_target_models_refuse_two(name):
    with pytest.raises(ValueError, match="y should be a 1d array"):
        regressor(name).fit(np.eye(4), np.ones((4, 2)))


def test_wrong_tables_are_refused():
    fitted = regressor("rr").fit(np.eye(3), [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="2 features, but RidgeRegression is expecting 3"):
        fitted.predict(np.eye(2))
    with pytest.raises(ValueError, match="NaN"):
        regressor("rr").fit([[np.nan], [1.0]], [0.0, 1.0])
    with pytest.raises(NotFittedError, match="RidgeRegression"):
        regressor("rr").predict(np.eye(3))


# Without a penalty the products fall to 0.23 here, so those floors also say that the penalty works.
@pytest.mark.parametrize(
    ("name", "settings", "floor"),
    [
        ("lr", {}, 0.38),
        ("rr", {}, 0.38),
        ("lar", {}, 0.38),
        ("pr", {}, 0.2),
        ("prr", {"alpha": 100.0}, 0.36),
        ("plar", {"alpha": 2.0}, 0.36),
        ("svr", {}, 0.33),
    ],
)
def test_learns_diabetes(name, settings, floor):
    assert score_after_fit(regressor(name, **settings), diabetes()) > floor


@pytest.mark.parametrize("name", ["lr", "prr", "lar", "svr"])
def test_passes_scikit_learns_checks(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(regressor(name), on_fail=None, on_skip=None)
    assert [result["check_name"] for result in results if result["status"] == "failed"] == []
    assert sum(result["status"] == "passed" for result in results) >= 48
