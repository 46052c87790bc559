"""The classifier and the forecaster of sequences."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from restt import ResTTForecaster, ResTTSequenceClassifier


def waves(count: int, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Sequences of several lengths whose class is how fast they turn."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 3
    lengths = rng.integers(15, 30, count)
    sequences = [
        np.sin((0.3 + 0.4 * label) * np.arange(length) + rng.uniform(0, 6)) + 0.1 * rng.standard_normal(length)
        for label, length in zip(y, lengths, strict=True)
    ]
    return sequences, np.array(["slow", "medium", "fast"])[y]


def test_classifier_learns_sequences_of_several_lengths():
    x, y = waves(90)
    model = ResTTSequenceClassifier(bond_dim=8, epochs=60, random_state=0).fit(x[:60], y[:60])
    assert model.score(x[60:], y[60:]) > 0.8
    assert model.predict_proba(x[60:]).sum(axis=1) == pytest.approx(1)


def test_same_seed_same_model_and_units_do_not_matter():
    x, y = waves(30)
    model = ResTTSequenceClassifier(bond_dim=4, epochs=5, random_state=1)
    first = model.fit(x, y).predict_proba(x)
    scaled = clone(model).fit([1000 * values + 5 for values in x], y)
    np.testing.assert_allclose(clone(model).fit(x, y).predict_proba(x), first)
    np.testing.assert_allclose(scaled.predict_proba([1000 * values + 5 for values in x]), first, atol=1e-3)


def test_forecaster_of_a_linear_series_is_its_autoregression():
    rng = np.random.default_rng(0)
    series = np.zeros(400)
    for t in range(2, 400):
        series[t] = 1.6 * series[t - 1] - 0.8 * series[t - 2] + 0.1 * rng.standard_normal()
    model = ResTTForecaster(memory=6, bond_dim=6, epochs=20, random_state=0).fit(series[:300])
    ahead = model.predict_ahead(series[294:])
    assert ahead.shape == (100,)
    best = 1.6 * series[299:-1] - 0.8 * series[298:-2]
    assert np.mean((ahead - best) ** 2) < 0.03 * np.mean((series[300:] - best) ** 2)
    assert model.predict(series[:300])[0] == pytest.approx(ahead[0], abs=1e-5)
    assert model.predict(np.stack([series, series], 1)[:300, :1], steps=4).shape == (4, 1)


def test_forecaster_learns_what_an_autoregression_leaves():
    """The logistic map: a parabola of the last value, which noise of the measurement blurs, and a channel of noise."""
    series, rng = np.full((260, 2), 0.3), np.random.default_rng(0)
    for t in range(1, 260):
        series[t, 0] = 3.8 * series[t - 1, 0] * (1 - series[t - 1, 0])
    series[:, 1] = rng.standard_normal(260)
    model = ResTTForecaster(memory=3, bond_dim=8, epochs=80, lr=0.01, random_state=0).fit(series[:200])
    ahead, wanted = model.predict_ahead(series[197:]), series[200:]
    linear = clone(model).set_params(epochs=1, lr=1e-9).fit(series[:200])
    errors = [np.mean((one[:, 0] - wanted[:, 0]) ** 2) for one in (linear.predict_ahead(series[197:]), ahead)]
    assert errors[1] < 0.2 * errors[0]
    assert np.mean(ahead[:, 1] ** 2) < 0.3  # what cannot be predicted is its mean
    assert model.share_ > 0.5 < model.epoch_


def test_registers_hold_the_window():
    model = ResTTForecaster(memory=3, bond_dim=2)
    windows = np.random.default_rng(0).uniform(-1, 1, (4, 3, 2))
    x = torch.cat([torch.ones(4, 3, 1), torch.from_numpy(windows).float(), torch.zeros(4, 3, 2)], 2)
    module = model._module(x, 2, 0)
    torch.testing.assert_close(module.state(x)[:, 2:], x[:, :, 1:3].flip(1).flatten(1))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([], "at least one sequence"),
        ([np.zeros(3), np.zeros(0)], "sequence 1 of X must have at least one step .* length 0"),
        ([np.zeros(3), np.zeros((3, 2))], "sequence 1 of X has 2 channels"),
        ([np.zeros(3), np.array([0.0, np.nan])], "sequence 1 of X must be finite"),
        ([np.zeros(3), np.array(["a"])], "sequence 1 of X must hold numbers"),
        ([np.zeros(3), np.array([0.0, 1e200])], "sequence 1 of X must have values of at most"),
        (np.zeros(4), r"X must have shape \(B, T\)"),
    ],
)
def test_names_what_does_not_fit(x, message):
    with pytest.raises(ValueError, match=message):
        ResTTSequenceClassifier().fit(x, [0, 1])


def test_channels_of_the_fit_are_those_of_predict():
    x, y = waves(6)
    model = ResTTSequenceClassifier(bond_dim=2, epochs=1, random_state=0).fit(x, y)
    with pytest.raises(ValueError, match="X must have 1 channels"):
        model.predict(np.zeros((2, 5, 2)))
    with pytest.raises(ValueError, match="at least 28 values for memory=24"):
        ResTTForecaster().fit(np.arange(20.0))
    with pytest.raises(ValueError, match="series must have at least one step and channel, got length 0"):
        ResTTForecaster().fit([])
    forecaster = ResTTForecaster(memory=2, epochs=1, random_state=0).fit(np.arange(9.0))
    with pytest.raises(ValueError, match=r"series must have 1 channel\(s\), as in the fit, got 2"):
        forecaster.predict(np.zeros((5, 2)))
    with pytest.raises(ValueError, match="contains NaN"):
        ResTTSequenceClassifier().fit(x, [0, 1, 0, 1, 0, np.nan])
    with pytest.raises(ValueError, match="two classes"):
        ResTTSequenceClassifier().fit(x, np.zeros(6))
