from __future__ import annotations

import pytest
import torch
from torch import nn

from restt_baselines.layers import SideBySide, image_side

RUNS = 3


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


@pytest.mark.parametrize("shared", [False, True])
def test_networks_side_by_side_are_torchs_own_run_by_run(shared):
    module = SideBySide(small, RUNS, seed=0).double()
    owns = [small().double() for _ in range(RUNS)]
    for run, own in enumerate(owns):
        own.load_state_dict({name: value[run] for name, value in module.network.state_dict().items()})
    x = torch.randn(RUNS, 7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = module(x[0] if shared else x)
    found.square().sum().backward()
    for run, own in enumerate(owns):
        expected = own(x[0 if shared else run])
        torch.testing.assert_close(found[run], expected)
        expected.square().sum().backward()
        for name, parameter in own.named_parameters():
            torch.testing.assert_close(module.network.get_parameter(name).grad[run], parameter.grad)
        for name, buffer in own.named_buffers():
            torch.testing.assert_close(module.network.get_buffer(name)[run], buffer)


def test_a_run_s_weights_are_the_same_alone_and_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    many, alone = SideBySide(small, RUNS, seed=3), SideBySide(small, 1, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in alone.state_dict().items():
        assert torch.equal(value[0], many.state_dict()[name][0])
    weight = many.network.get_parameter("0.weight")
    assert not torch.equal(weight[0], weight[1])


@pytest.mark.parametrize(("columns", "side"), [(1, 1), (64, 8), (784, 28)])
def test_side_of_square_images(columns, side):
    assert image_side(columns) == side


@pytest.mark.parametrize("columns", [0, 10, 783])
def test_other_numbers_of_columns_are_no_images(columns):
    with pytest.raises(ValueError, match=f"columns of X, one for each pixel, must form a square.*got {columns}"):
        image_side(columns)
