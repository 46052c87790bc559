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
from restt.chain.cuda.launch import NARROW, Layout, round_up
from restt.chain.cuda.plans import Sizes, backward_plan, column_table, device_flags, forward_plan, kept_shape
from restt.chain.operators import cannot_read, is_watched, register, topology_of
from restt.chain.packed import unpack
from restt.chain.precision import current_precision
from restt.chain.reference import ChainWeights, role_tensors
from restt.chain.setting import untraced
from restt.chain.sweep import contiguous, needs_gradient
from restt.topology import Topology

# Triton 3.3 and 3.4 do not compile the kernels; this one they are tested with.
LEAST_TRITON = (3, 6)


def contract(x: Tensor, weights: ChainWeights, topology: Topology) -> Tensor:
    """The output (S,B,O) for x (S or 1, B, N, I), products as :func:`restt.chain.precision` says.

    x, weights and output may all be without the runs axis.
    """
    if x.dtype != torch.float32:  # whoever chose this backend has asked for everything already
        raise ValueError(f"the fused GPU backend cannot run this: {unsupported(x, weights, topology)}")
    if topology.sites == 1:
        return x[..., 0, :] @ weights.first
    return _contracted(x, weights, topology, ())


def contract_packed(x: Tensor, weights: ChainWeights, topology: Topology, widths: tuple[int, ...]) -> Tensor:
    """The output for packed x (S or 1, B, ΣI), with or without the runs axis; a step is then one feature."""
    # Equal widths are padded as they are; kernels for wide bonds know only whole sites.
    if topology.sites == 1 or min(widths) == max(widths) or weights.first.shape[-1] > NARROW:
        return contract(unpack(x, widths), weights, topology)
    return _contracted(x, weights, topology, widths)


def _contracted(x: Tensor, weights: ChainWeights, topology: Topology, widths: tuple[int, ...]) -> Tensor:
    tensors = (x, *role_tensors(weights))
    keep = needs_gradient(tensors)
    given = (weights.outputs, topology.connections, widths, current_precision(x.device.type), keep)
    output: Tensor
    if is_watched(x, weights.first):
        _tables_ready(topology.connections, widths, x.device)
        output = torch.ops.restt.fused_cuda(*tensors, *given)[0]
    elif keep:
        output = _contracted_eagerly(*tensors, given)
    else:
        output = _forward(*tensors, *given)[0]
    return output


def unsupported(x: Tensor, weights: ChainWeights, topology: Topology) -> str | None:
    """Why these tensors need another backend, or None."""
    if (problem := _triton_problem()) is not None:
        return problem
    if cannot_read(x):
        return "compiled code cannot be traced"
    for tensor in (x, *role_tensors(weights)):
        if tensor is not None and tensor.dtype != torch.float32:
            return f"it stores float32, got {tensor.dtype}; the eager backend takes any dtype"
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


def _forward(
    x: Tensor,  # (S or 1, B, N, I), or (S or 1, B, ΣI) with widths
    first: Tensor,
    chain: Tensor | None,
    linear: Tensor | None,
    last_chain: Tensor | None,
    last_linear: Tensor | None,
    last_skip: Tensor | None,
    outputs: int,
    connections: str,
    widths: Sequence[int],
    precision: str,
    keep: bool,
) -> tuple[Tensor, ...]:
    """Compute the output and, with ``keep``, what the backward pass needs.

    That is all states, the sum of those that left for the output, and the cores as its sweep reads them; each empty
    where it would be a copy of something else.
    """
    roles = contiguous((first, chain, linear, last_chain, last_linear, last_skip))
    first, chain, linear, last_chain, last_linear, last_skip = roles  # type: ignore[assignment]
    sizes = Sizes(x.shape, x.stride(), first.shape, outputs, connections, tuple(widths), precision, x.device)
    batch, plan = sizes.batch, forward_plan(sizes, keep)
    flags = device_flags(connections, x.device)
    table = column_table(sizes.widths, x.device) if widths else flags
    output = first.new_empty(*first.shape[:-2], batch, outputs)
    states = first.new_empty(len(flags) if keep else 2, *plan.state) if keep or plan.layout.is_wide else None
    last = states[-1] if keep and states is not None else first.new_empty(plan.state)
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
            _operand(core, plan.layout, plan.tma, last), _or_else(linear, last), flags,
            *(() if plan.layout.is_wide else (table,)),
            _or_else(last_chain, last), _or_else(last_linear, last), _or_else(last_skip, last),
        )  # fmt: skip
    # An operator's outputs are tensors of their own, none of them missing.
    kept = (tensor if keep and tensor is not None else first.new_empty(0) for tensor in (states, leaving, kept_core))
    return output, *kept


def _forward_fake(x: Tensor, first: Tensor, *given: Any) -> tuple[Tensor, ...]:
    *_, outputs, connections, widths, precision, keep = given
    topology, runs, bond = topology_of(connections), first.shape[:-2].numel(), first.shape[-1]
    batch, inner = x.shape[-2 if widths else -3], topology.sites - 2
    columns = round_up(batch, 16)
    output = first.new_empty(*first.shape[:-2], batch, outputs)
    if not keep:
        return output, first.new_empty(0), first.new_empty(0), first.new_empty(0)
    states = first.new_empty(inner + 1, runs, bond, columns)
    leaving = first.new_empty((runs, bond, columns) if topology.has_output_skip else 0)
    core = first.new_empty(0)
    sizes = Sizes((), (), tuple(map(int, first.shape)), outputs, connections, tuple(widths), precision, x.device)
    if (shape := kept_shape(sizes)) is not None:
        core = first.new_empty(shape, dtype=sizes.layout.dtype)
    return output, states, leaving, core


def _backward(
    grad: Tensor,  # (S, B, O)
    states: Tensor,  # (N-1, S, R, columns)
    leaving: Tensor,  # (S, R, columns) or empty
    core: Tensor,  # (S · inner features, R, LD) or empty
    x: Tensor,
    first: Tensor,
    chain: Tensor | None,
    linear: Tensor | None,
    last_chain: Tensor | None,
    last_linear: Tensor | None,
    last_skip: Tensor | None,
    connections: str,
    widths: Sequence[int],
    precision: str,
    keep: bool,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    roles = contiguous((first, chain, linear, last_chain, last_linear, last_skip))
    first, chain, linear, last_chain, last_linear, last_skip = roles  # type: ignore[assignment]
    sizes = Sizes(x.shape, x.stride(), first.shape, grad.shape[-1], connections, tuple(widths), precision, x.device)
    if sizes.batch == 0:
        asked = zip((x, *roles), wanted, strict=True)
        return [torch.zeros_like(tensor) if tensor is not None and want else None for tensor, want in asked]
    grad, plan = grad.contiguous(), backward_plan(sizes, tuple(wanted))
    grads = torch.empty_like(states)  # dL/dy(n) of the states 1…N-1
    # Weights beyond a site's width get no gradient from a kernel.
    new = torch.zeros_like if widths else torch.empty_like
    made = [new(role) if role is not None and want else None for role, want in zip(roles, wanted[1:], strict=True)]
    grad_x = first.new_empty(plan.runs, *x.shape[-2 if widths else -3 :]) if wanted[0] else None
    flags, last = device_flags(connections, x.device), states[-1]
    table = column_table(sizes.widths, x.device) if widths else flags
    beside = Beside(x.device)
    if plan.head is not None:
        left = leaving if leaving.numel() else last
        last_x = x[..., -widths[-1] :] if widths else x[..., -1, :]
        operands = *(_or_else(tensor, last) for tensor in made[3:]), last, left, grad, last_x
        beside.launch(partial(plan.head, *operands))
    cores = core if core.numel() else _aligned_cores(chain)
    plan.sweep(
        grads, _or_else(grad_x, grads), grad, states, x, _operand(cores, plan.layout, plan.tma, grads),
        _or_else(linear, grads), flags, *(() if plan.layout.is_wide else (table,)),
        _or_else(last_chain, grads), _or_else(last_skip, grads),
        *((torch.empty_like(last),) if plan.layout.is_wide else ()),
    )  # fmt: skip
    if plan.weights is not None:
        grad_first, grad_chain, grad_linear = (_or_else(tensor, states) for tensor in made[:3])
        plan.weights(grad_chain, grad_linear, grad_first, states, grads, x, flags, table)
    beside.join()
    if grad_x is not None:
        _end_features(grad_x, first, last_chain, last_linear, last, grads[0], grad, widths)
        if grad_x.shape != x.shape:
            shared = x.dim() == grad_x.dim()
            grad_x = grad_x.sum(dim=0, keepdim=True) if shared else grad_x[0]
    return [grad_x, *made]


def _backward_fake(grad: Tensor, states: Tensor, leaving: Tensor, core: Tensor, *given: Any) -> list[Tensor]:
    *tensors, _, _, _, _, wanted = given
    return [
        tensor.new_empty(tensor.shape)
        for tensor, want in zip(tensors, wanted, strict=True)
        if want and tensor is not None
    ]


def _or_else(tensor: Tensor | None, stand_in: Tensor) -> Tensor:
    """Kernels take a pointer for every argument; one whose constants switch it off is never followed."""
    return stand_in if tensor is None else tensor


def _operand(core: Tensor | None, layout: Layout, tma: bool, stand_in: Tensor) -> Any:
    """The packed cores (…, R, LD) as a sweep takes them: a pointer, or a descriptor for the copy engine."""
    if core is None or not tma:
        return _or_else(core, stand_in)
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(core, [1, layout.tile, layout.tile])


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


_contracted_eagerly = register(
    "fused_cuda",
    "CompositeExplicitAutograd",
    settings="int[] widths, str precision, bool keep",
    packed=True,
    kept=("states", "leaving", "core"),
    forward=(_forward, _forward_fake),
    backward=(_backward, _backward_fake),
)
