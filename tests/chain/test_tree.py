import pytest
import torch

import restt
from restt import Topology
from tests.chain.parity import ChainParity, random_module


class TestTree(ChainParity):
    backend = "tree"


class TestTreeFloat32(ChainParity):
    backend = "tree"
    dtype = torch.float32
    tolerance = 1e-4
    examples = 5


@pytest.mark.parametrize("sites", [3, 4, 5, 6, 7, 8, 9, 10, 17, 34, 131])
def test_every_remainder_of_the_pairing(sites):
    module = random_module(Topology.residual(sites), [2] * sites, runs=None, bond=3, outputs=2, dtype=torch.float64)
    x = torch.randn(1, sites, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with restt.chain.backend("reference"):
        expected = module(x)
    with restt.chain.backend("tree"):
        torch.testing.assert_close(module(x), expected, rtol=1e-10, atol=1e-10)


def test_unused_weights_do_not_act_even_when_not_finite():
    module = restt.ResTT(4, 2, 3, 1, Topology.residual(4).without_chain(2).without_linear(3))
    with torch.no_grad():
        module.chain[0] = float("nan")
        module.linear[1] = float("inf")
    with restt.chain.backend("tree"):
        assert module(torch.rand(2, 4, 2)).isfinite().all()


def test_it_can_be_differentiated_twice():
    module = random_module(Topology.residual(5), [2] * 5, runs=None, bond=3, outputs=1, dtype=torch.float64)
    x = torch.randn(2, 5, 2, dtype=torch.float64, requires_grad=True)

    def output(x):
        with restt.chain.backend("tree"):
            return module(x)

    assert torch.autograd.gradgradcheck(output, (x,))
