from __future__ import annotations

import pytest
import torch

import restt
from restt.init import WeightVariances, draw_weights

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
    drawn = draw_weights(SHAPES, VARIANCES, init, torch.Generator().manual_seed(0), torch.float32)
    assert list(drawn) == list(SHAPES)
    assert drawn["first"].square().mean().item() == pytest.approx(4.0, rel=0.35)
    assert drawn["last_chain"].square().mean().item() == pytest.approx(0.5, rel=0.2)
    assert drawn["last_skip"].square().mean().item() == pytest.approx(0.5, rel=0.3)
    for n in range(3):
        assert drawn["chain"][n].square().mean().item() == pytest.approx(VARIANCES.chain[n].item(), rel=0.05)
        assert drawn["linear"][n].square().mean().item() == pytest.approx(VARIANCES.linear[n].item(), rel=0.5)


@pytest.mark.parametrize("init", ["balanced", "orthogonal"])
def test_half_precision_is_drawn_in_float32(init):
    drawn = draw_weights(SHAPES, VARIANCES, init, torch.Generator().manual_seed(0), torch.bfloat16)
    assert {value.dtype for value in drawn.values()} == {torch.float32}


def test_a_plain_train_with_orthogonal_cores_keeps_all_lengths():
    module = restt.ResTT(50, 2, 6, 3, "plain", init="orthogonal", runs=2, dtype=torch.float64)
    x = restt.features.Trigonometric()(torch.rand(4, 50, dtype=torch.float64))
    profile = restt.meanfield.measure(module, x)
    torch.testing.assert_close(profile.run_log_q[:, :-1], profile.run_log_q[:, :1].expand(-1, 49))
    torch.testing.assert_close(profile.run_log_chi, profile.run_log_chi[:, -1:].expand(-1, 49))
