"""Theory against measurement. The full size, N = 196 and r = 100, is in reproduce/fig_meanfield.py."""

from __future__ import annotations

import pytest
import torch

import restt
from restt import Topology
from restt_paper.meanfield.comparison import (
    compare,
    compare_in_blocks,
    gradient_spread,
    gradients_in_blocks,
    mixed_topology,
    site_gradients,
)

N, R, RUNS = 40, 32, 200
# Of some hundred z-scores per case, none beyond this by chance; a planted error of 10 % in s gives 10 and more.
LARGEST_Z = 4.5

CASES = {
    **{f"TT s={s}": (Topology.plain(N), s) for s in (0.9, 1.0, 1.1)},
    **{f"ResTT s={s}": (Topology.residual(N), s) for s in (0.001, 0.01, 0.1)},
    **{f"mixed {k}": (mixed_topology(N, k), "auto") for k in range(3)},
}


@pytest.fixture(scope="module")
def x():
    pixels = torch.rand(2, N, generator=torch.Generator().manual_seed(0))
    return restt.features.Trigonometric()(pixels)


def measured(topology, sigma2, x, seed=0, runs=RUNS):
    module = restt.ResTT(N, 2, R, 3, topology, sigma2=sigma2, init="paper", runs=runs)
    module.reset_parameters(seed=seed)
    return module, compare(module, x)


@pytest.mark.parametrize("name", CASES)
def test_every_step_and_the_whole_profile_agree(name, x):
    _, comparison = measured(*CASES[name], x, seed=list(CASES).index(name))
    for ratios in (comparison.q, comparison.chi):
        assert ratios.values.mean().item() == pytest.approx(1, abs=0.02)
        assert ratios.z.abs().max().item() < LARGEST_Z
        assert ratios.z.square().mean().item() < 1.6
        assert ratios.profile_z.abs().max().item() < LARGEST_Z


@pytest.mark.parametrize("name", CASES)
def test_a_planted_factor_is_found(name, x):
    topology, sigma2 = CASES[name]
    module, _ = measured(topology, sigma2, x, runs=RUNS)
    module.sigma2 = 1.1 * module.sigma2
    wrong = compare(module, x)
    assert wrong.q.profile_z.abs().max().item() > 2 * LARGEST_Z
    assert wrong.chi.profile_z.abs().max().item() > 2 * LARGEST_Z


def test_the_printed_linear_entry_is_refuted(x):
    _, comparison = measured(Topology.residual(N), 0.01, x)
    derived, printed = (
        restt.meanfield.predict(Topology.residual(N), 1.0, 0.01, R, convention=name) for name in ("derived", "paper")
    )
    for theory, least, largest in ((derived, 0.0, 0.1), (printed, 1.0, 10.0)):
        assert least <= (comparison.profile.log_q[-1] - theory.log_q[-1]).abs().item() < largest


def test_a_wrong_weight_at_one_site_is_found(x):
    module, _ = measured(Topology.residual(N), 0.1, x)
    with torch.no_grad():
        module.chain[:, 20] *= 1.5
    comparison = compare(module, x)
    assert comparison.q.z.abs().argmax().item() == 21
    assert comparison.chi.z.abs().argmax().item() == N - 22
    assert comparison.q.z[21].item() > 2 * LARGEST_Z


def test_orthogonal_cores_have_the_same_means(x):
    module = restt.ResTT(N, 2, R, 3, "residual", sigma2=0.1, init="orthogonal", runs=RUNS)
    module.reset_parameters(seed=0)
    comparison = compare(module, x)
    assert comparison.q.profile_z.abs().max().item() < LARGEST_Z
    assert comparison.chi.profile_z.abs().max().item() < LARGEST_Z


def test_blocks_of_runs_are_the_runs(x, monkeypatch):
    monkeypatch.setattr("restt_paper.meanfield.comparison._BLOCK_WEIGHTS", 4 * N * 2 * R * R)
    blocks = compare_in_blocks(Topology.plain(N), x, sigma2=1.0, bond_dim=R, outputs=3, runs=10, seed=4)
    _, whole = measured(Topology.plain(N), 1.0, x, seed=4, runs=10)
    torch.testing.assert_close(blocks.q.values, whole.q.values, rtol=1e-4, atol=1e-4)


def test_dead_signals_agree_exactly():
    topology = Topology.plain(5).without_chain(3)
    module = restt.ResTT(5, 2, 3, 2, topology, runs=4)
    comparison = compare(module, restt.features.Trigonometric()(torch.rand(2, 5)))
    assert comparison.q.values[:, 2:].eq(1).all()
    assert comparison.q.z[2:].tolist() == [0.0, 0.0, 0.0]
    assert not comparison.q.profile_z.isnan().any()


def features(batch: int, sites: int):
    return restt.features.Trigonometric()(torch.rand(batch, sites, generator=torch.Generator().manual_seed(0)))


def test_equals_the_root_mean_square_of_autograds_gradients():
    module = restt.ResTT(4, [2, 1, 2, 2], 3, 2, Topology.residual(4).without_chain(3), runs=2, dtype=torch.float64)
    module.reset_parameters(seed=0)
    x = torch.rand(5, 4, 2, dtype=torch.float64)
    found = site_gradients(module, x)
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
    assert site_gradients(module, torch.rand(2, 3, 2)).shape == (1, 3)
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
