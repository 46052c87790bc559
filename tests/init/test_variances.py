from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given

from restt import Topology
from restt.init import per_site, resolve_sigma2, weight_variances
from restt.meanfield import predict
from tests.strategies import topologies


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
