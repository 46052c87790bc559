"""Torch baselines: an estimator around any module that :func:`restt.train.train` can train.

A baseline says how its module is built and how columns become its inputs; targets, seeds, members side by side, devices
and the records of the training are the same for all, and the same as ResTT's own.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor, nn

from restt._common.devices import fitting_threads, read_device
from restt._common.errors import check_int
from restt.estimators.base import ValuePredictions
from restt.estimators.targets import Values
from restt.train import TrainConfig, train
from restt_baselines.estimator import EpochClassifier, EpochEstimator, Start, check_log_target

# Trains a module in place on the rows of the fit.
TrainFirst = Callable[[nn.Module, TrainConfig], None]


@dataclass(kw_only=True, eq=False, repr=False)
class Network(EpochEstimator):
    """A module trained by :func:`restt.train.train`; more settings: see :class:`EpochEstimator`.

    Parameters
    ----------
    epochs : int
    batch_size : int or None
        Rows per step; None takes all of them at once.
    lr, weight_decay : float
        Adam's.
    schedule : str
        Shape of the rate over the epochs, see :class:`restt.train.TrainConfig`.
    clip_norm : float or None
        Largest norm of the gradient.
    runs : int
        Members, trained side by side from different initial weights and averaged.
    """

    epochs: int = 100
    batch_size: int | None = 512
    lr: float = 1e-3
    weight_decay: float = 0.0
    schedule: str = "constant"
    clip_norm: float | None = None
    runs: int = 1

    # Whether predictions are computed in float64, so that a row's does not depend on which rows it is asked with: for
    # networks so small that it costs nothing.
    exact_predictions: ClassVar[bool] = False

    @abstractmethod
    def build(self, columns: int, outputs: int, runs: int, seed: int) -> nn.Module:
        """The module from (B, columns), or what :meth:`feature_map` makes of it, to (runs, B, outputs).

        Its weights are drawn from children 0 … runs-1 of the seed sequence ``seed``.
        """

    def prepare(self, module: nn.Module, train_first: TrainFirst, rows: int, seed: int) -> None:
        """Change the module of :meth:`build` in place, where another training comes before the recorded one."""

    @property
    @abstractmethod
    def _loss(self) -> str:
        """The training's loss."""

    def _start(self, x: Tensor, y: Tensor, validation: tuple[Tensor, Tensor] | None, outputs: int, seed: int) -> Start:
        rows, feature_map = len(x), self.feature_map()
        module = self.build(x.shape[1], outputs, check_int("runs", self.runs, minimum=1), seed)
        work = 2.0 * rows * sum(parameter.numel() for parameter in module.parameters())
        module = module.to(read_device(self.device, work))

        def train_first(wanted: nn.Module, config: TrainConfig) -> None:
            with fitting_threads(work):
                list(train(wanted, x, y, config=config, feature_map=feature_map))

        self.prepare(module, train_first, rows, seed)
        config = self.training_config(rows, seed)
        records = train(module, x, y, config=config, validation=validation, feature_map=feature_map)
        return Start(module, iter(records), int(self.epochs), work * min(1.0, (self.batch_size or rows) / rows))

    def training_config(self, rows: int, seed: int) -> TrainConfig:
        """Settings of the training on this many rows."""
        return TrainConfig(
            rates="uniform",
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            weight_decay=self._decay(rows),
            schedule=self.schedule,
            clip_norm=self.clip_norm,
            loss=self._loss,
            seed=seed,
        )

    def _decay(self, rows: int) -> float:
        """Adam's weight decay for a fit to this many rows."""
        return self.weight_decay

    def _outputs(self, values: Tensor) -> Tensor:  # (B, C) -> (S, B, O)
        module: nn.Module = self.module_.eval()
        if self.exact_predictions:
            module = copy.deepcopy(module).double()
        values = values.to(next(module.parameters()))
        output: Tensor = module(values if self.feature_map_ is None else self.feature_map_(values))
        return output

    def _device(self) -> torch.device:
        device: torch.device = next(self.module_.parameters()).device
        return device


@dataclass(frozen=True, eq=False)
class Logarithms:
    """Encoder of targets above 0 by their logarithm."""

    inner: Values

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return self.inner.outputs

    def encode(self, y: np.ndarray) -> Tensor:  # (B, O)
        """Targets on the scale of the outputs."""
        return self.inner.encode(np.log(y))

    def decode(self, outputs: np.ndarray) -> np.ndarray:
        """Outputs on the scale of the targets."""
        return np.exp(self.inner.decode(outputs))


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkRegressor(ValuePredictions, Network):
    """Targets are standardised, with ``log_target`` after taking their logarithm."""

    log_target: bool = False

    def predict(self, X: Any) -> np.ndarray:
        """The members' mean, (B,) or (B, O)."""
        outputs = self._members(X).mean(axis=0)
        values: np.ndarray = self.target_.decode(outputs)
        return values

    def _read_y(self, y: Any) -> np.ndarray:
        values = super()._read_y(y)
        if self.log_target:
            check_log_target(values)
        return values

    def _new_target(self, y: np.ndarray) -> Values | Logarithms:
        ones = np.ones(len(y))
        return Logarithms(Values.fit(np.log(y), ones)) if self.log_target else Values.fit(y, ones)

    @property
    def _loss(self) -> str:
        return "mse"


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkClassifier(EpochClassifier, Network):
    """``loss="cross-entropy"``: outputs are logits. ``"mse"``: they estimate one-hot targets."""

    loss: str = "cross-entropy"

    def _scores(self, X: Any) -> np.ndarray:  # (B, K)
        members = self._members(X)
        return softmax(members, axis=2).mean(axis=0) if self.target_.logits else members.mean(axis=0)

    @property
    def _logits(self) -> bool:
        return self.loss == "cross-entropy"

    @property
    def _loss(self) -> str:
        return self.loss
