from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from restt import Topology, meanfield
from tests.strategies import topologies

N, R, S2, M = 7, 5, 0.3, 1.7
SLOPE = S2 * M


def test_plain_train_follows_the_papers_recursion():
    profile = meanfield.predict(Topology.plain(N), M, S2, R)
    assert profile.q.tolist() == pytest.approx([SLOPE / R * SLOPE**k for k in range(N)])
    assert profile.chi.tolist() == pytest.approx([SLOPE ** (N - k) * SLOPE / R for k in range(2, N + 1)])


def test_residual_train_follows_the_derived_recursion():
    profile = meanfield.predict(Topology.residual(N), M, S2, R)
    q = [SLOPE / R]
    for _ in range(2, N):
        q.append((1 + SLOPE) * q[-1] + SLOPE / R)
    q.append((SLOPE + S2) * q[-1] + SLOPE / R)
    assert profile.q.tolist() == pytest.approx(q)
    assert profile.chi.tolist() == pytest.approx([(1 + SLOPE) ** (N - k) * (SLOPE + S2) / R for k in range(2, N + 1)])


def test_paper_convention_adds_s_at_every_site():
    profile = meanfield.predict(Topology.residual(N), M, S2, R, convention="paper")
    for k in range(1, N):
        assert profile.q[k].item() == pytest.approx((1 + SLOPE) * profile.q[k - 1].item() + SLOPE)
    derived = meanfield.predict(Topology.residual(N), M, S2, R)
    assert torch.equal(profile.log_chi, derived.log_chi)
    assert torch.equal(
        meanfield.predict(Topology.plain(N), M, S2, R, convention="paper").log_q,
        meanfield.predict(Topology.plain(N), M, S2, R).log_q,
    )


def test_states_that_leave_add_to_the_output_and_to_their_own_gradient():
    topology = Topology.plain(4).skip_to_output(2, 3)
    profile = meanfield.predict(topology, M, S2, R)
    q1, q2, q3 = SLOPE / R, SLOPE**2 / R, SLOPE**3 / R
    assert profile.q.tolist() == pytest.approx([q1, q2, q3, SLOPE * q3 + S2 * (q1 + q2)])
    chi4 = SLOPE / R
    chi3 = SLOPE * chi4 + S2 / R
    assert profile.chi.tolist() == pytest.approx([SLOPE * chi3 + S2 / R, chi3, chi4])


def test_per_site_values():
    moments, sigmas = [1.0, 2.0, 0.5, 3.0], [0.1, 0.2, 0.3, 0.4]
    profile = meanfield.predict(Topology.plain(4), moments, sigmas, R)
    slopes = [m * s for m, s in zip(moments, sigmas, strict=True)]
    assert profile.q.tolist() == pytest.approx([math.prod(slopes[: k + 1]) / R for k in range(4)])
    assert profile.chi.tolist() == pytest.approx([math.prod(slopes[k:]) / R for k in range(1, 4)])


@pytest.mark.parametrize(("preset", "sigma2", "per_site"), [("plain", 3.0, math.log(3)), ("plain", 0.2, math.log(0.2))])
def test_ten_thousand_sites_stay_exact_in_log_space(preset, sigma2, per_site):
    profile = meanfield.predict(Topology.preset(preset, 10_000), 1.0, sigma2, 8)
    rounding = 10_000 * torch.finfo(torch.float64).eps  # of as many additions, one after the other
    assert profile.log_q[-1].item() == pytest.approx(10_000 * per_site - math.log(8), rel=rounding)
    assert profile.log_chi[0].item() == pytest.approx(9_999 * per_site - math.log(8), rel=rounding)
    assert profile.q[-1].item() == (math.inf if sigma2 > 1 else 0.0)


def test_default_residual_chain_stays_within_a_factor_e():
    profile = meanfield.predict(Topology.residual(10_000), 1.0, "auto", 20, init="balanced")
    assert 0.9 < profile.log_q[-2].item() < 1.2
    assert 0.9 < (profile.log_chi[0] - profile.log_chi[-1]).item() < 1.1


@settings(max_examples=80)
@given(
    topologies(min_sites=1, max_sites=7), st.sampled_from(["paper", "balanced"]), st.sampled_from(["derived", "paper"])
)
def test_every_topology_gives_a_profile_without_nan(topology, init, convention):
    profile = meanfield.predict(topology, 0.8, "auto", 3, init=init, convention=convention)
    assert profile.q.shape == profile.log_q.shape == (topology.sites,)
    assert profile.chi.shape == profile.log_chi.shape == (topology.sites - 1,)
    assert profile.log_q.dtype == profile.log_chi.dtype == torch.float64
    assert not profile.log_q.isnan().any()
    assert not profile.log_chi.isnan().any()
    assert (profile.log_q[-1] == -math.inf) == (topology.orders() == ())


def test_dead_states_have_log_minus_infinity():
    profile = meanfield.predict(Topology.plain(5).without_chain(3), 1.0, 1.0, 4)
    assert profile.log_q.isfinite().tolist() == [True, True, False, False, False]
    assert profile.log_chi.isfinite().tolist() == [False, False, True, True]
    assert profile.q[2:].tolist() == [0.0, 0.0, 0.0]


def test_bad_arguments_are_named():
    with pytest.raises(TypeError, match="topology must be a Topology, got 'plain'"):
        meanfield.predict("plain", 1.0, 1.0, 4)
    with pytest.raises(ValueError, match="bond_dim must be at least 1"):
        meanfield.predict(Topology.plain(3), 1.0, 1.0, 0)
    with pytest.raises(ValueError, match="convention must be one of"):
        meanfield.predict(Topology.plain(3), 1.0, 1.0, 4, convention="book")
    with pytest.raises(ValueError, match="init must be one of"):
        meanfield.predict(Topology.plain(3), 1.0, 1.0, 4, init="he")
