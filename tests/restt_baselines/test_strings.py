"""Trains over strings, string-bond states and plaquettes, against explicit products of tensors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from restt import baselines
from restt.train import TrainConfig, train
from restt.train.runs import working_copy
from restt_baselines.string_bond import Plaquettes, StringBondState, Strings, shares, snakes
from tests.restt_baselines.cases import digits, score_after_fit
from tests.restt_baselines.image_cases import images

SBS = ("snake-sbs", "eps-sbs")
ALL = ("mps-adam", *SBS)


def pixels(rows: int = 3, count: int = 4, seed: int = 0) -> torch.Tensor:
    return torch.rand(rows, count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def train_by_hand(first, inner, last, sites):  # of one run and train; sites (N, I) -> (O,)
    state = np.einsum("i,ir->r", sites[0], first)
    for x, core in zip(sites[1:-1], inner, strict=True):
        state = np.einsum("r,i,irs->s", state, x, core)
    return np.einsum("r,i,iro->o", state, sites[-1], last)


def test_each_train_is_the_product_of_its_matrices_in_its_order():
    orders = torch.tensor([[0, 1, 2, 3], [3, 1, 0, 2], [2, 2, 0, 1]])
    strings = Strings(orders, 2, bond_dim=3, outputs=2, runs=2, seed=0, noise=0.5).double()
    x = shares(pixels())
    found = strings(x).detach().numpy()
    first, inner, last = (core.detach().numpy() for core in strings.cores())
    for run, string, row in itertools.product(range(2), range(3), range(3)):
        sites = x[row, orders[string]].numpy()
        expected = train_by_hand(first[run, string], inner[run, string], last[run, string], sites)
        np.testing.assert_allclose(found[run, string, row], expected, rtol=1e-10)


def test_runs_may_see_rows_of_their_own():
    strings = Strings(snakes(2, 2), 2, bond_dim=3, outputs=2, runs=2, seed=0, noise=0.5).double()
    x = shares(torch.stack([pixels(seed=1), pixels(seed=2)]))
    found = strings(x)
    torch.testing.assert_close(found[0], strings(x[0])[0])
    torch.testing.assert_close(found[1], strings(x[1])[1])
    with pytest.raises(ValueError, match="x must have shape"):
        strings(x[:, None])


def test_a_string_bond_state_is_the_product_over_its_strings():
    state = StringBondState(Strings(snakes(2, 3), 2, bond_dim=3, outputs=4, runs=2, seed=0, noise=0.5)).double()
    x = shares(pixels(5, 6))
    factors = state.strings(x)
    assert factors.shape == (2, 4, 5, 4)
    torch.testing.assert_close(state(x), factors.prod(dim=1))


def test_four_snakes_see_every_pixel_once_and_step_to_neighbours():
    found = snakes(3, 4)
    assert found.shape == (4, 12)
    assert len({tuple(order) for order in found.tolist()}) == 4
    for order in found:
        assert sorted(order.tolist()) == list(range(12))
        rows, columns = order // 4, order % 4
        assert ((rows.diff().abs() + columns.diff().abs()) == 1).all()


def test_a_plaquette_is_one_tensor_over_its_four_pixels():
    layer = Plaquettes(3, 3, outputs=5, runs=2, seed=0).double()
    x = shares(pixels(4, 9))
    found = layer(x).detach()
    tensor = layer.tensor.detach().view(2, 2, 2, 2, 2, 5)
    for window, (row, column) in enumerate(itertools.product(range(2), repeat=2)):
        corner = 3 * row + column
        four = [x[:, corner + step] for step in (0, 1, 3, 4)]
        expected = torch.einsum("bi,bj,bk,bl,sijklo->sbo", *four, tensor)
        torch.testing.assert_close(found[:, :, window], expected)
    torch.testing.assert_close(found[..., 0], torch.ones_like(found[..., 0]))


def test_eps_sbs_is_the_string_bond_state_of_its_plaquettes():
    module = baselines.make("eps-sbs", bond_dim=3, plaquette_dim=4, noise=0.3).build(16, 5, 2, 0).double()
    x = shares(pixels(3, 16))
    torch.testing.assert_close(module(x), module.strings(module.plaquettes(x)).prod(1))


def test_mps_adam_has_its_label_in_the_middle():
    estimator = baselines.make("mps-adam", bond_dim=3, noise=0.4)
    module = estimator.build(5, 4, runs=2, seed=0).double()
    x = estimator.feature_map()(pixels(3, 5))
    found = module(x).detach().numpy()
    label = module.label.detach().numpy()
    halves = [[core.detach().numpy() for core in half.cores()] for half in (module.left, module.right)]
    for run, row in itertools.product(range(2), range(3)):
        sites = x[row].numpy()
        left, right = (
            train_by_hand(*(core[run, 0] for core in half), seen)
            for half, seen in zip(halves, (sites[:2], sites[:1:-1]), strict=True)
        )
        np.testing.assert_allclose(found[run, row], np.einsum("a,aob,b->o", left, label[run], right), rtol=1e-10)


@pytest.mark.parametrize("name", ALL)
def test_long_trains_start_near_one_for_every_class(name):
    estimator = baselines.make(name, bond_dim=6)
    module = estimator.build(196, 10, runs=2, seed=0)
    with torch.no_grad():
        outputs = module(estimator.feature_map()(pixels(20, 196).float()))
    assert outputs.shape == (2, 20, 10)
    assert ((outputs - 1).abs() < 0.5).all()
    assert not torch.equal(outputs[0], outputs[1])


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_those_of_finite_differences(name):
    estimator = baselines.make(name, bond_dim=2, noise=0.3)
    module = estimator.build(9, 2, runs=1, seed=0).double()
    x = estimator.feature_map()(pixels(2, 9))
    names = [key for key, _ in module.named_parameters()]

    def outputs(*values):
        return torch.func.functional_call(module, dict(zip(names, values, strict=True)), (x,))

    values = [value.detach().clone().requires_grad_() for value in module.parameters()]
    assert torch.autograd.gradcheck(outputs, values)


@pytest.mark.parametrize("name", ALL)
def test_runs_are_independent(name):
    estimator = baselines.make(name, bond_dim=3)
    many, alone = estimator.build(64, 3, 3, 11), estimator.build(64, 3, 1, 11)
    x = estimator.feature_map()(images()[0])
    torch.testing.assert_close(many(x)[0], alone(x)[0])
    for key, value in alone.state_dict().items():
        assert torch.equal(value[0], many.state_dict()[key][0]), key
        assert len(many.state_dict()[key]) == 3


@pytest.mark.parametrize(
    ("name", "settings", "floor"),
    [
        ("mps-adam", {"bond_dim": 8, "epochs": 15, "batch_size": 32, "lr": 5e-3}, 0.93),
        ("snake-sbs", {"bond_dim": 6, "epochs": 12, "batch_size": 32, "lr": 3e-3}, 0.93),
        ("eps-sbs", {"bond_dim": 4, "plaquette_dim": 3, "epochs": 8, "batch_size": 32, "lr": 3e-3}, 0.9),
    ],
)
def test_learns_digits(name, settings, floor):
    assert score_after_fit(baselines.make(name, random_state=0, device="cpu", **settings), digits()) > floor


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("mps-adam", {"bond_dim": 0}, "bond_dim must be at least 1"),
        ("mps-adam", {"noise": -1.0}, "noise must be"),
        ("snake-sbs", {"bond_dim": 0}, "bond_dim must be at least 1"),
        ("eps-sbs", {"plaquette_dim": 0}, "plaquette_dim must be at least 1"),
    ],
)
def test_bad_settings_are_named(name, settings, words):
    X, y = images(classes=2)
    with pytest.raises(ValueError, match=words):
        baselines.make(name, **settings).fit(X.numpy(), y.numpy())


def test_columns_must_make_an_image_or_two_halves():
    X, y = np.random.default_rng(0).random((20, 3)), np.arange(20) % 2
    with pytest.raises(ValueError, match="at least 4 columns"):
        baselines.make("mps-adam").fit(X, y)
    for name in SBS:
        with pytest.raises(ValueError, match="one for each pixel"):
            baselines.make(name).fit(X, y)
    with pytest.raises(ValueError, match="snake-sbs does classification"):
        baselines.make("snake-sbs", task="regression")


@pytest.mark.parametrize("name", ALL)
def test_runs_may_stop_early_and_train_as_they_would_alone(name):
    estimator = baselines.make(name, bond_dim=3)
    many = estimator.build(64, 3, 3, 11)
    single = working_copy(many, [1])
    x, y = images()
    settings = {"batch_size": 16, "lr": 1e-3, "loss": "cross-entropy", "seed": 5}
    mapped = {"feature_map": estimator.feature_map()}
    records = list(train(many, x, y, config=TrainConfig(epochs=(1, 3, 2), **settings), **mapped))
    assert [record.runs for record in records] == [(0, 1, 2), (1, 2), (1,)]
    list(train(single, x, y, config=TrainConfig(epochs=3, run_ids=[1], **settings), **mapped))
    for key, value in single.state_dict().items():
        torch.testing.assert_close(value[0], many.state_dict()[key][1], rtol=1e-4, atol=1e-5)
