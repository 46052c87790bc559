import pytest
import torch

import restt
from restt import Topology
from restt.chain.reference import ChainWeights
from tests.chain.parity import ChainParity, random_module


class TestEager(ChainParity):
    backend = "eager"


class TestEagerFloat32(ChainParity):
    backend = "eager"
    dtype = torch.float32
    tolerance = 1e-4
    examples = 5


MIXED = Topology.residual(5).skip_to_output(3).without_chain(4).without_linear(2).without_skip(5)


@pytest.mark.parametrize("topology", [Topology.residual(4), Topology.plain(4), Topology.volterra(4), MIXED])
@pytest.mark.parametrize("runs", [1, 2])
def test_gradcheck(topology, runs):
    module = random_module(topology, [2] * topology.sites, runs=runs, bond=3, outputs=2, dtype=torch.float64)
    weights = [w.detach().requires_grad_() for w in module.weights()[:-1] if w is not None]
    present = [w is not None for w in module.weights()[:-1]]
    x = torch.randn(1, 3, topology.sites, 2, dtype=torch.float64, requires_grad=True)

    def output(x, *tensors):
        given = iter(tensors)
        with restt.chain.backend("eager"):
            filled = [next(given) if here else None for here in present]
            return restt.chain.contract(x, ChainWeights(*filled, outputs=2), topology)

    assert torch.autograd.gradcheck(output, (x, *weights))


def test_no_gradient_is_computed_that_nobody_wants():
    module = restt.ResTT(4, 2, 3, 1, dtype=torch.float64)
    module.chain.requires_grad_(False)
    x = torch.randn(6, 4, 2, dtype=torch.float64)
    module(x).sum().backward()
    assert module.chain.grad is None
    assert module.linear.grad is not None
