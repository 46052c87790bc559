"""The mode of the posterior with a logistic likelihood."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from restt.prior.softmax import Axes, class_modes


@pytest.fixture
def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((60, 4)) @ rng.standard_normal((4, 4))
    numbers = (features[:, 0] + rng.standard_normal(60) > 0).astype(int) + (features[:, 1] > 1)
    return features, numbers, rng.integers(1, 4, 60).astype(float)


def test_mode_is_that_of_the_penalised_likelihood(problem):
    features, numbers, weights = problem

    def objective(flat: np.ndarray) -> float:
        found = flat.reshape(5, 3)
        logs = log_softmax(features @ found[:4] + found[4], axis=1)
        return float(-weights @ logs[np.arange(60), numbers] + 0.5 * 0.3 * (found[:4] ** 2).sum())

    def gradient(flat: np.ndarray) -> np.ndarray:
        found = flat.reshape(5, 3)
        slope = np.exp(log_softmax(features @ found[:4] + found[4], axis=1))
        slope[np.arange(60), numbers] -= 1
        slope *= weights[:, None]
        return np.vstack([features.T @ slope + 0.3 * found[:4], slope.sum(axis=0)]).ravel()

    assert check_grad(objective, gradient, np.full(15, 0.1)) < 1e-3
    expected = minimize(objective, np.zeros(15), jac=gradient, method="BFGS", options={"gtol": 1e-8}).x.reshape(5, 3)
    axes = Axes.of_features(features)
    (mode,) = class_modes(axes, numbers, weights[None], 3, 0.3, tolerance=1e-12, iterations=200)
    logits = axes.values @ mode[:-1] + mode[-1]
    wanted = features @ expected[:4] + expected[4]
    assert log_softmax(logits, axis=1) == pytest.approx(log_softmax(wanted, axis=1), abs=1e-4)


def test_mode_under_a_covariance_is_a_sum_over_its_rows(problem):
    features, numbers, weights = problem
    covariance = features @ features.T + 0.1 * np.eye(60)
    axes = Axes.of_covariance(covariance)
    (mode,) = class_modes(axes, numbers, weights[None], 3, 1.0)
    assert covariance @ (axes.directions @ mode[:-1]) == pytest.approx(axes.values @ mode[:-1], abs=1e-6)


def test_rows_of_weight_0_are_not_there_and_searches_do_not_mix(problem):
    features, numbers, weights = problem
    some = np.where(np.arange(60) < 40, weights, 0.0)
    axes, fewer = Axes.of_features(features), Axes.of_features(features[:40])
    mode, _ = class_modes(axes, numbers, np.stack([some, weights]), 3, 1.0, tolerance=1e-12, iterations=200)
    (alone,) = class_modes(fewer, numbers[:40], weights[None, :40], 3, 1.0, tolerance=1e-12, iterations=200)
    slopes, expected = axes.directions @ mode[:-1], fewer.directions @ alone[:-1]
    assert slopes == pytest.approx(expected, abs=1e-4)


def test_two_classes_are_logistic_regression(problem):
    features, numbers, _ = problem
    binary = (numbers > 0).astype(int)
    axes = Axes.of_features(features)
    (mode,) = class_modes(axes, binary, np.ones((1, 60)), 2, 2.0, tolerance=1e-12, iterations=200)
    slopes = axes.directions @ (mode[:-1, 1] - mode[:-1, 0])
    # Two classes share a penalty between them that the difference of their slopes bears half of.
    expected = LogisticRegression(C=1.0, tol=1e-10).fit(features, binary).coef_[0]
    assert slopes == pytest.approx(expected, abs=1e-3)


def test_of_too_many_axes_the_largest_stay(problem):
    features, _, _ = problem
    axes = Axes.of_covariance(features @ features.T, 2)
    sizes = np.linalg.svd(features, compute_uv=False)
    assert np.sort((axes.values**2).sum(axis=0))[::-1] == pytest.approx(sizes[:2] ** 2)
