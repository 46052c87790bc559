"""Estimators that are fitted epoch by epoch, by gradients or by sweeps: rows in, records and predictions out."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from restt._common.devices import fitting_threads
from restt._common.errors import check_choice, shown
from restt.estimators.classes import read_labels
from restt.estimators.progress import shown_progress
from restt.estimators.targets import Labels, class_numbers
from restt.train import EpochRecord
from restt.train.data import FeatureMap

SCALINGS = ("none", "standard", "minmax", "shared")
# Rows predicted at once: a convolutional network holds hundreds of kilobytes for each.
ROWS_AT_ONCE = 1024


def check_log_target(y: np.ndarray) -> None:
    """Refuse targets whose logarithm ``log_target`` cannot take."""
    if (y <= 0).any():
        raise ValueError(f"y must be above 0 where log_target is True, got {y.min():g}")


class Inputs:
    """The scaling of columns, learned from rows (B, C); outputs are float32.

    ``"standard"``: mean 0 and variance 1; ``"minmax"``: [0, 1], also for new rows; constant columns are 0 in both.
    ``"shared"``: divided by the largest absolute value of all columns, so that pixels of any range become at most 1.

    >>> Inputs(np.array([[1.0], [3.0]]), "minmax")(np.array([[2.0], [9.0]])).tolist()
    [[0.5], [1.0]]
    """

    def __init__(self, rows: np.ndarray, scaling: str = "none") -> None:
        check_choice("scaling", scaling, SCALINGS)
        kinds = {"standard": StandardScaler(), "minmax": MinMaxScaler(clip=True)}
        self.origin = rows[0]  # less which constant columns are 0 exactly
        self.scaler = kinds[scaling].fit(rows - self.origin) if scaling in kinds else None
        self.largest = np.abs(rows).max() if scaling == "shared" and rows.any() else 1.0

    def __call__(self, rows: np.ndarray) -> Tensor:  # (B, C)
        """Scale rows (B, C)."""
        values = rows / self.largest if self.scaler is None else self.scaler.transform(rows - self.origin)
        return torch.from_numpy(np.asarray(values)).float()


class Start(NamedTuple):
    """A model before its training, and the training."""

    module: Any
    records: Iterator[EpochRecord]
    epochs: int
    work: float  # multiplications of a step, about


# A dataclass, so that each baseline only lists the settings it adds or changes: scikit-learn reads the parameters off
# the generated signature.
@dataclass(kw_only=True, eq=False, repr=False)
class EpochEstimator(BaseEstimator):
    """A torch model that is trained epoch by epoch.

    Parameters
    ----------
    scaling : {"none", "standard", "minmax", "shared"}
        What is done to the columns first, as learned from the rows of the fit, see :class:`Inputs`.
    device : "auto", str or torch.device
    random_state : int, RandomState or None
    verbose : int
        1 shows a line that is updated in place, 2 a table.

    Attributes
    ----------
    module_ : the trained model
    history_ : list of restt.train.EpochRecord
    n_iter_ : int
        Epochs or sweeps done.
    """

    scaling: str = "none"
    device: Any = "auto"
    random_state: Any = None
    verbose: int = 0

    # Whether rows may be images (B, H, W), which are flattened.
    images: ClassVar[bool] = False

    module_: Any = field(init=False)
    inputs_: Inputs = field(init=False)
    feature_map_: FeatureMap | None = field(init=False)
    target_: Any = field(init=False)
    history_: list[EpochRecord] = field(init=False)
    n_iter_: int = field(init=False)

    @abstractmethod
    def _start(
        self,
        x: Tensor,  # (B, C), scaled
        y: Tensor,  # (B,) or (B, O), encoded
        validation: tuple[Tensor, Tensor] | None,
        outputs: int,
        seed: int,
    ) -> Start:
        """The untrained model and its training."""

    @abstractmethod
    def _read_y(self, y: Any) -> np.ndarray:
        """Targets checked."""

    @abstractmethod
    def _new_target(self, y: np.ndarray) -> Any:
        """Encoder of targets and decoder of outputs."""

    @abstractmethod
    def _outputs(self, values: Tensor) -> Tensor:  # (B, C) -> (S, B, O)
        """Outputs of every member for scaled rows."""

    @abstractmethod
    def _device(self) -> torch.device:
        """Device of the trained model."""

    def feature_map(self) -> FeatureMap | None:
        """Map from scaled columns to what the model takes; None takes them as they are."""
        return None

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model to X (B, C), for models of images also (B, H, W), and y (B,)."""
        for _ in self.fit_epochs(X, y):
            pass
        return self

    def fit_epochs(self, X: Any, y: Any, validation: Any = None) -> Iterator[EpochRecord]:
        """Fit, one epoch for each step of the iteration. ``validation`` (X, y) is scored after each of them."""
        rows, targets = self._read_training(X, y)
        inputs, target = Inputs(rows, self.scaling), self._new_target(targets)
        scored = self._read_validation(validation)
        held_out = None if scored is None else (inputs(scored[0]), _float32(target.encode(scored[1])))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        feature_map = self.feature_map()
        start = self._start(inputs(rows), _float32(target.encode(targets)), held_out, target.outputs, seed)
        # The estimator changes only after everything has been checked.
        self.module_, self.inputs_, self.feature_map_, self.target_ = start.module, inputs, feature_map, target
        self.history_, self.n_iter_ = [], 0
        return shown_progress(self._recorded(start), start.epochs, int(self.verbose))

    def _recorded(self, start: Start) -> Iterator[EpochRecord]:
        while True:
            with fitting_threads(start.work):
                record = next(start.records, None)
            if record is None:
                return
            self.history_.append(record)
            self.n_iter_ = record.epoch
            yield record

    def _read_x(self, X: Any, *, reset: bool) -> np.ndarray:  # (B, C)
        rows = X
        # Sparse rows are refused by name below; SciPy 1.12 fails to make an array of them.
        if self.images and not issparse(X) and (values := np.asarray(X)).ndim == 3:
            rows = values.reshape(len(values), -1)
        return np.asarray(validate_data(self, rows, reset=reset, dtype=(np.float64, np.float32)))

    def _read_training(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:  # (B, C), (B,)
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None")
        rows, targets = self._read_x(X, reset=True), self._read_y(y)
        if len(rows) != len(targets):
            raise ValueError(f"X and y must have the same number of rows, got {len(rows)} and {len(targets)}")
        return rows, targets

    def _read_validation(self, validation: Any) -> tuple[np.ndarray, np.ndarray] | None:  # (B, C), (B,)
        if validation is None:
            return None
        if not isinstance(validation, (tuple, list)) or len(validation) != 2:
            raise TypeError(f"validation must be (X, y), got {shown(validation)}")
        return self._read_x(validation[0], reset=False), self._read_y(validation[1])

    def _members(self, X: Any) -> np.ndarray:  # (S, B, O)
        """Outputs of every member."""
        check_is_fitted(self)
        return self._in_parts(self.inputs_(self._read_x(X, reset=False))).numpy()

    @torch.no_grad()
    def _in_parts(self, values: Tensor) -> Tensor:  # (B, C) -> (S, B, O) float64, on the CPU
        return torch.cat([self._outputs(part).double().cpu() for part in values.split(ROWS_AT_ONCE)], dim=1)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        # A pickle made beside a GPU must open where there is none.
        if "module_" in state and self._device().type != "cpu":
            state["module_"] = copy.deepcopy(state["module_"]).to("cpu")
        return state


@dataclass(kw_only=True, eq=False, repr=False)
class EpochClassifier(ClassifierMixin, EpochEstimator):
    """A classifier with one output for each class, which estimates its one-hot target unless they are logits."""

    @property
    def _logits(self) -> bool:
        return False

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, (B,)."""
        best = self._scores(X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:  # (B, K)
        """Mean probabilities of the members; estimates of one-hot targets are clipped at 0 and divided by their sum.

        Where all outputs of a row are at most 0, the largest takes all.
        """
        outputs = self._scores(X)
        shares = outputs.clip(min=0.0)
        none = shares.sum(axis=1) == 0
        shares[none, outputs[none].argmax(axis=1)] = 1.0
        return shares / shares.sum(axis=1, keepdims=True)

    def _scores(self, X: Any) -> np.ndarray:  # (B, K)
        return self._members(X).mean(axis=0)

    def _read_y(self, y: Any) -> np.ndarray:
        return read_labels(y)

    def _new_target(self, y: np.ndarray) -> Labels:
        classes = np.unique(y)
        shares = np.bincount(class_numbers(y, classes), minlength=len(classes)) / len(y)
        return Labels(classes, shares, None, self._logits)

    @property
    def classes_(self) -> np.ndarray:  # (K,)
        """The labels in sorted order."""
        return self.target_.classes


def _float32(targets: Tensor) -> Tensor:
    return targets.float() if targets.is_floating_point() else targets
