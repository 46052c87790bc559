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

from restt._common.compat_torch import FakeTensor, count_dispatch_modes, dynamo_is_exporting
from restt.chain.reference import ROLES
from restt.chain.setting import untraced
from restt.chain.sweep import plain_contraction_gradients, wants_plain_operations
from restt.topology import Topology

LIBRARY = torch.library.Library("restt", "DEF")

_INPUTS = "Tensor x, Tensor first, " + ", ".join(f"Tensor? {role}" for role in ROLES[1:])
_PLAIN = (Tensor, torch.nn.Parameter)
TENSORS = 1 + len(ROLES)

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
) -> Callable[..., Tensor]:
    """Register a pair of operators, each a kernel with its fake; the result is the same pair for eager code.

    ``settings`` are the arguments after ``outputs`` and ``connections``, ``kept`` the names of what the forward pass
    gives besides its output, for the backward pass: ``forward(x, *roles, outputs, connections, *settings)`` and
    ``backward(grad, *kept, x, *roles, connections, *settings, wanted)``, the latter a list of a gradient or None for x
    and each role.
    ``packed`` says that the first setting are the sites' widths, for x (…, B, ΣI), or nothing for x (…, B, N, I).
    """
    returned = ", ".join(["Tensor"] * (1 + len(kept)))
    LIBRARY.define(f"{name}({_INPUTS}, int outputs, str connections, {settings}) -> ({returned})")
    given = ", ".join(f"Tensor {item}" for item in ("grad", *kept))
    LIBRARY.define(f"{name}_backward({given}, {_INPUTS}, str connections, {settings}, bool[] wanted) -> Tensor[]")
    for suffix, kernel, fake in (("", *forward), ("_backward", _all_there(backward[0]), backward[1])):
        LIBRARY.impl(f"{name}{suffix}", kernel, keys)
        torch.library.register_fake(f"restt::{name}{suffix}", fake, lib=LIBRARY)
    operator = getattr(torch.ops.restt, f"{name}_backward").default

    def operator_gradients(grad: Tensor, *given: Any) -> list[Tensor | None]:
        made = iter(operator(grad, *given))
        return [next(made) if want else None for want in given[-1]]

    def gradients(
        run: Kernel, grad: Tensor, tensors: Sequence[Tensor | None], needs: Sequence[bool], given: Sequence[Any]
    ) -> list[Tensor | None]:
        """Gradients of x and the roles; ``tensors`` are these inputs, then what was kept."""
        inputs, wanted, (outputs, connections, *rest) = tensors[:TENSORS], needs[:TENSORS], given
        if wants_plain_operations(grad):
            topology, widths = topology_of(connections), rest[0] if packed else ()
            return plain_contraction_gradients(inputs, wanted, grad, outputs, topology, widths)
        found: list[Tensor | None] = run(grad, *tensors[TENSORS:], *inputs, connections, *rest, wanted)
        return found

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        # The inputs themselves, not what a kernel made of them: a gradient of the gradient leads back to them.
        ctx.save_for_backward(*inputs[:TENSORS], *output[1:])
        ctx.given = inputs[TENSORS:]
        ctx.set_materialize_grads(False)

    def operator_backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        nothing = (None,) * len(ctx.given)
        if grad is None:
            return *(None,) * TENSORS, *nothing
        return *gradients(operator_gradients, grad, ctx.saved_tensors, ctx.needs_input_grad, ctx.given), *nothing

    torch.library.register_autograd(f"restt::{name}", operator_backward, setup_context=setup_context, lib=LIBRARY)

    class Eager(torch.autograd.Function):
        """Takes x, the roles, and all other arguments as one: torch looks at every argument of its own."""

        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Tensor:
            *tensors, given = inputs
            output: Tensor
            output, *saved = forward[0](*tensors, *given)
            ctx.save_for_backward(*tensors, *saved)
            ctx.given = given
            return output

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
            tensors, needs = ctx.saved_tensors, ctx.needs_input_grad
            if wants_plain_operations(grad):
                return *gradients(backward[0], grad, tensors, needs, ctx.given), None
            # As gradients() does it, without what a small call would wait for.
            return *backward[0](grad, *tensors[TENSORS:], *tensors[:TENSORS], *ctx.given[1:], needs[:TENSORS]), None

    # What torch.autograd.Function.apply comes to outside of torch.func, where no fused backend is taken.
    apply: Callable[..., Tensor] = super(torch.autograd.Function, Eager).apply
    return apply


def _all_there(backward: Kernel) -> Kernel:
    """The wanted gradients alone: an operator gives no list with gaps."""

    def compute(*given: Any) -> list[Tensor]:
        return [gradient for gradient in backward(*given) if gradient is not None]

    return compute


def is_watched(x: Tensor, first: Tensor) -> bool:
    """Whether a call must go through torch's dispatcher: something traces it, or stands in for the tensors."""
    if torch.compiler.is_compiling() or count_dispatch_modes() > 0:
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
    # With strict=True, the default of torch 2.7, not every version says so; the compiler that follows the code knows.
    return torch.compiler.is_exporting() or dynamo_is_exporting()


@lru_cache(maxsize=256)
def topology_of(connections: str) -> Topology:
    """The topology with these connections."""
    return Topology.from_connections(connections)
