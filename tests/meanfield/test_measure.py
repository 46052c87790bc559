from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings

import restt
from restt import Topology, meanfield
from tests.strategies import topologies


def straight_forward(module, x):
    """q and χ of one run from states and autograd Jacobians, site by site: slow and plain."""
    weights, topology = module.weights(), module.topology
    site = x.unbind(dim=1)
    states = [site[0] @ weights.first[0]]
    for n in range(2, topology.sites):
        states.append(_next(states[-1], site[n - 1], weights, topology, n))

    def output(n, y):  # what y(n) = y makes of the output, all else fixed
        earlier = range(1, min(n, topology.sites - 1))
        leaving = sum((states[m - 1] for m in earlier if _leaves(topology, m + 1)), 0 * y)
        for later in range(n + 1, topology.sites):
            leaving = leaving + (y if _leaves(topology, later) else 0 * y)
            y = _next(y, site[later - 1], weights, topology, later)
        out = y.new_zeros(len(y), module.outputs)
        if topology.chains[-1]:
            out = out + torch.einsum("bk,bi,iko->bo", y, site[-1], weights.last_chain[0])
        if topology.linears[-1]:
            out = out + site[-1] @ weights.last_linear[0]
        if topology.has_skip_head:
            out = out + (leaving + (y if topology.ends_with_skip else 0 * y)) @ weights.last_skip[0]
        return out

    q = [float(y.square().mean()) for y in states] + [float(output(1, states[0]).square().mean())]
    chi = []
    for n in range(1, topology.sites):
        # Samples do not see each other, so the Jacobian of the summed outputs holds every sample's own.
        jacobian = torch.autograd.functional.jacobian(lambda y, n=n: output(n, y).sum(dim=0), states[n - 1])
        chi.append(float(jacobian.square().mean()))
    return q, chi


def _leaves(topology, n):
    return topology.skips[n - 2] == "output"


def _next(y, x, weights, topology, n):
    new = 0 * y
    if topology.chains[n - 2]:
        new = new + torch.einsum("bk,bi,ikl->bl", y, x, weights.chain[0, n - 2])
    if topology.linears[n - 2]:
        new = new + x @ weights.linear[0, n - 2]
    return new + y if topology.skips[n - 2] == "full" else new


@settings(max_examples=40, deadline=None)
@given(topologies(min_sites=2, max_sites=6))
def test_matches_states_and_autograd_jacobians(topology):
    module = restt.ResTT(topology.sites, 2, 3, 2, topology, dtype=torch.float64)
    module.reset_parameters(seed=5)
    module.requires_grad_(False)
    x = torch.randn(3, topology.sites, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    q, chi = straight_forward(module, x)
    profile = meanfield.measure(module, x)
    assert profile.q[-1].item() == pytest.approx(module(x).square().mean().item(), rel=1e-9, abs=1e-300)
    assert profile.q.tolist() == pytest.approx(q, rel=1e-9, abs=1e-300)
    assert profile.chi.tolist() == pytest.approx(chi, rel=1e-9, abs=1e-300)


def test_runs_are_measured_each_on_its_own():
    module = restt.ResTT(6, [2, 1, 2, 2, 1, 2], 4, 3, runs=5)
    module.reset_parameters(seed=1)
    x = torch.rand(5, 2, 6, 2)
    together = meanfield.measure(module, x)
    single = restt.ResTT(6, [2, 1, 2, 2, 1, 2], 4, 3)
    single.reset_parameters(seed=1, run_ids=[3])
    alone = meanfield.measure(single, x[3])
    torch.testing.assert_close(together.run_log_q[3], alone.log_q, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(together.run_log_chi[3], alone.log_chi, rtol=1e-5, atol=1e-6)
    values = together.run_log_q.exp()
    torch.testing.assert_close(together.q, values.mean(dim=0))
    torch.testing.assert_close(together.log_q_error, values.std(dim=0) / math.sqrt(5) / together.q)
    assert alone.log_q_error is None
    assert alone.log_chi_error is None


@pytest.mark.parametrize(("sigma2", "sign"), [(9.0, 1), (0.1, -1)])
def test_no_overflow_in_float32(sigma2, sign):
    module = restt.ResTT(1000, 2, 8, 2, "plain", init="paper", runs=2)
    module.sigma2 = torch.full((1000,), sigma2, dtype=torch.float64)
    module.reset_parameters(seed=0)
    profile = meanfield.measure(module, restt.features.Trigonometric()(torch.rand(2, 1000)))
    assert sign * profile.log_q[-1].item() > 1000
    assert sign * profile.log_chi[0].item() > 1000
    assert profile.log_q.isfinite().all()
    assert profile.log_chi.isfinite().all()


def test_a_vanished_state_does_not_spoil_what_enters_later():
    module = restt.ResTT(400, 1, 2, 1, Topology.volterra(400).without_linear(*range(2, 399), 400), init="paper")
    module.sigma2 = torch.full((400,), 0.01, dtype=torch.float64)
    module.reset_parameters(seed=0)
    profile = meanfield.measure(module, torch.ones(1, 400, 1))
    entry = module.linear[397].detach().square().mean().log().item()
    assert profile.log_q[397].item() < -1000
    assert profile.log_q[398].item() == pytest.approx(entry, rel=1e-5)


def test_dead_chain_and_single_site():
    dead = restt.ResTT(4, 2, 3, 1, Topology.plain(4).without_chain(3), runs=2)
    profile = meanfield.measure(dead, torch.rand(2, 4, 2))
    assert profile.log_q.isfinite().tolist() == [True, True, False, False]
    assert profile.log_chi.isfinite().tolist() == [False, False, True]
    assert profile.log_q_error[2:].tolist() == [0.0, 0.0]
    single = meanfield.measure(restt.ResTT(1, 2, 3, 2), torch.rand(4, 1, 2))
    assert single.q.shape == (1,)
    assert single.chi.shape == (0,)


def test_bias_is_left_out():
    module = restt.ResTT(3, 2, 3, 2, bias=True)
    with torch.no_grad():
        module.bias.fill_(100.0)
    assert meanfield.measure(module, torch.rand(2, 3, 2)).q[-1].item() < 1000


def test_bad_arguments_are_named():
    module = restt.ResTT(3, 2, 3, 2)
    with pytest.raises(TypeError, match=r"module must be a restt.ResTT, got"):
        meanfield.measure(torch.nn.Linear(2, 2), torch.rand(2, 3, 2))
    with pytest.raises(ValueError, match="x has 4 sites"):
        meanfield.measure(module, torch.rand(2, 4, 2))
    with pytest.raises(ValueError, match="at least one sample"):
        meanfield.measure(module, torch.rand(0, 3, 2))


def test_pooling_blocks_equals_measuring_together():
    x = torch.rand(2, 5, 2)
    parts = []
    for ids in ([0, 1, 2], [3, 4]):
        module = restt.ResTT(5, 2, 3, 2, runs=len(ids))
        module.reset_parameters(seed=9, run_ids=ids)
        parts.append(meanfield.measure(module, x))
    module = restt.ResTT(5, 2, 3, 2, runs=5)
    module.reset_parameters(seed=9)
    whole, pooled = meanfield.measure(module, x), meanfield.Profile.pooled(parts)
    torch.testing.assert_close(pooled.log_q, whole.log_q)
    torch.testing.assert_close(pooled.log_chi_error, whole.log_chi_error, rtol=1e-4, atol=0)
    with pytest.raises(ValueError, match="a predicted one has no runs"):
        meanfield.Profile.pooled([meanfield.predict(Topology.plain(5), 1.0, 1.0, 3)])
