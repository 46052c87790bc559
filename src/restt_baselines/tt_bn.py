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

States are (S, R, B): the S·R channels of all runs then lie as one torch batch norm wants them. Nothing waits for the
device, so that a training step can be replayed as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from restt._common.errors import check_choice, check_int, check_positive
from restt.features.formulas import PAPER_ANGLE
from restt.init.draw import orthogonal_cores
from restt.train.config import PAPER_WEIGHT_DECAY
from restt.train.data import FeatureMap
from restt_baselines.layers import RunDraws, with_runs
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

# From a contraction's number (from 0) and its state (S, R, B) to the state normalised.
Norm = Callable[[int, Tensor], Tensor]
# Mean and 1/std of one contraction, (S·R,) each.
Moments = tuple[Tensor, Tensor]


class NormalisedTrain(nn.Module):
    """y(n) = BN[Σ_i x(n,i) y(n-1) W(n)_i] for n = 1 … N-1, and the last site maps to O outputs without a norm.

    ``statistics="site"``: each contraction has a norm of its own. ``"shared"``: one norm serves all, as if one
    ``torch.nn.BatchNorm1d`` were called N-1 times; gain and shift, and the running statistics, are then one set.

    In training every contraction is normalised by the batch's own mean and variance. In evaluation,
    ``inference="reference"`` takes those of ``reference`` (S, K, N, I), the ``reference_rows`` = K newest training
    rows, or as many evenly spaced ones of a larger batch; before the first batch they are random. ``"running"`` takes
    the averages that ``torch.nn.BatchNorm1d`` would keep. ``init`` and ``shift`` are the cores and the norms' shifts
    before training.

    A training batch of a single row has no variance; it is treated as in evaluation. Runs of
    :func:`restt.train.train` need subsets of one size: rows that fill up a batch count in the statistics.

    >>> model = NormalisedTrain(sites=6, feature_dim=2, bond_dim=3, outputs=4, runs=2, reference_rows=10)
    >>> model(torch.rand(5, 6, 2)).shape, model.reference.shape
    (torch.Size([2, 5, 4]), torch.Size([2, 10, 6, 2]))
    """

    reference: Tensor
    filled: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        sites: int,
        feature_dim: int,
        bond_dim: int,
        outputs: int,
        runs: int = 1,
        statistics: str = "site",
        seed: int = 0,
        inference: str = "reference",
        eps: float = EPS,
        reference_rows: int = REFERENCE_ROWS,
        init: str = "rotations",
        shift: float = 1.0,
    ) -> None:
        super().__init__()
        self.init = check_choice("init", init, INITS)
        self.sites = check_int("sites", sites, minimum=2)
        self.feature_dim = check_int("feature_dim", feature_dim, minimum=1)
        self.bond_dim = bond = check_int("bond_dim", bond_dim, minimum=1)
        self.runs = check_int("runs", runs, minimum=1)
        self.statistics = check_choice("statistics", statistics, STATISTICS)
        self.inference = check_choice("inference", inference, INFERENCES)
        self.eps = check_positive("eps", eps)
        width, outputs = self.feature_dim, check_int("outputs", outputs, minimum=1)
        # Output bond first: the gradients of all cores are then written where they belong without a transposition.
        # Rotations between Gaussian ends, or all N(0, 1/r).
        draws, gaussian, scale = RunDraws(seed, runs), init == "gaussian", bond**-0.5
        self.first = nn.Parameter(draws(bond, width) * (scale if gaussian else 1.0))
        if gaussian:
            cores = draws(sites - 2, bond, width, bond) * scale
        else:
            shape = (sites - 2, width, bond, bond)
            rotations = [orthogonal_cores(shape, generator, torch.float32) for generator in draws.generators]
            cores = torch.stack(rotations).permute(0, 1, 4, 2, 3).contiguous()
        self.cores = nn.Parameter(cores)
        self.last = nn.Parameter(draws(outputs, width, bond) * (scale if gaussian else LAST_SCALE / bond**0.5))
        norms = (runs, sites - 1, bond) if statistics == "site" else (runs, bond)
        self.gain = nn.Parameter(torch.ones(norms))
        self.shift = nn.Parameter(torch.full(norms, float(shift)))
        if inference == "reference":
            rows = check_int("reference_rows", reference_rows, minimum=2)
            self.register_buffer("reference", nn.functional.normalize(draws(rows, sites, width), dim=-1))
            self.register_buffer("filled", torch.zeros(runs))  # 1 once the reference holds training rows
        else:
            self.register_buffer("running_mean", torch.zeros(norms))
            self.register_buffer("running_var", torch.ones(norms))

    def forward(self, x: Tensor) -> Tensor:  # (B, N, I) or (S, B, N, I) -> (S, B, O)
        """Outputs of every run."""
        features = with_runs(x, self.runs, (self.sites, self.feature_dim))
        if not self.training or features.shape[1] == 1:
            return self._chain(features, self._by(*self._kept_statistics()))
        batch: list[Moments] = []
        output = self._chain(features, self._by_batch(batch))
        if self.inference == "reference":
            self._keep_rows(features)
        else:
            self._update_running(batch, features.shape[1])
        return output

    def _chain(self, features: Tensor, normalised: Norm) -> Tensor:  # (S or 1, B, N, I) -> (S, B, O)
        # One copy here for all sites, each then contiguous.
        site = features.permute(2, 0, 3, 1).contiguous().unsqueeze(3).unbind(0)  # N of (S or 1, I, 1, B)
        state = normalised(0, self.first @ site[0].squeeze(2))  # (S, R, B)
        for n, core in enumerate(self.cores.flatten(3).unbind(1), start=1):
            state = normalised(n, core @ _outer(site[n], state))
        return (self.last.flatten(2) @ _outer(site[-1], state)).transpose(1, 2)

    def _by_batch(self, moments: list[Moments]) -> Norm:
        """The norm by the batch's own statistics, which are appended to ``moments``."""
        gains, shifts = self._by_site(self.gain).unbind(0), self._by_site(self.shift).unbind(0)

        def normalised(n: int, state: Tensor) -> Tensor:
            channels = state.flatten(0, 1).unsqueeze(0)  # (1, S·R, B)
            output, mean, inverse_std = torch.native_batch_norm(
                channels, gains[n], shifts[n], None, None, True, MOMENTUM, self.eps
            )
            moments.append((mean, inverse_std))
            return output.view_as(state)

        return normalised

    def _by(self, mean: Tensor, inverse_std: Tensor) -> Norm:  # (N-1, S·R), (N-1, S·R)
        """The norm by fixed statistics, one multiplication and addition."""
        gain = self._by_site(self.gain) * inverse_std
        shift = self._by_site(self.shift) - mean * gain
        gains, shifts = (values.view(len(values), self.runs, -1, 1).unbind(0) for values in (gain, shift))
        return lambda n, state: torch.addcmul(shifts[n], state, gains[n])

    @torch.no_grad()
    def _kept_statistics(self) -> tuple[Tensor, Tensor]:  # (N-1, S·R) each
        """Mean and 1/std of every contraction for evaluation."""
        if self.inference == "running":
            return self._by_site(self.running_mean), self._by_site(self.running_var + self.eps).rsqrt()
        moments: list[Moments] = []
        self._chain(self.reference, self._by_batch(moments))
        return _stacked(moments)

    def _by_site(self, values: Tensor) -> Tensor:  # (N-1, S·R)
        if self.statistics == "shared":
            return values.flatten().expand(self.sites - 1, -1)
        return values.transpose(0, 1).flatten(1)

    @torch.no_grad()
    def _keep_rows(self, features: Tensor) -> None:  # (S or 1, B, N, I)
        rows, wanted = features.shape[1], self.reference.shape[1]
        if rows >= wanted:
            newest = features[:, torch.arange(wanted, device=features.device) * rows // wanted]
        else:
            # The last batch of an epoch is often small: its rows push the oldest ones out. The very first rows are
            # repeated; whether they are is decided on the device, where a captured step can see it.
            repeated = features[:, torch.arange(wanted - rows, device=features.device) % rows]
            older = torch.where(self.filled.view(-1, 1, 1, 1) > 0, self.reference[:, : wanted - rows], repeated)
            newest = torch.cat([features.expand(self.runs, -1, -1, -1), older], dim=1)
        self.reference.copy_(newest)
        self.filled.fill_(1)

    @torch.no_grad()
    def _update_running(self, batch: list[Moments], rows: int) -> None:
        """Move the running statistics towards the batch's, the variance the unbiased one, as torch does."""
        mean, inverse_std = _stacked(batch)
        variance = (inverse_std.pow(-2) - self.eps) * (rows / (rows - 1))
        for running, of_batch in ((self.running_mean, mean), (self.running_var, variance)):
            by_site = of_batch.view(len(of_batch), self.runs, -1)
            if self.statistics == "site":
                running.lerp_(by_site.transpose(0, 1), MOMENTUM)
            else:
                # N-1 moves one after the other, the last site's counting most.
                later = torch.arange(len(mean) - 1, -1, -1, device=mean.device, dtype=mean.dtype)
                weights = MOMENTUM * (1 - MOMENTUM) ** later
                running.mul_((1 - MOMENTUM) ** len(mean)).add_(torch.einsum("n,nsr->sr", weights, by_site))


def _stacked(moments: list[Moments]) -> tuple[Tensor, Tensor]:  # (N-1, S·R) each
    mean, inverse_std = (torch.stack(parts) for parts in zip(*moments, strict=True))
    return mean, inverse_std


def _outer(x: Tensor, state: Tensor) -> Tensor:
    """Products x ⊗ y: (S or 1, I, 1, B) and (S, R, B) -> (S, I·R, B)."""
    return (x * state.unsqueeze(1)).flatten(1, 2)


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

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> NormalisedTrain:
        """The untrained module."""
        if columns < 2:
            raise ValueError(f"tt-bn has a norm between sites and needs at least 2 columns, got n_features = {columns}")
        names = ("statistics", "inference", "eps", *self.initial)
        settings = {name: getattr(self, name) for name in names}
        return NormalisedTrain(columns, 2, self.bond_dim, outputs, runs, seed=seed, **settings)

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
