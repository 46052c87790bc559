"""Devices, threads and memory of a computation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from restt._common.errors import shown

Item = TypeVar("Item")
Result = TypeVar("Result")

if hasattr(os, "register_at_fork"):
    # torch's threads do not survive a fork: the first product on several of them in the child would wait forever.
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))

# Kinds of devices that models train on.
DEVICES = ("cpu", "cuda", "mps")
# Multiplications of one epoch (rows · Σ widths · r² · runs) below which a GPU would only wait for its launches.
SMALL_FOR_GPU = 2e8
# Multiplications of one step (rows · Σ widths · r² · runs) below which several threads only wait for each other.
SMALL_FOR_THREADS = 1e8


def read_device(device: Any, work: float) -> torch.device:
    """Return a usable torch device; ``"auto"`` takes the GPU where there is one and enough to do."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() and work > SMALL_FOR_GPU else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        chosen = None
    if chosen is None or chosen.type not in DEVICES:
        raise ValueError(f'device must be "auto", "cpu", "cuda", "cuda:N" or "mps", got {shown(device)}')
    count = _count_devices(chosen.type)
    # torch keeps an index in a byte, so "cuda:256" comes back as another one; the text still has the index.
    if max(chosen.index or 0, int(str(device).partition(":")[2] or 0)) >= count:
        known = f"{count or 'no'} {chosen.type.upper()} device{'s' if count > 1 else ''}"
        raise ValueError(f"device is {shown(str(device))}, but torch finds {known}")
    return chosen


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Make a GPU the one that kernels of this thread are launched on; nothing for another kind of device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _count_devices(kind: str) -> int:
    if kind == "cuda":
        return torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    return 1


@contextmanager
def fitting_threads(work: float) -> Iterator[None]:
    """Use one thread for products so small that several would be slower, by far so on a busy machine."""
    before = torch.get_num_threads()
    if work > SMALL_FOR_THREADS or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_threads(task: Callable[[Item], Result], items: Iterable[Item], threads: int) -> list[Result]:
    """Do a task for each item, so many at a time."""
    if threads == 1:
        return [task(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(task, items))


def available_memory(device: torch.device) -> float:
    """Return the bytes that are free on a device; infinite where that is unknown."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * float(line.split()[1])
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return float("inf")


def gibibytes(size: float) -> str:
    """Format a number of bytes in GiB.

    >>> gibibytes(3 * 2**29)
    '1.5 GiB'
    """
    return f"{size / 2**30:.1f} GiB"
