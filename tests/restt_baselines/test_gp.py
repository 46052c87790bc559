"""The Gaussian process: its equations, its lengths, and that it learns real tables."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

from restt_baselines import make, tabular
from tests.restt_baselines.cases import diabetes, digits, score_after_fit


def lengths(fitted):
    """The lengths of a fitted regression, in standard deviations of the columns."""
    return fitted.model_.regressor_[-1].kernel_.k1.k2.length_scale


def test_prediction_is_the_posterior_mean_under_the_matern_kernel():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2)) * [1.0, 50.0] + 3.0
    y = np.sin(x[:, 0]) + 0.01 * x[:, 1] + 0.1 * rng.normal(size=30)
    fitted = make("gp", task="regression").fit(x[:20], y[:20])
    kernel = fitted.model_.regressor_[-1].kernel_
    variance, noise = kernel.k1.k1.constant_value, kernel.k2.noise_level
    z = (x - x[:20].mean(0)) / x[:20].std(0) / kernel.k1.k2.length_scale
    distance = np.sqrt(3.0) * np.linalg.norm(z[:, None] - z[None], axis=2)
    prior = variance * (1.0 + distance) * np.exp(-distance)
    target = (y[:20] - y[:20].mean()) / y[:20].std()
    mean = prior[20:, :20] @ np.linalg.solve(prior[:20, :20] + noise * np.eye(20), target)
    np.testing.assert_allclose(fitted.predict(x[20:]), y[:20].mean() + y[:20].std() * mean, rtol=1e-6)


def test_a_column_that_does_not_matter_gets_a_long_length_and_no_warning():
    x = np.random.default_rng(0).normal(size=(60, 2))
    fitted = make("gp", task="regression").fit(x, np.sin(2.0 * x[:, 0]))
    relevant, irrelevant = lengths(fitted)
    assert irrelevant > 50 * relevant
    shared = make("gp", task="regression", ard=False).fit(x, np.sin(2.0 * x[:, 0]))
    assert np.ndim(lengths(shared)) == 0
    assert fitted.score(x + 0.1, np.sin(2.0 * (x[:, 0] + 0.1))) > shared.score(x + 0.1, np.sin(2.0 * (x[:, 0] + 0.1)))


@pytest.mark.parametrize(
    ("target", "parameter", "bound"),
    [
        (lambda x: np.sin(0.3 * x), "noise_level", tabular.NOISES[0]),  # there is none
        (lambda x: (-1.0) ** x, "constant_value", tabular.VARIANCES[0]),  # there is nothing to explain
    ],
    ids=["all explained", "nothing explained"],
)
def test_a_bound_that_says_something_about_the_data_is_no_warning(target, parameter, bound):
    x = np.arange(40.0)
    found = make("gp", task="regression").fit(x[:, None], target(x)).model_.regressor_[-1].kernel_.get_params()
    assert next(value for name, value in found.items() if name.endswith(parameter)) == pytest.approx(bound)


@pytest.mark.parametrize(
    ("bounds", "narrow", "words"),
    [("LENGTHS", (2.0, 1e3), "length_scale.*lower bound"), ("NOISES", (1e-6, 0.2), "noise_level.*upper bound")],
)
def test_a_length_too_short_or_noise_too_large_for_its_bounds_warns(bounds, narrow, words, monkeypatch):
    monkeypatch.setattr(tabular, bounds, narrow)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1))
    y = np.sin(2.0 * x[:, 0]) + rng.normal(size=60)
    with pytest.warns(ConvergenceWarning) as caught:
        make("gp", task="regression").fit(x, y)
    assert any(re.search(words, str(warning.message)) for warning in caught)


def test_restarts_are_seeded_and_never_worse():
    x, _, y, _ = diabetes()
    likelihoods = []
    for settings in ({}, {"restarts": 2, "random_state": 3}, {"restarts": 2, "random_state": 3}):
        fitted = make("gp", task="regression", ard=False, **settings).fit(x[:80], y[:80])
        likelihoods.append(fitted.model_.regressor_[-1].log_marginal_likelihood_value_)
    assert likelihoods[1] == likelihoods[2]
    assert likelihoods[1] >= likelihoods[0] - 1e-6


def test_learns_diabetes():
    assert score_after_fit(make("gp", task="regression"), diabetes()) > 0.37


def test_learns_digits_with_named_classes():
    x, x_test, y, y_test = digits()
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    fitted = make("gp", ard=False).fit(x[:200], names[y[:200]])
    assert fitted.classes_.tolist() == sorted(names)
    assert fitted.score(x_test, names[y_test]) > 0.88
    shares = fitted.predict_proba(x_test)
    assert shares.shape == (len(x_test), 10)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert (fitted.classes_[shares.argmax(axis=1)] == fitted.predict(x_test)).all()


def test_numbers_that_are_no_classes_are_refused():
    with pytest.raises(ValueError, match="continuous"):
        make("gp").fit(np.eye(3), [0.1, 0.2, 0.3])


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_passes_scikit_learns_checks(task):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(make("gp", task=task, ard=False), on_fail=None, on_skip=None)
    assert [result["check_name"] for result in results if result["status"] == "failed"] == []
    assert sum(result["status"] == "passed" for result in results) >= 48
