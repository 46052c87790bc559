"""Sequences as arrays of steps: read, standardised by channel, padded with zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Standardised values beyond this many standard deviations are clipped: products over steps would grow with them.
LARGEST = 3.0


def read_sequences(X: Any) -> list[np.ndarray]:  # B of (T, channels)
    """Sequences from an array (B, T) or (B, T, channels), or from a list of (T,) or (T, channels) of any lengths."""
    if isinstance(X, np.ndarray) and X.dtype != object and X.ndim not in (2, 3):
        raise ValueError(f"X must have shape (B, T) or (B, T, channels), or be a list of sequences, got {X.shape}")
    found = []
    for place, sequence in enumerate(X):
        values = np.asarray(sequence, dtype=np.float64)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2:
            raise ValueError(f"sequence {place} of X must have shape (T,) or (T, channels), got {values.shape}")
        if values.size == 0:
            raise ValueError(f"sequence {place} of X must have at least one step and channel, got length 0")
        if not np.isfinite(values).all():
            raise ValueError(f"sequence {place} of X must be finite, got {values[~np.isfinite(values)][0]}")
        found.append(values)
    if not found:
        raise ValueError("X must hold at least one sequence, got none")
    channels = found[0].shape[1]
    for place, values in enumerate(found):
        if values.shape[1] != channels:
            raise ValueError(f"sequence {place} of X has {values.shape[1]} channels, the first has {channels}")
    return found


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and standard deviation of each channel, and of its changes from step to step."""

    mean: np.ndarray  # (channels,)
    std: np.ndarray  # (channels,)
    change: np.ndarray  # (channels,)

    @classmethod
    def fit(cls, sequences: Sequence[np.ndarray]) -> Scaling:
        """From the steps of all sequences."""
        steps = np.concatenate(list(sequences))
        changes = np.concatenate([np.diff(values, axis=0, prepend=values[:1]) for values in sequences])
        return cls(steps.mean(axis=0), _positive(steps.std(axis=0)), _positive(changes.std(axis=0)))

    @property
    def width(self) -> int:
        """Features of a step."""
        return 1 + 2 * len(self.mean)

    def features(self, sequences: Sequence[np.ndarray]) -> Tensor:  # (B, T, 1 + 2 channels)
        """One, the values and their changes, within ±1, of each step; zeros beyond the end of a sequence."""
        if sequences[0].shape[1] != len(self.mean):
            raise ValueError(f"X must have {len(self.mean)} channels, as in the fit, got {sequences[0].shape[1]}")
        found = torch.zeros(len(sequences), max(map(len, sequences)), self.width)
        for place, values in enumerate(sequences):
            change = np.diff(values, axis=0, prepend=values[:1]) / self.change
            parts = [np.full((len(values), 1), LARGEST), (values - self.mean) / self.std, change]
            found[place, : len(values)] = torch.from_numpy(np.hstack(parts).clip(-LARGEST, LARGEST) / LARGEST)
        return found


def _positive(std: np.ndarray) -> np.ndarray:
    return np.where(std > 0, std, 1.0)
