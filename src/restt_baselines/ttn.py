"""TTN: trees of isometries over an image, one for each class against all others.

D. Liu, S.-J. Ran, P. Wittek, C. Peng, R. Blázquez García, G. Su, M. Lewenstein, "Machine learning by unitary tensor
network of hierarchical structure" (2019). Each tensor maps the product of four neighbours' vectors to one; layer by
layer an image of 2^L × 2^L pixels becomes one vector of two outputs.

Training maximises F = Σ_b t(b)ᵀ out(b), the overlap of outputs and labels, one tensor after the other, layer by layer
from the pixels up. With all other tensors fixed F = tr(T Eᵀ), and U Vᵀ of the environment E = U S Vᵀ is the isometry
that makes it largest: no step size, no rate. Isometries shorten product states. The authors' code therefore brings the
vector of every image at every node to length 1, and in an environment also the output of every basis state of the
tensor's own bond; what remains of E is how well each basis state of that bond points to the label, image by image. Then
F is not linear in T and may fall.

As the source's paper and its authors' code have it: images of 16×16 pixels, site vectors of width d by the angle π/2,
random positive initial tensors. A tree is trained on all images of its class and equally many of the others, the same
number from each. An image belongs to the class whose tree has the largest first output. Assumed, since the source does
not say: images are resized by bilinear interpolation; d = D, one for all classes (the source gives every class its
own).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import comb, pi

import torch
from torch import Tensor
from torch.nn import functional as F

from restt._common.errors import check_int, check_positive
from restt.train.data import FeatureMap
from restt_baselines.layers import image_side
from restt_baselines.swept import Sweep, SweptClassifier

CHILDREN, OUTPUTS = 4, 2


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

    >>> tree = IsometricTree.random(4, 2, bond_dim=3, generator=torch.Generator().manual_seed(0))
    >>> tree(torch.rand(16, 7, 2)).shape, [len(layer) for layer in tree.tensors]
    (torch.Size([7, 2]), [4, 1])
    """

    def __init__(self, tensors: list[list[Tensor]]) -> None:
        self.tensors = tensors

    @classmethod
    def random(cls, side: int, feature_dim: int, bond_dim: int, generator: torch.Generator) -> IsometricTree:
        """Uniform tensors for ``side`` × ``side`` sites, a power of 2; their first update makes them isometries."""
        tensors: list[list[Tensor]] = []
        width = feature_dim
        while side > 1:
            side //= 2
            wide = width**CHILDREN
            width = OUTPUTS if side == 1 else min(bond_dim, wide)
            tensors.append(list(torch.rand(side * side, width, wide, generator=generator)))
        return cls(tensors)

    def __call__(self, x: Tensor) -> Tensor:  # (side², B, I) -> (B, 2)
        """Outputs of site vectors, of length 1."""
        *_, top = self.layers(list(x))
        return top[0]

    def layers(self, vectors: list[Tensor]) -> Iterator[list[Tensor]]:
        """The vectors of every layer, of length 1, from the first above the sites to the output."""
        for layer in self.tensors:
            side = layer_side(layer)
            vectors = [
                unit(product([vectors[child] for child in children(node, side)]) @ tensor.T)
                for node, tensor in enumerate(layer)
            ]
            yield vectors

    def to(self, device: torch.device | str) -> IsometricTree:
        """A copy on another device."""
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
    state = vectors[0]
    for vector in vectors[1:]:
        state = (state.unsqueeze(2) * vector.unsqueeze(1)).flatten(1)
    return state


def unit(vectors: Tensor) -> Tensor:  # (B, O, …)
    """Every row's vector along axis 1 brought to length 1."""
    return F.normalize(vectors, dim=1, eps=torch.finfo(vectors.dtype).tiny)


def slope_of_child(tensor: Tensor, vectors: list[Tensor], place: int) -> Tensor:  # (D_out, D⁴), (B, D) each
    """∂(a node's vector)/∂(the vector of its child at ``place``), (B, D_out, D).

    >>> slope_of_child(torch.ones(3, 16), [torch.ones(5, 2)] * 4, place=1)[0]
    tensor([[8., 8.],
            [8., 8.],
            [8., 8.]])
    """
    width = vectors[0].shape[1]
    before, after = width**place, width ** (CHILDREN - 1 - place)
    others = product([*vectors[:place], *vectors[place + 1 :]])
    matrix = tensor.view(-1, before, width, after).transpose(1, 2).reshape(-1, before * after)
    return (others @ matrix.T).view(len(others), -1, width)


class OverlapSweeps:
    """Updates the tensors of a tree in place.

    >>> x = torch.nn.functional.normalize(torch.rand(16, 7, 2), dim=2)
    >>> tree = IsometricTree.random(4, 2, bond_dim=3, generator=torch.Generator().manual_seed(0))
    >>> len(list(OverlapSweeps(tree, x, torch.eye(2)[torch.arange(7) % 2]).sweep()))
    5
    """

    def __init__(self, tree: IsometricTree, x: Tensor, target: Tensor) -> None:  # (side², B, I), (B, O)
        self.tree, self.target = tree, target
        self.vectors = [list(x), *tree.layers(list(x))]

    @torch.no_grad()
    def sweep(self) -> Iterator[Tensor]:
        """One pass over all layers; yields Σ_b t(b)ᵀ out(b), outputs of length 1, after each tensor."""
        for layer, tensors in enumerate(self.tree.tensors):
            for node in range(len(tensors)):
                tensors[node] = nearest_isometry(self.pull(layer, node).T @ self._wide(layer, node))
                # The vectors of the changed node and of all above it.
                path = [(layer, node), *((above, parent) for above, parent, _ in self._path(layer, node))]
                for above, parent in path:
                    narrow = self._wide(above, parent) @ self.tree.tensors[above][parent].T
                    self.vectors[above + 1][parent] = unit(narrow)
                yield (self.vectors[-1][0] * self.target).double().sum()

    def pull(self, layer: int, node: int) -> Tensor:  # (B, D_out)
        """Overlap of the label with the output, of length 1, of each basis state of a node's bond."""
        slope: Tensor | None = None  # (B, D_above, D_out)
        for above, parent, place in self._path(layer, node):
            below = children(parent, layer_side(self.tree.tensors[above]))
            vectors = [self.vectors[above][child] for child in below]
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
        return product([self.vectors[layer][child] for child in below])


class OneAgainstAll:
    """A tree for each class: (side², B, I) -> (B, K), the first output of each."""

    def __init__(self, trees: list[IsometricTree]) -> None:
        self.trees = trees

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs of site vectors (side², B, I)."""
        return torch.stack([tree(x)[:, 0] for tree in self.trees], dim=1)

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.trees[0].tensors[0][0].device

    def to(self, device: torch.device | str) -> OneAgainstAll:
        """A copy on another device."""
        return OneAgainstAll([tree.to(device) for tree in self.trees])


@dataclass(kw_only=True, eq=False, repr=False)
class TTNClassifier(SweptClassifier):
    """Parameters beyond those of :class:`restt_baselines.swept.SweptClassifier`.

    bond_dim : int
        Width D of the vectors between layers.
    feature_dim : int
        Width d of a pixel's site vector.
    side : int
        Pixels along a side, a power of 2, that images are resized to.
    angle : float
        Angle between the site vectors of black and white.
    """

    bond_dim: int = 4
    feature_dim: int = 4
    side: int = 16
    angle: float = pi / 2
    sweeps: int = 3

    def feature_map(self) -> FeatureMap:
        """The map from scaled pixels to site vectors (side², B, d)."""
        side, width = check_int("side", self.side, minimum=2), check_int("feature_dim", self.feature_dim, minimum=2)
        if side & (side - 1):
            raise ValueError(f"side must be a power of 2, got {side}")
        return partial(_site_vectors, side, check_positive("angle", self.angle), width)

    def start(self, x: Tensor, target: Tensor, generator: torch.Generator) -> tuple[OneAgainstAll, Sweep]:
        """The untrained model and its sweep."""
        bond_dim = check_int("bond_dim", self.bond_dim, minimum=1)
        trees, sweeps = [], []
        for label in range(target.shape[1]):
            rows = balanced(target.argmax(1).cpu(), label, generator).to(x.device)
            tree = IsometricTree.random(self.side, x.shape[2], bond_dim, generator).to(x.device)
            binary = torch.stack([target[rows, label], 1 - target[rows, label]], dim=1)
            trees.append(tree)
            sweeps.append(OverlapSweeps(tree, x[:, rows], binary))

        def sweep() -> float:
            overlaps = [float(list(tree.sweep())[-1]) / len(tree.target) for tree in sweeps]
            return 1 - sum(overlaps) / len(overlaps)

        return OneAgainstAll(trees), sweep

    def work(self, columns: int, outputs: int) -> float:
        """Multiplications of one sweep for each row, about."""
        return 8.0 * self.side**2 * max(self.bond_dim, self.feature_dim) ** 4 * self.bond_dim


def _site_vectors(side: int, angle: float, width: int, values: Tensor) -> Tensor:  # (B, P) -> (side², B, d)
    given = image_side(values.shape[1])
    if given != side:
        images = values.view(-1, 1, given, given)
        values = F.interpolate(images, (side, side), mode="bilinear", antialias=True).flatten(1)
    return coherent(values.T, angle, width).contiguous()


def coherent(values: Tensor, angle: float, width: int) -> Tensor:  # (…) -> (…, d)
    """√C(d−1, i) cos^(d−1−i) sin^i of angle · value, i = 0 … d−1: of length 1.

    >>> coherent(torch.tensor([0.0, 1.0]), pi / 2, 3).round().abs()
    tensor([[1., 0., 0.],
            [0., 0., 1.]])
    """
    cos, sin = (angle * values).cos(), (angle * values).sin()
    last = width - 1
    return torch.stack([comb(last, i) ** 0.5 * cos ** (last - i) * sin**i for i in range(width)], dim=-1)


def balanced(labels: Tensor, label: int, generator: torch.Generator) -> Tensor:  # (B,) -> (K,)
    """All rows of a class and equally many others, the same number of each other class as far as it has them.

    >>> rows = balanced(torch.tensor([0, 0, 1, 1, 1, 2, 2]), 0, torch.Generator())
    >>> torch.tensor([0, 0, 1, 1, 1, 2, 2])[rows].tolist()
    [0, 0, 1, 2]
    """
    own = (labels == label).nonzero().squeeze(1)
    others = [other for other in labels.unique().tolist() if other != label]
    count = max(1, len(own) // len(others))
    parts = [own]
    for other in others:
        rows = (labels == other).nonzero().squeeze(1)
        parts.append(rows[torch.randperm(len(rows), generator=generator)[:count]])
    return torch.cat(parts)
