"""What the classifiers share that are trained by sweeps over their tensors instead of by gradients of all at once.

One says how its model starts and what one sweep does; rows, labels, seeds, devices, records and predictions are the
same for all, and look as those of :class:`restt_baselines.network.NetworkClassifier` do.
"""

from __future__ import annotations

import copy
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from restt._common.devices import fitting_threads, read_device
from restt._common.errors import check_int
from restt.estimators.progress import shown_progress
from restt.estimators.targets import class_numbers
from restt.train import EpochRecord
from restt_baselines.inputs import FittedInEpochs, Inputs, as_shares, read_labels

ROWS_AT_ONCE = 8192


class Model(Protocol):
    """From what :meth:`SweptClassifier.site_vectors` makes of rows to outputs (B, O)."""

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs (B, O)."""

    def to(self, device: torch.device | str) -> Any:
        """A copy on another device."""


# Does one sweep and gives the mean cost of a row after it.
Sweep = Callable[[], float]


# A dataclass, so that each baseline only lists the settings it adds or changes.
@dataclass(kw_only=True, eq=False, repr=False)
class SweptClassifier(ClassifierMixin, FittedInEpochs):
    """A classifier with one output for each class, trained by sweeps.

    Parameters
    ----------
    sweeps : int
        Passes over all tensors.
    scaling : {"none", "standard", "minmax", "shared"}
        What is done to the columns first, see :class:`restt_baselines.inputs.Inputs`.
    device : "auto", str or torch.device
    random_state : int, RandomState or None
    verbose : int
        1 prints about ten lines, 2 a line per epoch.

    Attributes
    ----------
    model_ : the tensors
    history_ : list of restt.train.EpochRecord
        One for each sweep; its loss is the mean cost of a row after it.
    n_iter_ : int
        Sweeps done.
    """

    images = True

    sweeps: int = 4
    scaling: str = "shared"
    device: Any = "auto"
    random_state: Any = None
    verbose: int = 0

    model_: Any = field(init=False)
    inputs_: Inputs = field(init=False)
    classes_: np.ndarray = field(init=False)
    history_: list[EpochRecord] = field(init=False)
    n_iter_: int = field(init=False)

    @abstractmethod
    def site_vectors(self, values: Tensor) -> Tensor:  # (B, C) -> (N, B, I)
        """Scaled columns as the model takes them."""

    @abstractmethod
    def start(
        self,
        x: Tensor,  # (N, B, I)
        target: Tensor,  # (B, O), one-hot
        generator: torch.Generator,
    ) -> tuple[Model, Sweep]:
        """The model before its training, and what trains it in place."""

    @abstractmethod
    def work(self, columns: int, outputs: int) -> float:
        """Multiplications of one sweep for each row, about."""

    def fit_epochs(self, X: Any, y: Any, validation: Any = None) -> Iterator[EpochRecord]:
        """Fit, one sweep for each step of the iteration. ``validation`` (X, y) is scored after each of them."""
        sweeps = check_int("sweeps", self.sweeps, minimum=1)
        rows, labels = self._read_training(X, y)
        classes = np.unique(labels)
        if len(classes) < 2:
            raise ValueError(f"y must have at least 2 classes, got {len(classes)}")
        inputs = Inputs.fit(rows, self.scaling)
        scored = self._read_validation(validation)
        held = None if scored is None else (scored[0], class_numbers(scored[1], classes))
        work = len(rows) * self.work(rows.shape[1], len(classes))
        device = read_device(self.device, work)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        numbers = torch.from_numpy(class_numbers(labels, classes)).to(device)
        target = torch.nn.functional.one_hot(numbers, len(classes)).float()
        x = self.site_vectors(inputs(rows).to(device))
        with fitting_threads(work):
            model, sweep = self.start(x, target, torch.Generator().manual_seed(seed))
        # Only now that nothing can be refused any more does the estimator change.
        self.model_, self.inputs_, self.classes_ = model, inputs, classes
        self.history_, self.n_iter_ = [], 0
        return shown_progress(self._recorded(sweep, sweeps, len(rows), held, work), sweeps, int(self.verbose))

    def _recorded(
        self, sweep: Sweep, sweeps: int, rows: int, held: tuple[np.ndarray, np.ndarray] | None, work: float
    ) -> Iterator[EpochRecord]:
        for number in range(1, sweeps + 1):
            began = time.perf_counter()
            with fitting_threads(work):
                cost = sweep()
            seconds = time.perf_counter() - began
            found = {}
            if held is not None:
                hits = self._outputs(held[0]).argmax(axis=1) == held[1]
                found = {"accuracy": (float(hits.mean()),)}
            unknown = (math.nan,)  # there is no rate, and no gradient of all tensors at once
            record = EpochRecord(number, (0,), (cost,), unknown, unknown, found, seconds, rows / seconds)
            self.history_.append(record)
            self.n_iter_ = number
            yield record

    def decision_function(self, X: Any) -> np.ndarray:
        """Outputs (B, K); for two classes, as scikit-learn has it, those of the second less those of the first."""
        check_is_fitted(self)
        outputs = self._outputs(self._read_x(X, reset=False))
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict(self, X: Any) -> np.ndarray:
        """The class with the largest output, (B,)."""
        check_is_fitted(self)
        return self.classes_[self._outputs(self._read_x(X, reset=False)).argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:  # (B, K)
        """Outputs, which estimate one-hot targets, cut below 0 and brought to sum 1.

        Where all outputs of a row are at most 0, the largest takes all.
        """
        check_is_fitted(self)
        return as_shares(self._outputs(self._read_x(X, reset=False)))

    @torch.no_grad()
    def _outputs(self, rows: np.ndarray) -> np.ndarray:  # (B, C) -> (B, K)
        device = self._device()
        parts = []
        for start in range(0, len(rows), ROWS_AT_ONCE):
            values = self.inputs_(rows[start : start + ROWS_AT_ONCE]).to(device)
            parts.append(self.model_(self.site_vectors(values)).double().cpu())
        return torch.cat(parts).numpy()

    @abstractmethod
    def _device(self) -> torch.device:
        """Where the fitted tensors are."""

    def _read_y(self, y: Any) -> np.ndarray:
        return read_labels(y)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        # A pickle made beside a GPU must open where there is none.
        if "model_" in state and self._device().type != "cpu":
            state["model_"] = copy.copy(state["model_"]).to("cpu")
        return state
