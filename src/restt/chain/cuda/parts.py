"""Pieces of the passes over a chain that its whole, its recomputed and its packed form share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from restt.chain.cuda.launch import Layout, SweepLaunch, head_launch, head_tile
from restt.chain.operators import topology_of
from restt.topology import Topology


def or_else(tensor: Tensor | None, stand_in: Tensor) -> Tensor:
    """Kernels take a pointer for every argument; one whose constants switch it off is never followed."""
    return stand_in if tensor is None else tensor


@cache
def device_flags(connections: str, device: torch.device) -> Tensor:
    """Made once per topology: a copy from the host could neither be captured nor overlap."""
    flags = topology_of(connections).connection_flags
    return torch.tensor(list(flags), dtype=torch.int32, device=device)


def sweep_constants(topology: Topology, layout: Layout) -> dict[str, Any]:
    """What every sweep over this topology is compiled with; MIXED ones read their sites' flags instead of SKIP."""
    constants = {
        "HAS_CHAIN": topology.has_chain,
        "HAS_LINEAR": topology.has_linear,
        "HAS_OUTPUT_SKIP": topology.has_output_skip,
        "ENDS_WITH_SKIP": topology.ends_with_skip,
        "LAST_CHAIN": topology.chains[-1],
        "LAST_SKIP": topology.has_skip_head,
    }
    if layout.is_wide:
        return constants
    mixed = len(set(topology.connection_flags[:-1])) > 1
    return {**constants, "MIXED": mixed, "SKIP": "none" if mixed else topology.skips[0]}


def is_folded(topology: Topology, layout: Layout) -> bool:
    """Whether a forward sweep reads the linear entries as a column of the cores: one thing less to wait for.

    There must be room in the tile. Only tf32 products round the entry no more than the core that it then lies in.
    """
    uniform = len(set(topology.connection_flags[:-1])) == 1 and topology.has_chain and topology.has_linear
    return uniform and layout.precision == "tf32" and layout.bond < layout.tile and not layout.is_wide


def block_of(layout: Layout, launch: SweepLaunch) -> list[int] | None:
    """What the copy engine fetches at once, where it does."""
    return [1, layout.tile, layout.tile] if launch.tma and not layout.is_wide else None


def operand(core: Tensor | None, block: list[int] | None, stand_in: Tensor) -> Any:
    """The packed cores (…, R, LD) as a sweep takes them: a pointer, or a descriptor for the copy engine."""
    if core is None or block is None:
        return or_else(core, stand_in)
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(core, block)


def head_weight_gradients(
    x: Tensor,  # (S or 1, B, I), of the last site
    head: Sequence[Tensor | None],  # W(N,1), W(N,2), W(N,3), of the same width
    last: Tensor,  # (S, R, columns), y(N-1)
    leaving: Tensor,  # (S, R, columns)
    grad_output: Tensor,  # (S, B, O)
    layout: Layout,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients of the output site's weights."""
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
    at_once, warps = head_launch(layout, math.prod(grid))
    head_gradients[grid](
        *(or_else(gradient, last) for gradient in gradients), last, leaving, grad_output, x, x.shape[1], columns,
        x.stride(0) if len(x) > 1 else 0, x.stride(1), x.stride(2), outputs,
        I=x.shape[-1], BOND=bond, K=rows, OT=across, BB=at_once, PRECISION=layout.precision,
        CHAIN_HEAD=grad_chain is not None, LINEAR_HEAD=grad_linear is not None, SKIP_HEAD=grad_skip is not None,
        num_warps=warps, num_stages=2,
    )  # fmt: skip
    return gradients


def end_features(
    at_first: Tensor,  # (S, B, I), filled
    at_last: Tensor,  # (S, B, I), filled
    first: Tensor,  # this and the next two as in ChainWeights, or without S
    last_chain: Tensor | None,
    last_linear: Tensor | None,
    last: Tensor,  # (S, R, columns), y(N-1)
    grad: Tensor,  # (S, R, columns), dL/dy(1)
    grad_output: Tensor,  # (S, B, O), or without S
) -> None:
    """The features' gradient at the first and the last site, where there is no sweep to share."""
    batch = at_first.shape[1]
    at_first.copy_((first @ grad[..., :batch]).transpose(1, 2))
    at_last.zero_()
    if last_chain is not None:
        runs = last_chain.reshape(-1, *last_chain.shape[-3:])
        reached = torch.einsum("siko,skb->sbio", runs, last[..., :batch])
        at_last += torch.einsum("sbio,sbo->sbi", reached, grad_output.view(len(reached), batch, -1))
    if last_linear is not None:
        at_last += grad_output @ last_linear.transpose(-1, -2)
