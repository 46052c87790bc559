"""MeanTT: the plain tensor train with the mean-field initialisation of the ResTT paper (Sec. IV-A).

All weights are N(0, σ²/r) with σ² = 1/E|x(n)|², the only value under which neither signals nor gradients of a plain
train explode or vanish (paper, Eq. 27); it is 1 for site vectors of length 1. Decay, batches and loss are the paper's
(Sec. V). Two settings are not: the angle is 0.5 instead of π/2, with which the train learns images by heart
(:mod:`restt.baselines.tensor_train` says why), and the rate falls to zero. For the paper's
images (N = 196, r = 100) the rate that trains is 1e-4; 1e-3 jumps between good and lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from restt.baselines.network import NetworkClassifier, NetworkRegressor
from restt.baselines.tensor_train import TensorTrain
from restt.train.config import PAPER_BATCH, PAPER_WEIGHT_DECAY

TASKS = ("classification", "regression")

ANGLE = 0.5
RATE = 1e-3


@dataclass(kw_only=True, eq=False, repr=False)
class MeanTT(TensorTrain):
    """The settings of this rival."""

    init: str = "paper"
    angle: float = ANGLE
    batch_size: int | None = PAPER_BATCH
    lr: float = RATE
    weight_decay: float = PAPER_WEIGHT_DECAY
    schedule: str = "cosine"


@dataclass(kw_only=True, eq=False, repr=False)
class MeanTTClassifier(MeanTT, NetworkClassifier):
    """Squares on one-hot classes, as in the paper."""

    loss: str = "mse"


@dataclass(kw_only=True, eq=False, repr=False)
class MeanTTRegressor(MeanTT, NetworkRegressor):
    """Squares on standardised targets."""


def make(task: str, **params: Any) -> MeanTT:
    """The estimator of the task.

    >>> make("regression", bond_dim=4).init
    'paper'
    """
    return MeanTTClassifier(**params) if task == "classification" else MeanTTRegressor(**params)
