"""What the benchmark asks of the machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

# Share of the memory still free that one contender may plan to use.
USABLE_SHARE = 0.7


def synchronizer(device: str) -> Callable[[], object] | None:
    """Waits for the device's queue; None where calls return when they are done."""
    return torch.cuda.synchronize if torch.device(device).type == "cuda" else None


def usable_bytes(device: str) -> int | None:
    """Memory a contender may plan to use, or None where the machine does not say."""
    if torch.device(device).type == "cuda":
        return int(USABLE_SHARE * torch.cuda.mem_get_info(device)[0])
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return None
    line = next((line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable")), None)
    return None if line is None else int(USABLE_SHARE * 1024 * int(line.split()[1]))
