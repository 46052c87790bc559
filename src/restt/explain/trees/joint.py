"""Shapley values of boxes against single rows: what is between two rows of states has a closed form.

Of one box, let P be its columns where only x is inside the set and Q those where only the background's row is. If some
column has neither the game is 0 throughout; else φ is (p-1)! q!/(p+q)! in P and -p! (q-1)!/(p+q)! in Q. A box sees of a
row only which of its few columns are inside, so rows that it cannot tell apart are counted, not repeated.
"""

from __future__ import annotations

from math import factorial

import numpy as np
import torch
from torch import Tensor

from restt.explain.trees.boxes import Boxes

# Columns of a box whose pattern fits into one integer.
_MOST = 62


def against_rows(boxes: Boxes, vectors: Tensor, rows: Tensor) -> Tensor:  # (B, N, I), (M, N, I) -> (B, N, D)
    """The mean over background rows of the Shapley values of the games between them and each row."""
    inside, there = (boxes.lines(each).numpy() > 0.5 for each in (vectors, rows))  # (L, B), (L, M)
    found = np.zeros((len(boxes.sets), len(vectors), len(boxes.constant)))  # (N, B, D)
    for group in boxes.groups:
        size = group.site.shape[1]
        if size > _MOST:
            raise ValueError(f"a leaf constrains {size} columns, more than the {_MOST} of background_mode='joint'")
        gains, losses = _factors(size)
        bits = np.int64(1) << np.arange(size)
        sites, weights = group.site.numpy(), group.weights.numpy()
        for number, line in enumerate(group.line.numpy()):
            ours, place = np.unique(bits @ inside[line], return_inverse=True)  # (P,), (B,)
            theirs, counts = np.unique(bits @ there[line], return_counts=True)  # (Q,)
            values = _between(ours, theirs, counts / len(rows), size, gains, losses)  # (P, d)
            found[sites[number]] += values.T[:, place, None] * weights[number]
    return torch.from_numpy(found.transpose(1, 0, 2).copy())


def _between(
    ours: np.ndarray,  # (P,) patterns of columns inside
    theirs: np.ndarray,  # (Q,)
    shares: np.ndarray,  # (Q,) of the background
    size: int,
    gains: np.ndarray,  # (d+1, d+1)
    losses: np.ndarray,
) -> np.ndarray:  # (P, d)
    full = (np.int64(1) << size) - 1
    possible = (ours[:, None] | theirs) == full
    only_ours, only_theirs = ours[:, None] & ~theirs, ~ours[:, None] & theirs & full
    p, q = np.bitwise_count(only_ours), np.bitwise_count(only_theirs)
    gain, loss = np.where(possible, gains[p, q] * shares, 0.0), np.where(possible, losses[p, q] * shares, 0.0)
    # A column inside of ours alone gains, of theirs alone loses; summed over patterns of the background.
    places = np.arange(size)
    theirs_bits = (theirs[:, None] >> places & 1).astype(np.float64)  # (Q, d)
    ours_bits = (ours[:, None] >> places & 1).astype(np.float64)
    gained: np.ndarray = ours_bits * (gain @ (1 - theirs_bits)) - (1 - ours_bits) * (loss @ theirs_bits)
    return gained


def _factors(size: int) -> tuple[np.ndarray, np.ndarray]:  # (d+1, d+1) each
    gains, losses = np.zeros((size + 1, size + 1)), np.zeros((size + 1, size + 1))
    for p in range(size + 1):
        for q in range(size + 1 - p):
            if p:
                gains[p, q] = factorial(p - 1) * factorial(q) / factorial(p + q)
            if q:
                losses[p, q] = factorial(p) * factorial(q - 1) / factorial(p + q)
    return gains, losses
