"""The transform of y: there and back, far outside, in any unit and of either sign."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.stats import yeojohnson

from restt.prior import Warp
from restt.prior.warp import yeo_johnson

RNG = np.random.default_rng(0)
POWERS = [0.02, 0.5, 1.0, 1.3, 1.98]


def skewed(rows: int = 300, outputs: int = 1) -> np.ndarray:
    return RNG.lognormal(size=(rows, outputs))


def fitted(power: float, y: np.ndarray, weights: np.ndarray | None = None) -> Warp:
    weights = np.ones(len(y)) if weights is None else weights
    return Warp.fit(y, weights).with_power(np.full(y.shape[1], power), y, weights)


@pytest.mark.parametrize("power", POWERS)
def test_the_transform_is_that_of_yeo_and_johnson(power):
    z = np.linspace(-4, 9, 50)
    found = yeo_johnson(torch.from_numpy(z), torch.tensor(power, dtype=torch.float64))
    np.testing.assert_allclose(found, yeojohnson(z, power), rtol=1e-12)


@pytest.mark.parametrize("power", POWERS)
def test_decoding_is_the_inverse_of_encoding(power):
    y = skewed(outputs=2)
    warp = fitted(power, y)
    far = np.r_[y, [[-1e9, 1e9], [1e9, -1e9], [1e4, -1e4]]]
    np.testing.assert_allclose(warp.decode(warp.encode(far)), far, rtol=1e-9, atol=1e-9)
    t = RNG.uniform(-20, 20, (200, 2))
    np.testing.assert_allclose(warp.encode(warp.decode(t)), t, rtol=1e-9, atol=1e-9)
    seen = warp.encode(y)
    np.testing.assert_allclose([seen.mean(0), seen.std(0)], [[0, 0], [1, 1]], atol=1e-12)


@pytest.mark.parametrize("power", POWERS)
def test_tails_are_straight_and_go_on_as_the_transform_ends(power):
    y = skewed()
    warp = fitted(power, y)
    for end, sign in ((y.max(), 1), (y.min(), -1)):
        steps = warp.encode(end + sign * np.array([[0.0], [1.0], [2.0], [100.0]]))[:, 0]
        assert steps[2] - steps[1] == pytest.approx(steps[1] - steps[0])
        assert steps[3] - steps[0] == pytest.approx(100 * (steps[1] - steps[0]))
        inside = warp.encode(np.array([[end], [end - sign * 1e-6]]))[:, 0]
        assert (inside[0] - inside[1]) / 1e-6 == pytest.approx(steps[1] - steps[0], rel=1e-4)


@pytest.mark.parametrize("power", POWERS)
def test_slopes_are_those_of_the_encoding(power):
    y = skewed()
    warp = fitted(power, y)
    points = np.r_[y[:50], [[-3.0], [50.0]]]
    difference = (warp.encode(points + 1e-6) - warp.encode(points - 1e-6)) / 2e-6
    np.testing.assert_allclose(np.exp(warp.log_slope(points)), difference, rtol=1e-5)


@pytest.mark.parametrize(("a", "b"), [(1, 1000), (1e-3, 0), (-1, 0), (-1e4, 5)])
@pytest.mark.parametrize("power", POWERS)
def test_the_unit_the_zero_and_the_sign_of_y_do_not_matter(power, a, b):
    y, weights = skewed(101), RNG.random(101) + 0.5
    plain = fitted(power, y, weights)
    other = fitted(power if a > 0 else 2 - power, a * y + b, weights)
    np.testing.assert_allclose(other.encode(a * y + b), np.sign(a) * plain.encode(y), rtol=1e-8, atol=1e-9)
    far = np.array([[-9.0], [-1.0], [0.0], [4.0], [30.0]])
    np.testing.assert_allclose(other.decode(np.sign(a) * far), a * plain.decode(far) + b, rtol=1e-8)
    residuals = RNG.standard_normal((101, 1))
    smeared = other.smeared(np.sign(a) * residuals, weights), plain.smeared(residuals, weights)
    np.testing.assert_allclose(smeared[0].predict(np.sign(a) * far), a * smeared[1].predict(far) + b, rtol=1e-8)


def test_a_power_of_one_is_y_itself():
    y = skewed(outputs=2)
    warp = Warp.fit(y, np.ones(len(y)))
    assert (warp.power == 1).all()
    np.testing.assert_allclose(warp.encode(y), (y - y.mean(0)) / y.std(0), rtol=1e-9, atol=1e-12)
    residuals = RNG.exponential(size=(100, 2))
    np.testing.assert_array_equal(warp.smeared(residuals, np.ones(100)).predict(y), warp.decode(y))


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("most", [0.0, -3.0, 1e6])
def test_most_of_y_may_be_one_value(most, power):
    y = np.where(RNG.random((200, 1)) < 0.1, RNG.exponential(size=(200, 1)), 0.0) + most
    warp = fitted(power, y)
    assert warp.width > 0
    np.testing.assert_allclose(warp.decode(warp.encode(y)), y, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("value", [0.0, 7.0, -1e200])
def test_a_constant_y_is_encoded_as_0(value):
    y = np.full((20, 1), value)
    warp = Warp.fit(y, np.ones(20))
    assert not warp.encode(y).any()
    np.testing.assert_array_equal(warp.decode(np.zeros((3, 1))), y[:3])


@pytest.mark.parametrize("noise", [0.3, 0.7])
@pytest.mark.parametrize("sign", [1, -1])
def test_predictions_are_the_mean_of_a_skewed_y(noise, sign):
    truth = RNG.standard_normal((20_000, 1))
    y = sign * np.exp(0.7 * truth + noise * RNG.standard_normal(truth.shape))
    empty = fitted(1 - sign * 0.99, y)
    outputs = empty.encode(sign * np.exp(0.7 * truth))
    warp = empty.smeared(empty.encode(y) - outputs, np.ones(len(y)))
    # Of rows of small and of large y alike; without the residuals it is the median.
    low, high = truth[:, 0] < -1, truth[:, 0] > 1
    for rows in (low, high, slice(None)):
        assert warp.predict(outputs)[rows].mean() == pytest.approx(y[rows].mean(), rel=0.05)
    assert empty.decode(outputs).mean() / y.mean() == pytest.approx(np.exp(-(noise**2) / 2), rel=0.03)


@pytest.mark.parametrize("power", [0.1, 0.6, 1.0, 1.7])
def test_the_slope_of_predictions_is_their_derivative(power):
    rng = np.random.default_rng(7)
    y = rng.lognormal(size=(300, 2))
    warp = fitted(power, y).smeared(0.3 * rng.standard_normal((60, 2)), np.ones(60))
    t = 3 * rng.standard_normal((40, 2))  # beyond the range of the fit too
    expected = (warp.predict(t + 1e-6) - warp.predict(t - 1e-6)) / 2e-6
    np.testing.assert_allclose(warp.prediction_slope(t), expected, rtol=1e-4)


def test_residuals_need_not_be_centred():
    # Where noise has heavy tails, a prediction is where most rows are, and rare ones lie on one side of it.
    y = np.where(RNG.random((5000, 1)) < 0.1, RNG.lognormal(sigma=0.5, size=(5000, 1)), 0.0)
    empty = fitted(0.05, y)
    usual = empty.encode(np.zeros((1, 1)))
    warp = empty.smeared(empty.encode(y) - usual, np.ones(5000))
    assert warp.predict(usual)[0, 0] == pytest.approx(y.mean(), rel=0.05)


def test_a_mean_keeps_the_digits_of_y_beside_a_large_shift():
    y = skewed()
    plain, shifted = (fitted(0.3, y + b).smeared(RNG.standard_normal((50, 1)), np.ones(50)) for b in (0.0, 2.0**50))
    same = Warp(**{**plain.__dict__, "shift": shifted.shift})
    found = same.predict(plain.encode(y)) - 2.0**50
    np.testing.assert_allclose(
        found, plain.predict(plain.encode(y)) + (shifted.shift - 2.0**50 - plain.shift), atol=0.26
    )


def test_weights_are_repeated_rows_of_the_mean_and_the_deviation():
    y, weights = skewed(40), RNG.integers(1, 4, 40).astype(float)
    warp = fitted(0.4, y, weights)
    repeated = np.repeat(warp.encode(y), weights.astype(int), axis=0)
    np.testing.assert_allclose([repeated.mean(), repeated.std()], [0, 1], atol=1e-12)


def test_a_warp_survives_its_configuration():
    y = skewed(outputs=2)
    warp = fitted(0.4, y).smeared(RNG.standard_normal((60, 2)), np.ones(60))
    same = Warp.from_config(json.loads(json.dumps(warp.to_config())))
    for t in (warp.encode(y), 9 * RNG.standard_normal((20, 2))):
        np.testing.assert_array_equal(same.predict(t), warp.predict(t))
        np.testing.assert_array_equal(same.decode(t), warp.decode(t))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": [0.0, 1.0]}, "mean of the transform"),
        ({"shift": 0.0}, "shift of the transform"),
        ({"residuals": [0.0]}, "residuals of the transform"),
        ({"residuals": [[0.0, 1.0]]}, "residuals of the transform"),
        ({"low": [float("nan")]}, "low of the transform"),
        ({"std": [0.0]}, "must be above 0"),
        ({"width": [-1.0]}, "must be above 0"),
        ({"power": [2.0]}, "power between 0 and 2"),
        ({"power": [0.0]}, "power between 0 and 2"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(change, message):
    config = fitted(0.4, skewed()).to_config()
    with pytest.raises(ValueError, match=message):
        Warp.from_config({**config, **change})
