"""A lone sample goes another way through the compiled products, to the same bits."""

import pytest
import torch

from restt import ResTT, chain
from tests.chain.cpu.compiled import needs_compiler

pytestmark = needs_compiler

CASES = [
    # sites, width, bond, outputs, topology, runs
    (20, 8, 20, 1, "residual", 1),
    (7, 32, 24, 3, "residual", 2),
    (5, 3, 7, 5, "plain", 1),
    (2, 2, 1, 1, "residual", 1),
    (6, 5, 30, 26, "volterra", 3),
    (4, 4, 23, 2, "linear", 1),
]


def made(case, dtype):
    sites, width, bond, outputs, topology, runs = case
    torch.manual_seed(0)
    module = ResTT(sites, width, bond, outputs, topology, runs=runs, dtype=dtype)
    return module, torch.randn(5, sites, width, dtype=dtype)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_alone_as_among_others(case, dtype):
    module, x = made(case, dtype)
    with torch.no_grad(), chain.backend("fused_cpu"):
        alone = torch.cat([module(sample) for sample in x.split(1)], dim=1)
        assert torch.equal(alone, module(x))


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_one_sample(case):
    module, x = made(case, torch.float64)
    found = []
    for name in ("fused_cpu", "reference"):
        sample = x[:1].clone().requires_grad_()
        with chain.backend(name):
            found.append(torch.autograd.grad(module(sample).square().sum(), [sample, *module.parameters()]))
    for fused, reference in zip(*found, strict=True):
        torch.testing.assert_close(fused, reference, rtol=1e-10, atol=1e-10)
