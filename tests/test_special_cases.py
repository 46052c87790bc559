"""What the paper proves of ResTT's special cases (Sec. III-B), in float64."""

import pytest
import torch

import restt
from restt import Topology
from tests.expansion import generic_module, terms_by_inclusion_exclusion


def double(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("sites", "width", "bond", "outputs"), [(6, 3, 4, 4), (2, 2, 5, 3), (1, 4, 1, 2)])
def test_linear_topology_is_a_fully_connected_layer(sites, width, bond, outputs):
    """Any layer is reached for r ≥ O: put its columns in the entries, the identity in W(N,3)."""
    layer = torch.nn.Linear(sites * width, outputs, bias=True, dtype=torch.float64)
    module = restt.ResTT(sites, width, bond, outputs, "linear", bias=True, dtype=torch.float64)
    blocks = layer.weight.detach().T.reshape(sites, width, outputs)
    with torch.no_grad():
        module.bias.copy_(layer.bias)
        module.first.zero_()[:, :outputs] = blocks[0]
        if sites > 1:
            module.last_linear.copy_(blocks[-1])
            module.last_skip.zero_()[:outputs] = torch.eye(outputs, dtype=torch.float64)
        if sites > 2:
            module.linear.zero_()[..., :outputs] = blocks[1:-1]
    x = double(9, sites, width)
    torch.testing.assert_close(module(x), layer(x.flatten(1)), rtol=0, atol=1e-10)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_volterra_topology_is_the_series_with_the_papers_kernels(order):
    """y = Σ_k Σ h_k(i…) Π x, the kernels built from the tensors by the paper's h formulas."""
    width, bond = 3, 4
    module = generic_module(Topology.volterra(order), bond=bond, width=width)
    x = double(7, width)  # one lag window, the same at every site
    kernels = []
    for first in range(order, 0, -1):  # the term that starts at site `first`
        with torch.no_grad():
            if order == 1:
                kernels.append(module.first[:, 0])
                continue
            if first == 1:
                kernel = module.first
            else:
                kernel = module.last_linear if first == order else module.linear[first - 2]
            for site in range(first + 1, order + 1):
                core = module.last_chain if site == order else module.chain[site - 2]
                kernel = torch.einsum("...k,ikl->...il", kernel, core)
            kernels.append(kernel[..., 0])
    expected = torch.zeros(7, dtype=torch.float64)
    for kernel in kernels:
        value = kernel.expand(7, *kernel.shape)
        while value.dim() > 1:
            value = torch.einsum("b...i,bi->b...", value, x)
        expected += value
    assert [kernel.dim() for kernel in kernels] == list(range(1, order + 1))
    output = module(x[:, None].expand(-1, order, -1))[:, 0].detach()
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


def three_site_coefficients(topology):
    """Scalar sites, r = O = 1 and W(3,3) = 1, as in the paper's example: coefficient of each product of inputs."""
    module = restt.ResTT(3, 1, 1, 1, topology, dtype=torch.float64)
    with torch.no_grad():
        w1, w21, w22, w31, w32 = 2.0, 3.0, 5.0, 7.0, 11.0
        module.first.fill_(w1)
        module.chain.fill_(w21)
        module.linear.fill_(w22)
        module.last_chain.fill_(w31)
        module.last_linear.fill_(w32)
        module.last_skip.fill_(1.0)
    terms = terms_by_inclusion_exclusion(module, torch.ones(3, 1, dtype=torch.float64))
    return {members: value.item() for members, value in terms.items() if value.abs().item() > 1e-10}


def test_three_site_example_first_equation():
    assert three_site_coefficients(Topology.residual(3)) == pytest.approx(
        {(1,): 2, (2,): 5, (3,): 11, (1, 2): 2 * 3, (1, 3): 2 * 7, (2, 3): 5 * 7, (1, 2, 3): 2 * 3 * 7}, abs=1e-10
    )


def test_three_site_example_second_equation():
    """Only x(1)x(3) is lost when the skip of y(1) still reaches the output but no longer core 3 (see the errata)."""
    assert three_site_coefficients(Topology.residual(3).skip_to_output(2)) == pytest.approx(
        {(1,): 2, (2,): 5, (3,): 11, (1, 2): 2 * 3, (2, 3): 5 * 7, (1, 2, 3): 2 * 3 * 7}, abs=1e-10
    )


def test_dropping_the_skip_altogether_loses_the_first_order_term_too():
    found = three_site_coefficients(Topology.residual(3).without_skip(2))
    assert set(found) == {(2,), (3,), (1, 2), (2, 3), (1, 2, 3)}
