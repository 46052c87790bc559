"""TTN: a tree tensor network of isometries over an image (Liu et al., 2019); see ``isometric_tree.py``.

From the source: images of 16×16 pixels, [cos, sin] of each, four neighbours into one, tensors kept isometric by the
singular value decomposition of their environments. Images of another size are resized. One tree with an output for each
class: by the linear cost alone ten trees of one class against the others are better (86 % against 79 % of held-out
MNIST digits), and still no better than the one tree by the cross-entropy (88 %).

Chosen on 2000 MNIST images held out of the training set, with 2000 or 3000 to train on: an angle of 0.8 (the source's
π/2 leaves most rows next to no output: 26 %), the sharpness, and a damping that grows, without which the sweeps
oscillate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from restt._common.errors import check_int, check_positive
from restt.baselines.networks.layers import image_side
from restt.baselines.tensor.isometric_tree import IsometricTree, TreeSweeps
from restt.baselines.tensor.swept import Sweep, SweptClassifier
from restt.features.formulas import on_the_sphere

TASKS = ("classification",)


@dataclass(kw_only=True, eq=False, repr=False)
class TTNClassifier(SweptClassifier):
    """Parameters beyond :class:`restt.baselines.tensor.swept.SweptClassifier`'s:

    bond_dim : int
        Width of the vectors between layers.
    side : int
        Pixels along a side, a power of 2, that images are resized to.
    angle : float
        How far a pixel turns its site vector from black to white.
    linear_sweeps : int
        Sweeps by the source's linear cost, before those by the linear part of the cross-entropy.
    sharpness : float
        Of the softmax in that cross-entropy.
    damping, damping_growth : float
        How much a tensor as it is counts beside its environment, and how many times as much in the last sweep.
    """

    bond_dim: int = 6
    side: int = 16
    angle: float = 0.8
    linear_sweeps: int = 2
    sharpness: float = 10.0
    damping: float = 10.0
    damping_growth: float = 4.0
    sweeps: int = 50

    def site_vectors(self, values: Tensor) -> Tensor:  # (B, P) -> (side², B, 2)
        side, found = check_int("side", self.side, minimum=2), image_side(values.shape[1])
        if side & (side - 1):
            raise ValueError(f"side must be a power of 2, got {side}")
        if found != side:
            images = values.view(-1, 1, found, found)
            values = F.interpolate(images, (side, side), mode="bilinear", antialias=True).flatten(1)
        return on_the_sphere(values.T.unsqueeze(-1), check_positive("angle", self.angle)).contiguous()

    def start(self, x: Tensor, target: Tensor, generator: torch.Generator) -> tuple[IsometricTree, Sweep]:
        bond_dim = check_int("bond_dim", self.bond_dim, minimum=1)
        check_int("linear_sweeps", self.linear_sweeps, minimum=0)
        check_positive("sharpness", self.sharpness)
        check_positive("damping", self.damping, allow_zero=True)
        check_positive("damping_growth", self.damping_growth)
        tree = IsometricTree.random(self.side, x.shape[2], bond_dim, target.shape[1], generator).to(x.device)
        sweeps = TreeSweeps(tree, x, target)
        return tree, lambda: self._once(sweeps)

    def _once(self, sweeps: TreeSweeps) -> float:
        if self.n_iter_ >= self.linear_sweeps:
            growth = 1 + (self.damping_growth - 1) * self.n_iter_ / self.sweeps
            sweeps.linearise(self.sharpness, self.damping * growth)
        *_, reached = sweeps.sweep()
        return -float(reached) / len(sweeps.target)

    def work(self, columns: int, outputs: int) -> float:
        return 2.0 * self.side**2 * max(self.bond_dim, outputs) * self.bond_dim**4

    def _device(self) -> torch.device:
        return self.model_.tensors[0][0].device


def make(task: str, **params: Any) -> TTNClassifier:
    """The estimator, for square images.

    >>> make("classification", side=4).site_vectors(torch.zeros(3, 64)).shape
    torch.Size([16, 3, 2])
    """
    return TTNClassifier(**params)
