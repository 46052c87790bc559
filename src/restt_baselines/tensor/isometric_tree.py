"""A tree of isometries over an image; ``overlap_sweeps.py`` and ``tree_sweeps.py`` train it.

D. Liu, S.-J. Ran, P. Wittek, C. Peng, R. Blázquez García, G. Su, M. Lewenstein, "Machine learning by unitary tensor
network of hierarchical structure" (2019). Each tensor maps the product of four neighbours' vectors to one; layer by
layer an image of 2^L × 2^L pixels becomes one vector of O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

CHILDREN = 4


def nearest_isometry(environment: Tensor) -> Tensor:  # (A, B) with A ≤ B
    """U Vᵀ of U S Vᵀ: the T with orthonormal rows for which tr(T Eᵀ) is largest.

    >>> nearest_isometry(torch.tensor([[0.0, 3.0], [-2.0, 0.0]])).abs()
    tensor([[0., 1.],
            [1., 0.]])
    """
    # In float64 and on the CPU: a few rows, and rounding would add up over the sweeps.
    left, _, right = torch.linalg.svd(environment.double().cpu(), full_matrices=False)
    return (left @ right).to(environment)


class IsometricTree:
    """``tensors[layer][node]`` is (D_out, D_in⁴); node (row, column) of a layer stands at row · side + column.

    >>> tree = IsometricTree.random(4, 2, bond_dim=3, outputs=5, generator=torch.Generator().manual_seed(0))
    >>> tree(torch.rand(16, 7, 2)).shape, [len(layer) for layer in tree.tensors]
    (torch.Size([7, 5]), [4, 1])
    """

    def __init__(self, tensors: list[list[Tensor]]) -> None:
        self.tensors = tensors

    @classmethod
    def random(
        cls,
        side: int,
        feature_dim: int,
        bond_dim: int,
        outputs: int,
        generator: torch.Generator,
        *,
        positive: bool = False,
    ) -> IsometricTree:
        """Random isometries for ``side`` × ``side`` sites, ``side`` a power of 2.

        With ``positive`` the tensors are uniform in [0, 1) instead, and no isometries before their first update.
        """
        tensors: list[list[Tensor]] = []
        width = feature_dim
        while side > 1:
            side //= 2
            wide = width**CHILDREN
            narrow = outputs if side == 1 else min(bond_dim, wide)
            if narrow > wide:
                raise ValueError(f"outputs must be at most {wide}, the width of the last tensor, got {outputs}")
            if positive:
                tensors.append(list(torch.rand(side * side, narrow, wide, generator=generator)))
            else:
                drawn = torch.randn(side * side, narrow, wide, generator=generator)
                tensors.append([nearest_isometry(part) for part in drawn])
            width = narrow
        return cls(tensors)

    def __call__(self, x: Tensor) -> Tensor:  # (side², B, I) -> (B, O)
        *_, top = self.layers(list(x))
        return top[0]

    def layers(self, vectors: list[Tensor], change: Callable[[Tensor], Tensor] | None = None) -> Iterator[list[Tensor]]:
        """The vectors of every layer, from the first above the sites to the output; ``change`` is done to each."""
        for layer in self.tensors:
            side = layer_side(layer)
            vectors = [
                product([vectors[child] for child in children(node, side)]) @ tensor.T
                for node, tensor in enumerate(layer)
            ]
            if change is not None:
                vectors = [change(vector) for vector in vectors]
            yield vectors

    def to(self, device: torch.device | str) -> IsometricTree:
        return IsometricTree([[tensor.to(device) for tensor in layer] for layer in self.tensors])


def layer_side(layer: list[Tensor]) -> int:
    """Nodes along a side of a layer."""
    return round(len(layer) ** 0.5)


def children(node: int, side: int) -> list[int]:
    """The four nodes below ``node`` of a layer with ``side`` × ``side`` nodes: two by two neighbours.

    >>> children(1, side=2)
    [2, 3, 6, 7]
    """
    row, column = divmod(node, side)
    corner = 2 * row * 2 * side + 2 * column
    return [corner, corner + 1, corner + 2 * side, corner + 2 * side + 1]


def product(vectors: list[Tensor]) -> Tensor:  # (B, D) each -> (B, D⁴)
    """The product state of each row."""
    found = vectors[0]
    for vector in vectors[1:]:
        found = (found.unsqueeze(2) * vector.unsqueeze(1)).flatten(1)
    return found
