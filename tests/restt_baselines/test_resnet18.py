from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from restt import baselines
from restt_baselines import convolutional
from tests.restt_baselines.cases import digits, score_after_fit
from tests.restt_baselines.image_cases import (
    assert_every_parameter_gets_a_gradient,
    assert_never_looks_at_values,
    assert_runs_are_independent,
    assert_runs_may_stop_early,
    images,
)

# ResNet-18 for ImageNet has 11 689 512 weights.
PUBLISHED = 11_689_512
STEM = 64 * 3 * 7 * 7
HEAD = (512 + 1) * 1000


@pytest.fixture
def thin(monkeypatch):
    """The same network with an eighth of the channels."""
    monkeypatch.setattr(convolutional, "CHANNELS", (8, 16, 32, 64))


class OwnBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.skip = nn.Sequential()
        if stride > 1:
            self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return (self.body(x) + self.skip(x)).relu()


def own_resnet(channels: tuple[int, ...], outputs: int) -> nn.Module:
    """The network from torch's layers, written down apart from the one under test."""
    first, second, third, fourth = channels
    return nn.Sequential(
        nn.Conv2d(1, first, 3, 1, 1, bias=False),
        nn.BatchNorm2d(first),
        nn.ReLU(),
        *(OwnBlock(first, first, 1), OwnBlock(first, first, 1)),
        *(OwnBlock(first, second, 2), OwnBlock(second, second, 1)),
        *(OwnBlock(second, third, 2), OwnBlock(third, third, 1)),
        *(OwnBlock(third, fourth, 2), OwnBlock(fourth, fourth, 1)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(fourth, outputs),
    )


def copied(module: nn.Module, run: int, channels: tuple[int, ...], outputs: int) -> nn.Module:
    """torch's layers with the weights and statistics of one run; both list them in the order of the computation."""
    own = own_resnet(channels, outputs).to(next(module.parameters()).dtype)
    state = [value for name, value in own.state_dict().items() if not name.endswith("num_batches_tracked")]
    for target, value in zip(state, module.state_dict().values(), strict=True):
        target.copy_(value[run])
    return own


def test_number_of_weights_is_the_published_one_less_stem_and_head():
    module = baselines.make("resnet18").build(784, 10, runs=2, seed=0)
    expected = PUBLISHED - STEM - HEAD + 64 * 3 * 3 + (512 + 1) * 10
    assert sum(parameter[0].numel() for parameter in module.parameters()) == expected
    assert sum(parameter.numel() for parameter in own_resnet(convolutional.CHANNELS, 10).parameters()) == expected


def test_is_torchs_layers_run_by_run(thin):
    module = baselines.make("resnet18").build(144, 4, runs=2, seed=0).double()
    x = torch.rand(2, 6, 144, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    owns = [copied(module, run, convolutional.CHANNELS, 4) for run in range(2)]
    for _ in range(2):
        module.zero_grad()
        found = module(x)
        found.square().sum().backward()
        for run, own in enumerate(owns):
            own.zero_grad()
            expected = own(x[run].view(6, 1, 12, 12))
            torch.testing.assert_close(found[run], expected, rtol=1e-9, atol=1e-10)
            expected.square().sum().backward()
            for parameter, other in zip(module.parameters(), own.parameters(), strict=True):
                torch.testing.assert_close(parameter.grad[run], other.grad, rtol=1e-7, atol=1e-9)
    found = module.eval()(x[0])
    for run, own in enumerate(owns):
        torch.testing.assert_close(found[run], own.eval()(x[0].view(6, 1, 12, 12)), rtol=1e-9, atol=1e-10)


def test_stages_of_28_pixels_have_28_14_7_and_4():
    sides, maps = [], torch.rand(1, 1, 28, 28)
    with torch.no_grad():
        for layer in convolutional.ResNet18(28, 10, "float32").eval().maps:
            maps = layer(maps)
            sides += [tuple(maps.shape[1:])] if isinstance(layer, convolutional.Block) else []
    assert sides[::2] == [(64, 28, 28), (128, 14, 14), (256, 7, 7), (512, 4, 4)]


def test_initial_weights_keep_the_size_of_signals_backwards():
    module = baselines.make("resnet18").build(784, 10, runs=2, seed=0)
    for name, parameter in module.named_parameters():
        if parameter.dim() == 5:  # a convolution
            expected = 2 / (parameter.shape[1] * parameter.shape[3] * parameter.shape[4])
            assert parameter.var().item() == pytest.approx(expected, rel=0.15), name
            assert not torch.equal(parameter[0], parameter[1])


def test_bfloat16_is_close_and_gives_float32(thin):
    exact, rough = (
        baselines.make("resnet18", precision=precision).build(64, 3, runs=2, seed=0)
        for precision in ("float32", "bf16")
    )
    x, _ = images()
    found, expected = rough(x), exact(x)
    assert found.dtype == torch.float32
    assert not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1)


def test_a_single_row_of_small_images_trains(thin):
    module = baselines.make("resnet18").build(64, 3, runs=1, seed=0)
    loss = module(images(1)[0]).square().sum()
    loss.backward()
    assert all(bool(value.isfinite().all()) for value in module.state_dict().values())
    assert all(bool(value.grad.isfinite().all()) for value in module.parameters())


def test_every_parameter_gets_a_gradient(thin):
    assert_every_parameter_gets_a_gradient(baselines.make("resnet18").build(64, 3, runs=2, seed=0))


def test_never_looks_at_values(thin):
    assert_never_looks_at_values(baselines.make("resnet18").build(64, 3, runs=2, seed=0))


def test_runs_are_independent(thin):
    assert_runs_are_independent(baselines.make("resnet18"), tolerance=1e-4)


def test_runs_may_stop_early(thin):
    assert_runs_may_stop_early(baselines.make("resnet18"))


def test_learns_digits(thin):
    estimator = baselines.make("resnet18", epochs=4, batch_size=64, lr=1e-2, random_state=0, device="cpu")
    assert score_after_fit(estimator, digits()) > 0.93


def test_full_width_learns():
    estimator = baselines.make("resnet18", epochs=5, random_state=0, device="cpu").fit(*images(24))
    assert estimator.history_[-1].train_loss[0] < 0.2 * estimator.history_[0].train_loss[0]


def test_predictions_do_not_depend_on_the_other_rows(thin):
    X, X_test, y, _ = digits()
    estimator = baselines.make("resnet18", epochs=1, random_state=0, device="cpu").fit(X[:200], y[:200])
    together, alone = estimator.predict_proba(X_test[:5]), [estimator.predict_proba(row[None]) for row in X_test[:5]]
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-5)


def test_bad_settings_are_named():
    X, y = np.zeros((6, 10)), np.array([0, 1] * 3)
    with pytest.raises(ValueError, match="columns of X, one for each pixel, must form a square"):
        baselines.make("resnet18").fit(X, y)
    with pytest.raises(ValueError, match="precision"):
        baselines.make("resnet18", precision="float16").fit(X[:, :9], y)
    with pytest.raises(ValueError, match="resnet18 does classification"):
        baselines.make("resnet18", task="regression")
