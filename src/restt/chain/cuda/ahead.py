"""Kernels compiled before they are needed, into Triton's cache on the disk.

A kernel is compiled for a tile of the bond dimension, a number of features per loop step, a batch tile, a precision and
a kind of topology, not for single sizes; the usual ones are a few hundred, compiled side by side in seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from restt.chain.cuda.calls import KernelCall
from restt.chain.cuda.launch import Layout
from restt.chain.cuda.plans import Sizes, backward_plan, core_block, forward_plan
from restt.topology import Topology


@dataclass(frozen=True)
class UsualSizes:
    """Sizes of the chains that are compiled ahead: one of each tile, number of features per step and batch tile."""

    bond_dims: tuple[int, ...] = (10, 20, 50, 100)
    widths: tuple[int, ...] = (2, 4, 5, 6, 8)
    batches: tuple[int, ...] = (512, 4096)  # of a step: of restt.train, of a refinement on a GPU
    evaluated: int = 2048  # rows of a forward pass without a backward one
    outputs: int = 10


def compile_ahead(device: torch.device, precisions: Iterable[str]) -> int:
    """Compile the kernels of residual chains of the usual sizes; returns how many there are."""
    calls: dict[str, tuple[KernelCall, str, bool]] = {}
    for precision in precisions:
        for call, kind, tma in _launches(device, precision, UsualSizes()):
            calls.setdefault(f"{call.kernel.__name__} {kind} {tma} {sorted(call.constants.items())}", (call, kind, tma))
    jobs = list(calls.values())
    _compile(device, *jobs[0])  # Triton's own tables are made by the first
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: _compile(device, *job), jobs[1:]))
    return len(jobs)


def _launches(device: torch.device, precision: str, usual: UsualSizes) -> Iterator[tuple[KernelCall, str, bool]]:
    """Launches of training steps and evaluations, each with its kind of cores and whether the copy engine has them."""
    connections = Topology.residual(4).connections
    for bond in usual.bond_dims:
        for width in (*usual.widths, None):
            widths = () if width else (1, 2, 3, 1)  # packed features
            per_row = sum(widths) if widths else 4 * (width or 0)
            for batch in (*usual.batches, usual.evaluated):
                shape = (batch, per_row) if widths else (batch, 4, per_row // 4)
                strides = (per_row, 1) if widths else (per_row, per_row // 4, 1)
                first = (1, max(widths, default=per_row // 4), bond)
                sizes = Sizes(shape, strides, first, usual.outputs, connections, widths, precision, device)
                training = batch != usual.evaluated
                forward = forward_plan(sizes, training)
                if forward.pack is not None:
                    yield forward.pack, precision, False
                yield forward.sweep, precision, forward.tma
                if training:
                    backward = backward_plan(sizes, (False, *[True] * 6))
                    yield backward.sweep, precision, backward.tma
                    for call in (backward.weights, backward.head):
                        if call is not None:
                            yield call, "float32", False


def _compile(device: torch.device, call: KernelCall, precision: str, tma: bool) -> None:
    """Compile the kernel of a launch without launching it."""
    with torch.cuda.device(device):
        layout = Layout(1, precision)
        number, flag = torch.zeros(16, device=device), torch.zeros(16, dtype=torch.int32, device=device)
        core = number.to(layout.dtype)
        pointers: list[Any] = []
        for name in call.pointer_names:
            if name == "p_core" and tma:
                from triton.tools.tensor_descriptor import TensorDescriptor

                block, tile = core_block(call), call.constants["R"]
                pointers.append(TensorDescriptor(core, block, [tile * tile, tile, 1], block))
            elif name in ("p_flags", "p_table"):
                pointers.append(flag)
            else:
                packed = name in ("p_forward", "p_backward") or (name == "p_core" and "BACKWARD" not in call.constants)
                pointers.append(core if packed else number)
        call.compile(*pointers)
