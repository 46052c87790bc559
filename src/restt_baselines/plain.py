"""Special cases of ResTT (paper, Sec. III-B): plain tensor trains, the fully-connected layer and the Volterra series.

Before any training, two rows' outputs of a plain train correlate as Π_n cos(angle·(x_n − x'_n)), about exp(−angle²·|x −
x'|²/2): the rows it takes for neighbours. With the paper's π/2 and N = 196 pixels no two images are neighbours, and the
train fits the training images without generalising; a smaller angle widens the neighbourhood. ResTT's lower orders make
it far less sensitive to this. TT and MeanTT therefore take 0.5, and a rate that falls to zero.

TT (Stoudenmire and Schwab, 2016, trained by back-propagation as in the ResTT paper): sources start from Gaussian cores;
orthogonal ones preserve every state's length exactly, whatever N, and turn the exploding start of a long train into an
even one.

MeanTT has the mean-field initialisation of the ResTT paper (Sec. IV-A): all weights are N(0, σ²/r) with
σ² = 1/E|x(n)|², the only value under which neither signals nor gradients of a plain train explode or vanish (paper,
Eq. 27); it is 1 for site vectors of length 1. Decay, batches and loss are the paper's (Sec. V). For the paper's images
(N = 196, r = 100) the rate that trains is 1e-4; 1e-3 jumps between good and lost.

Fully connected: only linear entries and skips. Each column is one site of width 1, as it is after scaling; the constant
is the module's bias (the paper has none). With bond_dim ≥ outputs every affine map of the columns can be reached, so
the minimum is that of linear regression or, with cross-entropy, of logistic regression.

Volterra (Boyd and Chua, 1985), truncated: a row is the lag window u(t), u(t-1), … of the series; the same window stands
at every one of ``order`` sites. (The paper writes one symbol x(n) per site; with one lag per site only the products of
the last sites would exist.) The outputs hold the kernels of order 0, the module's bias, to ``order``, those of order 2
and more with rank at most ``bond_dim``: for order 2 and bond_dim at least the window's length, every second-order
system can be reached. Windows of a series come from ``numpy.lib.stride_tricks.sliding_window_view(series, lags)``, the
oldest lag first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from restt._common.errors import check_int, check_positive
from restt.features.formulas import on_the_sphere
from restt.module import ResTT
from restt.train.config import PAPER_BATCH, PAPER_WEIGHT_DECAY
from restt.train.data import FeatureMap
from restt_baselines.network import Network, NetworkClassifier, NetworkRegressor

ANGLE = 0.5
# A table or series of a few hundred rows then takes several steps an epoch.
SMALL_BATCH = 128


def trigonometric_map(angle: float) -> FeatureMap:
    """[cos(angle·x), sin(angle·x)] of each column, (…, N) -> (…, N, 2): site vectors of length 1.

    >>> import math, torch
    >>> trigonometric_map(math.pi / 2)(torch.tensor([[0.0, 1.0]])).round(decimals=4).abs().tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    return partial(_site_vectors, check_positive("angle", angle))


def _site_vectors(angle: float, values: Tensor) -> Tensor:  # (…, N) -> (…, N, 2)
    return on_the_sphere(values.unsqueeze(-1), angle)


def _built(seed: int, *sizes: Any, **options: Any) -> ResTT:
    module = ResTT(*sizes, **options)
    module.reset_parameters(seed=seed)
    return module


@dataclass(kw_only=True, eq=False, repr=False)
class TT(Network):
    """A plain tensor train (paper, Eq. 5) over [cos(angle·x_n), sin(angle·x_n)] of columns scaled to [0, 1].

    Parameters
    ----------
    bond_dim : int
        Width r of the state.
    init : {"orthogonal", "balanced", "paper"}
        See :class:`restt.ResTT`.
    angle : float
        Angle between the site vectors of the two ends of a column's range; the paper's is π/2.
    """

    bond_dim: int = 20
    init: str = "orthogonal"
    angle: float = ANGLE
    lr: float = 1e-2
    schedule: str = "cosine"
    scaling: str = "minmax"

    images = True

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> ResTT:
        """The untrained module."""
        return _built(seed, columns, 2, self.bond_dim, outputs, "plain", init=self.init, runs=runs)

    def feature_map(self) -> FeatureMap:
        """The map from scaled columns to site vectors."""
        return trigonometric_map(self.angle)


@dataclass(kw_only=True, eq=False, repr=False)
class TTClassifier(TT, NetworkClassifier):
    """Squared error on one-hot classes, as in the paper."""

    loss: str = "mse"


@dataclass(kw_only=True, eq=False, repr=False)
class TTRegressor(TT, NetworkRegressor):
    """Squared error on standardised targets."""


@dataclass(kw_only=True, eq=False, repr=False)
class MeanTT(TT):
    """The mean-field initialisation and the paper's training."""

    init: str = "paper"
    batch_size: int | None = PAPER_BATCH
    lr: float = 1e-3
    weight_decay: float = PAPER_WEIGHT_DECAY


@dataclass(kw_only=True, eq=False, repr=False)
class MeanTTClassifier(MeanTT, NetworkClassifier):
    """Squared error on one-hot classes, as in the paper."""

    loss: str = "mse"


@dataclass(kw_only=True, eq=False, repr=False)
class MeanTTRegressor(MeanTT, NetworkRegressor):
    """Squared error on standardised targets."""


@dataclass(kw_only=True, eq=False, repr=False)
class FullyConnected(Network):
    """Parameters beyond those of :class:`restt_baselines.network.Network`.

    bond_dim : int or None
        Width r of the state, at least the number of outputs; None takes just that.
    """

    bond_dim: int | None = None
    batch_size: int | None = SMALL_BATCH
    lr: float = 3e-2
    schedule: str = "cosine"
    scaling: str = "standard"

    images = True

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> ResTT:
        """The untrained module."""
        bond = outputs if self.bond_dim is None else check_int("bond_dim", self.bond_dim, minimum=1)
        if bond < outputs:
            raise ValueError(f"bond_dim must be at least the number of outputs, {outputs}, got {bond}")
        return _built(seed, columns, 1, bond, outputs, "linear", bias=True, runs=runs)

    def feature_map(self) -> FeatureMap:
        """The map from scaled columns to site vectors."""
        return _sites_of_width_one


@dataclass(kw_only=True, eq=False, repr=False)
class FullyConnectedClassifier(FullyConnected, NetworkClassifier):
    """Logistic regression by gradient descent."""


@dataclass(kw_only=True, eq=False, repr=False)
class FullyConnectedRegressor(FullyConnected, NetworkRegressor):
    """Linear regression by gradient descent."""


def _sites_of_width_one(values: Tensor) -> Tensor:  # (…, N) -> (…, N, 1)
    return values.unsqueeze(-1)


@dataclass(kw_only=True, eq=False, repr=False)
class Volterra(Network):
    """Parameters beyond those of :class:`restt_baselines.network.Network`.

    order : int
        Highest order of the series, the number of sites.
    bond_dim : int
        Largest rank of the kernels of order 2 and more.
    """

    order: int = 2
    bond_dim: int = 10
    batch_size: int | None = SMALL_BATCH
    lr: float = 1e-2
    schedule: str = "cosine"
    scaling: str = "standard"

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> ResTT:
        """The untrained module."""
        # A standardised window has a squared length of about its number of lags.
        sizes = check_int("order", self.order, minimum=1), columns, self.bond_dim, outputs
        return _built(seed, *sizes, "volterra", second_moment=float(columns), bias=True, runs=runs)

    def feature_map(self) -> FeatureMap:
        """The map that puts a row's lag window at every site."""
        return partial(_at_every_site, self.order)


@dataclass(kw_only=True, eq=False, repr=False)
class VolterraClassifier(Volterra, NetworkClassifier):
    """The series as logits."""


@dataclass(kw_only=True, eq=False, repr=False)
class VolterraRegressor(Volterra, NetworkRegressor):
    """The series of standardised targets."""


def _at_every_site(order: int, windows: Tensor) -> Tensor:  # (…, W) -> (…, order, W)
    return windows.unsqueeze(-2).expand(*windows.shape[:-1], order, -1).contiguous()
