"""What the plain tensor trains share: the trigonometric map, and the chain that only keeps its N-th order term.

Before any training, two rows' outputs correlate as Π_n cos(angle·(x_n − x'_n)), about exp(−angle²·|x − x'|²/2): the
rows a plain train takes for neighbours. With the paper's π/2 and N = 196 pixels no two images are neighbours, and the
train learns the training images without generalising; a smaller angle widens the neighbourhood. ResTT's lower orders
make it far less sensitive to this.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from restt._common.errors import check_positive
from restt.baselines.network import Network
from restt.features.trigonometric import PAPER_ANGLE, on_the_sphere
from restt.module import ResTT
from restt.train.data import FeatureMap


def trigonometric_map(angle: float) -> FeatureMap:
    """[cos(angle·x), sin(angle·x)] of each column, (…, N) -> (…, N, 2): site vectors of length 1.

    >>> import torch
    >>> trigonometric_map(PAPER_ANGLE)(torch.tensor([[0.0, 1.0]])).round(decimals=4).abs().tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    return partial(_site_vectors, check_positive("angle", angle))


def _site_vectors(angle: float, values: Tensor) -> Tensor:  # (…, N) -> (…, N, 2)
    return on_the_sphere(values.unsqueeze(-1), angle)


@dataclass(kw_only=True, eq=False, repr=False)
class TensorTrain(Network):
    """A plain tensor train (paper, Eq. 5) over [cos(angle·x_n), sin(angle·x_n)] of columns scaled to [0, 1].

    Parameters
    ----------
    bond_dim : int
        Width r of the state.
    init : {"orthogonal", "balanced", "paper"}
        See :class:`restt.ResTT`.
    angle : float
        How far a column turns its site vector from one end of its range to the other; the paper's is π/2.
    """

    bond_dim: int = 20
    init: str = "orthogonal"
    angle: float = PAPER_ANGLE
    scaling: str = "minmax"

    images = True

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> ResTT:
        module = ResTT(columns, 2, self.bond_dim, outputs, "plain", init=self.init, runs=runs)
        module.reset_parameters(seed=seed)
        return module

    def feature_map(self) -> FeatureMap:
        return trigonometric_map(self.angle)
