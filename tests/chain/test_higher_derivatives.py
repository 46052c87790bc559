"""Derivatives of derivatives: of every backend, never zero for want of a graph."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import functional

import restt
from restt import Topology
from restt.chain.cuda.contraction import triton_problem
from restt.chain.reference import ChainWeights
from tests.chain.cpu.compiled import needs_compiler
from tests.chain.parity import random_module

MIXED = Topology.residual(5).skip_to_output(3).without_chain(4).without_linear(2).without_skip(5)
TOPOLOGIES = [Topology.residual(4), Topology.plain(3), Topology.volterra(4), MIXED, Topology.residual(2)]


NAMES = [
    "reference",
    "eager",
    pytest.param("fused_cpu", marks=needs_compiler),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda topology: f"{topology.name}{topology.sites}")
@pytest.mark.parametrize("runs", [1, 2])
def test_gradgradcheck(name, topology, runs):
    module = random_module(topology, [2] * topology.sites, runs=runs, bond=2, outputs=2, dtype=torch.float64)
    weights = module.weights()[:-1]
    given = [w.detach().requires_grad_() for w in weights if w is not None]
    x = torch.randn(1, 2, topology.sites, 2, dtype=torch.float64, requires_grad=True)

    def output(x, *tensors):
        filled = iter(tensors)
        roles = [None if w is None else next(filled) for w in weights]
        with restt.chain.backend(name):
            return restt.chain.contract(x, ChainWeights(*roles, outputs=2), topology)

    assert torch.autograd.gradgradcheck(output, (x, *given), fast_mode=True)


@pytest.mark.parametrize("name", NAMES)
def test_gradgradcheck_of_packed_features(name):
    module = random_module(MIXED, [1, 3, 1, 1, 2], runs=2, bond=2, outputs=2, dtype=torch.float64)
    given = [parameter.detach().requires_grad_() for parameter in module.weights()[:-1]]
    x = torch.randn(1, 2, 8, dtype=torch.float64, requires_grad=True)

    def output(x, *roles):
        with restt.chain.backend(name):
            return restt.chain.contract(x, ChainWeights(*roles, outputs=2), MIXED, (1, 3, 1, 1, 2))

    assert torch.autograd.gradgradcheck(output, (x, *given), fast_mode=True)


@pytest.fixture
def model():
    return random_module(Topology.residual(5), [2] * 5, runs=None, bond=3, outputs=1, dtype=torch.float64)


@pytest.fixture
def x():
    return torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def by_differences(function, x, step=1e-4):
    """The Hessian of a polynomial of degree at most 2 in any two entries: central differences are exact."""
    size = x.numel()
    hessian = torch.zeros(size, size, dtype=x.dtype)
    unit = torch.eye(size, dtype=x.dtype).view(size, *x.shape) * step
    for i in range(size):
        for j in range(size):
            signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
            terms = [a * b * function(x + a * unit[i] + b * unit[j]) for a, b in signs]
            hessian[i, j] = sum(terms).item() / (4 * step**2)
    return hessian


@pytest.mark.parametrize("name", NAMES)
def test_hessian_and_its_products(name, model, x):
    def function(x):
        with restt.chain.backend(name):
            return model(x[None])[0, 0]

    with torch.no_grad():
        expected = by_differences(function, x)
    assert expected.abs().max() > 0.1
    close = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(functional.hessian(function, x).view(10, 10), expected, **close)
    v = torch.randn(5, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for product in (functional.hvp, functional.vhp):
        torch.testing.assert_close(product(function, x, v)[1].flatten(), expected @ v.flatten(), **close)
    gradient = functional.jacobian(function, x)
    torch.testing.assert_close(functional.jvp(function, x, v)[1], (gradient * v).sum())


@pytest.mark.parametrize("name", NAMES)
def test_hessian_row_by_row_and_all_at_once(name, model, x):
    def function(x):
        with restt.chain.backend(name):
            return model(x[None])[0, 0]

    torch.testing.assert_close(functional.hessian(function, x, vectorize=True), functional.hessian(function, x))


@pytest.mark.parametrize("name", NAMES)
def test_a_jacobian_of_many_outputs_at_once(name, x):
    model = random_module(Topology.residual(5), [2] * 5, runs=None, bond=3, outputs=4, dtype=torch.float64)

    def function(x):
        with restt.chain.backend(name):
            return model(x[None])[0]

    expected = functional.jacobian(function, x)
    torch.testing.assert_close(functional.jacobian(function, x, vectorize=True), expected)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_penalty(name):
    """The gradient of a loss on the input's gradient, for every parameter."""

    def penalty_gradients(name):
        module = random_module(MIXED, [2] * 5, runs=2, bond=3, outputs=2, dtype=torch.float64)
        x = torch.randn(4, 5, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64, requires_grad=True)
        with restt.chain.backend(name):
            (gradient,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        return [parameter.grad for parameter in module.parameters()]

    for found, expected in zip(penalty_gradients(name), penalty_gradients("reference"), strict=True):
        assert expected.abs().max() > 0
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", NAMES)
def test_weights_that_lead_nowhere_have_a_gradient_of_zero(name):
    topology = Topology.residual(4).without_chain(4).without_skip(4)
    module = random_module(topology, [2] * 4, runs=None, bond=3, outputs=2, dtype=torch.float64)
    module.last_linear.requires_grad_(False)
    with restt.chain.backend(name):
        output = module(torch.rand(3, 4, 2, dtype=torch.float64))
    if output.requires_grad:  # where nothing that requires a gradient enters, plain operations know it at once
        (gradient,) = torch.autograd.grad(output.sum(), module.chain, create_graph=True, materialize_grads=True)
        assert torch.equal(gradient, torch.zeros_like(module.chain))


@pytest.mark.parametrize("name", NAMES)
def test_third_derivative(name, model, x):
    def third(name):
        point = x.clone().requires_grad_()
        with restt.chain.backend(name):
            value = model(point[None]).sum()
        for _ in range(2):
            (gradient,) = torch.autograd.grad(value, point, create_graph=True)
            value = (gradient**2).sum()
        return torch.autograd.grad(value, point)[0]

    torch.testing.assert_close(third(name), third("reference"))


@pytest.mark.parametrize("name", NAMES)
def test_hooks_on_the_callers_tensors_run_once(name, model, x):
    seen = []
    point = (x[None] * 1).requires_grad_()
    middle = point * 2
    middle.register_hook(lambda gradient: seen.append(1))
    with restt.chain.backend(name):
        output = model(middle)
    torch.autograd.grad(output.sum(), point, create_graph=True)
    assert seen == [1]


# Torch's tracer asks every tensor for its gradient, and then hides the warning that its asking gives.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_of_a_compiled_module(model, x):
    def second(function):
        point = x[None].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(function(point).sum(), point, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), point)[0]

    torch.compiler.reset()
    torch.testing.assert_close(second(torch.compile(model, backend="eager")), second(model))


@pytest.mark.skipif(triton_problem() is not None, reason=str(triton_problem()))
def test_gradient_penalty_on_the_gpu_kernels():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        from tests.chain.cuda.interpreter import mend_interpreter

        mend_interpreter()

    def penalty_gradients(name, dtype):
        module = random_module(MIXED, [2] * 5, runs=2, bond=3, outputs=2, dtype=dtype, device=device)
        x = torch.randn(4, 5, 2, generator=torch.Generator().manual_seed(2)).to(device, dtype).requires_grad_()
        with restt.chain.backend(name):
            (gradient,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        return [parameter.grad.double() for parameter in module.parameters()]

    exact = penalty_gradients("reference", torch.float64)
    for found, expected in zip(penalty_gradients("fused_cuda", torch.float32), exact, strict=True):
        assert expected.abs().max() > 0
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
