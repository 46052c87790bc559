"""Independent random streams: run k's randomness is the same alone or among many."""

from __future__ import annotations

import torch


def fresh_seed() -> int:
    """A seed drawn from torch's global generator, so that ``torch.manual_seed`` governs everything."""
    return int(torch.randint(0, 2**63 - 1, ()).item())


def run_generator(seed: int, run: int, stream: int = 0) -> torch.Generator:
    """The CPU generator of child ``run`` of the seed sequence ``seed``; ``stream`` separates purposes within a run."""
    import numpy as np

    child = np.random.SeedSequence(seed, spawn_key=(run, stream))
    state = int(child.generate_state(1, np.uint64)[0]) >> 1  # torch seeds are signed 64-bit
    return torch.Generator().manual_seed(state)
