"""How a training goes: one frozen dataclass, checked when made, and the shapes its rate can take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from restt._common.errors import check_choice, check_int, check_positive, shown
from restt.chain.precision import PRECISIONS
from restt.train.augment import Augmentation
from restt.train.objective import LOSSES
from restt.train.regularisation import Penalty
from restt.train.runs import PerRun, as_list, check_each

OPTIMIZERS = ("adam", "adamw")
RATES = ("stable", "uniform")
SCHEDULES = ("constant", "cosine", "warmup", "warmup-cosine", "plateau")
KEEP = ("last", "best")

# The paper's settings (Sec. V): Adam, 100 epochs, batches of 512, weight decay 1e-6, the rate one of these three.
PAPER_RATES = (1e-2, 1e-3, 1e-4)
PAPER_EPOCHS = 100
PAPER_BATCH = 512
PAPER_WEIGHT_DECAY = 1e-6


@dataclass(frozen=True)
class TrainConfig:
    """Settings of one training. Where ``PerRun`` stands, give one value for all runs or a sequence, one per run.

    Parameters
    ----------
    epochs : int or sequence of int
        More of them, with a ``checkpoint_dir`` and all else the same, train a finished training on.
    batch_size : int, optional
        Rows of each run per step; None takes all of them at once.
    lr, weight_decay : PerRun
        Adam's rate and its weight decay: added to the gradient by ``"adam"``, decoupled by ``"adamw"``.
    rates : {"stable", "uniform"}
        ``"stable"`` limits the rate of a :class:`restt.ResTT`'s chain to 1/(N r) and of its linear entries to
        1/(N √r), so that no step multiplies the signal by more than a constant, see
        :func:`restt.meanfield.stable_rates`; ``"uniform"`` gives all weights the same.
    optimizer : {"adam", "adamw"}
    betas, eps
        Adam's constants.
    schedule : {"constant", "cosine", "warmup", "warmup-cosine", "plateau"}
        Shape of the rate over the run's epochs, see :func:`restt.train.config.rate_factor`.
    warmup_epochs : float
        Length of the linear warm-up.
    plateau_patience, plateau_factor
        ``"plateau"`` multiplies the rate by the factor after this many epochs without a better monitored value.
    loss : {"auto", "mse", "cross-entropy", "binary-cross-entropy", "huber"}
        ``"auto"`` is cross-entropy for classes (whole numbers in ``y``) and the squared error for values. Classes are
        one-hot targets for all, so that ``"mse"`` on them is the paper's loss. ``huber_delta`` is where Huber
        turns from square to straight.
    clip_norm : PerRun, optional
        Largest norm of a run's gradient.
    penalty : Penalty, optional
        L2 graded by role.
    dropout : PerRun
        Probability with which a site is dropped, at sites with a full skip.
    ema : float, optional
        Decay of a moving average of the weights, which is then what is evaluated and returned.
    augment : Augmentation, optional
        Changes each batch of images before the feature map.
    monitor : str
        What early stopping, ``"plateau"`` and the best epoch look at: ``"loss"`` or a metric of the validation data;
        without validation data, the training loss.
    patience : int, optional
        Stop a run after this many epochs without a better monitored value. ``min_delta`` is how much counts.
    keep : {"last", "best"}
        Which epoch's weights each run ends with.
    max_failures : int, optional
        How often a run may explode and be rolled back before it stops; None turns the guard off.
    micro_batch, memory_budget : int, optional
        Rows of each run at once, or the bytes from which to find that number; the result is the same.
    precision : {"float32", "tf32", "bf16"}, optional
        How exactly the fused GPU kernels multiply, see :func:`restt.chain.precision`. By default whatever holds where
        the records are asked for, which is torch's own setting unless you chose another.
    seed : int or sequence of int, optional
        Root of the seed sequence, or one root per run; drawn from torch's global generator where None.
    run_ids : sequence of int, optional
        Which child of its seed sequence each run is; by default 0 … S-1.

    Examples
    --------
    >>> TrainConfig.paper(lr=1e-4).batch_size
    512
    >>> TrainConfig(lr=-1.0)
    Traceback (most recent call last):
    ValueError: lr must be finite and above 0, got -1.0
    """

    epochs: int | Sequence[int] = 100
    batch_size: int | None = 512
    lr: PerRun = 1e-3
    weight_decay: PerRun = 0.0
    rates: str = "stable"
    optimizer: str = "adam"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    schedule: str = "constant"
    warmup_epochs: float = 1.0
    plateau_patience: int = 5
    plateau_factor: float = 0.5
    loss: str = "auto"
    huber_delta: float = 1.0
    clip_norm: PerRun | None = None
    penalty: Penalty | None = None
    dropout: PerRun = 0.0
    ema: float | None = None
    augment: Augmentation | None = None
    monitor: str = "loss"
    patience: int | None = None
    min_delta: float = 0.0
    keep: str = "last"
    max_failures: int | None = 5
    micro_batch: int | None = None
    memory_budget: int | None = None
    precision: str | None = None
    seed: int | Sequence[int] | None = None
    run_ids: Sequence[int] | None = None

    def __post_init__(self) -> None:
        check_each("epochs", self.epochs, lambda value: check_int("epochs", value, minimum=1))
        check_each("lr", self.lr, lambda value: check_positive("lr", value))
        for name in ("weight_decay", "dropout"):
            check_each(name, getattr(self, name), partial(check_positive, name, allow_zero=True))
        check_each("dropout", self.dropout, lambda value: _check_below("dropout", value, 1.0))
        if self.clip_norm is not None:
            check_each("clip_norm", self.clip_norm, lambda value: check_positive("clip_norm", value))
        if self.seed is not None:
            check_each("seed", self.seed, lambda value: check_int("seed", value, minimum=0))
        if self.run_ids is not None:
            check_each("run_ids", list(self.run_ids), lambda value: check_int("run_ids", value, minimum=0))
        for name in ("batch_size", "patience", "micro_batch", "memory_budget"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), minimum=1)
        if self.max_failures is not None:
            check_int("max_failures", self.max_failures, minimum=0)
        check_choice("rates", self.rates, RATES)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("loss", self.loss, ("auto", *LOSSES))
        check_choice("keep", self.keep, KEEP)
        if self.precision is not None:
            check_choice("precision", self.precision, PRECISIONS)
        check_int("plateau_patience", self.plateau_patience, minimum=1)
        for name in ("eps", "huber_delta", "plateau_factor"):
            check_positive(name, getattr(self, name))
        for name in ("warmup_epochs", "min_delta"):
            check_positive(name, getattr(self, name), allow_zero=True)
        _check_below("plateau_factor", self.plateau_factor, 1.0)
        if len(self.betas) != 2:
            raise ValueError(f"betas must be two numbers, got {shown(self.betas)}")
        for beta in self.betas:
            _check_below("betas", check_positive("betas", beta, allow_zero=True), 1.0)
        if self.ema is not None:
            _check_below("ema", check_positive("ema", self.ema), 1.0)
        for name, kind in (("penalty", Penalty), ("augment", Augmentation)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"{name} must be a restt.train.{kind.__name__}, got {shown(value)}")

    @classmethod
    def paper(cls, **changes: Any) -> TrainConfig:
        """The paper's settings (Sec. V) with MSE on one-hot classes; ``lr`` is one of ``PAPER_RATES``, else 1e-3.

        >>> TrainConfig.paper().weight_decay
        1e-06
        """
        settings = cls(
            epochs=PAPER_EPOCHS,
            batch_size=PAPER_BATCH,
            lr=1e-3,
            rates="uniform",
            weight_decay=PAPER_WEIGHT_DECAY,
            loss="mse",
        )
        return replace(settings, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, one entry per field; ``penalty`` and ``augment`` are dictionaries of their own."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def rate_factor(schedule: str, step: int, steps: int, warmup_steps: float) -> float:
    """The rate in step ``step`` (from 0) of a run's ``steps``, as a factor of its ``lr``.

    constant
        1 throughout.
    cosine
        ½(1 + cos πt) from 1 down to 0, t the share of the run's steps that are done.
    warmup, warmup-cosine
        Up in a straight line over ``warmup_steps``, then constant or cosine.
    plateau
        1 here; the run itself multiplies by ``plateau_factor`` whenever ``plateau_patience`` epochs brought no better
        value.

    >>> [round(rate_factor("warmup-cosine", step, 6, 2), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if schedule in ("constant", "plateau"):
        return 1.0
    warmup = warmup_steps if schedule.startswith("warmup") else 0.0
    if step + 1 <= warmup:
        return (step + 1) / warmup
    if schedule == "warmup":
        return 1.0
    done = (step - math.floor(warmup)) / max(1, steps - math.floor(warmup))
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))


def _check_below(name: str, value: float, limit: float) -> float:
    if not math.isfinite(value) or value >= limit:
        raise ValueError(f"{name} must be below {limit:g}, got {value}")
    return value


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    values = as_list(value)
    if values is not None:
        return [_plain(item) for item in values]
    return value.item() if hasattr(value, "item") else value
