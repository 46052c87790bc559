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

Two old models as special cases of ResTT (paper, Sec. III-B): the fully-connected layer and the Volterra series.

Fully connected: only linear entries and skips are kept. Each column is one site of width 1, as it is after scaling; the
constant is the module's bias (the paper has none). With bond_dim ≥ outputs every affine map of the columns can be
reached, so the minimum is that of linear regression or, with cross-entropy, of logistic regression.

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

from torch import Tensor, nn

from restt._common.errors import check_int, check_positive
from restt.features.formulas import PAPER_ANGLE, on_the_sphere
from restt.module import ResTT
from restt.train.config import PAPER_BATCH, PAPER_WEIGHT_DECAY
from restt.train.data import FeatureMap
from restt_baselines.inputs import with_runs
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
        """The untrained module."""
        module = ResTT(columns, 2, self.bond_dim, outputs, "plain", init=self.init, runs=runs)
        module.reset_parameters(seed=seed)
        return module

    def feature_map(self) -> FeatureMap:
        """The map from scaled columns to site vectors."""
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


LAYER_RATE = 3e-2
SERIES_RATE = 1e-2
# A table or series of a few hundred rows then takes several steps an epoch.
BATCH = 128


@dataclass(kw_only=True, eq=False, repr=False)
class FullyConnected(Network):
    """Parameters beyond those of :class:`restt_baselines.network.Network`.

    bond_dim : int or None
        Width r of the state, at least the number of outputs; None takes just that.
    """

    bond_dim: int | None = None
    batch_size: int | None = BATCH
    lr: float = LAYER_RATE
    schedule: str = "cosine"
    scaling: str = "standard"

    images = True

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> ResTT:
        """The untrained module."""
        bond = outputs if self.bond_dim is None else check_int("bond_dim", self.bond_dim, minimum=1)
        if bond < outputs:
            raise ValueError(f"bond_dim must be at least the number of outputs, {outputs}, got {bond}")
        module = ResTT(columns, 1, bond, outputs, "linear", bias=True, runs=runs)
        module.reset_parameters(seed=seed)
        return module

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


class VolterraSeries(nn.Module):
    """h0 + Σ_i h1(i) x_i + Σ_ij h2(i,j) x_i x_j + … up to order N, for lag windows x of length W.

    >>> import torch
    >>> model = VolterraSeries(lags=5, order=3, bond_dim=4, outputs=1, runs=2)
    >>> model(torch.rand(7, 5)).shape, model.chain.topology.orders()
    (torch.Size([2, 7, 1]), (1, 2, 3))
    """

    def __init__(self, lags: int, order: int, bond_dim: int, outputs: int, runs: int = 1, seed: int = 0) -> None:
        super().__init__()
        self.lags, self.order = check_int("lags", lags, minimum=1), check_int("order", order, minimum=1)
        self.runs = check_int("runs", runs, minimum=1)
        # A standardised window has a squared length of about W.
        self.chain = ResTT(
            order, lags, bond_dim, outputs, "volterra", second_moment=float(lags), bias=True, runs=self.runs
        )
        self.chain.reset_parameters(seed=seed)

    def forward(
        self,
        x: Tensor,  # (B, W) or (S, B, W)
    ) -> Tensor:  # (S, B, O)
        """Outputs of every run."""
        windows = with_runs(x, self.runs, (self.lags,)).unsqueeze(2).expand(-1, -1, self.order, -1)
        output: Tensor = self.chain(windows if len(windows) == self.runs else windows[0])
        return output


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
    batch_size: int | None = BATCH
    lr: float = SERIES_RATE
    schedule: str = "cosine"
    scaling: str = "standard"

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> VolterraSeries:
        """The untrained module."""
        return VolterraSeries(columns, self.order, self.bond_dim, outputs, runs, seed)


@dataclass(kw_only=True, eq=False, repr=False)
class VolterraClassifier(Volterra, NetworkClassifier):
    """The series as logits."""


@dataclass(kw_only=True, eq=False, repr=False)
class VolterraRegressor(Volterra, NetworkRegressor):
    """The series of standardised targets."""


FULLY_CONNECTED = Baseline.of(classification=FullyConnectedClassifier, regression=FullyConnectedRegressor)
VOLTERRA = Baseline.of(classification=VolterraClassifier, regression=VolterraRegressor)
