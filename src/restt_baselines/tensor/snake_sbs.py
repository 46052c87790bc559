"""Snake-SBS: a string-bond state of four overlapping snakes over an image, see ``string_bond.py``.

Where the source leaves it open: two snakes run along the rows and two along the columns, from two corners each. Noise,
rate and clipping, without which a product of four trains explodes at larger rates, were chosen on 2000 MNIST images of
14×14 pixels held out of the training set, with 3000 to train on (bond 10, 93 %; 8000: 96 %); weight decay made no
difference. Bond 16 fills a tile of the GPU's kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from restt.train.data import FeatureMap
from restt_baselines.network import NetworkClassifier
from restt_baselines.networks.layers import image_side
from restt_baselines.tensor.string_bond import StringBondState, snakes
from restt_baselines.tensor.strings import Strings, shares

TASKS = ("classification",)


@dataclass(kw_only=True, eq=False, repr=False)
class SnakeSBSClassifier(NetworkClassifier):
    """Parameters beyond :class:`restt_baselines.network.Network`'s:

    bond_dim : int
        Width of all bonds.
    noise : float
        Standard deviation of what is added to the identity at the start.
    """

    images = True

    bond_dim: int = 16
    noise: float = 3e-3
    epochs: int = 40
    batch_size: int | None = 256
    lr: float = 1e-3
    clip_norm: float | None = 1.0
    schedule: str = "cosine"
    scaling: str = "shared"

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> nn.Module:
        side = image_side(columns)
        return StringBondState(
            Strings(snakes(side, side), 2, self.bond_dim, outputs, runs, seed, noise=self.noise),
        )

    def feature_map(self) -> FeatureMap:
        return shares


def make(task: str, **params: Any) -> SnakeSBSClassifier:
    """The estimator, for square images.

    >>> make("classification", bond_dim=3).build(16, 10, runs=2, seed=0).strings.first.shape
    torch.Size([2, 4, 2, 3])
    """
    return SnakeSBSClassifier(**params)
