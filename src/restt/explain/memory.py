"""Slices of rows and of states that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass
class Memory:
    """Numbers of 8 bytes each; blocks of states fit a processor's cache, rows a small machine or an accelerator."""

    cpu: int = 2**24
    accelerator: int = 2**28
    block: int = 2**21  # of products of states and rows
    pairs: int = 2**22  # of matrices of all sites for a block of pairs of states
    rows: int = 256  # rows of x beside a block of states


MEMORY = Memory()


def slices(count: int, step: int) -> Iterator[slice]:
    """Consecutive slices of at most ``step``.

    >>> list(slices(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return (slice(start, min(count, start + step)) for start in range(0, count, step))


def row_chunks(rows: int, numbers_per_row: int, device: torch.device) -> Iterator[slice]:
    """Slices of rows of which so many numbers each fit into memory."""
    budget = MEMORY.cpu if device.type == "cpu" else MEMORY.accelerator
    return slices(rows, max(1, budget // max(1, numbers_per_row)))
