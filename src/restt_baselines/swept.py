"""Classifiers that are trained by sweeps over their tensors instead of by gradients of all at once.

A subclass says how its model starts and what one sweep does; the rest is that of
:class:`restt_baselines.estimator.EpochClassifier`.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from restt._common.devices import fitting_threads, read_device
from restt._common.errors import check_int
from restt.train import EpochRecord
from restt.train.data import FeatureMap
from restt_baselines.estimator import EpochClassifier, Start


class Model(Protocol):
    """Function from site vectors (N, B, I) to outputs (B, O)."""

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs (B, O)."""

    def to(self, device: torch.device | str) -> Any:
        """A copy on another device."""

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""


# Does one sweep and returns the mean cost of a row after it.
Sweep = Callable[[], float]


@dataclass(kw_only=True, eq=False, repr=False)
class SweptClassifier(EpochClassifier):
    """A classifier trained by sweeps; more settings: see :class:`restt_baselines.estimator.EpochEstimator`.

    The loss of a record is the mean cost of a row after the sweep.

    Parameters
    ----------
    sweeps : int
        Passes over all tensors.
    """

    images = True

    sweeps: int = 4
    scaling: str = "shared"

    @abstractmethod
    def feature_map(self) -> FeatureMap:
        """Map from scaled columns (B, C) to site vectors (N, B, I)."""

    @abstractmethod
    def start(
        self,
        x: Tensor,  # (N, B, I)
        target: Tensor,  # (B, O), one-hot
        generator: torch.Generator,
    ) -> tuple[Model, Sweep]:
        """The untrained model, and the sweep that trains it in place."""

    @abstractmethod
    def work(self, columns: int, outputs: int) -> float:
        """Multiplications of one sweep for each row, about."""

    def _start(self, x: Tensor, y: Tensor, validation: tuple[Tensor, Tensor] | None, outputs: int, seed: int) -> Start:
        sweeps = check_int("sweeps", self.sweeps, minimum=1)
        if outputs < 2:
            raise ValueError(f"y must have at least 2 classes, got {outputs}")
        work = len(x) * self.work(x.shape[1], outputs)
        device = read_device(self.device, work)
        sites, target = self.feature_map()(x.to(device)), one_hot(y.to(device), outputs).float()
        with fitting_threads(work):
            model, sweep = self.start(sites, target, torch.Generator().manual_seed(seed))
        return Start(model, self._sweeps(sweep, sweeps, len(x), validation), sweeps, work)

    def _sweeps(
        self, sweep: Sweep, sweeps: int, rows: int, validation: tuple[Tensor, Tensor] | None
    ) -> Iterator[EpochRecord]:
        for number in range(1, sweeps + 1):
            began = time.perf_counter()
            cost = sweep()
            seconds = time.perf_counter() - began
            scores = {}
            if validation is not None:
                hits = self._in_parts(validation[0])[0].argmax(dim=1) == validation[1]
                scores = {"accuracy": (float(hits.double().mean()),)}
            unknown = (math.nan,)  # there is no rate, and no gradient of all tensors at once
            yield EpochRecord(number, (0,), (cost,), unknown, unknown, scores, seconds, rows / seconds)

    def decision_function(self, X: Any) -> np.ndarray:
        """Outputs (B, K); for two classes, as scikit-learn has it, those of the second less those of the first."""
        outputs = self._scores(X)
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def _outputs(self, values: Tensor) -> Tensor:  # (B, C) -> (1, B, K)
        assert self.feature_map_ is not None
        output: Tensor = self.module_(self.feature_map_(values.to(self._device())))
        return output.unsqueeze(0)

    def _device(self) -> torch.device:
        device: torch.device = self.module_.device
        return device
