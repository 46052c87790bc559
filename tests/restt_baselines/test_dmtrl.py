from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from restt import baselines
from restt.train import train
from restt.train.objective import read_targets, row_loss
from restt_baselines.dmtrl import FACTORISATIONS, MultiTaskNet, laf, tt, tucker
from tests.restt_baselines.cases import digits, score_after_fit
from tests.restt_baselines.image_cases import assert_every_parameter_gets_a_gradient, assert_runs_may_stop_early, images

KINDS = tuple(FACTORISATIONS)
SIZES = (3, 4, 2, 5)


def stacked() -> torch.Tensor:
    return torch.randn(2, *SIZES, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", KINDS)
def test_factors_that_lose_nothing_rebuild_the_tensor(kind):
    decomposed, rebuilt = FACTORISATIONS[kind]
    torch.testing.assert_close(rebuilt(decomposed(stacked(), 0.0), SIZES), stacked())


def test_rebuilt_tensors_are_the_stated_products():
    left, right = laf(stacked(), 0.4)
    expected = torch.einsum("sdk,skt->sdt", left, right).view(2, *SIZES)
    torch.testing.assert_close(FACTORISATIONS["laf"][1]([left, right], SIZES), expected)
    core, *factors = tucker(stacked(), 0.4)
    expected = torch.einsum("sabcd,sai,sbj,sck,sdt->sijkt", core, *factors)
    torch.testing.assert_close(FACTORISATIONS["tucker"][1]([core, *factors], SIZES), expected)
    first, second, third, last = tt(stacked(), 0.4)
    expected = torch.einsum("szia,sajb,sbkc,scty->sijkt", first, second, third, last)
    torch.testing.assert_close(FACTORISATIONS["tt"][1]([first, second, third, last], SIZES), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_that_tasks_share_needs_one_task_factor(kind):
    common = torch.randn(1, *SIZES[:-1], 1, generator=torch.Generator().manual_seed(0))
    factors = FACTORISATIONS[kind][0](common * torch.arange(1.0, 6.0), 1e-6)
    task = factors[-1]
    assert task.shape[1] == 1
    assert task.numel() == 5


@pytest.mark.parametrize("kind", KINDS)
def test_the_more_is_lost_the_fewer_factors(kind):
    counts = [sum(factor.numel() for factor in FACTORISATIONS[kind][0](stacked(), lost)) for lost in (0.0, 0.3, 0.8)]
    assert counts[0] > counts[1] > counts[2]


@pytest.mark.parametrize("kind", KINDS)
def test_every_task_is_a_convolutional_network_of_the_rebuilt_weights(kind):
    net = MultiTaskNet(8, 3, 2, 0, maps=(2, 3), hidden=4).double()
    net.factorise(kind, lost=0.5, keep_norm=True)
    x = torch.rand(2, 5, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for bias in (net.conv1.bias, net.conv2.bias, net.hidden.bias, net.head.bias):
            bias.normal_(generator=torch.Generator().manual_seed(1))
    found = net(x)
    for run, task in itertools.product(range(2), range(3)):
        maps = x[run].view(5, 1, 8, 8)
        for layer in (net.conv1, net.conv2):
            kernel = layer()[run, task].permute(3, 2, 0, 1)
            maps = F.pad(maps, (2, 2, 2, 2) if layer is net.conv1 else (1, 2, 1, 2))
            maps = F.max_pool2d(F.conv2d(maps, kernel, layer.bias[run, task]).relu(), 2)
        rows = (maps.flatten(1) @ net.hidden()[run, task] + net.hidden.bias[run, task]).relu()
        expected = (rows @ net.head()[run, task] + net.head.bias[run, task]).squeeze(1)
        torch.testing.assert_close(found[run, :, task], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_initial_weights_have_the_norm_of_uniform_ones(kind):
    net = MultiTaskNet(8, 5, 2, 0, maps=(4, 6), hidden=8)
    net.factorise(kind, lost=0.5, keep_norm=True)
    for layer, fan_in in ((net.conv1, 25), (net.conv2, 64), (net.hidden, 24)):
        assert layer().var().item() == pytest.approx(1 / (3 * fan_in), rel=0.3)


@pytest.mark.parametrize("kind", KINDS)
def test_every_factor_gets_a_gradient_and_runs_are_independent(kind):
    estimator = baselines.make(f"dmtrl-{kind}", maps=(2, 3), hidden=4, start="random", lost=0.5)
    many, alone = estimator.build(64, 3, 3, 11), estimator.build(64, 3, 1, 11)
    x = images()[0]
    torch.testing.assert_close(many(x)[0], alone(x)[0], rtol=1e-4, atol=1e-5)
    with torch.no_grad():  # away from ReLUs that are all off
        for parameter in many.parameters():
            parameter += 0.05
    assert_every_parameter_gets_a_gradient(many)


def test_binary_cross_entropy_is_torchs_mean_over_outputs():
    generator = torch.Generator().manual_seed(0)
    output, target = torch.randn(2, 5, 3, generator=generator), torch.rand(1, 5, 3, generator=generator)
    found = row_loss("binary-cross-entropy")(output, target)
    expected = F.binary_cross_entropy_with_logits(output, target.expand(2, -1, -1), reduction="none").mean(-1)
    torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match=r"values in \[0, 1\]"):
        read_targets(torch.full((2, 3), 1.5), 3, "binary-cross-entropy", torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("kind", KINDS)
def test_factors_start_from_trained_single_networks(kind):
    """Nothing lost: the factors begin where tasks trained alone ended, here with no second training to speak of."""
    X, y = images()
    settings = {"maps": (2, 3), "hidden": 4, "epochs": 8, "batch_size": 8, "random_state": 0, "device": "cpu"}
    estimator = baselines.make(f"dmtrl-{kind}", lost=0.0, **settings)
    single = estimator.build(64, 3, 1, 5)
    alone = estimator.build(64, 3, 1, 5)
    config = estimator.training_config(40, 5)

    def train_first(module, how):
        list(train(module, X, y, config=how))

    train_first(alone, config)
    estimator.prepare(single, train_first, 40, 5)
    assert [layer.kind for layer in (single.conv1, single.conv2, single.hidden, single.head)] == [kind] * 4
    torch.testing.assert_close(single(X), alone(X), rtol=1e-3, atol=1e-4)
    drawn = estimator.build(64, 3, 1, 5)
    assert not torch.allclose(single(X), drawn(X), atol=1e-2)


@pytest.mark.parametrize(("kind", "start"), [("tt", "trained"), ("tucker", "random"), ("laf", "random")])
def test_learns_digits(kind, start):
    lost = {"trained": 0.01, "random": 0.5}[start]
    settings = {"maps": (6, 8), "hidden": 24, "epochs": 5, "batch_size": 32, "lr": 2e-2}
    estimator = baselines.make(f"dmtrl-{kind}", random_state=0, device="cpu", start=start, lost=lost, **settings)
    assert score_after_fit(estimator, digits()) > 0.85


def test_probabilities_are_the_tasks_own_brought_to_sum_one():
    X, y = images()
    estimator = baselines.make("dmtrl-laf", maps=(2, 2), hidden=4, epochs=2, runs=2, random_state=0, device="cpu")
    estimator.fit(X.numpy(), y.numpy())
    each = (1 / (1 + np.exp(-estimator._members(X.numpy())))).mean(axis=0)
    shares = estimator.predict_proba(X.numpy())
    np.testing.assert_allclose(shares, each / each.sum(1, keepdims=True))
    assert (estimator.predict(X.numpy()) == each.argmax(1)).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"factorisation": "cp"}, "factorisation must be one of"),
        ({"maps": (0, 2)}, "maps must be at least 1"),
        ({"lost": -0.1}, "lost must be"),
        ({"start": "cold"}, "start must be one of"),
    ],
)
def test_bad_settings_are_named(settings, words):
    X, y = images()
    with pytest.raises(ValueError, match=words):
        baselines.make("dmtrl-tt", **settings).fit(X.numpy(), y.numpy())


def test_runs_may_stop_early():
    assert_runs_may_stop_early(baselines.make("dmtrl-tucker", maps=(2, 3), hidden=4))
