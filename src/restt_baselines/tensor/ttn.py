"""TTN: trees of isometries over an image, one for each class against all others (Liu et al., 2019).

As the source's paper and its authors' code have it: images of 16×16 pixels, site vectors of width d by the angle π/2,
four neighbours into one, sweeps of ``overlap_sweeps.py`` over the linear cost, random positive initial tensors, two
outputs for each tree. A tree is trained on all images of its class and equally many of the others, the same number
from each. An image belongs to the class whose tree has the largest first output.

Assumed, since the source does not say: images are resized by bilinear interpolation; d = D, one for all classes (the
source gives every class its own).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, pi
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from restt._common.errors import check_int, check_positive
from restt_baselines.networks.layers import image_side
from restt_baselines.tensor.isometric_tree import IsometricTree
from restt_baselines.tensor.overlap_sweeps import OverlapSweeps, unit
from restt_baselines.tensor.swept import Sweep, SweptClassifier

TASKS = ("classification",)


class OneAgainstAll:
    """Trees of two outputs, one for each class: (side², B, I) -> (B, K), the share of "this class" in each."""

    def __init__(self, trees: list[IsometricTree]) -> None:
        self.trees = trees

    def __call__(self, x: Tensor) -> Tensor:
        tops = []
        for tree in self.trees:
            *_, top = tree.layers(list(x), unit)
            tops.append(top[0][:, 0])
        return torch.stack(tops, dim=1)

    def to(self, device: torch.device | str) -> OneAgainstAll:
        return OneAgainstAll([tree.to(device) for tree in self.trees])


@dataclass(kw_only=True, eq=False, repr=False)
class TTNClassifier(SweptClassifier):
    """Parameters beyond :class:`restt_baselines.tensor.swept.SweptClassifier`'s:

    bond_dim : int
        Width D of the vectors between layers.
    feature_dim : int
        Width d of a pixel's site vector.
    side : int
        Pixels along a side, a power of 2, that images are resized to.
    angle : float
        How far a pixel turns its site vector from black to white.
    """

    bond_dim: int = 4
    feature_dim: int = 4
    side: int = 16
    angle: float = pi / 2
    sweeps: int = 3

    def site_vectors(self, values: Tensor) -> Tensor:  # (B, P) -> (side², B, d)
        width = check_int("feature_dim", self.feature_dim, minimum=2)
        return coherent(resized(values, self.side).T, check_positive("angle", self.angle), width).contiguous()

    def start(self, x: Tensor, target: Tensor, generator: torch.Generator) -> tuple[OneAgainstAll, Sweep]:
        bond_dim = check_int("bond_dim", self.bond_dim, minimum=1)
        trees, sweeps = [], []
        for label in range(target.shape[1]):
            rows = balanced(target.argmax(1).cpu(), label, generator).to(x.device)
            tree = IsometricTree.random(self.side, x.shape[2], bond_dim, 2, generator, positive=True).to(x.device)
            binary = torch.stack([target[rows, label], 1 - target[rows, label]], dim=1)
            trees.append(tree)
            sweeps.append(OverlapSweeps(tree, x[:, rows], binary))
        return OneAgainstAll(trees), lambda: _once(sweeps)

    def work(self, columns: int, outputs: int) -> float:
        return 8.0 * self.side**2 * max(self.bond_dim, self.feature_dim) ** 4 * self.bond_dim

    def _device(self) -> torch.device:
        return self.model_.trees[0].tensors[0][0].device


def _once(sweeps: list[OverlapSweeps]) -> float:
    """A sweep of every tree; one minus the mean overlap of outputs and labels."""
    overlaps = [float(list(each.sweep())[-1]) / len(each.target) for each in sweeps]
    return 1 - sum(overlaps) / len(overlaps)


def resized(values: Tensor, side: int) -> Tensor:  # (B, P) -> (B, side²)
    """Square images with ``side`` pixels along a side, a power of 2."""
    found, wanted = image_side(values.shape[1]), check_int("side", side, minimum=2)
    if wanted & (wanted - 1):
        raise ValueError(f"side must be a power of 2, got {wanted}")
    if found == wanted:
        return values
    images = values.view(-1, 1, found, found)
    return F.interpolate(images, (wanted, wanted), mode="bilinear", antialias=True).flatten(1)


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
    each = max(1, len(own) // len(others))
    parts = [own]
    for other in others:
        rows = (labels == other).nonzero().squeeze(1)
        parts.append(rows[torch.randperm(len(rows), generator=generator)[:each]])
    return torch.cat(parts)


def make(task: str, **params: Any) -> TTNClassifier:
    """The estimator, for square images.

    >>> make("classification", side=4).site_vectors(torch.zeros(3, 64)).shape
    torch.Size([16, 3, 4])
    """
    return TTNClassifier(**params)
