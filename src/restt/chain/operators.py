"""The fused contractions as operators of torch: what ``torch.compile`` puts into its graphs in one piece.

Each fused backend registers ``restt::NAME`` and ``restt::NAME_backward`` with schemas of plain values: the topology is
its :attr:`~restt.Topology.connections`, what the backward pass needs is an output of the forward one, and weights and x
come with the runs axis or without it. An operator called through torch passes several layers written in Python, so
eager code calls the same functions directly and goes through torch only under a compiler, a fake tensor or a dispatch
mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from restt._common.compat_torch import FakeTensor, count_dispatch_modes, dynamo_is_exporting
from restt.chain import eager
from restt.chain.precision import untraced
from restt.chain.reference import ROLES, ChainWeights, role_tensors
from restt.topology import Topology

LIBRARY = torch.library.Library("restt", "DEF")

TENSORS = 1 + len(ROLES)
_INPUTS = "Tensor x, Tensor first, " + ", ".join(f"Tensor? {role}" for role in ROLES[1:])
_SETTINGS = "int outputs, str connections, int[] widths, str precision, bool keep"
_PLAIN = (Tensor, torch.nn.Parameter)

Contract = Callable[..., Tensor]  # x, weights, topology, widths of the sites where x is packed, precision


class Settings(NamedTuple):
    """All that a kernel is given besides tensors."""

    outputs: int
    connections: str
    widths: Sequence[int]  # of the sites where x is packed, (…, B, ΣI); empty for x (…, B, N, I)
    precision: str
    keep: bool  # whether there will be a backward pass

    @property
    def topology(self) -> Topology:
        """Connections of the sites."""
        return topology_of(self.connections)


def register(
    name: str,
    keys: str,
    *,
    saved: Sequence[str],
    forward: Callable[[Sequence[Any], Settings], tuple[Tensor, ...]],
    forward_fake: Callable[[Sequence[Any], Settings], tuple[Tensor, ...]],
    backward: Callable[[Tensor, Sequence[Any], Settings, Sequence[bool]], list[Tensor | None]],
) -> Contract:
    """Register a pair of operators; returns the contraction by them.

    ``forward(tensors, settings)`` takes x and the roles and returns the output, then the tensors named in ``saved``.
    ``backward(grad, tensors, settings, wanted)`` takes x, the roles and the saved tensors, and returns a gradient or
    None for x and each role.
    """
    names = "".join(f", Tensor {item}" for item in saved)
    LIBRARY.define(f"{name}({_INPUTS}, {_SETTINGS}) -> ({', '.join(['Tensor'] * (1 + len(saved)))})")
    LIBRARY.define(f"{name}_backward(Tensor grad, {_INPUTS}{names}, {_SETTINGS}, bool[] wanted) -> Tensor[]")

    def backward_kernel(grad: Tensor, *given: Any) -> list[Tensor]:
        """The wanted gradients alone: an operator gives no list with gaps."""
        gradients = backward(grad, given[:-6], Settings(*given[-6:-1]), given[-1])
        return [gradient for gradient in gradients if gradient is not None]

    def backward_fake(grad: Tensor, *given: Any) -> list[Tensor]:
        inputs = zip(given[:TENSORS], given[-1], strict=True)
        return [tensor.new_empty(tensor.shape) for tensor, want in inputs if want and tensor is not None]

    kernels = {"": (_flat(forward), _flat(forward_fake)), "_backward": (backward_kernel, backward_fake)}
    for suffix, (kernel, fake) in kernels.items():
        LIBRARY.impl(f"{name}{suffix}", kernel, keys)
        torch.library.register_fake(f"restt::{name}{suffix}", fake, lib=LIBRARY)
    operator, operator_backward = (getattr(torch.ops.restt, f"{name}{suffix}").default for suffix in ("", "_backward"))

    def gradients(ctx: Any, grad: Tensor, compute: Callable[..., list[Tensor | None]]) -> list[Tensor | None]:
        tensors, wanted = ctx.saved_tensors, ctx.needs_input_grad[:TENSORS]
        if eager.wants_plain_operations(grad):
            inputs, (outputs, connections, widths, *_) = tensors[:TENSORS], ctx.settings
            return eager.gradients(inputs, wanted, grad, outputs, topology_of(connections), widths)
        return compute(grad, tensors, ctx.settings, wanted)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        # The inputs themselves, not what a kernel made of them: a gradient of the gradient leads back to them.
        ctx.save_for_backward(*inputs[:TENSORS], *output[1:])
        ctx.settings = Settings(*inputs[TENSORS:])
        ctx.set_materialize_grads(False)

    def operator_gradients(grad: Tensor, tensors: Any, settings: Any, wanted: Any) -> list[Tensor | None]:
        computed = iter(operator_backward(grad, *tensors, *settings, wanted))
        return [next(computed) if want else None for want in wanted]

    def autograd_backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        computed = [None] * TENSORS if grad is None else gradients(ctx, grad, operator_gradients)
        return *computed, *(None,) * len(ctx.settings)

    torch.library.register_autograd(f"restt::{name}", autograd_backward, setup_context=setup_context, lib=LIBRARY)

    class Eager(torch.autograd.Function):
        """Takes x, the roles, and all other arguments as one: torch looks at every argument of its own."""

        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Tensor:
            *tensors, ctx.settings = inputs
            output, *kept = forward(tensors, ctx.settings)
            ctx.save_for_backward(*tensors, *kept)
            return output

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
            return *gradients(ctx, grad, backward), None

    # What torch.autograd.Function.apply comes to outside of torch.func, where no fused backend is taken.
    apply: Callable[..., Tensor] = super(torch.autograd.Function, Eager).apply

    def contract(
        x: Tensor, weights: ChainWeights, topology: Topology, widths: tuple[int, ...], precision: str
    ) -> Tensor:
        if topology.sites == 1:
            return (x if widths else x[..., 0, :]) @ weights.first
        tensors = (x, *role_tensors(weights))
        keep = _needs_gradient(tensors)
        output: Tensor
        if _is_watched(x, weights.first):
            output = operator(*tensors, weights.outputs, topology.connections, widths, precision, keep)[0]
            return output
        settings = Settings(weights.outputs, topology.connections, widths, precision, keep)
        return apply(*tensors, settings) if keep else forward(tensors, settings)[0]

    return contract


def _flat(kernel: Callable[[Sequence[Any], Settings], Any]) -> Callable[..., Any]:
    """The kernel with the arguments of the operator's schema."""
    return lambda *given: kernel(given[:TENSORS], Settings(*given[TENSORS:]))


def _needs_gradient(tensors: Sequence[Tensor | None]) -> bool:
    """Whether there will be a backward pass to these tensors."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def _is_watched(x: Tensor, first: Tensor) -> bool:
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
    # With strict=True, the default of torch 2.7, is_exporting() is false in some versions; dynamo's own flag is right.
    return torch.compiler.is_exporting() or dynamo_is_exporting()


def contiguous(roles: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The weights as kernels read them."""
    return [None if role is None else role.contiguous() for role in roles]


@lru_cache(maxsize=256)
def topology_of(connections: str) -> Topology:
    """The topology with these connections."""
    return Topology.from_connections(connections)
