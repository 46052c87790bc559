"""Plain tensor trains, the chain that only keeps its N-th order term: TT at its best, and the paper's MeanTT.

Before any training, two rows' outputs correlate as Π_n cos(angle·(x_n − x'_n)), about exp(−angle²·|x − x'|²/2): the
rows a plain train takes for neighbours. With the paper's π/2 and N = 196 pixels no two images are neighbours, and the
train fits the training images without generalising; a smaller angle widens the neighbourhood. ResTT's lower orders
make it far less sensitive to this. Both baselines therefore take 0.5, and a rate that falls to zero.

TT (Stoudenmire and Schwab, 2016, trained by back-propagation as in the ResTT paper): sources start from Gaussian cores;
orthogonal ones keep every state's length exactly, whatever N, and turn the exploding start of a long train into an
even one.

MeanTT has the mean-field initialisation of the ResTT paper (Sec. IV-A): all weights are N(0, σ²/r) with
σ² = 1/E|x(n)|², the only value under which neither signals nor gradients of a plain train explode or vanish (paper,
Eq. 27); it is 1 for site vectors of length 1. Decay, batches and loss are the paper's (Sec. V). For the paper's images
(N = 196, r = 100) the rate that trains is 1e-4; 1e-3 jumps between good and lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from restt._common.errors import check_positive
from restt.features.formulas import PAPER_ANGLE, on_the_sphere
from restt.module import ResTT
from restt.train.config import PAPER_BATCH, PAPER_WEIGHT_DECAY
from restt.train.data import FeatureMap
from restt_baselines.network import Network, NetworkClassifier, NetworkRegressor
from restt_baselines.registry import Baseline

ANGLE = 0.5
TT_RATE = 1e-2
MEANTT_RATE = 1e-3


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


@dataclass(kw_only=True, eq=False, repr=False)
class TT(TensorTrain):
    """The settings of this baseline."""

    init: str = "orthogonal"
    angle: float = ANGLE
    lr: float = TT_RATE
    schedule: str = "cosine"


@dataclass(kw_only=True, eq=False, repr=False)
class TTClassifier(TT, NetworkClassifier):
    """Squares on one-hot classes, as in the paper."""

    loss: str = "mse"


@dataclass(kw_only=True, eq=False, repr=False)
class TTRegressor(TT, NetworkRegressor):
    """Squares on standardised targets."""


@dataclass(kw_only=True, eq=False, repr=False)
class MeanTT(TensorTrain):
    """The settings of this baseline."""

    init: str = "paper"
    angle: float = ANGLE
    batch_size: int | None = PAPER_BATCH
    lr: float = MEANTT_RATE
    weight_decay: float = PAPER_WEIGHT_DECAY
    schedule: str = "cosine"


@dataclass(kw_only=True, eq=False, repr=False)
class MeanTTClassifier(MeanTT, NetworkClassifier):
    """Squares on one-hot classes, as in the paper."""

    loss: str = "mse"


@dataclass(kw_only=True, eq=False, repr=False)
class MeanTTRegressor(MeanTT, NetworkRegressor):
    """Squares on standardised targets."""


# Named for the paper's rows.
TENSOR_TRAIN = Baseline.of(classification=TTClassifier, regression=TTRegressor)
MEANTT = Baseline.of(classification=MeanTTClassifier, regression=MeanTTRegressor)
