"""A tree of isometries over an image, trained by the singular value decomposition of their environments.

D. Liu, S.-J. Ran, P. Wittek, C. Peng, R. Blázquez García, G. Su, M. Lewenstein, "Machine learning by unitary tensor
network of hierarchical structure" (2019). Each tensor maps the product of four neighbours' vectors to one; layer by
layer an image of 2^L × 2^L pixels becomes one vector of O outputs. The sum over the training rows of the overlap of
that vector with the row's label,

    F = Σ_b t(b)ᵀ out(b),

is linear in every tensor T, F = tr(T Eᵀ), and among all isometries the one that makes it largest is U Vᵀ, where
E = U S Vᵀ is the environment: what remains of F when T is taken out. So no update lowers F, and there is no rate.

F alone only draws outputs towards the mean of their class: 80 % of held-out MNIST digits (D = 4, 2000 images). So after
a few sweeps F becomes the linear part of minus the cross-entropy of softmax(sharpness · out/|out|), with the rows' own
t(b) − softmax in place of t(b), and an update takes U Vᵀ of E + damping · T, which stays near T: the same update, for a
cost that also sees which rows are wrong (88 to 90 %). A sweep is linear in every tensor again, so none of its updates
lowers F + damping · tr(T T_beforeᵀ).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

CHILDREN = 4
# Rows whose output is shorter than this share of the median have left the tree's space and count no more than that.
LEAST_LENGTH = 0.01


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
        cls, side: int, feature_dim: int, bond_dim: int, outputs: int, generator: torch.Generator
    ) -> IsometricTree:
        """Random isometries for ``side`` × ``side`` sites, ``side`` a power of 2."""
        tensors: list[list[Tensor]] = []
        width = feature_dim
        while side > 1:
            side //= 2
            wide = width**CHILDREN
            narrow = outputs if side == 1 else min(bond_dim, wide)
            if narrow > wide:
                raise ValueError(f"outputs must be at most {wide}, the width of the last tensor, got {outputs}")
            drawn = torch.randn(side * side, narrow, wide, generator=generator)
            tensors.append([nearest_isometry(part) for part in drawn])
            width = narrow
        return cls(tensors)

    def __call__(self, x: Tensor) -> Tensor:  # (side², B, I) -> (B, O)
        *_, top = _up(self, list(x))
        return top[0]

    def to(self, device: torch.device | str) -> IsometricTree:
        return IsometricTree([[tensor.to(device) for tensor in layer] for layer in self.tensors])


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


class TreeSweeps:
    """Updates the tensors of a tree, one after the other, in place.

    Isometries shorten product states. Vectors are therefore kept times a number for each node that makes their mean
    square 1, which changes F by a factor and no update.

    Attributes
    ----------
    pull : Tensor (B, O)
        What F multiplies the outputs by: the targets, until :meth:`linearise`.
    damping : float
        How much the tensor as it is counts beside its environment, whose singular values are brought to mean 1.
    """

    def __init__(
        self,
        tree: IsometricTree,
        x: Tensor,  # (side², B, I)
        target: Tensor,  # (B, O)
    ) -> None:
        self.tree, self.target = tree, target
        self.pull, self.damping = target, 0.0
        self.vectors = [list(x), *_up(tree, list(x), scaled=True)]

    @torch.no_grad()
    def sweep(self) -> Iterator[Tensor]:
        """Every tensor once, depth first; gives F, times what the scales make of it, after each update."""
        yield from self._visit(len(self.tree.tensors) - 1, 0, self.pull)

    @torch.no_grad()
    def linearise(self, sharpness: float, damping: float) -> None:
        """From now on F is the linear part of minus the cross-entropy at the outputs as they are."""
        top = self.vectors[-1][0]
        length = torch.linalg.vector_norm(top, dim=1, keepdim=True)
        length = length.clamp(min=LEAST_LENGTH * float(length.median()))
        self.pull = (self.target - (sharpness * top / length).softmax(1)) / length
        self.damping = damping

    def _visit(
        self,
        layer: int,
        node: int,
        down: Tensor,  # (B, D_out): what F multiplies this node's vectors by
    ) -> Iterator[Tensor]:
        below = children(node, _side(self.tree.tensors[layer]))
        if layer > 0:
            for place, child in enumerate(below):
                yield from self._visit(layer - 1, child, self._downward(layer, node, below, place, down))
        wide = product([self.vectors[layer][child] for child in below])
        tensor = self._updated(down.T @ wide, self.tree.tensors[layer][node])
        self.tree.tensors[layer][node] = tensor
        raised = wide @ tensor.T
        yield (raised * down).double().sum()
        self.vectors[layer + 1][node] = _scaled(raised)

    def _updated(self, environment: Tensor, tensor: Tensor) -> Tensor:
        if self.damping == 0:
            return nearest_isometry(environment)
        mean = torch.linalg.svdvals(environment.double().cpu()).mean().clamp(min=torch.finfo(torch.float32).tiny)
        return nearest_isometry(environment / mean.to(environment) + self.damping * tensor)

    def _downward(self, layer: int, node: int, below: list[int], place: int, down: Tensor) -> Tensor:
        """∂F/∂(vector of one child), (B, D_in)."""
        vectors = [self.vectors[layer][child] for child in below]
        width = vectors[0].shape[1]
        before, after = width**place, width ** (CHILDREN - 1 - place)
        found = (down @ self.tree.tensors[layer][node]).view(-1, before, width, after)
        if place > 0:
            found = torch.einsum("bpda,bp->bda", found, product(vectors[:place])).unsqueeze(1)
        if place < CHILDREN - 1:
            found = torch.einsum("bpda,ba->bpd", found, product(vectors[place + 1 :])).unsqueeze(3)
        return _scaled(found.flatten(1))


def _up(tree: IsometricTree, vectors: list[Tensor], *, scaled: bool = False) -> Iterator[list[Tensor]]:
    """The vectors of every layer, from the first above the sites to the output."""
    for layer in tree.tensors:
        side = _side(layer)
        vectors = [
            product([vectors[child] for child in children(node, side)]) @ tensor.T for node, tensor in enumerate(layer)
        ]
        # One number for the whole layer's batch would make a prediction depend on the other rows.
        if scaled:
            vectors = [_scaled(vector) for vector in vectors]
        yield vectors


def _side(layer: list[Tensor]) -> int:
    return round(len(layer) ** 0.5)


def _scaled(vectors: Tensor) -> Tensor:  # (B, D)
    size = vectors.double().square().sum(1).mean().sqrt().clamp(min=torch.finfo(vectors.dtype).tiny)
    return vectors / size.to(vectors)
