"""The recomputing form of the fused GPU backend, against the reference and bit by bit against the storing form."""

from __future__ import annotations

import pytest
import torch

import restt
from restt import Topology
from restt.chain.cuda import contraction
from tests.chain.cuda import test_contraction as storing
from tests.chain.parity import random_module

pytestmark = storing.pytestmark
poisoned_memory = storing.poisoned_memory
no_plans_of_other_tests = storing.no_plans_of_other_tests

MIXED = Topology.residual(16).skip_to_output(2, 7, 11).without_chain(6).without_linear(9).without_skip(13)


class TestRecomputed(storing.TestFusedCuda):
    examples = 30 if storing.ON_GPU else 3
    segments: int | None = None

    @pytest.fixture(autouse=True)
    def recomputing(self):
        with restt.chain.recompute(self.segments):
            yield

    # Recomputing knows whole sites only: packed ones are unpacked and go the way of every other test here. How they are
    # unpacked, random widths included, is tested where packed sites have kernels of their own.
    test_random_packed_widths = None
    # Sections are those of a pass over the whole chain.
    test_backward_pass_in_sections = None

    @pytest.mark.parametrize("widths", [[1, 3, 2, 5, 1], [3]])
    def test_packed(self, widths):
        self.assert_packed_parity(widths)

    @pytest.mark.parametrize("own_data", [False, True])
    def test_runs_on_a_longer_chain(self, own_data):
        self.assert_parity(MIXED, runs=2, own_data=own_data)

    @pytest.mark.parametrize("segments", [1, 3, 11])
    def test_any_number_of_segments(self, segments):
        with restt.chain.recompute(segments):
            self.assert_parity(MIXED)


def problem() -> tuple[restt.ResTT, torch.Tensor]:
    topology = Topology.residual(11).skip_to_output(2, 8).without_chain(7).without_linear(5).without_skip(9)
    module = random_module(topology, [2] * 11, runs=2, bond=5, outputs=3, device=storing.DEVICE)
    return module, torch.rand(21, 11, 2, generator=torch.Generator().manual_seed(3)).to(storing.DEVICE)


def found(module: restt.ResTT, x: torch.Tensor) -> list[torch.Tensor]:
    module.zero_grad(set_to_none=True)
    x = x.clone().requires_grad_()
    with restt.chain.backend("fused_cuda"):
        output = module(x)
    output.square().sum().backward()
    return [output, x.grad, *(parameter.grad for parameter in module.parameters())]


def test_same_bits_as_with_all_states_kept():
    module, x = problem()
    stored = found(module, x)
    with restt.chain.recompute():
        again = found(module, x)
    assert all(torch.equal(a, b) for a, b in zip(stored, again, strict=True))


def test_few_states_are_kept_between_the_passes():
    sites, bond, batch = 38, 3, 16
    module = restt.ResTT(sites, 2, bond, 1, device=storing.DEVICE)
    x = torch.rand(batch, sites, 2, device=storing.DEVICE)

    def kept() -> int:
        sizes = []
        counting = torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t)
        with counting, restt.chain.backend("fused_cuda"):
            module(x)
        return sum(sizes) - x.numel() - module.num_parameters()

    with restt.chain.recompute():
        recomputed = kept()
    assert kept() >= (sites - 1) * bond * batch
    assert recomputed <= 9 * bond * batch  # 36 inner sites: 7 states, y(N-1), and it again as what leaves


def test_states_that_do_not_fit_are_recomputed(monkeypatch):
    module, x = problem()
    stored, lengths = found(module, x), []
    monkeypatch.setattr(contraction, "_ALWAYS_KEPT_BYTES", 0)
    real = contraction.square_root_length
    monkeypatch.setattr(contraction, "square_root_length", lambda sites: lengths.append(sites) or real(sites))
    monkeypatch.setattr(contraction, "_free_bytes", lambda device: 0)
    assert all(torch.equal(a, b) for a, b in zip(stored, found(module, x), strict=True))
    assert lengths == [9]
    monkeypatch.setattr(contraction, "_free_bytes", lambda device: 2**40)
    with restt.chain.backend("fused_cuda"):
        assert torch.equal(module(x), stored[0])
    assert lengths == [9]


def test_second_derivatives():
    module, x = problem()
    module, x = module.requires_grad_(False), x[:2].requires_grad_()

    def penalty() -> torch.Tensor:
        (gradient,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), x)[0]

    with restt.chain.backend("fused_cuda"), restt.chain.recompute():
        recomputed = penalty()
    with restt.chain.backend("reference"):
        torch.testing.assert_close(recomputed, penalty(), rtol=1e-4, atol=1e-4)
