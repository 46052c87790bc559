from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import restt
from restt import Topology, meanfield
from tests.strategies import topologies

TOPOLOGIES = {
    "residual": Topology.residual(4),
    "plain": Topology.plain(4),
    "linear": Topology.linear(4),
    "volterra": Topology.volterra(4),
    "mixed": Topology.residual(5).skip_to_output(2, 4).without_chain(3).without_linear(2),
    "one site": Topology.residual(1),
}


def inputs(sites: int, rows: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.rand(rows, sites, 2, dtype=torch.float64, generator=generator) - 0.3


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("bond", [2, 32])
@pytest.mark.parametrize("init", ["paper", "balanced"])
def test_sampled_modules_agree_within_their_standard_error(name, bond, init):
    topology = TOPOLOGIES[name]
    x, draws = inputs(topology.sites), 4000
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        module = restt.ResTT(topology.sites, 2, bond, 1, topology, 0.7, init=init, runs=draws, dtype=torch.float64)
        outputs = module(x)[..., 0]  # (S, B)
    products = outputs[:, :, None] * outputs[:, None, :]
    error = products.std(0) / draws**0.5
    expected = meanfield.covariance(topology, x, sigma2=0.7, bond_dim=bond, init=init)
    # 4.5 standard errors: one of these 9 × 24 means leaves by chance once in a thousand runs of this seed.
    assert ((products.mean(0) - expected).abs() <= 4.5 * error).all()
    assert (error < 0.2 * expected.diagonal().max()).all()


@settings(max_examples=60)
@given(topologies(min_sites=1, max_sites=6), st.sampled_from(["paper", "balanced"]), st.integers(1, 8))
def test_the_diagonal_is_the_variance(topology, init, bond):
    x = inputs(topology.sites, rows=1)
    x = x / x.norm(dim=2, keepdim=True)
    profile = meanfield.predict(topology, 1.0, 0.6, bond, init)
    found = meanfield.covariance(topology, x, sigma2=0.6, bond_dim=bond, init=init)
    assert found.item() == pytest.approx(profile.q[-1].item(), rel=1e-9, abs=1e-300)


def test_the_closed_form_of_the_residual_train():
    x, x2, sites = inputs(6, 4), inputs(6, 7)[2:], 6
    scales = torch.tensor([0.3, 1.2, 0.1, 0.8, 2.0, 1.0], dtype=torch.float64)
    products = torch.einsum("ani,bni->nab", x, x2)
    closed = (1 + scales[:, None, None] * products).prod(0) - 1
    for bond in (1, 3, 50):
        found = meanfield.covariance(Topology.residual(sites), x, x2, sigma2=scales, bond_dim=bond)
        assert torch.allclose(bond * found, closed, rtol=1e-12)
    limit = meanfield.covariance(Topology.residual(sites), x, x2, sigma2=scales)
    assert limit.shape == (4, 5)
    assert torch.allclose(limit, closed, rtol=1e-12)


def test_the_limit_of_balanced_weights_is_what_large_bonds_approach():
    topology, x = Topology.residual(4), inputs(4)
    limit = meanfield.covariance(topology, x, init="balanced")
    near = meanfield.covariance(topology, x, init="balanced", bond_dim=10**7)
    assert torch.allclose(limit, near, rtol=1e-6)
    assert not torch.allclose(limit, meanfield.covariance(topology, x, init="balanced", bond_dim=4), rtol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.rand(3, 5, 2)}, r"x must have shape \(B, 4, I\), got \(3, 5, 2\)"),
        ({"x2": torch.rand(3, 4, 3)}, "x2 must have the feature width 2 of x, got 3"),
        ({"bond_dim": 0}, "bond_dim must be at least 1"),
        ({"init": "other"}, "init must be one of"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        meanfield.covariance(Topology.residual(4), **{"x": torch.rand(3, 4, 2), **arguments})
