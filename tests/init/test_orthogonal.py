from __future__ import annotations

import pytest
import torch

from restt.init.orthogonal import orthogonal_cores


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
