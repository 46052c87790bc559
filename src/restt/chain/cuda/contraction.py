"""The chain as a handful of Triton kernels: the state stays on chip, the weights stream through.

../README.md has the derivation, the layouts and how the launch constants were chosen.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from restt.chain.cuda.calls import ALIGNMENT, Beside, is_recording
from restt.chain.cuda.launch import Layout, round_up
from restt.chain.cuda.parts import device_flags, end_features, operand, or_else
from restt.chain.cuda.plans import Sizes, backward_plan, forward_plan
from restt.chain.operators import cannot_read, is_watched, register, topology_of
from restt.chain.packed import unpack
from restt.chain.precision import current_precision
from restt.chain.recompute import recomputing, segment_length, square_root_length
from restt.chain.reference import ChainWeights, has_runs, role_tensors, with_runs
from restt.chain.setting import untraced
from restt.chain.sweep import contiguous, needs_gradient
from restt.topology import Topology

# Triton 3.3 and 3.4 do not compile the kernels; this one they are tested with.
LEAST_TRITON = (3, 6)
# States below this are kept without a look at what the GPU has left.
_ALWAYS_KEPT_BYTES = 2**30


def contract(x: Tensor, weights: ChainWeights, topology: Topology) -> Tensor:
    """The output (S,B,O) for x (S or 1, B, N, I), products as :func:`restt.chain.precision` says.

    x, weights and output may all be without the runs axis.
    """
    if x.dtype != torch.float32:  # whoever chose this backend has asked for everything already
        raise ValueError(f"the fused GPU backend cannot run this: {unsupported(x, weights, topology)}")
    if topology.sites == 1:
        return x[..., 0, :] @ weights.first
    tensors = (x, *role_tensors(weights))
    keep = needs_gradient(tensors)
    precision, watched = current_precision(x.device.type), is_watched(x, weights.first)
    if watched and keep and recomputing():
        _refuse_to_recompute()
    length = _segment_length(x, weights, topology) if keep and x.shape[-3] > 0 and not watched else 1
    if length > 1:
        from restt.chain.cuda import segments

        if has_runs(weights):
            return segments.contract(x, weights, topology, precision, length)
        return segments.contract(*with_runs(x, weights), topology, precision, length)[0]
    given = (weights.outputs, topology.connections, precision, keep)
    output: Tensor
    if watched:
        _flags_ready(topology.connections, x.device)
        output = torch.ops.restt.fused_cuda(*tensors, *given)[0]
    elif keep:
        output = _contracted_eagerly(*tensors, given)
    else:
        output = _forward(*tensors, *given)[0]
    return output


@untraced  # of an error in code that it follows, torch 2.7's compiler does not show the message
def _refuse_to_recompute() -> NoReturn:
    raise ValueError(
        "restt.chain.recompute() has no place in a compiled function on the GPU, which keeps all states: "
        "leave the module uncompiled there"
    )


def contract_packed(x: Tensor, weights: ChainWeights, topology: Topology, widths: tuple[int, ...]) -> Tensor:
    """The output for packed x (S or 1, B, ΣI), with or without the runs axis."""
    layout = Layout(weights.first.shape[-1], current_precision(x.device.type))
    # Equal widths are padded as they are; segments, operators and cores wider than a tile know only whole sites.
    padded = recomputing() or layout.is_wide or min(widths) == max(widths) or is_watched(x, weights.first)
    if padded or topology.sites == 1 or x.shape[-2] == 0:
        return contract(unpack(x, widths), weights, topology)
    from restt.chain.cuda import ragged

    if has_runs(weights):
        return ragged.contract(x, weights, topology, widths, layout.precision)
    return ragged.contract(*with_runs(x, weights), topology, widths, layout.precision)[0]


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


def _segment_length(x: Tensor, weights: ChainWeights, topology: Topology) -> int:
    """One in how many states is kept: all, unless recomputing is asked for or they would not fit on the GPU."""
    inner = topology.sites - 2
    if recomputing() or inner < 2:
        return segment_length(inner)
    # The states and, in the backward pass, as many gradients.
    state = (
        weights.first.numel() // weights.first.shape[-2]
    )  # of all runs for one sample; a view would take microseconds
    needed = 2 * (inner + 1) * state * x.shape[-3] * x.element_size()
    if needed < _ALWAYS_KEPT_BYTES or needed < _free_bytes(x.device):
        return 1
    return square_root_length(inner)


def _free_bytes(device: torch.device) -> float:
    """What torch may still take of the GPU's memory, if nobody else does."""
    if device.type != "cuda":
        return math.inf
    return torch.cuda.get_device_properties(device).total_memory - torch.cuda.memory_allocated(device)


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
def _flags_ready(connections: str, device: torch.device) -> None:
    """Made while a module is traced: what is made where a graph is recorded belongs to the graph's memory."""
    device_flags(connections, device)


def _forward(
    x: Tensor,  # (S or 1, B, N, I)
    first: Tensor,
    chain: Tensor | None,
    linear: Tensor | None,
    last_chain: Tensor | None,
    last_linear: Tensor | None,
    last_skip: Tensor | None,
    outputs: int,
    connections: str,
    precision: str,
    keep: bool,
) -> tuple[Tensor, ...]:
    """Compute the output and, with ``keep``, what the backward pass needs.

    That is all states, the sum of those that left for the output, and the cores as its sweep reads them; each empty
    where it would be a copy of something else.
    """
    roles = contiguous((first, chain, linear, last_chain, last_linear, last_skip))
    first, chain, linear, last_chain, last_linear, last_skip = roles  # type: ignore[assignment]
    batch = x.shape[-3]
    sizes = Sizes(x.shape, x.stride(), first.shape, outputs, connections, precision, x.device)
    plan = forward_plan(sizes, keep)
    state = (sizes.runs, first.shape[-1], plan.columns)
    output = first.new_empty(*first.shape[:-2], batch, outputs)
    states = first.new_empty(x.shape[-2] - 1 if keep else 2, *state) if keep or plan.layout.is_wide else None
    last = states[-1] if keep and states is not None else first.new_empty(state)
    leaving = first.new_empty(state) if plan.topology.has_output_skip else None
    core = kept_core = None
    if plan.pack is not None:
        core = torch.empty(plan.packed, dtype=plan.layout.dtype, device=x.device)
        if plan.packs_backward:
            kept_core = core.new_empty(*plan.packed[:-1], plan.layout.ld)
        if batch > 0:
            plan.pack(core, or_else(kept_core, core), chain, or_else(linear, core))
    if batch > 0:
        plan.sweep(
            output, or_else(states, last), last, or_else(leaving, last), x, first,
            operand(core, plan.descriptor, last), or_else(linear, last), device_flags(connections, x.device),
            or_else(last_chain, last), or_else(last_linear, last), or_else(last_skip, last),
        )  # fmt: skip
    # An operator's outputs are tensors of their own, none of them missing.
    kept = (tensor if keep and tensor is not None else first.new_empty(0) for tensor in (states, leaving, kept_core))
    return output, *kept


def _forward_fake(x: Tensor, first: Tensor, *given: Any) -> tuple[Tensor, ...]:
    *_, outputs, connections, precision, keep = given
    topology, layout = topology_of(connections), Layout(int(first.shape[-1]), precision)
    runs, bond = first.shape[:-2].numel(), first.shape[-1]
    inner, width, columns = x.shape[-2] - 2, x.shape[-1], round_up(x.shape[-3], 16)
    output = first.new_empty(*first.shape[:-2], x.shape[-3], outputs)
    if not keep:
        return output, first.new_empty(0), first.new_empty(0), first.new_empty(0)
    states = first.new_empty(inner + 1, runs, bond, columns)
    leaving = first.new_empty((runs, bond, columns) if topology.has_output_skip else 0)
    core = first.new_empty(0)
    if topology.has_chain and not layout.is_plain:
        core = first.new_empty((runs * inner * width, bond, layout.ld), dtype=layout.dtype)
    return output, states, leaving, core


def _backward(
    grad: Tensor,  # (S, B, O)
    states: Tensor,  # (N-1, S, R, columns)
    leaving: Tensor,  # (S, R, columns) or empty
    core: Tensor,  # (S·(N-2)·I, R, LD) or empty
    x: Tensor,
    first: Tensor,
    chain: Tensor | None,
    linear: Tensor | None,
    last_chain: Tensor | None,
    last_linear: Tensor | None,
    last_skip: Tensor | None,
    connections: str,
    precision: str,
    keep: bool,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    roles = contiguous((first, chain, linear, last_chain, last_linear, last_skip))
    first, chain, linear, last_chain, last_linear, last_skip = roles  # type: ignore[assignment]
    if x.shape[-3] == 0:
        asked = zip((x, *roles), wanted, strict=True)
        return [torch.zeros_like(tensor) if tensor is not None and want else None for tensor, want in asked]
    grad = grad.contiguous()
    sizes = Sizes(x.shape, x.stride(), first.shape, grad.shape[-1], connections, precision, x.device)
    plan = backward_plan(sizes, tuple(wanted))
    grads = torch.empty_like(states)  # dL/dy(n) of the states 1…N-1
    grad_x = first.new_empty(sizes.runs, *x.shape[-3:]) if wanted[0] else None
    made = [torch.empty_like(t) if t is not None and want else None for t, want in zip(roles, wanted[1:], strict=True)]
    flags, last = device_flags(connections, x.device), states[-1]
    cores: Tensor | None = core
    if not core.numel():
        # The parameter itself, which only a view into something else may have put where the copies cannot start.
        cores = chain if chain is None or chain.data_ptr() % ALIGNMENT == 0 else chain.clone()
        cores = None if cores is None else cores.view(-1, *cores.shape[-2:])
    whole = _Places(grads, states, x, grad_x, flags, cores, linear, *made[1:3])
    # In sections where a graph is recorded and, for their kernels to be loaded by then, the first time.
    in_sections = is_recording(x.device) or not plan.sections[-1].sweep.is_loaded
    sections = plan.sections if in_sections else (plan.whole,)
    beside, head = Beside(x.device), None
    if plan.head is not None:
        left = leaving if leaving.numel() else last
        operands = *(or_else(tensor, last) for tensor in made[3:]), last, left, grad, x[..., -1, :]
        head = partial(plan.head, *operands)
    if head is not None and len(sections) == 1:
        beside.launch(head)
    for section in sections:
        at = whole if section.start == 0 else whole.from_site(section.start)
        pointers = [
            at.grads, or_else(at.grad_x, grads), grad, at.states, at.x, operand(at.cores, plan.descriptor, grads),
            or_else(at.linear, grads), at.flags, or_else(last_chain, grads), or_else(last_skip, grads),
        ]  # fmt: skip
        if plan.layout.is_wide:
            pointers.append(torch.empty_like(last))
        section.sweep(*pointers)
        if head is not None and len(sections) > 1 and section is sections[0]:
            # Ahead of the first weights, whose programs would else take the processors that the next sweep needs.
            beside.launch(head)
        if section.weights is not None:
            gradients = (or_else(tensor, states) for tensor in (at.grad_chain, at.grad_linear, made[0]))
            weights = partial(section.weights, *gradients, at.states, at.grads, at.x, at.flags)
            if section.start > 0:
                beside.launch(weights)
            else:
                weights()
    beside.join()
    if grad_x is not None:
        ends = grad_x[:, :, 0], grad_x[:, :, -1]
        end_features(*ends, first, last_chain, last_linear, last, grads[0], grad)
        if grad_x.shape[:-3] != x.shape[:-3]:
            grad_x = grad_x.sum(dim=0, keepdim=True) if x.dim() == 4 else grad_x[0]
    return [grad_x, *made]


class _Places(NamedTuple):
    """What a section of the backward pass reads and writes site by site."""

    grads: Tensor  # this and the next: (N-1, S, R, columns)
    states: Tensor
    x: Tensor  # (…, B, N, I)
    grad_x: Tensor | None  # (S, B, N, I)
    flags: Tensor  # (N-1,)
    cores: Tensor | None  # (S·(N-2)·I, R, LD)
    linear: Tensor | None  # this and the gradients as in ChainWeights, or without S
    grad_chain: Tensor | None
    grad_linear: Tensor | None

    def from_site(self, n: int) -> _Places:
        """The same for a chain that begins with inner site n, of a single run."""

        def features(tensor: Tensor | None, axes: int) -> Tensor | None:
            return None if tensor is None else tensor.view(-1, *tensor.shape[-axes:])[n * self.x.shape[-1] :]

        return _Places(
            self.grads[n:], self.states[n:], self.x[..., n:, :], None if self.grad_x is None else self.grad_x[:, :, n:],
            self.flags[n:], features(self.cores, 2), features(self.linear, 1), features(self.grad_chain, 2),
            features(self.grad_linear, 1),
        )  # fmt: skip


def _backward_fake(grad: Tensor, states: Tensor, leaving: Tensor, core: Tensor, *given: Any) -> list[Tensor]:
    *tensors, _, _, _, wanted = given
    return [
        tensor.new_empty(tensor.shape)
        for tensor, want in zip(tensors, wanted, strict=True)
        if want and tensor is not None
    ]


_contracted_eagerly = register(
    "fused_cuda",
    "CompositeExplicitAutograd",
    settings="str precision, bool keep",
    kept=("states", "leaving", "core"),
    forward=(_forward, _forward_fake),
    backward=(_backward, _backward_fake),
)
