"""The chain as a handful of Triton kernels: the state stays on chip, the weights stream through.

../README.md has the derivation, the layouts and how the launch constants were chosen.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from restt.chain.cuda.calls import ALIGNMENT, Beside
from restt.chain.cuda.launch import WIDEST, round_up
from restt.chain.cuda.plans import (
    BackwardPlan,
    ForwardPlan,
    Sizes,
    backward_plan,
    column_table,
    core_block,
    device_flags,
    forward_plan,
    kept_shape,
)
from restt.chain.operators import Settings, cannot_read, contiguous, register
from restt.chain.packed import unpack
from restt.chain.precision import current_precision, untraced
from restt.chain.reference import ChainWeights, role_tensors
from restt.topology import Topology

# Triton 3.3 and 3.4 do not compile the kernels; this one they are tested with.
LEAST_TRITON = (3, 6)


def unsupported(x: Tensor, weights: ChainWeights, topology: Topology) -> str | None:
    """Why these tensors need another backend, or None."""
    if (problem := _triton_problem()) is not None:
        return problem
    if cannot_read(x):
        return "compiled code cannot be traced"
    for tensor in (x, *role_tensors(weights)):
        if tensor is not None and tensor.dtype != torch.float32:
            return f"it stores float32, got {tensor.dtype}; the eager backend takes any dtype"
    if (bond := weights.first.shape[-1]) > WIDEST and topology.sites > 1:
        return f"cores of bond {bond} do not fit on chip, those up to {WIDEST} do"
    if x.device.type != "cuda" and not _interpreted():
        return f"it needs CUDA tensors, got {x.device.type} (or TRITON_INTERPRET=1 to run its kernels as Python)"
    return None


@untraced
def _triton_problem() -> str | None:
    return triton_problem()


@cache
def triton_problem() -> str | None:
    """Why the kernels cannot be compiled or interpreted here, or None."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed; it comes with CUDA builds of torch"
    import triton

    if tuple(int(part) for part in triton.__version__.split(".")[:2]) < LEAST_TRITON:
        least = ".".join(map(str, LEAST_TRITON))
        return f"its kernels need triton {least}, which torch 2.11 brings, not {triton.__version__}"
    return None


@untraced
def _interpreted() -> bool:
    """Whether TRITON_INTERPRET was set when triton was imported: the kernels are then Python over CPU tensors."""
    from triton.runtime.interpreter import InterpretedFunction

    from restt.chain.cuda.forward import forward_sweep

    return isinstance(forward_sweep, InterpretedFunction)


@untraced
def _tables_ready(connections: str, widths: tuple[int, ...], device: torch.device) -> None:
    """Make tables while a module is traced: made inside a recorded graph they would lie in its memory."""
    device_flags(connections, device)
    if widths:
        column_table(widths, device)


def _forward(tensors: Sequence[Any], settings: Settings) -> tuple[Tensor, ...]:
    """Compute the output and, with ``keep``, what the backward pass needs.

    That is all states, the sum of those that left for the output, and the cores as its sweep reads them; each empty
    where it would be a copy of something else.
    """
    x, keep, widths = tensors[0], settings.keep, settings.widths
    first, chain, linear, last_chain, last_linear, last_skip = contiguous(tensors[1:])
    assert first is not None
    sizes = _sizes(x, first, settings)
    batch, plan = sizes.batch, forward_plan(sizes, keep)
    flags = device_flags(settings.connections, x.device)
    table = column_table(sizes.widths, x.device) if widths else flags
    output = first.new_empty(*first.shape[:-2], batch, settings.outputs)
    states = first.new_empty(len(flags), *plan.state) if keep else None
    last = states[-1] if states is not None else first.new_empty(plan.state)
    leaving = first.new_empty(plan.state) if plan.has_output_skip else None
    core = kept_core = None
    if plan.pack is not None:
        core = torch.empty(plan.packed, dtype=plan.layout.dtype, device=x.device)
        if plan.kept is not None:
            kept_core = core.new_empty(plan.kept)
        if batch > 0:
            plan.pack(core, _or_else(kept_core, core), chain, _or_else(linear, core), table)
    if batch > 0:
        plan.sweep(
            output, _or_else(states, last), last, _or_else(leaving, last), x, first,
            _operand(core, plan, last), _or_else(linear, last), flags, table,
            _or_else(last_chain, last), _or_else(last_linear, last), _or_else(last_skip, last),
        )  # fmt: skip
    # An operator's outputs are tensors of their own, none of them missing.
    kept = (tensor if keep and tensor is not None else first.new_empty(0) for tensor in (states, leaving, kept_core))
    return output, *kept


def _forward_fake(tensors: Sequence[Any], settings: Settings) -> tuple[Tensor, ...]:
    x, first = tensors[:2]
    topology, runs, bond = settings.topology, first.shape[:-2].numel(), first.shape[-1]
    batch = x.shape[-2 if settings.widths else -3]
    columns = round_up(batch, 16)
    output = first.new_empty(*first.shape[:-2], batch, settings.outputs)
    if not settings.keep:
        return output, first.new_empty(0), first.new_empty(0), first.new_empty(0)
    states = first.new_empty(topology.sites - 1, runs, bond, columns)
    leaving = first.new_empty((runs, bond, columns) if topology.has_output_skip else 0)
    core = first.new_empty(0)
    outputs, connections, widths, precision, _ = settings
    sizes = Sizes((), (), tuple(map(int, first.shape)), outputs, connections, tuple(widths), precision, x.device)
    if (shape := kept_shape(sizes)) is not None:
        core = first.new_empty(shape, dtype=sizes.layout.dtype)
    return output, states, leaving, core


def _sizes(x: Tensor, first: Tensor, settings: Settings) -> Sizes:
    outputs, connections, widths, precision, _ = settings
    return Sizes(x.shape, x.stride(), first.shape, outputs, connections, tuple(widths), precision, x.device)


def _backward(
    grad: Tensor,  # (S, B, O)
    tensors: Sequence[Any],
    settings: Settings,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    # states (N-1, S, R, columns); leaving (S, R, columns) or empty; core (S · inner features, R, LD) or empty
    x, *given, states, leaving, core = tensors
    widths, roles = settings.widths, contiguous(given)
    first, chain, linear, last_chain, last_linear, last_skip = roles
    assert first is not None
    sizes = _sizes(x, first, settings)
    if sizes.batch == 0:
        pairs = zip((x, *roles), wanted, strict=True)
        return [torch.zeros_like(tensor) if tensor is not None and want else None for tensor, want in pairs]
    grad, plan = grad.contiguous(), backward_plan(sizes, tuple(wanted))
    grads = torch.empty_like(states)  # dL/dy(n) of the states 1…N-1
    # Weights beyond a site's width get no gradient from a kernel.
    new = torch.zeros_like if widths else torch.empty_like
    gradients = [new(role) if role is not None and want else None for role, want in zip(roles, wanted[1:], strict=True)]
    grad_x = first.new_empty(plan.runs, *x.shape[-2 if widths else -3 :]) if wanted[0] else None
    flags, last = device_flags(settings.connections, x.device), states[-1]
    table = column_table(sizes.widths, x.device) if widths else flags
    beside = Beside(x.device)
    if plan.head is not None:
        left = leaving if leaving.numel() else last
        last_x = x[..., -widths[-1] :] if widths else x[..., -1, :]
        operands = *(_or_else(tensor, last) for tensor in gradients[3:]), last, left, grad, last_x
        beside.launch(partial(plan.head, *operands))
    cores = core if core.numel() else _aligned_cores(chain)
    plan.sweep(
        grads, _or_else(grad_x, grads), grad, states, x, _operand(cores, plan, grads),
        _or_else(linear, grads), flags, table,
        _or_else(last_chain, grads), _or_else(last_skip, grads),
    )  # fmt: skip
    if plan.weights is not None:
        grad_first, grad_chain, grad_linear = (_or_else(tensor, states) for tensor in gradients[:3])
        plan.weights(grad_chain, grad_linear, grad_first, states, grads, x, flags, table)
    beside.join()
    if grad_x is not None:
        _end_features(grad_x, first, last_chain, last_linear, last, grads[0], grad, widths)
        if grad_x.shape != x.shape:
            shared = x.dim() == grad_x.dim()
            grad_x = grad_x.sum(dim=0, keepdim=True) if shared else grad_x[0]
    return [grad_x, *gradients]


def _or_else(tensor: Tensor | None, stand_in: Tensor) -> Tensor:
    """Kernels take a pointer for every argument; one whose constants switch it off is never followed."""
    return stand_in if tensor is None else tensor


def _operand(core: Tensor | None, plan: ForwardPlan | BackwardPlan, stand_in: Tensor) -> Any:
    """The packed cores (…, R, LD) as a sweep takes them: a pointer, or a descriptor for the copy engine."""
    if core is None or not plan.tma:
        return _or_else(core, stand_in)
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(core, core_block(plan.sweep))


def _aligned_cores(chain: Tensor | None) -> Tensor | None:
    """The parameter itself, which only a view into something else may have put where the copies cannot start."""
    if chain is None:
        return None
    aligned = chain if chain.data_ptr() % ALIGNMENT == 0 else chain.clone()
    return aligned.view(-1, *aligned.shape[-2:])


def _end_features(
    grad_x: Tensor,  # (S, B, N, I) or (S, B, ΣI), filled at the first and the last site
    first: Tensor,  # this and the next two as in ChainWeights, or without S
    last_chain: Tensor | None,
    last_linear: Tensor | None,
    last: Tensor,  # (S, R, columns), y(N-1)
    grad_first: Tensor,  # (S, R, columns), dL/dy(1)
    grad_output: Tensor,  # (S, B, O), or without S
    widths: Sequence[int],
) -> None:
    """The features' gradient at the ends of the chain, where there is no sweep to share."""
    batch, width = grad_x.shape[1], first.shape[-2]
    at_first, at_last = (widths[0], widths[-1]) if widths else (width, width)
    flat = grad_x.flatten(2)
    flat[..., :at_first] = (first[..., :at_first, :] @ grad_first[..., :batch]).transpose(1, 2)
    end = torch.zeros_like(flat[..., -at_last:])
    if last_chain is not None:
        reached = torch.einsum("...iko,...kb->...bio", last_chain[..., :at_last, :, :], last[..., :batch])
        end += torch.einsum("sbio,sbo->sbi", reached, grad_output.view(len(reached), batch, -1))
    if last_linear is not None:
        end += grad_output @ last_linear[..., :at_last, :].transpose(-1, -2)
    flat[..., -at_last:] = end


_contract = register(
    "fused_cuda",
    "CompositeExplicitAutograd",
    saved=("states", "leaving", "core"),
    forward=_forward,
    forward_fake=_forward_fake,
    backward=_backward,
)


def contract(x: Tensor, weights: ChainWeights, topology: Topology, widths: tuple[int, ...] = ()) -> Tensor:
    """The output (S,B,O) for x (S or 1, B, N, I) or packed (S or 1, B, ΣI), all with or without the runs axis.

    Products are as :func:`restt.chain.precision` says; a step over packed features is one feature.
    """
    if x.dtype != torch.float32:  # the other conditions were checked when this backend was chosen
        raise ValueError(f"the fused GPU backend cannot run this: {unsupported(x, weights, topology)}")
    if widths and min(widths) == max(widths):  # padded as they are
        x, widths = unpack(x, widths), ()
    if torch.compiler.is_compiling() and topology.sites > 1:
        _tables_ready(topology.connections, widths, x.device)
    return _contract(x, weights, topology, widths, current_precision(x.device.type))
