"""TT-BN: the plain tensor train with batch norm (Ioffe and Szegedy, 2015) after each contraction (paper, Sec. V-B).

The paper does not say which statistics a norm keeps. Here each contraction has its own (``statistics="site"``); the
authors' public code calls one norm at every site (``"shared"``), whose running statistics then fit no site well. The
norm's learned shift lets the state start anew at every site, so that, unlike the plain train, this model also holds
the products of the last k sites for every k.

The paper is silent on eps, initial weights, angle and rate. Those here were found on MNIST images of 14×14 pixels held
out of the training set (r = 20, 5000 images to train on); ``normalised_train.py`` says what matters and how rows are
predicted.

``tt-bn-paper`` has the recipe of the paper (Sec. V) and, where that is silent, of the authors' public code: cores
N(0, 1/r), one ``torch.nn.BatchNorm1d`` for all sites with its own eps, shift and running averages, angle π/2, Adam at
a constant 1e-4 for 100 epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from restt.features.formulas import PAPER_ANGLE
from restt.train.config import PAPER_WEIGHT_DECAY
from restt.train.data import FeatureMap
from restt_baselines.network import Network, NetworkClassifier, NetworkRegressor
from restt_baselines.registry import Baseline
from restt_baselines.tensor.normalised_train import EPS, NormalisedTrain
from restt_baselines.tensor.plain import trigonometric_map

TASKS = ("classification", "regression")

ANGLE = 0.5
# At r = 20 and few steps 3e-3 is as good and faster; at r = 100 it is too large.
RATE = 1e-3
TORCH_EPS = 1e-5  # torch.nn.BatchNorm1d's


@dataclass(kw_only=True, eq=False, repr=False)
class TTBN(Network):
    """Parameters beyond :class:`restt_baselines.network.Network`'s:

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
        Of the trigonometric map, see :mod:`restt_baselines.tensor.plain`.
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

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> NormalisedTrain:
        return self._train(columns, outputs, runs, seed)

    def _train(self, columns: int, outputs: int, runs: int, seed: int, **initial: Any) -> NormalisedTrain:
        if columns < 2:
            raise ValueError(f"tt-bn has a norm between sites and needs at least 2 columns, got n_features = {columns}")
        return NormalisedTrain(
            columns,
            2,
            self.bond_dim,
            outputs,
            runs,
            self.statistics,
            seed,
            inference=self.inference,
            eps=self.eps,
            **initial,
        )

    def feature_map(self) -> FeatureMap:
        return trigonometric_map(self.angle)


@dataclass(kw_only=True, eq=False, repr=False)
class TTBNClassifier(TTBN, NetworkClassifier):
    """Squares on one-hot classes, as in the paper."""

    loss: str = "mse"


@dataclass(kw_only=True, eq=False, repr=False)
class TTBNRegressor(TTBN, NetworkRegressor):
    """Squares on standardised targets."""


@dataclass(kw_only=True, eq=False, repr=False)
class PaperTTBNClassifier(TTBNClassifier):
    """Parameters beyond :class:`TTBN`'s:

    init : {"gaussian", "rotations"}
        The cores before training.
    shift : float
        Of the norms, before training.
    """

    init: str = "gaussian"
    shift: float = 0.0
    statistics: str = "shared"
    inference: str = "running"
    eps: float = TORCH_EPS
    angle: float = PAPER_ANGLE
    lr: float = 1e-4
    schedule: str = "constant"
    weight_decay: float = PAPER_WEIGHT_DECAY

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> NormalisedTrain:
        return self._train(columns, outputs, runs, seed, init=self.init, shift=self.shift)


PAPER = Baseline.of(classification=PaperTTBNClassifier)


def make(task: str, **params: Any) -> TTBN:
    """The estimator of the task.

    >>> model = make("classification", bond_dim=4, statistics="shared", epochs=5)
    >>> model.fit([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], ["a", "b", "b"]).predict_proba([[0.0, 1.0]]).shape
    (1, 2)
    """
    return TTBNClassifier(**params) if task == "classification" else TTBNRegressor(**params)
