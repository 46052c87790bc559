"""One weight tensor for all tasks, by its factors: the three factorisations of Yang and Hospedales (2017).

The weights of a layer in T networks are stacked to 𝒲 (D_1 × … × D_n × T), the task last. What tasks share is what a
factorisation of 𝒲 shares:

    LAF      𝒲 = L · S              L (D_1⋯D_n × K), S (K × T): last axis flattening
    Tucker   𝒲 = C ×_1 U_1 … ×_{n+1} U_{n+1}      C (K_1 × … × K_{n+1}), U_m (K_m × D_m)
    TT       𝒲 = G_1 · G_2 ⋯ G_{n+1}              G_m (K_{m-1} × D_m × K_m), K_0 = K_{n+1} = 1

Ranks follow from a given 𝒲 and the share of its squared norm that each truncated singular value decomposition may
lose. All functions work on tensors with the runs axis S in front; ranks are those of the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Factors = list[Tensor]


def laf(stacked: Tensor, lost: float) -> Factors:  # (S, D_1, …, D_n, T) -> L, S
    """Factorise all other axes against the last by a truncated SVD.

    >>> [tuple(factor.shape) for factor in laf(torch.ones(2, 3, 4, 5), 0.1)]
    [(2, 12, 1), (2, 1, 5)]
    """
    left, values, right = torch.linalg.svd(stacked.flatten(1, -2), full_matrices=False)
    kept = _rank(values[0], lost)
    root = values[:, :kept].sqrt()
    return [left[..., :kept] * root.unsqueeze(1), root.unsqueeze(2) * right[:, :kept]]


def laf_rebuilt(factors: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:  # -> (S, D_1, …, D_n, T)
    left, right = factors
    return (left @ right).unflatten(1, tuple(sizes[:-1]))


def tucker(stacked: Tensor, lost: float) -> Factors:
    """Higher-order singular value decomposition; the core first, then a factor for each axis.

    >>> [tuple(factor.shape) for factor in tucker(torch.ones(2, 3, 4, 5), 0.1)]
    [(2, 1, 1, 1), (2, 1, 3), (2, 1, 4), (2, 1, 5)]
    """
    factors = []
    core = stacked
    for axis in range(1, stacked.dim()):
        unfolded = stacked.movedim(axis, 1).flatten(2)
        left, values = _left(unfolded)
        factors.append(left[..., : _rank(values[0], lost)].transpose(1, 2))  # (S, K, D)
        core = torch.matmul(factors[-1], core.movedim(axis, 1).flatten(2)).unflatten(2, core.movedim(axis, 1).shape[2:])
        core = core.movedim(1, axis)
    return [core.contiguous(), *(factor.contiguous() for factor in factors)]


def tucker_rebuilt(factors: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    found, *others = factors
    for axis, factor in enumerate(others, start=1):
        moved = found.movedim(axis, 1)
        found = (factor.transpose(1, 2) @ moved.flatten(2)).unflatten(2, moved.shape[2:]).movedim(1, axis)
    return found


def tt(stacked: Tensor, lost: float) -> Factors:
    """The tensor train decomposition (Oseledets, 2011).

    >>> [tuple(factor.shape) for factor in tt(torch.ones(2, 3, 4, 5), 0.1)]
    [(2, 1, 3, 1), (2, 1, 4, 1), (2, 1, 5, 1)]
    """
    factors = []
    runs, *sizes = stacked.shape
    rest, before = stacked.reshape(runs, 1, -1), 1
    for size in sizes[:-1]:
        matrix = rest.reshape(runs, before * size, -1)
        left, values = _left(matrix)
        left, before = left[..., : _rank(values[0], lost)], _rank(values[0], lost)
        factors.append(left.reshape(runs, -1, size, before))
        rest = left.transpose(1, 2) @ matrix
    return [*factors, rest.reshape(runs, before, sizes[-1], 1)]


def tt_rebuilt(factors: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    found = factors[0].squeeze(1)  # (S, D_1, K_1)
    for factor in factors[1:]:
        found = found.flatten(1, -2) @ factor.flatten(2)
        found = found.unflatten(2, factor.shape[2:])
    return found.flatten(1).unflatten(1, tuple(sizes))


def _left(matrix: Tensor) -> tuple[Tensor, Tensor]:  # (S, A, B) -> (S, A, K), (S, K)
    """Left singular vectors and values; of wide matrices by their Gram matrix in float64, many times faster."""
    if matrix.shape[1] > matrix.shape[2]:
        left, values, _ = torch.linalg.svd(matrix, full_matrices=False)
        return left, values
    wide = matrix.double()
    squares, vectors = torch.linalg.eigh(wide @ wide.transpose(1, 2))
    return vectors.flip(2).to(matrix), squares.flip(1).clamp(min=0).sqrt().to(matrix)


def _rank(values: Tensor, lost: float) -> int:  # (K,), falling
    """The fewest leading values that lose at most the given share of the squares."""
    squares = values.double().square()
    tails = squares.sum() - squares.cumsum(0)
    return min(len(values), int((tails > lost * squares.sum()).sum()) + 1)


# Name -> how a stacked tensor becomes factors, and how these become it again.
FACTORISATIONS: dict[
    str, tuple[Callable[[Tensor, float], Factors], Callable[[Sequence[Tensor], Sequence[int]], Tensor]]
] = {
    "laf": (laf, laf_rebuilt),
    "tucker": (tucker, tucker_rebuilt),
    "tt": (tt, tt_rebuilt),
}
