"""The fused CPU path: the whole contraction and all its gradients in compiled C (sweep.c), on torch's threads.

A tile of samples walks through all sites while each core sits in cache; nothing of size B·I·R or B·R² is ever stored.
The C code is built at first use where there is a compiler (build.py); ../README.md has the derivation and the
comparison with other means.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from restt.chain.cpu import build
from restt.chain.operators import Settings, cannot_read, contiguous, register, topology_of
from restt.chain.precision import untraced
from restt.chain.reference import ROLES, ChainWeights
from restt.topology import Topology

# Bytes of x ⊗ g that the backward sweep may leave for the weight gradients: a share of a usual last-level cache.
_SITE_SCRATCH_BYTES = 4 * 2**20

# Blocks of states that are used again: the system hands out large ones page by page, which costs several times what
# filling them does.
_KEPT_FROM_BYTES, _KEPT_UP_TO_BYTES = 4 * 2**20, 2**30

# Below this many floating point operations waking a second thread costs more than it saves.
_SERIAL_OPERATIONS = 2_000_000

_SIZES = ("runs", "x_runs", "batch", "sites", "width", "bond", "outputs", "packed")
_STRIDES = ("x_run", "x_sample", "x_site", "x_feature", "g_run", "g_sample", "g_output")
_PLAN = ("threads", "keep_every", "site_scratch", "saved_size", "forward_size", "backward_size")
_POINTERS = (
    *("flags", "offsets", "x", "first", "chain", "linear", "last_chain", "last_linear", "last_skip"),
    *("output", "grad_output"),
    *("grad_x", "grad_first", "grad_chain", "grad_linear", "grad_last_chain", "grad_last_linear", "grad_last_skip"),
    *("saved", "scratch", "parallel"),
)


class _Chain(ctypes.Structure):
    """``struct chain`` of work.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in (*_SIZES, *_STRIDES, *_PLAN)),
        *((name, ctypes.c_void_p) for name in _POINTERS),
    ]


# The addresses from x to the scratch are adjacent: setting them in one call takes a fraction of the time.
_ADDRESSES, _FIRST_ADDRESS = struct.Struct(f"{len(_POINTERS) - 3}P"), _Chain.x.offset
_NO_GRADIENTS = (0,) * (2 + len(ROLES))


class _Library(NamedTuple):
    plan: Any
    forward: Any
    backward: Any
    tile: int  # samples that are stored together


_libraries: dict[torch.dtype, _Library] = {}


def unsupported(x: Tensor, weights: ChainWeights, topology: Topology) -> str | None:
    """Why this path cannot take these inputs, or None."""
    if cannot_read(x):
        return "compiled code cannot be traced"
    if not x.is_cpu:
        return f"it runs on the CPU, x is on {x.device}"
    if x.dtype not in build.TYPES:
        return f"it takes float32 and float64, x is {x.dtype}"
    return _problem(x.dtype)


@untraced  # what is loaded while a module is compiled must not have it compiled again
def _problem(dtype: torch.dtype) -> str | None:
    return None if dtype in _libraries else build.problem(dtype)


def _forward(tensors: Sequence[Any], settings: Settings) -> tuple[Tensor, Tensor]:
    """The output, and the states with the features as the backward pass reads them."""
    x, *roles = tensors
    first, outputs = roles[0], settings.outputs
    # C is given addresses: names keep those tensors alive until the call is over.
    weights = contiguous(roles)
    call, buffers = _call(x, first, settings, grad_x=False)
    saved, work = uninitialised(call.saved_size, x), x.new_empty(call.forward_size)
    shape = (call.batch, outputs) if first.dim() == 2 else (call.runs, call.batch, outputs)
    output = x.new_empty(shape)
    _ADDRESSES.pack_into(
        call, _FIRST_ADDRESS, x.data_ptr(), *_addresses(weights), output.data_ptr(), *_NO_GRADIENTS,
        saved.data_ptr(), work.data_ptr(),
    )  # fmt: skip
    _library(x.dtype).forward(ctypes.byref(call))
    del buffers
    return output, saved


def _forward_fake(tensors: Sequence[Any], settings: Settings) -> tuple[Tensor, Tensor]:
    x, first = tensors[:2]
    axis = x.dim() - (2 if settings.widths else 3)
    # Only the batch may be a symbol here, and what is saved grows with its whole tiles.
    one_tile = (*map(int, x.shape[:axis]), 1, *map(int, x.shape[axis + 1 :]))
    sizes = one_tile, (0,) * x.dim(), tuple(map(int, first.shape))
    plan, _ = _planned(x.dtype, *sizes, *settings[:2], tuple(settings.widths), settings.keep, 1, False)
    tile = _library(x.dtype).tile
    tiles = (x.shape[axis] + tile - 1) // tile
    return x.new_empty(*first.shape[:-2], x.shape[axis], settings.outputs), x.new_empty(tiles * plan.saved_size)


def _backward(
    grad: Tensor,  # (S, B, O)
    tensors: Sequence[Any],
    settings: Settings,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    x, *roles, saved = tensors
    weights = contiguous(roles)
    call, buffers = _call(x, roles[0], settings, grad_x=wanted[0])
    # Dense, whatever the strides of x.
    gradients: list[Tensor | None] = [x.new_empty(x.shape) if wanted[0] else None]
    gradients += [
        torch.empty_like(t) if t is not None and want else None for t, want in zip(weights, wanted[1:], strict=True)
    ]
    work = x.new_empty(call.backward_size)
    strides = grad.stride()
    call.g_run, call.g_sample, call.g_output = strides[0], strides[-2], strides[-1]
    _ADDRESSES.pack_into(
        call, _FIRST_ADDRESS, x.data_ptr(), *_addresses(weights), 0, grad.data_ptr(), *_addresses(gradients),
        saved.data_ptr(), work.data_ptr(),
    )  # fmt: skip
    _library(x.dtype).backward(ctypes.byref(call))
    del buffers
    return gradients


_contract = register(
    "fused_cpu", "CPU", saved=("saved",), forward=_forward, forward_fake=_forward_fake, backward=_backward
)


def contract(
    x: Tensor,  # (S or 1, B, N, I), or packed (S or 1, B, ΣI)
    weights: ChainWeights,
    topology: Topology,
    widths: tuple[int, ...] = (),  # of the sites where x is packed
) -> Tensor:  # (S, B, O)
    """The output of Algorithm 1; x, weights and output may all be without the runs axis.

    Of packed features each site costs its own width, less where features are zero in a whole tile.
    """
    return _contract(x, weights, topology, widths, "float32")


def _call(x: Tensor, first: Tensor, settings: Settings, *, grad_x: bool) -> tuple[_Chain, Any]:
    """The structure for C without addresses of tensors, and the buffers it points to, which must outlive the call."""
    outputs, connections, widths, _, keep = settings
    sizes = x.dtype, x.shape, x.stride(), first.shape
    plan, buffers = _planned(*sizes, outputs, connections, tuple(widths), keep, torch.get_num_threads(), grad_x)
    return _Chain.from_buffer_copy(plan), buffers


@lru_cache(maxsize=1024)
def _planned(
    dtype: torch.dtype,
    x_shape: tuple[int, ...],
    x_stride: tuple[int, ...],
    first_shape: tuple[int, ...],
    outputs: int,
    connections: str,
    widths: tuple[int, ...],
    keep: bool,
    threads: int,
    grad_x: bool,
) -> tuple[_Chain, Any]:
    """The sizes of one kind of call, worked out once."""
    flags = topology_of(connections).connection_flags
    plan = _Chain()
    plan.sites, plan.packed, plan.x_run = len(flags) + 1, bool(widths), x_stride[0]
    if widths:
        plan.batch, plan.x_sample, plan.x_feature = x_shape[-2], *x_stride[-2:]
        plan.x_runs = x_shape[0] if len(x_shape) == 3 else 1
    else:
        plan.batch, plan.x_sample, plan.x_site, plan.x_feature = x_shape[-3], *x_stride[-3:]
        plan.x_runs = x_shape[0] if len(x_shape) == 4 else 1
    plan.runs, plan.width, plan.bond = first_shape[0] if len(first_shape) == 3 else 1, *first_shape[-2:]
    offsets = _offsets(widths or (plan.width,) * plan.sites)
    operations = 2 * plan.runs * plan.batch * offsets[-1] * plan.bond**2
    plan.threads, plan.parallel = threads if operations > _SERIAL_OPERATIONS else 1, build.thread_team()
    plan.outputs, plan.flags, plan.keep_every = outputs, _address(flags), 1 if keep else plan.sites
    plan.offsets = ctypes.addressof(offsets)
    plan.site_scratch = _SITE_SCRATCH_BYTES // dtype.itemsize
    plan.grad_x = 1 if grad_x else None  # C only compares it with NULL here
    _library(dtype).plan(ctypes.byref(plan))
    plan.grad_x = None
    return plan, (flags, offsets)


@lru_cache(maxsize=256)
def _offsets(widths: tuple[int, ...]) -> ctypes.Array[ctypes.c_int64]:
    """Place of each site's first feature among all, and the number of all."""
    return (ctypes.c_int64 * (len(widths) + 1))(0, *accumulate(widths))


_spare: deque[Tensor] = deque(maxlen=1)  # the last block that was freed


def uninitialised(count: int, like: Tensor) -> Tensor:
    """An uninitialised vector of ``count`` numbers as those of ``like``, whose memory may be kept for the next one.

    >>> uninitialised(3, torch.ones(1, dtype=torch.float64)).shape
    torch.Size([3])
    """
    size = count * like.itemsize
    if not _KEPT_FROM_BYTES <= size <= _KEPT_UP_TO_BYTES:
        return like.new_empty(count)  # unlike torch.empty, wherever the default device is
    try:
        block = _spare.pop()
    except IndexError:
        block = like.new_empty(0, dtype=torch.uint8)
    if not size <= block.numel() <= 2 * size:  # a much larger one would keep memory from the program for nothing
        block = like.new_empty(size, dtype=torch.uint8)
    lease = (ctypes.c_byte * size).from_address(block.data_ptr())
    weakref.finalize(lease, _spare.append, block).atexit = False
    return torch.frombuffer(lease, dtype=like.dtype, count=count)


def _address(flags: bytes) -> int | None:
    """Address of the bytes, which the caller keeps alive while it is used."""
    return ctypes.cast(ctypes.c_char_p(flags), ctypes.c_void_p).value


def _addresses(tensors: Iterable[Tensor | None]) -> list[int]:
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]


def _library(dtype: torch.dtype) -> _Library:
    if dtype not in _libraries:
        loaded = build.load(dtype)
        if loaded.restt_chain_bytes() != ctypes.sizeof(_Chain):
            raise RuntimeError("work.h and contraction.py disagree about struct chain")
        functions = (loaded.restt_plan, loaded.restt_forward, loaded.restt_backward)
        for function in functions:
            function.argtypes, function.restype = [ctypes.c_void_p], None
        _libraries[dtype] = _Library(*functions, tile=loaded.restt_tile())
    return _libraries[dtype]
