"""Independent random streams: run k's randomness is the same alone or among many.

Initial weights come from a generator for each run. The draws of a training are functions of where they are used: there
is no generator state to save or to fall out of step. Number ``i`` of such a stream is splitmix64
(Steele, Lea, Flood 2014) at counter ``i``, computed on the device for all runs at once. A stream belongs to (seed, run,
purpose, epoch); run k's numbers are therefore the same alone or among many, on any device, in a resumed training and in
a batch that had to be split.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

PURPOSES = ("order", "dropout", "augment")

_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_MIX = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
_MANTISSA = 24


def fresh_seed() -> int:
    """Draw a seed from torch's global generator, so that ``torch.manual_seed`` governs everything."""
    return int(torch.randint(0, 2**63 - 1, (), device="cpu").item())


def run_generator(seed: int, run: int, stream: int = 0) -> torch.Generator:
    """Return the CPU generator of child ``run`` of a seed sequence; ``stream`` separates purposes within a run."""
    import numpy as np

    child = np.random.SeedSequence(seed, spawn_key=(run, stream))
    state = int(child.generate_state(1, np.uint64)[0]) >> 1  # torch seeds are signed 64-bit
    return torch.Generator().manual_seed(state)


def stream_keys(
    seeds: Sequence[int],  # one per run
    run_ids: Sequence[int],  # one per run: which child of its seed sequence the run is
    purpose: str,
    epoch: int,
    device: torch.device | str = "cpu",
) -> Tensor:  # (S,) int64
    """Return one key per run for a purpose in an epoch. Stream 0 of a run is its initial weights."""
    stream = 1 + PURPOSES.index(purpose) + len(PURPOSES) * epoch
    keys = [run_generator(seed, run, stream).initial_seed() for seed, run in zip(seeds, run_ids, strict=True)]
    return torch.tensor(keys, dtype=torch.int64).to(device)


def bits(
    keys: Tensor,  # (S,)
    shape: tuple[int, ...],
    offset: int = 0,
) -> Tensor:  # (S, *shape) int64
    """Draw 64 random bits per entry: numbers ``offset`` … of each run's stream.

    >>> bits(torch.tensor([7, 8]), (3,), offset=1)[1].equal(bits(torch.tensor([8]), (4,))[0, 1:])
    True
    """
    count = 1
    for size in shape:
        count *= size
    counter = torch.arange(1 + offset, 1 + offset + count, device=keys.device).view(1, *shape)
    z = counter * _GAMMA + keys.view(-1, *[1] * len(shape))
    z = (z ^ _logical_shift(z, 30)) * _MIX[0]
    z = (z ^ _logical_shift(z, 27)) * _MIX[1]
    return z ^ _logical_shift(z, 31)


def uniform(
    keys: Tensor,  # (S,)
    shape: tuple[int, ...],
    offset: int = 0,
) -> Tensor:  # (S, *shape) float32 in [0, 1)
    """Draw numbers ``offset`` … of each run's stream, uniform in [0, 1).

    >>> keys = stream_keys([0, 0], [0, 1], "dropout", epoch=3)
    >>> uniform(keys, (2, 5)).shape
    torch.Size([2, 2, 5])
    """
    return _logical_shift(bits(keys, shape, offset), 64 - _MANTISSA).to(torch.float32) * 2.0**-_MANTISSA


def _logical_shift(z: Tensor, by: int) -> Tensor:
    """``z >> by`` of the unsigned number with the same bits; torch's own shift repeats the sign."""
    return (z >> by) & ((1 << (64 - by)) - 1)
