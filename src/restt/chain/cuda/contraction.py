"""The chain as a handful of Triton kernels: the state stays on chip, the weights stream through.

../README.md has the derivation, the layouts and how the launch constants were chosen.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from restt.chain import eager
from restt.chain.cuda.launch import Layout, SweepLaunch, head_batch, head_tile, round_up, sweep_launch, weight_launch
from restt.chain.packed import unpack
from restt.chain.precision import current_precision
from restt.chain.recompute import recomputing, segment_length, square_root_length
from restt.chain.reference import ChainWeights
from restt.chain.sweep import contiguous, plain_contraction_gradients, wants_plain_operations
from restt.topology import Topology

# States below this are kept without a look at what the GPU has left.
_ALWAYS_KEPT_BYTES = 2**30


def contract(x: Tensor, weights: ChainWeights, topology: Topology) -> Tensor:
    """The output (S,B,O) for x (S or 1, B, N, I), products as :func:`restt.chain.precision` says."""
    reason = unsupported(x, weights, topology)
    if reason is not None:
        raise ValueError(f"the fused GPU backend cannot run this: {reason}")
    if topology.sites == 1 or x.shape[1] == 0:
        return eager.contract(x, weights, topology)
    tensors = [tensor for tensor in (x, *weights[:-1]) if tensor is not None]
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    length = _segment_length(x, weights, topology) if keep else 1
    if length > 1:
        from restt.chain.cuda import segments

        return segments.contract(x, weights, topology, current_precision(), length)
    output: Tensor = _Chain.apply(x, *weights[:-1], weights.outputs, topology, current_precision(), keep)
    return output


def contract_packed(x: Tensor, weights: ChainWeights, topology: Topology, widths: tuple[int, ...]) -> Tensor:
    """The output (S,B,O) for packed x (S or 1, B, ΣI)."""
    reason = unsupported(x, weights, topology)
    if reason is not None:
        raise ValueError(f"the fused GPU backend cannot run this: {reason}")
    layout = Layout(weights.first.shape[-1], current_precision())
    # Equal widths are padded as they are; segments, and cores wider than a tile, know only whole sites.
    padded = recomputing() or layout.is_wide or min(widths) == max(widths)
    if padded or topology.sites == 1 or x.shape[1] == 0:
        return contract(unpack(x, widths), weights, topology)
    from restt.chain.cuda import ragged

    return ragged.contract(x, weights, topology, widths, layout.precision)


def unsupported(x: Tensor, weights: ChainWeights, topology: Topology) -> str | None:
    """Why these tensors need another backend, or None."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed; it comes with CUDA builds of torch"
    others = {tensor.dtype for tensor in weights[:-1] if tensor is not None} | {x.dtype}
    if others != {torch.float32}:
        return f"it stores float32, got {', '.join(sorted(map(str, others)))}; the eager backend takes any dtype"
    if x.device.type != "cuda" and not _interpreted():
        return f"it needs CUDA tensors, got {x.device.type} (or TRITON_INTERPRET=1 to run its kernels as Python)"
    return None


def _segment_length(x: Tensor, weights: ChainWeights, topology: Topology) -> int:
    """One in how many states is kept: all, unless recomputing is asked for or they would not fit on the GPU."""
    inner = topology.sites - 2
    if recomputing() or inner < 2:
        return segment_length(inner)
    # The states and, in the backward pass, as many gradients.
    needed = 2 * (topology.sites - 1) * len(weights.first) * weights.first.shape[-1] * x.shape[1] * x.element_size()
    if needed < _ALWAYS_KEPT_BYTES or needed < _free_bytes(x.device):
        return 1
    return square_root_length(inner)


def _free_bytes(device: torch.device) -> float:
    """What torch may still take of the GPU's memory, if nobody else does."""
    if device.type != "cuda":
        return math.inf
    return torch.cuda.get_device_properties(device).total_memory - torch.cuda.memory_allocated(device)


@cache
def _interpreted() -> bool:
    """Whether TRITON_INTERPRET was set when triton was imported: the kernels are then Python over CPU tensors."""
    from triton.runtime.interpreter import InterpretedFunction

    from restt.chain.cuda.forward import forward_sweep

    return isinstance(forward_sweep, InterpretedFunction)


@lru_cache(maxsize=256)
def _device_flags(topology: Topology, device: torch.device) -> Tensor:
    """Made once per topology: a copy from the host could neither be captured nor overlap."""
    return torch.tensor(list(topology.connection_flags), dtype=torch.int32, device=device)


@lru_cache(maxsize=256)
def _constants(topology: Topology) -> dict[str, Any]:
    """What every sweep over this topology is compiled with; MIXED ones read their sites' flags instead of SKIP."""
    mixed = len(set(topology.connection_flags[:-1])) > 1
    return {
        "HAS_CHAIN": topology.has_chain,
        "HAS_LINEAR": topology.has_linear,
        "HAS_OUTPUT_SKIP": topology.has_output_skip,
        "ENDS_WITH_SKIP": topology.ends_with_skip,
        "LAST_CHAIN": topology.chains[-1],
        "LAST_SKIP": topology.has_skip_head,
        "MIXED": mixed,
        "SKIP": "none" if mixed else topology.skips[0],
    }


def _pack(chain: Tensor, layout: Layout, keep: bool) -> tuple[Tensor, Tensor | None]:
    """The cores as the forward and, if ``keep``, the backward sweep read them."""
    from restt.chain.cuda.gradients import pack_cores

    runs, inner, width = chain.shape[:3]
    shape = (runs, inner, width, layout.bond, layout.ld)
    forward = torch.empty(shape, dtype=layout.dtype, device=chain.device)
    pack_backward = keep and not (layout.is_plain and chain.data_ptr() % 16 == 0)
    backward = torch.empty_like(forward) if pack_backward else (chain if keep else None)
    tile = 32
    across = -(-layout.ld // tile)
    grid = (runs * inner * width, across, across)
    pack_cores[grid](
        forward, backward if pack_backward else forward, chain, BOND=layout.bond, LD=layout.ld,
        T=tile, FORWARD=True, BACKWARD=pack_backward, num_warps=4,
    )  # fmt: skip
    return forward, backward


def _operand(core: Tensor | None, layout: Layout, launch: SweepLaunch, stand_in: Tensor) -> Any:
    """The packed cores as a sweep takes them: a pointer, or a descriptor for the copy engine."""
    if core is None or layout.is_wide or not launch.tma:
        return _or(core, stand_in)
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(core.view(-1, layout.bond, layout.ld), [1, layout.tile, layout.tile])


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,  # (S or 1, B, N, I)
        first: Tensor,
        chain: Tensor | None,
        linear: Tensor | None,
        last_chain: Tensor | None,
        last_linear: Tensor | None,
        last_skip: Tensor | None,
        outputs: int,
        topology: Topology,
        precision: str,
        keep: bool,
    ) -> Tensor:
        from restt.chain.cuda.forward import forward_sweep, forward_sweep_wide

        inputs = (x, first, chain, linear, last_chain, last_linear, last_skip)
        first = first.contiguous()
        chain, linear, last_chain, last_linear, last_skip = contiguous(inputs[2:])
        runs = first.shape[0]
        batch, sites, width = x.shape[1:]
        inner, bond, columns = sites - 2, first.shape[-1], round_up(batch, 16)
        layout = Layout(bond, precision)
        launch = sweep_launch(layout, width, runs, batch)
        slots = sites - 1 if keep else 2
        saved = keep or layout.is_wide
        states = first.new_empty((slots, runs, bond, columns)) if saved else None
        last = states[-1] if keep and states is not None else first.new_empty((runs, bond, columns))
        leaving = first.new_empty((runs, bond, columns)) if topology.has_output_skip else last
        output = first.new_empty((runs, batch, outputs))
        core = kept_core = None
        if chain is not None:
            core, kept_core = _pack(chain, layout, keep)
        flags, constants = _device_flags(topology, x.device), dict(_constants(topology))
        stride_s = x.stride(0) if x.shape[0] > 1 else 0
        pointers = [
            output, _or(states, last), last, leaving, x, first, _operand(core, layout, launch, last), _or(linear, last),
            flags, _or(last_chain, last), _or(last_linear, last), _or(last_skip, last),
        ]  # fmt: skip
        numbers = [inner, batch, columns, runs, stride_s, *x.stride()[1:], outputs]
        shared = {
            "I": width, "BOND": bond, "LD": layout.ld, "BN": launch.columns, "OT": head_tile(outputs),
            "STAGES": launch.stages, "PRECISION": precision, "LAST_LINEAR": last_linear is not None,
            "num_warps": launch.warps, "num_stages": 1, **constants,
        }  # fmt: skip
        grid = (-(-batch // launch.columns), runs)
        if layout.is_wide:
            del shared["MIXED"], shared["SKIP"]
            forward_sweep_wide[grid](*pointers, *numbers, slots, T=layout.tile, **shared)
        else:
            forward_sweep[grid](
                *pointers,
                *numbers,
                R=layout.tile,
                PART=launch.part,
                TMA=launch.tma,
                SAVE=keep,
                **shared,
            )
        if keep:
            # The inputs themselves, not their contiguous copies: a gradient of the gradient leads back to them.
            ctx.save_for_backward(*inputs, kept_core, states, leaving)
            ctx.settings = topology, precision, outputs
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        from restt.chain.cuda.backward import backward_sweep, backward_sweep_wide

        *inputs, core, states, leaving = ctx.saved_tensors
        topology, precision, outputs = ctx.settings
        if wants_plain_operations(grad_output):
            wanted = ctx.needs_input_grad[: len(inputs)]
            again = plain_contraction_gradients(inputs, wanted, grad_output, outputs, topology)
            return *again, None, None, None, None
        x, first = inputs[0], inputs[1].contiguous()
        chain, linear, last_chain, last_linear, last_skip = contiguous(inputs[2:])
        grad_output = grad_output.contiguous()
        runs = first.shape[0]
        batch, sites, width = x.shape[1:]
        inner, bond, columns = sites - 2, first.shape[-1], states.shape[-1]
        layout = Layout(bond, precision)
        want_x = ctx.needs_input_grad[0]
        launch = sweep_launch(layout, width, runs, batch, reads_states=want_x)
        grads = torch.empty_like(states)  # dL/dy(n) of the states 1…N-1
        grad_x = x.new_empty((runs, batch, sites, width)) if want_x else None
        flags, constants = _device_flags(topology, x.device), dict(_constants(topology))
        stride_s = x.stride(0) if x.shape[0] > 1 else 0
        pointers = [
            grads, _or(grad_x, grads), grad_output, states, x, _operand(core, layout, launch, grads),
            _or(linear, grads), flags, _or(last_chain, grads), _or(last_skip, grads),
        ]  # fmt: skip
        numbers = [inner, batch, columns, runs, sites, stride_s, *x.stride()[1:], outputs]
        shared = {
            "I": width, "BOND": bond, "LD": layout.ld, "BN": launch.columns,
            "OT": head_tile(outputs), "STAGES": launch.stages, "PRECISION": precision, "WANT_X": want_x,
            "num_warps": launch.warps, "num_stages": 1, **constants,
        }  # fmt: skip
        grid = (-(-batch // launch.columns), runs)
        if layout.is_wide:
            del shared["MIXED"], shared["SKIP"]
            grad_left = torch.empty_like(leaving)
            backward_sweep_wide[grid](*pointers, grad_left, *numbers, T=layout.tile, **shared)
        else:
            backward_sweep[grid](*pointers, *numbers, R=layout.tile, PART=launch.part, TMA=launch.tma, **shared)
        wanted = ctx.needs_input_grad[1:7]
        inner_gradients = _weight_gradients(x, first, chain, linear, states, grads, topology, layout, wanted[:3])
        head = (last_chain, last_linear, last_skip)
        head_gradients = _head_gradients(x, head, states[-1], leaving, grad_output, layout, wanted[3:])
        if grad_x is not None:
            ends = grad_x[:, :, 0], grad_x[:, :, -1]
            _end_features(*ends, first, last_chain, last_linear, states[-1], grads[0], grad_output)
            if x.shape[0] != runs:
                grad_x = grad_x.sum(dim=0, keepdim=True)
        return grad_x, *inner_gradients, *head_gradients, None, None, None, None


def _weight_gradients(
    x: Tensor,
    first: Tensor,
    chain: Tensor | None,
    linear: Tensor | None,
    states: Tensor,  # (N-1, S, R, columns)
    grads: Tensor,  # (N-1, S, R, columns)
    topology: Topology,
    layout: Layout,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    from restt.chain.cuda.gradients import weight_gradients

    want_first, want_chain, want_linear = wanted
    grad_first = torch.empty_like(first) if want_first else None
    grad_chain = torch.empty_like(chain) if chain is not None and want_chain else None
    grad_linear = torch.empty_like(linear) if linear is not None and want_linear else None
    if grad_first is None and grad_chain is None and grad_linear is None:
        return [None, None, None]
    runs, width, bond = first.shape
    sites = len(states)
    launch = weight_launch(layout)
    flags = _device_flags(topology, x.device)
    across, down = -(-bond // launch.columns), -(-bond // launch.rows)
    tiles = across * (down if grad_chain is not None else 1)
    weight_gradients[(sites * width, runs, tiles)](
        _or(grad_chain, states), _or(grad_linear, states), _or(grad_first, states), states, grads, x,
        flags, sites - 1, x.shape[1], states.shape[-1], runs, x.stride(0) if x.shape[0] > 1 else 0,
        *x.stride()[1:], I=width, BOND=bond, K=launch.rows, L=launch.columns, BB=launch.batch, STAGES=launch.stages,
        PRECISION=layout.precision, CORE=grad_chain is not None,
        ENTRY=(grad_first is not None) + 2 * (grad_linear is not None), num_warps=launch.warps, num_stages=1,
    )  # fmt: skip
    return [grad_first, grad_chain, grad_linear]


def _head_gradients(
    x: Tensor,
    head: tuple[Tensor | None, Tensor | None, Tensor | None],
    last: Tensor,  # (S, R, columns)
    leaving: Tensor,  # (S, R, columns)
    grad_output: Tensor,  # (S, B, O)
    layout: Layout,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    from restt.chain.cuda.gradients import head_gradients

    gradients = [
        torch.empty_like(weight) if weight is not None and want else None
        for weight, want in zip(head, wanted, strict=True)
    ]
    if all(gradient is None for gradient in gradients):
        return gradients
    grad_chain, grad_linear, grad_skip = gradients
    runs, bond, columns = last.shape
    outputs = grad_output.shape[-1]
    rows, across = layout.tile, head_tile(outputs)
    grid = (x.shape[-1] + 1, runs, -(-bond // rows) * -(-outputs // across))
    head_gradients[grid](
        _or(grad_chain, last), _or(grad_linear, last), _or(grad_skip, last), last, leaving, grad_output,
        x[:, :, -1], x.shape[1], columns, x.stride(0) if x.shape[0] > 1 else 0, x.stride(1), x.stride(3), outputs,
        I=x.shape[-1], BOND=bond, K=rows, OT=across, BB=head_batch(), PRECISION=layout.precision,
        CHAIN_HEAD=grad_chain is not None, LINEAR_HEAD=grad_linear is not None, SKIP_HEAD=grad_skip is not None,
        num_warps=4, num_stages=2,
    )  # fmt: skip
    return gradients


def _end_features(
    at_first: Tensor,  # (S, B, I), filled
    at_last: Tensor,  # (S, B, I), filled
    first: Tensor,
    last_chain: Tensor | None,
    last_linear: Tensor | None,
    last: Tensor,  # (S, R, columns), y(N-1)
    grad: Tensor,  # (S, R, columns), dL/dy(1)
    grad_output: Tensor,
) -> None:
    """The features' gradient at the first and the last site, where there is no sweep to share."""
    batch = at_first.shape[1]
    at_first.copy_((first @ grad[..., :batch]).transpose(1, 2))
    at_last.zero_()
    if last_chain is not None:
        reached = torch.einsum("siko,skb->sbio", last_chain, last[..., :batch])
        at_last += torch.einsum("sbio,sbo->sbi", reached, grad_output)
    if last_linear is not None:
        at_last += grad_output @ last_linear.transpose(1, 2)


def _or(tensor: Tensor | None, stand_in: Tensor) -> Tensor:
    """Kernels take a pointer for every argument; one whose constants switch it off is never followed."""
    return stand_in if tensor is None else tensor
