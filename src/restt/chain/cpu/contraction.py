"""The fused CPU path: the whole contraction and all its gradients in compiled C (sweep.c), on torch's threads.

A tile of samples walks through all sites while each core sits in cache; nothing of size B·I·R or B·R² is ever stored.
The C code is built at first use where there is a compiler (build.py); ../README.md has the derivation and the
comparison with other means.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from restt.chain.cpu import build
from restt.chain.cpu.memory import uninitialised
from restt.chain.recompute import segment_length
from restt.chain.reference import ROLES, ChainWeights
from restt.chain.sweep import contiguous, plain_contraction_gradients, wants_plain_operations
from restt.topology import Topology

# Bytes of x ⊗ g that the backward sweep may leave for the weight gradients: a share of a usual last-level cache.
_SITE_SCRATCH_BYTES = 4 * 2**20

# Below this many floating point operations waking a second thread costs more than it saves.
_SERIAL_OPERATIONS = 2_000_000

_SIZES = ("runs", "x_runs", "batch", "sites", "width", "bond", "outputs", "packed")
_STRIDES = ("x_run", "x_sample", "x_site", "x_feature", "g_run", "g_sample", "g_output")
_PLAN = ("threads", "keep_every", "site_scratch", "saved_size", "forward_size", "backward_size")
_POINTERS = (
    *(
        "flags",
        "offsets",
        "x",
        "first",
        "chain",
        "linear",
        "last_chain",
        "last_linear",
        "last_skip",
        "output",
        "grad_output",
    ),
    *("grad_x", "grad_first", "grad_chain", "grad_linear", "grad_last_chain", "grad_last_linear", "grad_last_skip"),
    *("saved", "scratch", "parallel"),
)


class _Chain(ctypes.Structure):
    """``struct chain`` of work.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in (*_SIZES, *_STRIDES, *_PLAN)),
        *((name, ctypes.c_void_p) for name in _POINTERS),
    ]


class _Library(NamedTuple):
    plan: Any
    forward: Any
    backward: Any


_libraries: dict[torch.dtype, _Library] = {}


def contract(
    x: Tensor,  # (S or 1, B, N, I)
    weights: ChainWeights,
    topology: Topology,
) -> Tensor:  # (S, B, O)
    """The output of Algorithm 1."""
    if topology.sites == 1:
        return x[:, :, 0] @ weights.first
    return _contracted(x, weights, topology, None)


def contract_packed(
    x: Tensor,  # (S or 1, B, ΣI)
    weights: ChainWeights,
    topology: Topology,
    widths: tuple[int, ...],
) -> Tensor:  # (S, B, O)
    """The output for packed features: each site costs its own width, less where features are zero in a whole tile."""
    if topology.sites == 1:
        return x @ weights.first
    return _contracted(x, weights, topology, widths)


def _contracted(x: Tensor, weights: ChainWeights, topology: Topology, widths: tuple[int, ...] | None) -> Tensor:
    tensors = (x, *weights[:-1])
    # Inside forward() gradients are off, so this is the place to ask whether there will be a backward pass.
    training = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
    output: Tensor = _Contraction.apply(*tensors, weights.outputs, topology, widths, training)
    return output


def unsupported(x: Tensor, weights: ChainWeights, topology: Topology) -> str | None:
    """Why this path cannot take these inputs, or None."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or type(x) not in (Tensor, torch.nn.Parameter):
        return "compiled code cannot be traced"
    if x.device.type != "cpu":
        return f"it runs on the CPU, x is on {x.device}"
    if x.dtype not in build.TYPES:
        return f"it takes float32 and float64, x is {x.dtype}"
    return build.problem(x.dtype)


class _Contraction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *given: Any) -> Tensor:
        *roles, outputs, topology, widths, training = given
        library = _library(x.dtype)
        # C is given addresses: what lies there is held by a name until the call is over.
        weights, flags = contiguous(roles), topology.connection_flags
        offsets = _offsets(widths or (weights[0].shape[1],) * topology.sites)
        chain = _described(x, weights, outputs, flags, widths is not None)
        chain.offsets = ctypes.addressof(offsets)
        chain.keep_every = segment_length(topology.sites - 2) if training else max(2, topology.sites)
        library.plan(ctypes.byref(chain))
        saved, scratch = uninitialised(chain.saved_size, x.dtype), torch.empty(chain.forward_size, dtype=x.dtype)
        output = torch.empty(chain.runs, chain.batch, chain.outputs, dtype=x.dtype)
        chain.saved, chain.scratch, chain.output = saved.data_ptr(), scratch.data_ptr(), output.data_ptr()
        library.forward(ctypes.byref(chain))
        if training:
            ctx.save_for_backward(saved, x, *roles)
            ctx.chain, ctx.topology, ctx.widths, ctx.offsets = chain, topology, widths, offsets
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved, *inputs = ctx.saved_tensors
        wanted = ctx.needs_input_grad[: len(inputs)]
        if wants_plain_operations(grad):
            again = plain_contraction_gradients(inputs, wanted, grad, ctx.chain.outputs, ctx.topology, ctx.widths)
            return (*again, None, None, None, None)
        library = _library(saved.dtype)
        weights, flags = contiguous(inputs[1:]), ctx.topology.connection_flags
        chain = _Chain.from_buffer_copy(ctx.chain)
        chain.flags = _address(flags)
        _point_to(chain, weights)
        grads: list[Tensor | None] = [None] * len(inputs)
        for n, (name, tensor) in enumerate(zip(("x", *ROLES), inputs, strict=True)):
            if tensor is not None and wanted[n]:
                grads[n] = made = torch.empty(tensor.shape, dtype=saved.dtype)
                setattr(chain, f"grad_{name}", made.data_ptr())
        chain.threads = _threads(chain)
        library.plan(ctypes.byref(chain))
        scratch = torch.empty(chain.backward_size, dtype=saved.dtype)
        chain.g_run, chain.g_sample, chain.g_output = grad.stride()
        chain.grad_output, chain.saved, chain.scratch = grad.data_ptr(), saved.data_ptr(), scratch.data_ptr()
        library.backward(ctypes.byref(chain))
        return (*grads, None, None, None, None)


def _address(flags: bytes) -> int | None:
    """Where the bytes lie; the caller holds them for as long as the address is used."""
    return ctypes.cast(ctypes.c_char_p(flags), ctypes.c_void_p).value


@lru_cache(maxsize=256)
def _offsets(widths: tuple[int, ...]) -> ctypes.Array[ctypes.c_int64]:
    """Where each site's features begin among all, and how many there are; the caller holds it while C reads it."""
    return (ctypes.c_int64 * (len(widths) + 1))(0, *accumulate(widths))


def _described(x: Tensor, weights: list[Tensor | None], outputs: int, flags: bytes, packed: bool) -> _Chain:
    first = weights[0]
    assert first is not None
    chain = _Chain()
    chain.x_runs, chain.batch, chain.sites, chain.packed = *x.shape[:2], len(flags) + 1, packed
    chain.x_run, chain.x_sample, chain.x_feature = x.stride(0), x.stride(1), x.stride(-1)
    chain.x_site = 0 if packed else x.stride(2)
    chain.runs, chain.width, chain.bond = first.shape
    chain.outputs, chain.flags, chain.x = outputs, _address(flags), x.data_ptr()
    chain.site_scratch = _SITE_SCRATCH_BYTES // x.element_size()
    _point_to(chain, weights)
    chain.threads, chain.parallel = _threads(chain), build.thread_team()
    return chain


def _point_to(chain: _Chain, weights: list[Tensor | None]) -> None:
    for name, tensor in zip(ROLES, weights, strict=True):
        if tensor is not None:
            setattr(chain, name, tensor.data_ptr())


def _threads(chain: _Chain) -> int:
    operations = 2 * chain.runs * chain.batch * chain.sites * chain.width * chain.bond**2
    return torch.get_num_threads() if operations > _SERIAL_OPERATIONS else 1


def _library(dtype: torch.dtype) -> _Library:
    if dtype not in _libraries:
        loaded = build.load(dtype)
        if loaded.restt_chain_bytes() != ctypes.sizeof(_Chain):
            raise RuntimeError("work.h and contraction.py disagree about struct chain")
        functions = (loaded.restt_plan, loaded.restt_forward, loaded.restt_backward)
        for function in functions:
            function.argtypes, function.restype = [ctypes.c_void_p], None
        _libraries[dtype] = _Library(*functions)
    return _libraries[dtype]
