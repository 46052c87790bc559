"""Which kernels are compiled ahead, and that other sizes need no others."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", "3.6", reason="the fused GPU kernels need triton 3.6")

from restt import Topology
from restt.chain.cuda.ahead import UsualSizes, _launches
from restt.chain.cuda.plans import Sizes, backward_plan, forward_plan
from tests.chain.cuda import test_contraction as contraction

pytestmark = contraction.pytestmark
CPU = torch.device("cpu")


def named(call):
    return f"{call.kernel.__name__} {sorted(call.constants.items())}"


def sizes(bond, width=2, batch=512, sites=9, outputs=10, runs=1):
    shape, strides = (batch, sites, width), (sites * width, width, 1)
    connections = Topology.residual(sites).connections
    return Sizes(shape, strides, (runs, width, bond), outputs, connections, (), "float32", CPU)


def test_the_usual_kernels_are_few():
    assert len({named(call) for call, _, _ in _launches(CPU, "float32", UsualSizes())}) < 130


@pytest.mark.parametrize(
    "other",
    [
        sizes(14),
        sizes(57, width=6, batch=4096, sites=30),
        sizes(12, width=7, batch=4000, outputs=1),
        sizes(33, width=4, batch=300, sites=196),
    ],
)
def test_other_sizes_are_served(other):
    ahead = {named(call) for call, _, _ in _launches(CPU, "float32", UsualSizes())}
    forward, backward = forward_plan(other, True), backward_plan(other, (False, *[True] * 6))
    calls = [forward.pack, forward.sweep, backward.sweep, backward.head]
    assert [named(call) for call in calls if named(call) not in ahead] == []


def test_pointers_come_before_numbers():
    call = forward_plan(sizes(20), True).sweep
    assert call.pointer_names[0] == "p_out"
    assert all(name.startswith("p_") for name in call.pointer_names)
    assert len(call.pointer_names) + len(call.numbers) + len(call.constants) == len(call.kernel.arg_names) + 2
