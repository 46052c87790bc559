"""Classes of a table of many rows: settings are judged on a sample, then one or two see all rows but some held out.

On a GPU, where passes over all rows cost little, all settings see them. Held-out rows choose the settings, the epoch
that is kept and the temperature.
"""

from __future__ import annotations

import warnings
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
from restt.estimators.targets import class_numbers
from restt.features import Trigonometric
from restt.module import ResTT

if TYPE_CHECKING:
    from restt.estimators.classifier import ResTTClassifier

# From here on one split stands for the folds.
MANY_ROWS = 5000
# Rows of the sample that settings are judged on, and passes over it.
SAMPLE, SAMPLE_EPOCHS = 12_000, 8
HELD_SHARE, MOST_HELD = 0.1, 10_000
# Steps of the training on all rows, and between how many epochs they are.
STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 4000, 5, 20
# A GPU takes more passes in the same time, and for up to this many rows those of all settings.
GPU_EPOCHS, GPU_ROWS = 40, 1_000_000
# Batches grow with the rows, so that steps do not.
BATCHES = ((100_000, 512), (400_000, 1024), (np.inf, 2048))
LARGEST_BOND = 50
# From few weights under a strong penalty to many without one over a smooth map, which learns slowly.
SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("hats, bond 10, penalty 0.005", {"feature_map": "auto", "bond_dim": 10, "penalty": 0.005}),
    ("lines, bond 10, penalty 0.001", {"feature_map": "affine", "bond_dim": 10, "penalty": 0.001}),
    ("hats, bond 10, penalty 0.0003", {"feature_map": "auto", "bond_dim": 10, "penalty": 0.0003}),
    (
        "trigonometric, bond 50",
        {"feature_map": Trigonometric(outside="clamp"), "bond_dim": LARGEST_BOND, "penalty": None, "lr": 0.003},
    ),
)
# Levels of a category that have a state of their own, and states of all columns: a step trains all of them.
MOST_LEVELS, MOST_STATES = 250, 1000
# Over more columns than this, products of straight lines and weak penalties of hats explode.
MOST_UNSTABLE = 100
# Rows that the sample left out gain most for the settings with most weights: with this many times the sample, the last
# of the settings whose loss is within this factor of the least is trained on all rows too, and held-out rows decide.
MANY_SAMPLES, HOPEFUL = 4, 1.5


def split(y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on, in random order but with one of each class first, and rows to hold out.

    >>> kept, held = split(np.array([0] * 30 + [1]), np.random.default_rng(0))
    >>> len(kept), len(held), int(kept.max())
    (28, 3, 30)
    """
    order = rng.permutation(len(y))
    first = np.sort(np.unique(y[order], return_index=True)[1])
    order = np.concatenate([order[first], np.delete(order, first)])
    held = min(MOST_HELD, round(HELD_SHARE * len(y)), len(y) - len(first))
    return order[: len(y) - held], order[len(y) - held :]


def batch_and_epochs(rows: int, most: int = MOST_EPOCHS) -> tuple[int, int]:
    """Rows per step, and passes over all.

    >>> batch_and_epochs(60_000), batch_and_epochs(900_000)
    ((512, 20), (2048, 9))
    """
    batch = next(size for limit, size in BATCHES if rows <= limit)
    return batch, int(np.clip(STEPS * batch // rows, FEWEST_EPOCHS, most))


def fit_many(
    estimator: ResTTClassifier, given: Examples, seed: int
) -> tuple[ResTTNetClassifier, dict[str, tuple[float, float]], float]:
    """Train with the best settings; the estimator, the settings' losses and weights, and the temperature.

    The loss of a setting is its log-loss on held-out rows after the training it was given: on the sample, or on all
    rows, then at its best temperature. The chosen one has weight 1, others 0.
    """
    kept, held = (given.take(rows) for rows in split(given.y, np.random.default_rng(seed)))
    classes = np.unique(given.y)
    tried = dict((SETTINGS[0], SETTINGS[-1]) if given.table.width > MOST_UNSTABLE else SETTINGS)
    sampled = min(SAMPLE, len(kept))
    device = read_device(estimator.device, float(len(kept)) * 2 * given.table.width * LARGEST_BOND**2)
    quick = device.type == "cuda" and sampled < len(kept) <= GPU_ROWS
    losses: dict[str, float] = {}
    finalists = list(tried) if quick else _finalists(estimator, tried, kept, held, classes, seed, losses)
    plan = batch_and_epochs(len(kept), GPU_EPOCHS if quick else MOST_EPOCHS)
    made, temperatures = {}, {}
    for name in finalists:
        settings = tried[name]
        if settings["penalty"] is not None:
            # The loss is a mean over rows, so the penalty that was right for the sample is a smaller one for more rows.
            settings = {**settings, "penalty": settings["penalty"] * sampled / len(kept)}
        made[name] = _trained(estimator, settings, kept, held, classes, seed, plan)
        losses[name], temperatures[name] = _tempered_loss(made[name], held)
    best = min(made, key=lambda name: losses[name])
    found = {name: (loss, float(name == best)) for name, loss in losses.items()}
    return made[best], found, temperatures[best]


def fit_one(estimator: ResTTClassifier, given: Examples, seed: int) -> ResTTNetClassifier:
    """One training with its defaults, where rows or classes are too few, or columns too many, to compare candidates."""
    bond = {} if isinstance(estimator.bond_dim, str) else {"bond_dim": int(estimator.bond_dim)}
    made = _trainable(estimator, seed, **bond)
    for _ in made._start_training(given, None, fresh=True, once=False, classes=None)[0]:
        pass
    return made


def _trainable(estimator: ResTTClassifier, seed: int, **settings: Any) -> ResTTNetClassifier:
    """An unfitted estimator for the same columns and classes."""
    same = ("categorical_features", "handle_unknown", "handle_missing", "device", "class_weight")
    shared = {name: getattr(estimator, name) for name in same}
    return ResTTNetClassifier(**shared, random_state=seed, **settings)


def _finalists(
    estimator: ResTTClassifier,
    tried: dict[str, dict[str, Any]],
    kept: Examples,
    held: Examples,
    classes: np.ndarray,
    seed: int,
    losses: dict[str, float],
) -> list[str]:
    """The settings that are worth a training on all rows, by their log-loss after one on a sample."""
    sample, judged = kept.take(np.arange(min(SAMPLE, len(kept)))), held.take(np.arange(min(SAMPLE // 2, len(held))))
    for name, settings in tried.items():
        made = _trained(estimator, settings, sample, None, classes, seed, (512, SAMPLE_EPOCHS))
        losses[name] = float(log_loss(*_outputs(made, judged)))
    best = min(losses, key=lambda name: losses[name])
    if len(kept) < MANY_SAMPLES * len(sample):
        return [best]
    hopeful = [name for name, loss in losses.items() if loss <= HOPEFUL * losses[best]]
    return list(dict.fromkeys([best, hopeful[-1]]))


def _trained(
    estimator: ResTTClassifier,
    settings: dict[str, Any],
    kept: Examples,
    held: Examples | None,
    classes: np.ndarray,
    seed: int,
    batch_and_epochs: tuple[int, int],
) -> ResTTNetClassifier:
    """An estimator trained by gradients; with held-out rows it keeps its last epoch, or that of the least loss.

    Late epochs are too sure of themselves, and right more often: what a temperature makes of them is to be compared.
    """
    batch, epochs = batch_and_epochs
    made = _trainable(estimator, seed, **settings, batch_size=batch, epochs=epochs)
    most_levels = levels_beside(kept.table.width, MOST_LEVELS, MOST_STATES)
    records, total = made._start_training(kept, held, fresh=True, once=False, classes=classes, most_levels=most_levels)
    with warnings.catch_warnings():
        if held is None:  # one that comes to nothing on the sample is not chosen
            warnings.simplefilter("ignore", ConvergenceWarning)
        least, early = np.inf, None
        for record in records if held is None else shown_progress(records, total, estimator._shown):
            if record.validation and record.validation["loss"][0] < least:
                least, early = record.validation["loss"][0], _weights(made.module_)
    if held is not None and early is not None:
        _keep_better(made, early, held)
    return made


def _weights(module: ResTT) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.named_parameters()}


@torch.no_grad()
def _keep_better(made: ResTTNetClassifier, weights: dict[str, Tensor], held: Examples) -> None:
    """These weights, where held-out rows are better off with them."""
    before = _weights(made.module_)
    loss, _ = _tempered_loss(made, held)
    for name, value in made.module_.named_parameters():
        value.copy_(weights[name])
    if not _tempered_loss(made, held)[0] < loss:
        for name, value in made.module_.named_parameters():
            value.copy_(before[name])


def _tempered_loss(made: ResTTNetClassifier, held: Examples) -> tuple[float, float]:
    """The log-loss of held-out rows at the temperature that is best for them, and that temperature."""
    logits, numbers, weights = _outputs(made, held)
    temperature = fitted_temperature(logits, numbers, weights)
    return float(log_loss(logits / temperature, numbers, weights)), temperature


def _outputs(made: ResTTNetClassifier, rows: Examples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits (B, K), classes (B,) and weights (B,) of rows."""
    logits = member_outputs(made.module_, made.encoding_, made.encoding_.numbers(rows.table), made.precision_)[0]
    return logits, class_numbers(rows.y, made.classes_), made.target_.row_weights(rows.y, rows.weights)
