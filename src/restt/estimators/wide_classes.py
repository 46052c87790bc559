"""Classes of tables with many columns and many rows: two trainings by gradients, between which held-out rows choose.

Kernels of so many columns take too long and learn little beyond straight lines; images are such tables.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from restt._common.devices import read_device
from restt.estimators.averaging import fitted_temperature, log_loss
from restt.estimators.columns import levels_beside
from restt.estimators.gradient import Examples, member_outputs
from restt.estimators.net_classifier import ResTTNetClassifier
from restt.estimators.progress import shown_progress
from restt.estimators.selection import Selected
from restt.estimators.targets import class_numbers
from restt.features import Trigonometric
from restt.module import ResTT

if TYPE_CHECKING:
    from restt.estimators.classifier import ResTTClassifier


@dataclass(frozen=True)
class WideSettings:
    """How tables of many columns are trained: the numbers of 0.2, chosen on MNIST's training images."""

    # Few weights under a penalty, and many without one over a smooth map, which learn slowly.
    candidates: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {
            "hats, bond 10, penalty 0.005": {"feature_map": "auto", "bond_dim": 10, "penalty": 0.005},
            "trigonometric, bond 50": {
                **{"feature_map": Trigonometric(outside="clamp"), "bond_dim": 50},
                **{"penalty": None, "lr": 0.003},
            },
        }
    )
    # Rows of the sample that candidates are judged on, and passes over it.
    sample: int = 12_000
    sample_epochs: int = 8
    held_out_share: float = 0.1
    most_held_out: int = 10_000
    # Steps of the training on all rows, between fewest and most passes; a GPU takes more of them in the same time.
    batch: int = 512
    steps: int = 4000
    fewest_epochs: int = 5
    most_epochs: int = 20
    gpu_epochs: int = 40
    # Levels of a category that have a state of their own, and states of all columns: a step trains all of them.
    most_levels: int = 250
    most_states: int = 1000


def train_wide(given: Examples, estimator: ResTTClassifier, seed: int) -> Selected:
    """Train the candidate with the least log-loss on held-out rows, after a training on a sample, on all rows."""
    own = WideSettings()
    kept, held_out = (given.take(rows) for rows in split(given.y, own, np.random.default_rng(seed)))
    classes = np.unique(given.y)
    sample = kept.take(np.arange(min(own.sample, len(kept))))
    device = read_device(estimator.device, float(len(kept)) * 2 * given.table.width * 50**2)
    losses = {}
    for name, settings in own.candidates.items():
        made = _trained(estimator, own, settings, sample, None, classes, seed, own.sample_epochs)
        losses[name] = float(log_loss(*_outputs(made, held_out)))
    best = min(losses, key=lambda name: losses[name])
    settings = own.candidates[best]
    if settings["penalty"] is not None:
        # The loss is a mean over rows: the penalty that was right for the sample is a smaller one for more rows.
        settings = {**settings, "penalty": settings["penalty"] * len(sample) / len(kept)}
    most = own.gpu_epochs if device.type == "cuda" else own.most_epochs
    epochs = int(np.clip(own.steps * own.batch // len(kept), own.fewest_epochs, most))
    made = _trained(estimator, own, settings, kept, held_out, classes, seed, epochs)
    losses[best], temperature = _tempered_loss(made, held_out)
    return Selected(
        made.module_,
        made.encoding_,
        replace(made.target_, temperature=temperature),
        made.precision_,
        {name: (loss, float(name == best)) for name, loss in losses.items()},
        losses[best],
        0.0,
    )


def split(y: np.ndarray, own: WideSettings, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on, in random order but with one of each class first, and rows to hold out.

    >>> kept, held_out = split(np.array([0] * 30 + [1]), WideSettings(), np.random.default_rng(0))
    >>> len(kept), len(held_out), int(kept.max())
    (28, 3, 30)
    """
    order = rng.permutation(len(y))
    first = np.sort(np.unique(y[order], return_index=True)[1])
    order = np.concatenate([order[first], np.delete(order, first)])
    held_out = min(own.most_held_out, round(own.held_out_share * len(y)), len(y) - len(first))
    return order[: len(y) - held_out], order[len(y) - held_out :]


def _trained(
    estimator: ResTTClassifier,
    own: WideSettings,
    settings: dict[str, Any],
    kept: Examples,
    held_out: Examples | None,
    classes: np.ndarray,
    seed: int,
    epochs: int,
) -> ResTTNetClassifier:
    """An estimator trained by gradients; with held-out rows it keeps its last epoch, or that of the least loss.

    Late epochs are too sure of themselves, and right more often: what a temperature makes of them is to be compared.
    """
    shared = ("categorical_features", "handle_unknown", "handle_missing", "device", "class_weight")
    made = ResTTNetClassifier(
        **{name: getattr(estimator, name) for name in shared},
        **settings,
        random_state=seed,
        batch_size=own.batch,
        epochs=epochs,
    )
    most_levels = levels_beside(kept.table.width, own.most_levels, own.most_states)
    records, total = made._start_training(
        kept, held_out, fresh=True, once=False, classes=classes, most_levels=most_levels
    )
    least, early = np.inf, None
    with warnings.catch_warnings():
        if held_out is None:  # one that comes to nothing on the sample is not chosen
            warnings.simplefilter("ignore", ConvergenceWarning)
        for record in records if held_out is None else shown_progress(records, total, estimator._shown):
            if record.validation and record.validation["loss"][0] < least:
                least, early = record.validation["loss"][0], _weights(made.module_)
    if held_out is not None and early is not None:
        _keep_better(made, early, held_out)
    return made


def _weights(module: ResTT) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.named_parameters()}


@torch.no_grad()
def _keep_better(made: ResTTNetClassifier, weights: dict[str, Tensor], held_out: Examples) -> None:
    """Take these weights where the log-loss of held-out rows is less with them."""
    before, (loss, _) = _weights(made.module_), _tempered_loss(made, held_out)
    for name, value in made.module_.named_parameters():
        value.copy_(weights[name])
    if not _tempered_loss(made, held_out)[0] < loss:
        for name, value in made.module_.named_parameters():
            value.copy_(before[name])


def _tempered_loss(made: ResTTNetClassifier, held_out: Examples) -> tuple[float, float]:
    """The log-loss of held-out rows at the temperature that is best for them, and that temperature."""
    logits, numbers, weights = _outputs(made, held_out)
    temperature = fitted_temperature(logits, numbers, weights)
    return float(log_loss(logits / temperature, numbers, weights)), temperature


def _outputs(made: ResTTNetClassifier, rows: Examples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits (B, K), classes (B,) and weights (B,) of rows."""
    logits = member_outputs(made.module_, made.encoding_, made.encoding_.numbers(rows.table), made.precision_)[0]
    return logits, class_numbers(rows.y, made.classes_), made.target_.row_weights(rows.y, rows.weights)
