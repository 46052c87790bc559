"""Packed features: the two forms of x, and the compiled CPU operator on them. Parity is in each backend's own tests."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import restt
import restt.chain.cpu.contraction  # registers the operator
from restt.chain.packed import is_worth_packing, pack, unpack
from tests.chain.cpu.compiled import needs_compiler
from tests.chain.parity import random_module

# Torch's own, where it traces for the first time.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")

WIDTHS = [1, 3, 2, 30, 1]


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=7), st.sampled_from([(), (4,), (2, 4), (3, 0)]))
def test_packing_and_unpacking_undo_each_other(widths, leading):
    x = torch.randn(*leading, sum(widths), dtype=torch.float64, requires_grad=True)
    padded = unpack(x, widths)
    assert padded.shape == (*leading, len(widths), max(widths))
    beyond = torch.arange(max(widths)) >= torch.tensor(widths)[:, None]
    assert (padded[..., beyond] == 0).all()
    assert torch.equal(pack(padded, widths), x)
    assert torch.equal(pack(padded.masked_fill(beyond, torch.nan), widths), x)
    (gradient,) = torch.autograd.grad((padded * 3).sum(), x)
    assert (gradient == 3).all()


def test_a_ragged_module_packs_what_it_is_given_padded(monkeypatch):
    module, seen = restt.ResTT(5, WIDTHS, 4, 2), []
    contract = restt.chain.contract
    monkeypatch.setattr(restt.chain, "contract", lambda x, *rest: seen.append(x.shape) or contract(x, *rest))
    module(torch.rand(9, 5, 30))
    restt.ResTT(3, [2, 3, 3], 4, 2)(torch.rand(9, 3, 3))
    assert seen == [(9, sum(WIDTHS)), (9, 3, 3)]
    assert is_worth_packing(WIDTHS)


def test_packed_features_in_transforms_and_forward_mode():
    module = random_module(restt.Topology.residual(5), WIDTHS, runs=None, bond=3, outputs=1, dtype=torch.float64)
    x, tangent = torch.randn(2, 4, sum(WIDTHS), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one = torch.func.grad(lambda sample: module(sample[None]).sum())
    whole = x.clone().requires_grad_()
    module(whole).sum().backward()
    torch.testing.assert_close(torch.func.vmap(one)(x), whole.grad)
    _, pushed = torch.func.jvp(module, (x,), (tangent,))
    torch.testing.assert_close(pushed.squeeze(-1), (whole.grad * tangent).sum(dim=-1))


@needs_compiler
@pytest.mark.parametrize("runs", [None, 2])
def test_a_compiled_module_takes_packed_features(runs):
    module = restt.ResTT(5, WIDTHS, 4, 2, runs=runs)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=True)
    for batch in (9, 12):
        x = torch.rand(batch, sum(WIDTHS))
        module.zero_grad()
        module(x).square().sum().backward()
        expected = module.chain.grad.clone()
        module.zero_grad()
        compiled(x).square().sum().backward()
        torch.testing.assert_close(module.chain.grad, expected)


@needs_compiler
def test_the_operator_is_sound():
    module = restt.ResTT(5, WIDTHS, 4, 2, runs=2)
    roles = [role.detach().requires_grad_() for role in module.weights()[:-1]]
    x = torch.rand(1, 9, sum(WIDTHS), requires_grad=True)
    given = (x, *roles, 2, module.topology.connections, WIDTHS, "float32", True)
    torch.library.opcheck(torch.ops.restt.fused_cpu.default, given)
