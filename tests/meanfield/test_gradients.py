from __future__ import annotations

import pytest
import torch

import restt
from restt import Topology
from restt.meanfield.studies import gradient_spread, gradients_in_blocks


def features(batch: int, sites: int):
    return restt.features.Trigonometric()(torch.rand(batch, sites, generator=torch.Generator().manual_seed(0)))


def test_equals_the_root_mean_square_of_autograds_gradients():
    module = restt.ResTT(4, [2, 1, 2, 2], 3, 2, Topology.residual(4).without_chain(3), runs=2, dtype=torch.float64)
    module.reset_parameters(seed=0)
    x = torch.rand(5, 4, 2, dtype=torch.float64)
    found = restt.meanfield.site_gradients(module, x)
    (module(x).square().sum() / 10).backward()
    first = module.first.grad[1].square().mean().sqrt()
    entries = torch.cat([module.chain.grad[1, 0, :1].flatten(), module.linear.grad[1, 0, :1].flatten()])
    assert found[1, 0].item() == pytest.approx(first.item())
    assert found[1, 1].item() == pytest.approx(entries.square().mean().sqrt().item())
    assert found[1, 2].item() == pytest.approx(module.linear.grad[1, 1].square().mean().sqrt().item())
    last = [getattr(module, role).grad[1].flatten() for role in ("last_chain", "last_linear", "last_skip")]
    assert found[1, 3].item() == pytest.approx(torch.cat(last).square().mean().sqrt().item())


def test_leaves_the_modules_gradients_alone():
    module = restt.ResTT(3, 2, 3, 1)
    assert restt.meanfield.site_gradients(module, torch.rand(2, 3, 2)).shape == (1, 3)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_ten_thousand_residual_sites_start_even():
    gradients = gradients_in_blocks(
        Topology.residual(10_000), features(4, 10_000), bond_dim=8, outputs=4, runs=3, init="balanced"
    )
    assert gradients.isfinite().all()
    assert gradient_spread(gradients) < 10


@pytest.mark.parametrize("bond_dim", [16, 21])
def test_a_thousand_plain_sites_start_even_with_orthogonal_cores_only(bond_dim):
    x, topology = features(4, 1000), Topology.plain(1000)
    options = {"bond_dim": bond_dim, "outputs": 4, "runs": 5}
    assert gradient_spread(gradients_in_blocks(topology, x, init="orthogonal", **options)) < 10
    assert gradient_spread(gradients_in_blocks(topology, x, init="balanced", **options)) > 10
