"""The plain tensor train at its best (Stoudenmire and Schwab, 2016, trained by back-propagation as in the ResTT paper).

Sources start from Gaussian cores; orthogonal ones keep every state's length exactly, whatever N, and turn the
exploding start of a long train into an even one. The angle is the other choice: see
:mod:`restt.baselines.tensor_train`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from restt.baselines.network import NetworkClassifier, NetworkRegressor
from restt.baselines.tensor_train import TensorTrain

TASKS = ("classification", "regression")

ANGLE = 0.5
RATE = 1e-2


@dataclass(kw_only=True, eq=False, repr=False)
class TT(TensorTrain):
    """The settings of this rival."""

    init: str = "orthogonal"
    angle: float = ANGLE
    lr: float = RATE
    schedule: str = "cosine"


@dataclass(kw_only=True, eq=False, repr=False)
class TTClassifier(TT, NetworkClassifier):
    """Squares on one-hot classes, as in the paper."""

    loss: str = "mse"


@dataclass(kw_only=True, eq=False, repr=False)
class TTRegressor(TT, NetworkRegressor):
    """Squares on standardised targets."""


def make(task: str, **params: Any) -> TT:
    """The estimator of the task.

    >>> make("regression", bond_dim=4).fit([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0.0, 1.0, 2.0]).n_features_in_
    2
    """
    return TTClassifier(**params) if task == "classification" else TTRegressor(**params)
