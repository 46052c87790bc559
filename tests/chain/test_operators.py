"""The registered operators: what torch's own checks say of them, and what a compiler makes of a module."""

from __future__ import annotations

import os

import pytest
import torch
from torch._dynamo.utils import counters
from torch.library import opcheck

import restt
from restt import Topology
from restt.chain.cuda.contraction import triton_problem
from restt.chain.operators import topology_of
from restt.chain.reference import ROLES
from tests.chain.cpu.compiled import needs_compiler
from tests.chain.parity import random_module

MIXED = Topology.residual(6).skip_to_output(3).without_chain(4).without_linear(2).without_skip(5)
BARE = Topology.residual(4).without_chain(4).without_linear(4)  # some roles are absent
SHORT = Topology.residual(4).skip_to_output(3).without_chain(2)  # interpreted kernels are slow
ON_GPU = torch.cuda.is_available()
CUDA_CASES = [
    (SHORT, None, ((), "float32", True)),
    (BARE, 2, ((), "bf16", True)),
    (SHORT, None, ((), "float32", False)),
]

needs_triton = pytest.mark.skipif(
    triton_problem() is not None or not (ON_GPU or os.environ.get("TRITON_INTERPRET") == "1"),
    reason=triton_problem() or "neither a GPU nor Triton's interpreter",
)
# Torch imports its compiler with a deprecated function of its own.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def checked(name: str, topology: Topology, runs: int | None, settings: tuple, dtype: torch.dtype, device: str = "cpu"):
    """opcheck of both passes; an operator is registered when its backend is first used."""
    with restt.chain.backend(name):
        restt.ResTT(3, 1, 1, 1, device=device)(torch.rand(1, 3, 1, device=device))
    module = random_module(topology, [2] * topology.sites, runs=runs, bond=3, outputs=2, dtype=dtype, device=device)
    roles = [getattr(module, role) for role in ROLES]
    leading, batch = () if runs is None else (1,), 18 if name == "fused_cpu" else 3
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(*leading, batch, topology.sites, 2, generator=generator).to(device, dtype).requires_grad_()
    forward = getattr(torch.ops.restt, name).default
    given = (2, topology.connections, *settings)
    keeps = settings[-1] is not False
    tensors = (x, *roles) if keeps else [None if t is None else t.detach() for t in (x, *roles)]
    opcheck(forward, (*tensors, *given))
    if not keeps:
        return
    with torch.no_grad():
        output, *kept = forward(x, *roles, *given)
    inputs = [None if tensor is None else tensor.detach() for tensor in (x, *roles)]
    for wanted in ([tensor is not None for tensor in inputs], [False, True, *[False] * 5]):
        backward = getattr(torch.ops.restt, f"{name}_backward").default
        opcheck(backward, (torch.ones_like(output), *inputs, *kept, *given, wanted))


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("topology", "runs", "keep"), [(MIXED, None, True), (MIXED, 2, True), (BARE, 2, False)])
def test_opcheck_on_the_cpu(topology, runs, keep, dtype):
    checked("fused_cpu", topology, runs, ([], "float32", keep), dtype)


@needs_triton
@pytest.mark.parametrize(("topology", "runs", "settings"), CUDA_CASES, ids=["mixed", "runs", "inference"])
def test_opcheck_of_the_gpu_kernels(topology, runs, settings):
    if not ON_GPU:
        from tests.chain.cuda.interpreter import mend_interpreter

        mend_interpreter()
    checked("fused_cuda", topology, runs, settings, torch.float32, "cuda" if ON_GPU else "cpu")


def test_a_topology_survives_as_text():
    for topology in (MIXED, BARE, Topology.residual(1), Topology.volterra(3)):
        assert topology_of(topology.connections) == topology


def found(model, module: restt.ResTT, x: torch.Tensor) -> list[torch.Tensor]:
    """The output and all gradients."""
    module.zero_grad(set_to_none=True)
    x = x.clone().requires_grad_()
    output = model(x)
    output.square().sum().backward()
    return [output.detach(), x.grad, *(parameter.grad for parameter in module.parameters())]


def graphs() -> int:
    return counters["stats"]["unique_graphs"]


BACKENDS = ["eager", pytest.param("fused_cpu", marks=needs_compiler), pytest.param("fused_cuda", marks=needs_triton)]


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("runs", [None, 2])
def test_compiled_whole_and_once_for_every_batch(name, runs):
    if name == "fused_cuda" and not ON_GPU:
        from tests.chain.cuda.interpreter import mend_interpreter

        mend_interpreter()
    device = "cuda" if ON_GPU and name == "fused_cuda" else "cpu"
    topology, batches = (SHORT, (3, 17)) if name == "fused_cuda" else (MIXED, (5, 18, 33))
    module = random_module(topology, [2] * topology.sites, runs=runs, bond=3, outputs=2, device=device)
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")
    before = graphs()
    for batch in batches:
        x = torch.rand(batch, topology.sites, 2, generator=torch.Generator().manual_seed(batch)).to(device)
        with restt.chain.backend(name):
            pairs = zip(found(compiled, module, x), found(module, module, x), strict=True)
        for got, want in pairs:
            torch.testing.assert_close(got, want)
    assert graphs() - before == 1


@needs_compiler
def test_compiled_before_anything_is_loaded(monkeypatch):
    from restt.chain.cpu import contraction

    monkeypatch.setattr(contraction, "_libraries", {})
    module, before = restt.ResTT(4, 2, 3, 1), graphs()
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    for _ in range(2):
        x = torch.rand(5, 4, 2)
        torch.testing.assert_close(compiled(x), module(x))
    assert graphs() - before == 1
    assert torch.float32 in contraction._libraries


@needs_compiler
def test_a_compiled_step_holds_its_own_backward():
    config = torch._dynamo.config
    if not hasattr(config, "trace_autograd_ops"):
        pytest.skip("this torch cannot compile loss.backward()")
    module, x = restt.ResTT(6, 2, 3, 2, MIXED), torch.rand(5, 6, 2)

    def loss_and_gradients(x):
        loss = module(x).square().mean()
        loss.backward()
        return loss.detach()

    def results(step):
        module.zero_grad(set_to_none=True)
        return [step(x), *(parameter.grad.clone() for parameter in module.parameters())]

    with config.patch(trace_autograd_ops=True):
        compiled = results(torch.compile(loss_and_gradients, fullgraph=True, backend="aot_eager"))
    for got, want in zip(compiled, results(loss_and_gradients), strict=True):
        torch.testing.assert_close(got, want)


def test_a_batch_marked_dynamic_is_not_specialised():
    module = restt.ResTT(6, 2, 3, 2)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = torch.rand(4, 6, 2)
    torch._dynamo.mark_dynamic(x, 0)
    compiled(x)
    before = graphs()
    for batch in (2, 7, 40):
        x = torch.rand(batch, 6, 2)
        torch.testing.assert_close(compiled(x), module(x))
    assert graphs() == before


def test_torchs_own_compiler_at_the_size_of_images():
    module = restt.ResTT(196, 2, 20, 10)
    compiled = torch.compile(module, fullgraph=True, dynamic=True)
    x = restt.features.Trigonometric()(torch.rand(3, 196, generator=torch.Generator().manual_seed(0)))
    for got, want in zip(found(compiled, module, x), found(module, module, x), strict=True):
        torch.testing.assert_close(got, want)


@needs_compiler
def test_a_compiled_module_is_one_operator_in_each_direction():
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    seen = []

    def record(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph.forward)

    module = restt.ResTT(30, 2, 3, 2)
    compiled = torch.compile(module, fullgraph=True, backend=aot_autograd(fw_compiler=record, bw_compiler=record))
    compiled(torch.rand(4, 30, 2)).sum().backward()
    assert [name for name in seen if "restt" in name] == ["restt.fused_cpu.default", "restt.fused_cpu_backward.default"]
    assert len(seen) < 20


def test_compiled_code_notices_settings():
    module, x = random_module(MIXED, [2] * 6, runs=None, bond=3, outputs=2), torch.rand(4, 6, 2)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    expected = compiled(x)
    before = graphs()
    with restt.chain.backend("reference"):
        torch.testing.assert_close(compiled(x), expected)
    assert graphs() - before == 1
    compiled(x)
    assert graphs() - before == 1


def test_settings_inside_a_compiled_function():
    module, x = restt.ResTT(6, 2, 3, 2), torch.rand(4, 6, 2)

    def function(x):
        with restt.chain.backend("reference"):
            return module(x)

    torch.testing.assert_close(torch.compile(function, fullgraph=True, backend="aot_eager")(x), module(x))
    assert restt.chain.dispatch._forced.get() is None


def test_compiled_inference_keeps_nothing():
    module, x = restt.ResTT(6, 2, 3, 2), torch.rand(4, 6, 2)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))


@needs_compiler
def test_a_dispatch_mode_sees_the_operators():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    module = restt.ResTT(6, 2, 3, 2)
    with Recorder():
        module(torch.rand(4, 6, 2)).sum().backward()
    assert {"restt.fused_cpu.default", "restt.fused_cpu_backward.default"} <= set(seen)
