"""What the torch baselines share: an estimator around any module that :func:`restt.train.train` can train.

A baseline says how its module is built and how columns become its inputs; targets, seeds, members side by side, devices
and the records of the training are the same for all, and the same as ResTT's own.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor, nn

from restt._common.devices import fitting_threads, read_device
from restt._common.errors import check_int
from restt.estimators.progress import shown_progress
from restt.estimators.targets import Labels, Values, class_numbers
from restt.train import EpochRecord, TrainConfig, train
from restt.train.data import FeatureMap
from restt_baselines.inputs import FittedInEpochs, Inputs, as_shares, check_log_target, read_labels

# Rows predicted at once: a convolutional network holds hundreds of kilobytes for each.
ROWS_AT_ONCE = 1024
# Trains a module in place on the rows of the fit.
TrainFirst = Callable[[nn.Module, TrainConfig], None]


@dataclass(frozen=True, eq=False)
class Logarithms:
    """Targets above 0, by their logarithm."""

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


# A dataclass, so that each baseline only lists the settings it adds or changes: scikit-learn reads the parameters off
# the generated signature.
@dataclass(kw_only=True, eq=False, repr=False)
class Network(FittedInEpochs):
    """A module trained by :func:`restt.train.train`.

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
    scaling : {"none", "standard", "minmax", "shared"}
        What is done to the columns first, as learned from the rows of the fit, see
        :class:`restt_baselines.inputs.Inputs`.
    runs : int
        Members, trained side by side from different initial weights and averaged.
    device : "auto", str or torch.device
    random_state : int, RandomState or None
    verbose : int
        1 prints about ten lines, 2 a line per epoch.

    Attributes
    ----------
    module_ : torch.nn.Module
        With the runs axis.
    history_ : list of restt.train.EpochRecord
    n_iter_ : int
        Epochs trained.
    """

    epochs: int = 100
    batch_size: int | None = 512
    lr: float = 1e-3
    weight_decay: float = 0.0
    schedule: str = "constant"
    clip_norm: float | None = None
    scaling: str = "none"
    runs: int = 1
    device: Any = "auto"
    random_state: Any = None
    verbose: int = 0

    # Whether predictions are computed in float64, so that a row's does not depend on which rows it is asked with: for
    # networks so small that it costs nothing.
    exact_predictions: ClassVar[bool] = False

    module_: nn.Module = field(init=False)
    inputs_: Inputs = field(init=False)
    feature_map_: FeatureMap | None = field(init=False)
    target_: Any = field(init=False)
    history_: list[EpochRecord] = field(init=False)
    n_iter_: int = field(init=False)

    @abstractmethod
    def build(self, columns: int, outputs: int, runs: int, seed: int) -> nn.Module:
        """The module from (B, columns), or what :meth:`feature_map` makes of it, to (runs, B, outputs).

        Its weights are drawn from children 0 … runs-1 of the seed sequence ``seed``.
        """

    def prepare(self, module: nn.Module, train_first: TrainFirst, rows: int, seed: int) -> None:
        """Change what :meth:`build` gave, in place, where a training of its own comes before that of the records."""

    def feature_map(self) -> FeatureMap | None:
        """From scaled columns (…, C) to what the module takes; None takes them as they are."""
        return None

    @abstractmethod
    def _new_target(self, y: np.ndarray) -> Any:
        """What turns targets into outputs and back."""

    @property
    @abstractmethod
    def _loss(self) -> str:
        """The training's loss."""

    def fit_epochs(self, X: Any, y: Any, validation: Any = None) -> Iterator[EpochRecord]:
        """Fit, one epoch for each step of the iteration. ``validation`` (X, y) is scored after each of them."""
        rows, targets = self._read_training(X, y)
        inputs, target = Inputs.fit(rows, self.scaling), self._new_target(targets)
        scored = self._read_validation(validation)
        held = None if scored is None else (inputs(scored[0]), _float32(target.encode(scored[1])))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        module = self.build(rows.shape[1], target.outputs, check_int("runs", self.runs, minimum=1), seed)
        work = 2.0 * len(rows) * sum(parameter.numel() for parameter in module.parameters())
        module = module.to(read_device(self.device, work))
        mapped = self.feature_map()
        x, y = inputs(rows), _float32(target.encode(targets))

        def train_first(wanted: nn.Module, config: TrainConfig) -> None:
            with fitting_threads(work):
                list(train(wanted, x, y, config=config, feature_map=mapped))

        self.prepare(module, train_first, len(rows), seed)
        records = train(module, x, y, config=self.training_config(len(rows), seed), validation=held, feature_map=mapped)
        # Only now that nothing can be refused any more does the estimator change.
        self.module_, self.inputs_, self.feature_map_, self.target_ = module, inputs, mapped, target
        self.history_, self.n_iter_ = [], 0
        step = work * min(1.0, (self.batch_size or len(rows)) / len(rows))
        return shown_progress(self._recorded(records, step), int(self.epochs), int(self.verbose))

    def training_config(self, rows: int, seed: int) -> TrainConfig:
        """How a fit to this many rows is trained."""
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

    def _recorded(self, records: Iterator[EpochRecord], work: float) -> Iterator[EpochRecord]:
        iterator = iter(records)
        while True:
            with fitting_threads(work):
                record = next(iterator, None)
            if record is None:
                return
            self.history_.append(record)
            self.n_iter_ = record.epoch
            yield record

    def _decay(self, rows: int) -> float:
        """Adam's weight decay for a fit to this many rows."""
        return self.weight_decay

    @torch.no_grad()
    def _members(self, X: Any) -> np.ndarray:  # (S, B, O)
        """Outputs of every member."""
        check_is_fitted(self)
        rows = self._read_x(X, reset=False)
        module, mapped = self.module_.eval(), self.feature_map_
        if self.exact_predictions:
            module = copy.deepcopy(module).double()
        like = next(module.parameters())
        parts = []
        for start in range(0, len(rows), ROWS_AT_ONCE):
            values = self.inputs_(rows[start : start + ROWS_AT_ONCE]).to(like)
            parts.append(module(values if mapped is None else mapped(values)).double().cpu())
        return torch.cat(parts, dim=1).numpy()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        # A pickle made beside a GPU must open where there is none.
        if "module_" in state and next(state["module_"].parameters()).device.type != "cpu":
            state["module_"] = copy.deepcopy(state["module_"]).cpu()
        return state


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkRegressor(RegressorMixin, Network):
    """Targets are brought to mean 0 and variance 1, with ``log_target`` after taking their logarithm."""

    log_target: bool = False

    def predict(self, X: Any) -> np.ndarray:
        """The members' mean, (B,) or (B, O)."""
        outputs = self._members(X).mean(axis=0)
        values: np.ndarray = self.target_.decode(outputs)
        return values

    def _read_y(self, y: Any) -> np.ndarray:
        checked = check_array(y, ensure_2d=False, allow_nd=True, dtype=np.float64, input_name="y", estimator=self)
        values = np.asarray(checked)
        if values.ndim not in (1, 2) or values.size == 0:
            raise ValueError(f"y must have shape (B,) or (B, O), got {values.shape}")
        if self.log_target:
            check_log_target(values)
        return values

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _new_target(self, y: np.ndarray) -> Values | Logarithms:
        ones = np.ones(len(y))
        return Logarithms(Values.fit(np.log(y), ones)) if self.log_target else Values.fit(y, ones)

    @property
    def _loss(self) -> str:
        return "mse"


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkClassifier(ClassifierMixin, Network):
    """``loss="cross-entropy"``: outputs are logits. ``"mse"``: they estimate one-hot targets."""

    loss: str = "cross-entropy"

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, (B,)."""
        best = self._scores(X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:  # (B, K)
        """The members' mean probabilities; with ``loss="mse"`` their mean output, cut below 0 and brought to sum 1.

        Where all outputs of a row are at most 0, the largest takes all.
        """
        return as_shares(self._scores(X))

    def _scores(self, X: Any) -> np.ndarray:  # (B, K)
        members = self._members(X)
        return softmax(members, axis=2).mean(axis=0) if self.target_.logits else members.mean(axis=0)

    def _read_y(self, y: Any) -> np.ndarray:
        return read_labels(y)

    def _new_target(self, y: np.ndarray) -> Labels:
        classes = np.unique(y)
        shares = np.bincount(class_numbers(y, classes), minlength=len(classes)) / len(y)
        return Labels(classes, shares, None, self._loss == "cross-entropy")

    @property
    def classes_(self) -> np.ndarray:  # (K,)
        """The labels in sorted order."""
        return self.target_.classes

    @property
    def _loss(self) -> str:
        return self.loss


def _float32(targets: Tensor) -> Tensor:
    return targets.float() if targets.is_floating_point() else targets
