"""Tensors whose memory is used again.

The system hands out large blocks page by page, which costs several times what filling them does. Training needs a block
of the same size for its states every step, so one is kept. Small blocks of a call's own are kept for another reason:
making a tensor takes longer than what a small call does with it.
"""

from __future__ import annotations

import ctypes
import threading
import weakref

import torch
from torch import Tensor

from restt._common.compat_torch import no_dispatch

_KEPT_FROM_BYTES = 4 * 2**20
_KEPT_UP_TO_BYTES = 2**30

# What each thread keeps for the calls it makes one after the other.
_SCRATCH_BYTES = 2**18

_spare: list[Tensor] = []  # at most one: the last that was freed


def uninitialised(count: int, like: Tensor) -> Tensor:
    """An uninitialised vector of ``count`` numbers as those of ``like``, a tensor on the CPU.

    When its last user is gone the memory may be kept.

    >>> uninitialised(3, torch.ones(1, dtype=torch.float64)).shape
    torch.Size([3])
    """
    size = count * like.itemsize
    if not _KEPT_FROM_BYTES <= size <= _KEPT_UP_TO_BYTES:
        return like.new_empty(count)  # unlike torch.empty, wherever the default device is
    block = _taken(size)
    lease = (ctypes.c_byte * size).from_address(block.data_ptr())
    weakref.finalize(lease, _give_back, block).atexit = False
    return torch.frombuffer(lease, dtype=like.dtype, count=count)


class _Scratch(threading.local):
    def __init__(self) -> None:
        # The first use may be within a trace, whose tensors have no memory, or where another device is the default.
        with no_dispatch():
            self.block = torch.empty(_SCRATCH_BYTES, dtype=torch.uint8, device="cpu")


_scratch = _Scratch()


def scratch(count: int, like: Tensor) -> Tensor:
    """Uninitialised memory of at least ``count`` numbers as those of ``like``, valid until this thread's next call."""
    if count * like.itemsize <= _SCRATCH_BYTES:
        return _scratch.block
    return like.new_empty(count)


def _taken(size: int) -> Tensor:
    try:
        block = _spare.pop()
    except IndexError:
        return torch.empty(size, dtype=torch.uint8, device="cpu")
    # A much larger one would keep memory from the rest of the program for nothing.
    fits = size <= block.numel() <= 2 * size
    return block if fits else torch.empty(size, dtype=torch.uint8, device="cpu")


def _give_back(block: Tensor) -> None:
    _spare[:] = [block]
