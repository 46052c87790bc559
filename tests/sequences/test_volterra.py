"""Volterra series: known kernels come back, trains and kernels are one, free runs, wrong use."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from restt import VolterraRegressor
from restt.sequences.kernels import kernels_of_train, train_of_kernels
from tests.sklearn_checks import Checked, assert_every_check_passes

MEMORY = 5


def symmetric(kernel: np.ndarray) -> np.ndarray:
    turned = [np.transpose(kernel, axes) for axes in permutations(range(kernel.ndim))]
    return sum(turned) / len(turned)


def known_kernels(order: int = 3, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    kernels = [symmetric(rng.normal(size=(MEMORY,) * degree)) for degree in range(order + 1)]
    return [kernel / (1 + 2 * degree) for degree, kernel in enumerate(kernels)]  # all orders are heard


def windows(u: np.ndarray, memory: int = MEMORY) -> np.ndarray:
    return np.stack([np.concatenate([np.zeros(lag), u[: len(u) - lag]]) for lag in range(memory)], axis=1)


def output(kernels: list[np.ndarray], u: np.ndarray) -> np.ndarray:
    """The series as its definition says, by explicit sums."""
    total = np.zeros(len(u))
    for t, window in enumerate(windows(u)):
        for kernel in kernels:
            value = kernel
            while np.ndim(value):
                value = value @ window
            total[t] += value
    return total


def gaps(found: list[np.ndarray], expected: list[np.ndarray]) -> list[float]:
    return [
        float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
        for ours, theirs in zip(found, expected, strict=True)
    ]


@pytest.mark.parametrize("solver", ["exact", "train", "residual"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_known_kernels_come_back_without_noise(order: int, solver: str) -> None:
    kernels = known_kernels(order)
    u = np.random.default_rng(1).normal(size=800)
    model = VolterraRegressor(order, MEMORY, solver=solver, bond_dim=6, random_state=0).fit(u, output(kernels, u))
    assert model.solver_ == solver
    # Cores of a residual train are not orthogonal: its least squares stop earlier.
    tolerance = 1e-4 if solver == "residual" else 1e-6
    assert max(gaps(model.kernels_, kernels)) < tolerance
    assert model.intercept_ == pytest.approx(float(kernels[0]), rel=tolerance)
    for kernel in model.kernels_:
        np.testing.assert_allclose(kernel, symmetric(kernel), atol=1e-12)


def test_noise_degrades_them_gracefully() -> None:
    kernels = known_kernels()
    rng = np.random.default_rng(1)
    u = rng.normal(size=3000)
    y = output(kernels, u)
    noise = rng.normal(size=len(y)) * y.std()
    worst = [
        max(gaps(VolterraRegressor(3, MEMORY).fit(u, y + level * noise).kernels_, kernels))
        for level in (0.001, 0.01, 0.1)
    ]
    assert worst[0] < 0.01
    assert worst[1] < 0.1
    assert worst[2] < 0.6
    assert worst == sorted(worst)


def wiener_hammerstein(u: np.ndarray) -> np.ndarray:
    inner = np.convolve(u, 0.6 ** np.arange(6))[: len(u)]
    return np.convolve(inner + 0.4 * inner**2 + 0.1 * inner**3, (-0.5) ** np.arange(4))[: len(u)]


def test_a_wiener_hammerstein_system_beside_polynomial_least_squares() -> None:
    errors: dict[str, list[float]] = {"exact": [], "train": [], "least squares": []}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        u = rng.normal(size=1000)
        y = wiener_hammerstein(u)
        noisy = y + 0.1 * y.std() * rng.normal(size=len(y))
        squares = make_pipeline(PolynomialFeatures(3), LinearRegression())
        predicted = {
            "exact": VolterraRegressor(3, 9).fit(u[:500], noisy[:500]).predict(u[500:]),
            "train": VolterraRegressor(3, 9, solver="train", bond_dim=3, random_state=0)
            .fit(u[:500], noisy[:500])
            .predict(u[500:]),
            "least squares": squares.fit(windows(u[:500], 9)[8:], noisy[8:500]).predict(windows(u[500:], 9)),
        }
        for name, values in predicted.items():
            errors[name].append(np.sqrt(np.mean((values - y[500:])[9:] ** 2)) / y.std())
    means = {name: np.mean(values) for name, values in errors.items()}
    assert means["train"] < means["exact"] < means["least squares"]
    assert means["train"] < 0.1


def test_predictions_are_those_of_the_kernels_from_rest() -> None:
    kernels = known_kernels()
    rng = np.random.default_rng(1)
    u = rng.normal(size=300)
    model = VolterraRegressor(3, MEMORY).fit(u, output(kernels, u) + rng.normal(size=300))
    new = rng.normal(size=20)
    np.testing.assert_allclose(model.predict(new), output(model.kernels_, new), rtol=1e-8, atol=1e-8)


def test_the_train_is_a_module_that_computes_the_same() -> None:
    u = np.random.default_rng(1).normal(size=400)
    model = VolterraRegressor(3, MEMORY).fit(u, output(known_kernels(), u))
    assert model.module_.sites == 3
    scaled = np.concatenate([np.ones((400, 1)), windows(u) / model._scale], axis=1)
    x = torch.from_numpy(np.repeat(scaled[:, None], 3, axis=1))
    with torch.no_grad():
        np.testing.assert_allclose(model.module_(x)[:, 0], model.predict(u), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_kernels_and_trains_are_inverse(order: int) -> None:
    kernels = known_kernels(order)
    for back, kernel in zip(kernels_of_train(train_of_kernels(kernels)), kernels, strict=True):
        np.testing.assert_allclose(back, kernel, atol=1e-12)


def feedback_system(u: np.ndarray) -> np.ndarray:
    y = np.zeros(len(u))
    for t in range(len(u)):
        past = y[t - 1] if t else 0.0
        y[t] = 0.5 * past - 0.1 * past**2 + u[t] + 0.3 * u[t] * past
    return y


def test_feedback_one_step_ahead_and_free() -> None:
    rng = np.random.default_rng(0)
    u = rng.uniform(-0.5, 0.5, size=600)
    y = feedback_system(u)
    model = VolterraRegressor(2, 1, feedback=1).fit(u[:300], y[:300])
    assert model.lags_ == ["u(t)", "y(t-1)"]
    np.testing.assert_allclose(model.kernels_[1], [1.0, 0.5], atol=1e-8)
    np.testing.assert_allclose(model.kernels_[2], [[0.0, 0.15], [0.15, -0.1]], atol=1e-8)
    new = rng.uniform(-0.5, 0.5, size=50)
    np.testing.assert_allclose(model.predict(new), feedback_system(new), atol=1e-7)
    measured = feedback_system(new) + 0.1
    expected = np.array([feedback_step(new[t], measured[t - 1] if t else 0.0) for t in range(50)])
    np.testing.assert_allclose(model.predict(new, measured), expected, atol=1e-7)
    assert model.score(u[300:], feedback_system(u[300:])) > 0.999999


def feedback_step(u: float, past: float) -> float:
    return 0.5 * past - 0.1 * past**2 + u + 0.3 * u * past


def test_a_free_run_keeps_the_order_of_its_past() -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=200)
    y = np.zeros(200)
    for t in range(200):
        y[t] = u[t] + 0.6 * (y[t - 1] if t else 0.0) - 0.3 * (y[t - 2] if t > 1 else 0.0)
    model = VolterraRegressor(1, 1, feedback=2).fit(u, y)
    np.testing.assert_allclose(model.kernels_[1], [1.0, 0.6, -0.3], atol=1e-9)
    np.testing.assert_allclose(model.predict(u), y, atol=1e-8)


def test_a_free_run_that_diverges_says_so() -> None:
    rng = np.random.default_rng(0)
    u = rng.uniform(-0.5, 0.5, size=200)
    model = VolterraRegressor(2, 1, feedback=1).fit(u, feedback_system(u))
    with pytest.raises(FloatingPointError, match=r"the free run diverged at sample \d+"):
        model.predict(np.full(100, -20.0))


def test_several_channels() -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=(300, 2))
    y = u[:, 0] * np.append(0, u[:-1, 1])
    model = VolterraRegressor(2, 2).fit(u, y)
    assert model.lags_ == ["u0(t)", "u0(t-1)", "u1(t)", "u1(t-1)"]
    expected = np.zeros((4, 4))
    expected[0, 3] = expected[3, 0] = 0.5
    np.testing.assert_allclose(model.kernels_[2], expected, atol=1e-10)


def test_a_long_window_is_fitted_core_by_core() -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=700)
    y = wiener_hammerstein(u)
    model = VolterraRegressor(3, 40, bond_dim=2, random_state=0).fit(u, y)
    assert model.solver_ == "train"
    assert model.kernels_[3].shape == (40, 40, 40)


def test_it_is_an_estimator() -> None:
    model = VolterraRegressor(2, 4, feedback=1, alpha=0.1)
    assert clone(model).get_params() == model.get_params()
    rng = np.random.default_rng(0)
    u = rng.normal(size=(60, 1))
    fitted = VolterraRegressor(2, 3, alpha=0.1).fit(u, u[:, 0])
    assert fitted.alpha_ == 0.1
    assert fitted.n_features_in_ == 1
    assert np.array_equal(fitted.predict(u), clone(fitted).fit(u, u[:, 0]).predict(u))


# scikit-learn's checks of rows that have nothing to do with each other cannot hold where rows are a sequence.
SEQUENCE = {
    "check_methods_sample_order_invariance": "in another order it is another sequence",
    "check_methods_subset_invariance": "a part of a sequence has lost its past",
    "check_fit1d": "a 1-d X is a sequence of one channel",
}

_CASES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"memory": 2, "feedback": 1}, SEQUENCE),
    ({"memory": 2, "solver": "train", "bond_dim": 2, "max_sweeps": 3, "random_state": 0}, SEQUENCE),
    ({"memory": 2, "solver": "residual", "bond_dim": 2, "max_sweeps": 3, "random_state": 0}, SEQUENCE),
]
CHECKED = [Checked("restt", "VolterraRegressor", parameters, failing) for parameters, failing in _CASES]


def test_check_estimator_fails_only_where_rows_are_a_sequence() -> None:
    assert_every_check_passes(CHECKED, least=[50] * len(CHECKED))


def test_wrong_use_is_refused() -> None:
    u = np.random.default_rng(1).normal(size=50)
    with pytest.raises(ValueError, match="X must have more than 10 samples for memory=10 and feedback=0"):
        VolterraRegressor(2, 10).fit(u[:10], u[:10])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        VolterraRegressor(2, 2).fit(u, u[1:])
    with pytest.raises(ValueError, match="NaN"):
        VolterraRegressor(2, 2).fit(np.append(u, np.nan), np.append(u, 0.0))
    with pytest.raises(ValueError, match="The 'order' parameter"):
        VolterraRegressor(0, 2).fit(u, u)
    with pytest.raises(ValueError, match="has kernels of 25937424601 entries"):
        VolterraRegressor(10, 10).fit(u, u)
    with pytest.raises(ValueError, match="features"):
        VolterraRegressor(2, 2).fit(u, u).predict(np.zeros((5, 2)))
    with pytest.raises(ValueError, match=r"X must have shape \(T, 2\), .* got \(50,\)\. Reshape your data"):
        VolterraRegressor(2, 2).fit(np.stack([u, u], 1), u).predict(u)
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        VolterraRegressor(2, 2).fit(u, None)
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        VolterraRegressor(2, 2).fit(u, u[:, None])
