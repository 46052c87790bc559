from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given

from restt import Topology
from restt.init import per_site, resolve_sigma2, stable_sigma2_per_site, weight_variances
from restt.meanfield import predict
from tests.strategies import topologies


def test_rule_of_the_presets():
    assert stable_sigma2_per_site(Topology.residual(5)).tolist() == [0.25] * 5
    assert stable_sigma2_per_site(Topology.plain(5), 0.5).tolist() == [2.0] * 5


def test_sites_without_a_full_skip_take_slope_one():
    topology = Topology.residual(6).without_skip(3).skip_to_output(4)
    assert stable_sigma2_per_site(topology, 2.0).tolist() == pytest.approx([1 / 6, 1 / 6, 0.5, 0.5, 1 / 6, 1 / 6])


@given(topologies(min_sites=1, max_sites=8))
def test_slopes_of_all_full_skips_sum_to_at_most_one(topology):
    sigma2 = stable_sigma2_per_site(topology, 3.0)
    full = [mode == "full" for mode in topology.skips[:-1]] + [topology.ends_with_skip] * (topology.sites > 1)
    total = sum(float(s) * 3.0 for s, is_full in zip(sigma2[1:], full, strict=True) if is_full)
    assert total <= 1 + 1e-12


def test_per_site_takes_scalars_sequences_and_arrays():
    for value in (2.0, torch.tensor(2.0), [2.0, 2.0], np.array([2.0, 2.0]), torch.tensor([2.0, 2.0])):
        assert per_site("second_moment", value, 2).tolist() == [2.0, 2.0]


def test_bad_values_are_named():
    with pytest.raises(ValueError, match=r"second_moment must be .* 3 sites, got 2"):
        per_site("second_moment", [1.0, 2.0], 3)
    with pytest.raises(ValueError, match=r"sigma2 must be finite and above 0, got -1.0 at site 2"):
        per_site("sigma2", [1.0, -1.0], 2)
    with pytest.raises(ValueError, match=r'sigma2 must be "auto" or a number'):
        resolve_sigma2("large", Topology.plain(2), 1.0)


def variances(topology: Topology, init: str, *, bond: int = 4, sigma2="auto", moment=1.0):
    moments = per_site("second_moment", moment, topology.sites)
    return weight_variances(topology, bond, resolve_sigma2(sigma2, topology, moments), moments, init)


def test_paper_init_is_uniform():
    found = variances(Topology.residual(5), "paper", sigma2=0.8)
    assert (found.first, found.last) == (pytest.approx(0.2), pytest.approx(0.2))
    assert found.chain.tolist() == found.linear.tolist() == pytest.approx([0.2] * 3)


@pytest.mark.parametrize("init", ["balanced", "orthogonal"])
@given(topology=topologies(min_sites=1, max_sites=7))
def test_balanced_outputs_start_at_unit_variance(init, topology):
    log_q = predict(topology, 0.7, "auto", 4, init=init).log_q
    if log_q[-1] == -math.inf:
        assert topology.orders() == ()
    else:
        assert log_q[-1].item() == pytest.approx(0, abs=1e-9)
    if topology.sites > 1:
        assert log_q[0].item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("preset", "sigma2"), [("plain", 0.1), ("plain", 10.0), ("residual", 1.0)])
def test_a_hopeless_sigma2_still_gives_finite_float32_weights(preset, sigma2):
    found = variances(Topology.preset(preset, 10_000), "balanced", sigma2=sigma2)
    deviation = torch.tensor(found.last, dtype=torch.float32).sqrt()
    assert 0 < deviation < math.inf
