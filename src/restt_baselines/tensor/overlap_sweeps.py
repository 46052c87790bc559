"""Training of a tree of isometries by the source's linear cost, as its authors' code does it.

Liu et al. (2019) maximise F = Σ_b t(b)ᵀ out(b), the overlap of outputs and labels, one tensor after the other, layer by
layer from the pixels up. With all other tensors fixed F = tr(T Eᵀ), and U Vᵀ of the environment E = U S Vᵀ is the
isometry that makes it largest: no step size, no rate.

Isometries shorten product states. The authors' code therefore brings the vector of every image at every node to length
1, and in an environment also the output of every basis state of the tensor's own bond; what remains of E is how well
each basis state of that bond points to the label, image by image. Then F is not linear in T and may fall.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from restt_baselines.tensor.isometric_tree import IsometricTree, children, layer_side, nearest_isometry, product
from restt_baselines.tensor.tree_sweeps import slope_of_child


class OverlapSweeps:
    """Updates the tensors of a tree in place.

    >>> x = torch.nn.functional.normalize(torch.rand(16, 7, 2), dim=2)
    >>> tree = IsometricTree.random(4, 2, bond_dim=3, outputs=2, generator=torch.Generator().manual_seed(0))
    >>> len(list(OverlapSweeps(tree, x, torch.eye(2)[torch.arange(7) % 2]).sweep()))
    5
    """

    def __init__(
        self,
        tree: IsometricTree,
        x: Tensor,  # (side², B, I)
        target: Tensor,  # (B, O)
    ) -> None:
        self.tree, self.target = tree, target
        self.vectors = [list(x), *tree.layers(list(x), unit)]

    @torch.no_grad()
    def sweep(self) -> Iterator[Tensor]:
        """One pass over all layers; gives Σ_b t(b)ᵀ out(b), outputs of length 1, after each tensor."""
        for layer, tensors in enumerate(self.tree.tensors):
            for node in range(len(tensors)):
                wide = self._wide(layer, node)
                tensors[node] = nearest_isometry(self.pull(layer, node).T @ wide)
                self._refresh(layer, node)
                yield (self.vectors[-1][0] * self.target).double().sum()

    def pull(self, layer: int, node: int) -> Tensor:  # (B, D_out)
        """What each basis state of a node's bond becomes at the output, at length 1, times the label."""
        slope: Tensor | None = None  # (B, D_above, D_out)
        for above, parent, place in self._path(layer, node):
            below = children(parent, layer_side(self.tree.tensors[above]))
            vectors = [self.vectors[above][each] for each in below]
            step = slope_of_child(self.tree.tensors[above][parent], vectors, place)
            slope = step if slope is None else step @ slope
        return self.target if slope is None else torch.einsum("bo,bod->bd", self.target, unit(slope))

    def _path(self, layer: int, node: int) -> Iterator[tuple[int, int, int]]:
        """Layer and node of every ancestor, and the place among its children that the path comes from."""
        for above in range(layer + 1, len(self.tree.tensors)):
            row, column = divmod(node, layer_side(self.tree.tensors[above - 1]))
            node = row // 2 * layer_side(self.tree.tensors[above]) + column // 2
            yield above, node, row % 2 * 2 + column % 2

    def _wide(self, layer: int, node: int) -> Tensor:  # (B, D⁴)
        below = children(node, layer_side(self.tree.tensors[layer]))
        return product([self.vectors[layer][each] for each in below])

    def _refresh(self, layer: int, node: int) -> None:
        """The vectors of a changed node and of all above it."""
        for each, where in ((layer, node), *((above, parent) for above, parent, _ in self._path(layer, node))):
            self.vectors[each + 1][where] = unit(self._wide(each, where) @ self.tree.tensors[each][where].T)


def unit(vectors: Tensor) -> Tensor:  # (B, O, …)
    """Every row's vector along axis 1 brought to length 1.

    >>> unit(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    return torch.nn.functional.normalize(vectors, dim=1, eps=torch.finfo(vectors.dtype).tiny)
