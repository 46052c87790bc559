from __future__ import annotations

import pytest
import torch

import restt
from restt.init import WeightVariances, draw_weights
from restt.init.draw import orthogonal_cores

SHAPES = {
    "first": (2, 60),
    "chain": (3, 2, 60, 60),
    "linear": (3, 2, 60),
    "last_chain": (2, 60, 9),
    "last_skip": (60, 9),
}
VARIANCES = WeightVariances(4.0, torch.tensor([0.1, 1.0, 10.0]), torch.tensor([0.2, 2.0, 20.0]), 0.5)


@pytest.mark.parametrize("init", ["paper", "orthogonal"])
def test_every_role_and_site_has_its_variance(init):
    drawn = draw_weights(SHAPES, VARIANCES, init, [torch.Generator().manual_seed(0)], torch.float32)
    assert list(drawn) == list(SHAPES)
    assert drawn["first"].square().mean().item() == pytest.approx(4.0, rel=0.35)
    assert drawn["last_chain"].square().mean().item() == pytest.approx(0.5, rel=0.2)
    assert drawn["last_skip"].square().mean().item() == pytest.approx(0.5, rel=0.3)
    for n in range(3):
        assert drawn["chain"][0, n].square().mean().item() == pytest.approx(VARIANCES.chain[n].item(), rel=0.05)
        assert drawn["linear"][0, n].square().mean().item() == pytest.approx(VARIANCES.linear[n].item(), rel=0.5)


@pytest.mark.parametrize("init", ["balanced", "orthogonal"])
def test_half_precision_is_drawn_in_float32(init):
    drawn = draw_weights(SHAPES, VARIANCES, init, [torch.Generator().manual_seed(0)], torch.bfloat16)
    assert {value.dtype for value in drawn.values()} == {torch.float32}


def test_a_plain_train_with_orthogonal_cores_keeps_all_lengths():
    module = restt.ResTT(50, 2, 6, 3, "plain", init="orthogonal", runs=2, dtype=torch.float64)
    x = restt.features.Trigonometric()(torch.rand(4, 50, dtype=torch.float64))
    profile = restt.meanfield.measure(module, x)
    torch.testing.assert_close(profile.run_log_q[:, :-1], profile.run_log_q[:, :1].expand(-1, 49))
    torch.testing.assert_close(profile.run_log_chi, profile.run_log_chi[:, -1:].expand(-1, 49))


def cores(width: int, bond: int, sites: int = 3, seed: int = 0):
    return orthogonal_cores((sites, width, bond, bond), torch.Generator().manual_seed(seed), torch.float64)


def step(weights, x):
    return torch.einsum("ni,nikl->nkl", x, weights)


@pytest.mark.parametrize(("width", "bond"), [(1, 5), (2, 6), (3, 8), (4, 4), (5, 16), (8, 24)])
def test_every_step_keeps_every_length(width, bond):
    weights = cores(width, bond)
    x = torch.randn(3, width, dtype=torch.float64)
    moved = step(weights, x)
    expected = x.square().sum(dim=1)[:, None, None] * torch.eye(bond, dtype=torch.float64)
    torch.testing.assert_close(moved @ moved.mT, expected)
    torch.testing.assert_close(moved.mT @ moved, expected)


@pytest.mark.parametrize(("width", "bond"), [(2, 7), (3, 1), (12, 8), (9, 5)])
def test_each_core_is_orthogonal_whatever_the_sizes(width, bond):
    weights = cores(width, bond)
    torch.testing.assert_close(weights @ weights.mT, torch.eye(bond, dtype=torch.float64).expand_as(weights))


def test_left_over_entries_fluctuate_less_than_gaussian_cores():
    x = torch.full((400, 2), 0.5**0.5, dtype=torch.float64)
    y = torch.randn(400, 21, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def spread(weights):
        lengths = torch.einsum("nk,nkl->nl", y, step(weights, x)).square().sum(1) / y.square().sum(1)
        assert lengths.mean().item() == pytest.approx(1, abs=0.05)
        return lengths.std().item()

    gaussian = torch.randn(400, 2, 21, 21, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) / 21**0.5
    assert spread(cores(2, 21, sites=400)) < spread(gaussian) / 3


def test_rotations_are_uniform_over_both_orientations():
    # A QR without its sign correction has columns with a fixed sign, whose first entry's mean is far from 0.
    weights = cores(1, 4, sites=4000)[:, 0]
    assert weights.mean(dim=0).abs().max().item() < 4 * 0.5 / 4000**0.5
    assert abs((torch.linalg.det(weights) > 0).double().mean().item() - 0.5) < 0.05
