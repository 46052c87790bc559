"""The fused contractions as operators of torch: what ``torch.compile`` puts into its graphs in one piece.

Each fused backend registers ``restt::NAME`` and ``restt::NAME_backward`` with schemas of plain values: the topology is
its :attr:`~restt.Topology.connections`, what the backward pass needs is an output of the forward one, and weights and x
come with the runs axis or without it. An operator called through torch passes several layers written in Python, so
eager code calls the same functions directly and goes through torch only where somebody is watching: a compiler, a fake
tensor, a dispatch mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from restt.chain.reference import ROLES
from restt.chain.setting import untraced
from restt.chain.sweep import plain_contraction_gradients, wants_plain_operations
from restt.topology import Topology

LIBRARY = torch.library.Library("restt", "DEF")

_INPUTS = "Tensor x, Tensor first, " + ", ".join(f"Tensor? {role}" for role in ROLES[1:])
_PLAIN = (Tensor, torch.nn.Parameter)
TENSORS = 1 + len(ROLES)

# What the backward pass of any backend is: (grad, kept, inputs, settings, wanted) -> the wanted gradients in order.
Kernel = Callable[..., Any]


def register(
    name: str,
    keys: str,
    *,
    settings: str,
    kept: Sequence[str],
    forward: tuple[Kernel, Kernel],
    backward: tuple[Kernel, Kernel],
    packed: bool = False,
) -> type[torch.autograd.Function]:
    """Register a pair of operators, each a kernel with its fake; the result is the same pair for eager code.

    ``settings`` are the arguments after ``outputs`` and ``connections``, ``kept`` the names of what the forward pass
    gives besides its output, for the backward pass: ``forward(x, *roles, outputs, connections, *settings)`` and
    ``backward(grad, *kept, x, *roles, connections, *settings, wanted)``, the latter a list of the wanted gradients.
    ``packed`` says that the first setting are the sites' widths, for x (…, B, ΣI), or nothing for x (…, B, N, I).
    """
    returned = ", ".join(["Tensor"] * (1 + len(kept)))
    LIBRARY.define(f"{name}({_INPUTS}, int outputs, str connections, {settings}) -> ({returned})")
    given = ", ".join(f"Tensor {item}" for item in ("grad", *kept))
    LIBRARY.define(f"{name}_backward({given}, {_INPUTS}, str connections, {settings}, bool[] wanted) -> Tensor[]")
    for suffix, (kernel, fake) in (("", forward), ("_backward", backward)):
        LIBRARY.impl(f"{name}{suffix}", kernel, keys)
        torch.library.register_fake(f"restt::{name}{suffix}", fake, lib=LIBRARY)
    operator = getattr(torch.ops.restt, f"{name}_backward").default

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        # The inputs themselves, not what a kernel made of them: a gradient of the gradient leads back to them.
        ctx.save_for_backward(*inputs[:TENSORS], *output[1:])
        ctx.outputs, ctx.connections, *ctx.settings = inputs[TENSORS:]
        ctx.set_materialize_grads(False)

    def gradients(ctx: Any, grad: Tensor | None, run: Kernel) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * (TENSORS + 2 + len(ctx.settings))
        tensors = ctx.saved_tensors  # every reading of it unpacks them anew
        inputs, saved = tensors[:TENSORS], tensors[TENSORS:]
        wanted = [want and tensor is not None for want, tensor in zip(ctx.needs_input_grad, inputs, strict=False)]
        nothing = (None,) * (2 + len(ctx.settings))
        if wants_plain_operations(grad):
            topology = topology_of(ctx.connections)
            widths = ctx.settings[0] if packed else ()
            return *plain_contraction_gradients(inputs, wanted, grad, ctx.outputs, topology, widths), *nothing
        found = iter(run(grad, *saved, *inputs, ctx.connections, *ctx.settings, wanted))
        return *(next(found) if want else None for want in wanted), *nothing

    def operator_backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        return gradients(ctx, grad, operator)

    torch.library.register_autograd(f"restt::{name}", operator_backward, setup_context=setup_context, lib=LIBRARY)

    class Eager(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Tensor:
            found = forward[0](*inputs)
            setup_context(ctx, inputs, found)
            output: Tensor = found[0]
            return output

        @staticmethod
        def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
            return gradients(ctx, grad, backward[0])

    return Eager


def is_watched(x: Tensor, first: Tensor) -> bool:
    """Whether a call must go through torch's dispatcher: something traces it, or stands in for the tensors."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return True
    return type(x) not in _PLAIN or type(first) not in _PLAIN


def cannot_read(x: Tensor) -> bool:
    """Whether x is no tensor with numbers in memory, nor a stand-in for one that a registered operator may be given.

    A program written by ``torch.export`` or ``torch.jit.trace`` is to run where there is no restt: plain operations.
    """
    if torch.compiler.is_compiling():
        return _exporting()
    return torch.jit.is_tracing() or not (type(x) in _PLAIN or isinstance(x, FakeTensor))


@untraced  # traced, older versions of torch take it for true
def _exporting() -> bool:
    return torch.compiler.is_exporting()


@lru_cache(maxsize=256)
def topology_of(connections: str) -> Topology:
    """The topology with these connections."""
    return Topology.from_connections(connections)
