"""TT-BN: the plain tensor train with batch norm (Ioffe and Szegedy, 2015) after each contraction (paper, Sec. V-B).

The paper does not say which statistics a norm has. Here each contraction has its own (``statistics="site"``); the
authors' public code calls one norm at every site (``"shared"``), whose running statistics then fit no site well. The
norm's learned shift lets the state start anew at every site, so that this model also holds the products of the last k
sites for every k. The paper is silent on eps, initial weights, angle and rate. Those here were chosen on MNIST images
of 14×14 pixels held out of the training set (r = 20, 5000 images to train on):

- Eps. A norm multiplies differences between rows by up to 1/√eps. Where sites are constant, as the border of an image
  is, that happens at every one of them: with torch's 1e-5 gradients overflow after a few dozen sites.
- The start. Products of Gaussian cores tend to one direction, which no norm of single channels undoes; rotations
  (:mod:`restt.init.draw`) keep all: 60 % against 95 %. With a shift of 1 instead of 0 every site has its own
  first-order term from the beginning: 84 % against 96 %.
- Prediction. Averages over training batches lag behind the weights, and the errors of all sites multiply: 79 % against
  88 % after 3 epochs. ``inference="reference"`` stores a batch of training rows instead and takes its statistics under
  the weights as they are: a row is then predicted as it would be trained on.

``tt-bn-paper`` has the recipe of the paper (Sec. V) and, where that is silent, of the authors' public code: cores
N(0, 1/r), one ``torch.nn.BatchNorm1d`` for all sites with its own eps, shift and running averages, angle π/2, Adam at
a constant 1e-4 for 100 epochs.

Nothing waits for the device, so that a training step can be replayed as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from restt._common.errors import check_choice, check_int, check_positive
from restt.features.formulas import PAPER_ANGLE
from restt.init.draw import orthogonal_cores
from restt.train.config import PAPER_WEIGHT_DECAY
from restt.train.data import FeatureMap
from restt_baselines.layers import SideBySide
from restt_baselines.network import Network, NetworkClassifier, NetworkRegressor
from restt_baselines.plain import ANGLE, trigonometric_map

STATISTICS = ("site", "shared")
INFERENCES = ("reference", "running")
INITS = ("rotations", "gaussian")
# torch.nn.BatchNorm1d's.
MOMENTUM = 0.1
# From 0.3 to 0.65 trains alike at N = 196. Below, the statistics of a few hundred rows no longer do for other rows;
# from 0.8 on, states shrink so fast that the first sites are forgotten.
EPS = 0.5
REFERENCE_ROWS = 512
# Outputs start well below the targets' size, so that the first steps need not take them back.
LAST_SCALE = 0.1

# Mean and variance of one contraction, (R,) each.
Moments = tuple[Tensor, Tensor]


class NormalisedTrain(nn.Module):
    """y(n) = BN[Σ_i x(n,i) y(n-1) W(n)_i] for n = 1 … N-1, and the last site maps to O outputs without a norm.

    ``statistics="site"``: each contraction has a norm of its own. ``"shared"``: one serves all.

    In training every contraction is normalised by the batch's own mean and variance. In evaluation,
    ``inference="reference"`` takes those of ``reference`` (K, N, I), the ``reference_rows`` = K newest training rows,
    or as many evenly spaced ones of a larger batch; before the first batch they are random. ``"running"`` takes the
    averages of ``torch.nn.BatchNorm1d``. ``init`` and ``shift`` are the cores and the norms' shifts before training.

    A training batch of a single row has no variance; it is treated as in evaluation. Runs of
    :func:`restt.train.train` need subsets of one size: rows that fill up a batch count in the statistics.

    >>> model = NormalisedTrain(sites=6, feature_dim=2, bond_dim=3, outputs=4, reference_rows=10)
    >>> model(torch.rand(5, 6, 2)).shape, model.reference.shape
    (torch.Size([5, 4]), torch.Size([10, 6, 2]))
    """

    norms: Any  # nn.ModuleList of nn.BatchNorm1d
    reference: Tensor
    filled: Tensor

    def __init__(
        self,
        sites: int,
        feature_dim: int,
        bond_dim: int,
        outputs: int,
        statistics: str = "site",
        inference: str = "reference",
        eps: float = EPS,
        reference_rows: int = REFERENCE_ROWS,
        init: str = "rotations",
        shift: float = 1.0,
    ) -> None:
        super().__init__()
        check_choice("init", init, INITS)
        self.sites, bond = check_int("sites", sites, minimum=2), check_int("bond_dim", bond_dim, minimum=1)
        self.inference = check_choice("inference", inference, INFERENCES)
        shared = check_choice("statistics", statistics, STATISTICS) == "shared"
        # Rotations between Gaussian ends, or all N(0, 1/r).
        gaussian, scale = init == "gaussian", bond**-0.5
        shape = sites - 2, feature_dim, bond, bond
        rotations = None if gaussian else orthogonal_cores(shape, torch.default_generator, torch.float32)
        self.first = nn.Parameter(torch.randn(feature_dim, bond) * (scale if gaussian else 1.0))
        self.cores = nn.Parameter(torch.randn(shape) * scale if rotations is None else rotations)
        self.last = nn.Parameter(torch.randn(feature_dim, bond, outputs) * scale * (1.0 if gaussian else LAST_SCALE))
        eps, running = check_positive("eps", eps), inference == "running"
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(bond, eps, track_running_stats=running) for _ in range(1 if shared else sites - 1)
        )
        for norm in self.norms:
            nn.init.constant_(norm.bias, shift)
            norm.num_batches_tracked = None
        if not running:
            rows = check_int("reference_rows", reference_rows, minimum=2)
            self.register_buffer("reference", nn.functional.normalize(torch.randn(rows, sites, feature_dim), dim=-1))
            self.register_buffer("filled", torch.zeros(()))  # 1 once the reference holds training rows

    def forward(self, x: Tensor) -> Tensor:  # (B, N, I) -> (B, O)
        """Outputs of every row."""
        if self.training and len(x) > 1:
            output = self._chain(x)
            if self.inference == "reference":
                self._keep_rows(x)
            return output
        if self.inference == "running":
            return self._chain(x, [(norm.running_mean, norm.running_var) for norm in self.norms])
        with torch.no_grad():
            kept: list[Moments] = []
            self._chain(self.reference, measured=kept)
        return self._chain(x, kept)

    def _chain(
        self, x: Tensor, kept: Sequence[Moments] | None = None, measured: list[Moments] | None = None
    ) -> Tensor:  # (B, N, I) -> (B, O)
        """Outputs by the moments that were kept, else by those of the rows; these are appended to ``measured``."""

        def normalised(n: int, state: Tensor) -> Tensor:  # (B, R)
            norm = self.norms[n % len(self.norms)]
            if kept is not None:
                return F.batch_norm(state, *kept[n % len(kept)], norm.weight, norm.bias, eps=norm.eps)
            if measured is not None:
                measured.append((state.mean(0), state.var(0, correction=0)))
                return F.batch_norm(state, None, None, norm.weight, norm.bias, True, eps=norm.eps)
            averages = norm.running_mean, norm.running_var
            return F.batch_norm(state, *averages, norm.weight, norm.bias, True, MOMENTUM, norm.eps)

        sites = x.unbind(1)
        state = normalised(0, sites[0] @ self.first)
        for n, core in enumerate(self.cores.flatten(1, 2).unbind(0), start=1):
            state = normalised(n, _outer(sites[n], state) @ core)
        return _outer(sites[-1], state) @ self.last.flatten(0, 1)

    @torch.no_grad()
    def _keep_rows(self, x: Tensor) -> None:  # (B, N, I)
        rows, wanted = len(x), len(self.reference)
        if rows >= wanted:
            newest = x[torch.arange(wanted, device=x.device) * rows // wanted]
        else:
            # The last batch of an epoch is often small: its rows push the oldest ones out. The very first rows are
            # repeated; whether they are is decided on the device, where a captured step can see it.
            repeated = x[torch.arange(wanted - rows, device=x.device) % rows]
            newest = torch.cat([x, torch.where(self.filled > 0, self.reference[: wanted - rows], repeated)])
        self.reference.copy_(newest)
        self.filled.fill_(1)


def _outer(x: Tensor, state: Tensor) -> Tensor:  # (B, I), (B, R) -> (B, I·R)
    return (x.unsqueeze(2) * state.unsqueeze(1)).flatten(1)


# At r = 20 and few steps 3e-3 is as good and faster; at r = 100 it is too large.
RATE = 1e-3
TORCH_EPS = 1e-5  # torch.nn.BatchNorm1d's


@dataclass(kw_only=True, eq=False, repr=False)
class TTBN(Network):
    """Parameters beyond those of :class:`restt_baselines.network.Network`.

    bond_dim : int
        Width r of the state.
    statistics : {"site", "shared"}
        One norm for each contraction, or one for all.
    inference : {"reference", "running"}
        Rows are predicted by the statistics of a batch of training rows under the final weights, or by the averages
        kept in training.
    eps : float
        Added to the variances.
    angle : float
        Of the trigonometric map, see :mod:`restt_baselines.plain`.
    """

    bond_dim: int = 20
    statistics: str = "site"
    inference: str = "reference"
    eps: float = EPS
    angle: float = ANGLE
    lr: float = RATE
    schedule: str = "cosine"
    scaling: str = "minmax"

    images = True
    # Settings of the initial weights.
    initial: ClassVar[tuple[str, ...]] = ()

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> SideBySide:
        """The untrained module."""
        if columns < 2:
            raise ValueError(f"tt-bn has a norm between sites and needs at least 2 columns, got n_features = {columns}")
        names = ("statistics", "inference", "eps", *self.initial)
        settings = {name: getattr(self, name) for name in names}
        make = partial(NormalisedTrain, columns, 2, self.bond_dim, outputs, **settings)
        return SideBySide(make, runs, seed, row=(columns, 2))

    def feature_map(self) -> FeatureMap:
        """The map from scaled columns to site vectors."""
        return trigonometric_map(self.angle)


@dataclass(kw_only=True, eq=False, repr=False)
class TTBNClassifier(TTBN, NetworkClassifier):
    """Squared error on one-hot classes, as in the paper."""

    loss: str = "mse"


@dataclass(kw_only=True, eq=False, repr=False)
class TTBNRegressor(TTBN, NetworkRegressor):
    """Squared error on standardised targets."""


@dataclass(kw_only=True, eq=False, repr=False)
class PaperTTBNClassifier(TTBNClassifier):
    """Parameters beyond those of :class:`TTBN`.

    init : {"gaussian", "rotations"}
        The cores before training.
    shift : float
        Of the norms, before training.
    """

    initial = ("init", "shift")

    init: str = "gaussian"
    shift: float = 0.0
    statistics: str = "shared"
    inference: str = "running"
    eps: float = TORCH_EPS
    angle: float = PAPER_ANGLE
    lr: float = 1e-4
    schedule: str = "constant"
    weight_decay: float = PAPER_WEIGHT_DECAY
