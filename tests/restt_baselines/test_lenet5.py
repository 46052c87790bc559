from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from restt import baselines
from tests.restt_baselines.cases import digits, score_after_fit
from tests.restt_baselines.image_cases import (
    assert_every_parameter_gets_a_gradient,
    assert_never_looks_at_values,
    assert_runs_are_independent,
    assert_runs_may_stop_early,
)


def own_lenet(module, run: int, activation: type[nn.Module]) -> nn.Module:
    """The network from torch's layers, with the weights of one run."""
    own = nn.Sequential(
        nn.ZeroPad2d(2),
        nn.Conv2d(1, 6, 5),
        activation(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        activation(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        activation(),
        nn.Linear(120, 84),
        activation(),
        nn.Linear(84, 10),
    )
    for target, value in zip(own.state_dict().values(), module.state_dict().values(), strict=True):
        target.copy_(value[run])
    return own


@pytest.mark.parametrize(("name", "activation"), [("relu", nn.ReLU), ("tanh", nn.Tanh)])
def test_is_torchs_layers_run_by_run(name, activation):
    module = baselines.make("lenet5", activation=name).build(784, 10, runs=2, seed=0)
    x = torch.rand(2, 3, 784, generator=torch.Generator().manual_seed(0))
    for run in range(2):
        own = own_lenet(module, run, activation)
        torch.testing.assert_close(module(x)[run], own(x[run].view(3, 1, 28, 28)), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(module(x[0])[run], own(x[0].view(3, 1, 28, 28)), rtol=1e-4, atol=1e-6)


def test_number_of_weights_is_lecuns_with_full_connections():
    module = baselines.make("lenet5").build(784, 10, runs=10, seed=0)
    assert sum(parameter[0].numel() for parameter in module.parameters()) == 61_706
    assert sum(parameter.numel() for parameter in module.parameters()) == 617_060


@pytest.mark.parametrize("side", [8, 40])
def test_other_sizes_are_resized_to_28(side):
    estimator = baselines.make("lenet5")
    module, expected = (estimator.build(columns, 10, runs=2, seed=0) for columns in (side * side, 784))
    x = torch.rand(3, side * side, generator=torch.Generator().manual_seed(0))
    resized = F.interpolate(x.view(3, 1, side, side), size=(28, 28), mode="bilinear")
    torch.testing.assert_close(module(x), expected(resized.flatten(1)))


def test_every_parameter_gets_a_gradient():
    assert_every_parameter_gets_a_gradient(baselines.make("lenet5").build(64, 3, runs=2, seed=0))


def test_never_looks_at_values():
    assert_never_looks_at_values(baselines.make("lenet5").build(64, 3, runs=2, seed=0))


def test_runs_are_independent():
    assert_runs_are_independent(baselines.make("lenet5"), tolerance=1e-5)


def test_runs_may_stop_early():
    assert_runs_may_stop_early(baselines.make("lenet5"))


def test_learns_digits():
    estimator = baselines.make("lenet5", epochs=6, batch_size=32, random_state=0, device="cpu")
    assert score_after_fit(estimator, digits()) > 0.93


def test_images_are_rows_of_pixels_of_any_range():
    X, X_test, y, _ = digits()
    pixels, shaped = (baselines.make("lenet5", epochs=1, random_state=0, device="cpu") for _ in range(2))
    pixels.fit(X[:100], y[:100])
    shaped.fit(X[:100].reshape(-1, 8, 8) / 16, y[:100])
    found = shaped.predict_proba(X_test[:9].reshape(-1, 8, 8) / 16)
    np.testing.assert_allclose(found, pixels.predict_proba(X_test[:9]), atol=1e-6)


def test_bad_settings_are_named():
    X, y = np.zeros((6, 10)), np.array([0, 1] * 3)
    with pytest.raises(ValueError, match="columns of X, one for each pixel, must form a square"):
        baselines.make("lenet5").fit(X, y)
    with pytest.raises(ValueError, match="activation"):
        baselines.make("lenet5", activation="gelu").fit(X[:, :9], y)
    with pytest.raises(ValueError, match="lenet5 does classification"):
        baselines.make("lenet5", task="regression")
