"""Whether a training fits: refused before any work is done, with the memory it would need."""

from __future__ import annotations

import os
from pathlib import Path

import torch

# Copies of the weights that a training holds: the module, its working copy, gradients, Adam's two moments, and two
# snapshots of weights and moments for the guard.
WEIGHT_COPIES = 11
# The chain is walked site by site; beyond this many sites one step takes minutes, whatever the memory.
MOST_SITES = 100_000


def check_fits(
    sites: int,
    width: int,
    bond_dim: int,
    outputs: int,
    runs: int,
    rows: int,
    batch: int,
    itemsize: int,
    device: torch.device,
) -> None:
    """ValueError where the weights and site vectors of such a training do not fit, or the chain is too long."""
    weights = sites * width * (bond_dim * bond_dim + bond_dim) + width * bond_dim * outputs
    vectors = rows * sites * width
    states = batch * runs * sites * bond_dim * 3
    need = (WEIGHT_COPIES * runs * weights + vectors + states) * itemsize
    free = available_memory(device)
    size = f"{sites} columns as sites of width {width} with bond_dim={bond_dim} and runs={runs} on {rows} rows"
    if need > free:
        raise ValueError(
            f"X is too large: {size} would need {gibibytes(need)}, {gibibytes(free)} are available on {device}; "
            "use fewer columns, a smaller bond_dim or fewer runs"
        )
    if sites > MOST_SITES:
        raise ValueError(
            f"X has too many columns: {size} would need {gibibytes(need)}, and a chain of more than {MOST_SITES} sites "
            "takes minutes for every step; select or group columns first"
        )


def available_memory(device: torch.device) -> float:
    """Bytes that can be had on a device; infinite where the system does not say."""
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
    """
    >>> gibibytes(3 * 2**29)
    '1.5 GiB'
    """
    return f"{size / 2**30:.1f} GiB"
