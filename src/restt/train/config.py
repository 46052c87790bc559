"""Settings of a training: frozen dataclasses, checked when made, and the shapes of the learning rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from restt._common.errors import check_choice, check_int, check_positive, shown
from restt._common.files import plain_json
from restt.train.augment import Augmentation
from restt.train.objective import LOSSES
from restt.train.runs import PerRun, check_each

OPTIMIZERS = ("adam", "adamw")
RATES = ("stable", "uniform")
SCHEDULES = ("constant", "cosine", "warmup", "warmup-cosine")
KEEP = ("last", "best")
TOWARDS = ("zero", "start")

# The paper's settings (Sec. V): Adam, 100 epochs, batches of 512, weight decay 1e-6, the rate one of these three.
PAPER_RATES = (1e-2, 1e-3, 1e-4)
PAPER_EPOCHS = 100
PAPER_BATCH = 512
PAPER_WEIGHT_DECAY = 1e-6


@dataclass(frozen=True)
class Penalty:
    """An L2 penalty graded by role, so that high orders have to earn their place.

    Adds Σ weight · ‖W‖² to each run's mean loss: ``chain`` for the cores W(n,1), which carry the interactions;
    ``linear`` for the entries W(n,2) and W(1); ``head`` for the last site's tensors. Each may be one number for all
    runs or a sequence, one per run. Unlike weight decay it is part of the gradient that Adam sees, whichever optimizer
    is used, and it never touches a bias.

    ``towards="start"`` penalises the distance from the weights that the training begins with, Σ weight · ‖W - W₀‖².

    >>> Penalty(chain=1e-2, linear=1e-3)
    Penalty(chain=0.01, linear=0.001, head=0.0, towards='zero')
    """

    chain: PerRun = 0.0
    linear: PerRun = 0.0
    head: PerRun = 0.0
    towards: str = "zero"

    def __post_init__(self) -> None:
        check_choice("penalty.towards", self.towards, TOWARDS)
        for name in ("chain", "linear", "head"):
            label = f"penalty.{name}"
            check_each(label, getattr(self, name), partial(check_positive, label, allow_zero=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, one entry per field."""
        values: dict[str, Any] = plain_json(asdict(self))
        return values


@dataclass(frozen=True)
class TrainConfig:
    """Settings of one training. Where ``PerRun`` stands, give one value for all runs or a sequence, one per run.

    Parameters
    ----------
    epochs : int or sequence of int
        More of them, with a ``checkpoint_dir`` and all else the same, continue a finished training.
    batch_size : int, optional
        Rows of each run per step; None takes all of them at once.
    lr, weight_decay : PerRun
        Adam's rate and its weight decay: added to the gradient by ``"adam"``, decoupled by ``"adamw"``.
    rates : {"stable", "uniform"}
        ``"stable"`` limits the rate of a :class:`restt.ResTT`'s chain to 1/(N r) and of its linear entries to
        1/(N √r), so that no step multiplies the signal by more than a constant, see
        :func:`restt.meanfield.stable_rates`; ``"uniform"`` gives all weights the same.
    optimizer : {"adam", "adamw"}
    schedule : {"constant", "cosine", "warmup", "warmup-cosine"}
        Shape of the rate over the run's epochs, see :func:`restt.train.config.rate_factor`.
    warmup_epochs : float
        Length of the linear warm-up.
    loss : {"auto", "mse", "cross-entropy", "binary-cross-entropy", "huber"}
        ``"auto"`` is cross-entropy for classes (whole numbers in ``y``) and the squared error for values. Classes are
        one-hot targets for all, so that ``"mse"`` on them is the paper's loss.
    clip_norm : PerRun, optional
        Largest norm of a run's gradient.
    penalty : Penalty, optional
        L2 graded by role.
    dropout : PerRun
        Probability with which a site is dropped, at sites with a full skip.
    ema : float, optional
        Decay of a moving average of the weights, which is then evaluated and returned in their place.
    augment : Augmentation, optional
        Changes each batch of images before the feature map.
    patience : int, optional
        Stop a run after this many epochs without a better monitored loss: that of the validation data or, without
        them, of the training.
    keep : {"last", "best"}
        Which epoch's weights each run ends with.
    max_failures : int, optional
        How often a run may explode and be rolled back before it stops; None turns the guard off.
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
    schedule: str = "constant"
    warmup_epochs: float = 1.0
    loss: str = "auto"
    clip_norm: PerRun | None = None
    penalty: Penalty | None = None
    dropout: PerRun = 0.0
    ema: float | None = None
    augment: Augmentation | None = None
    patience: int | None = None
    keep: str = "last"
    max_failures: int | None = 5
    seed: int | Sequence[int] | None = None
    run_ids: Sequence[int] | None = None

    def __post_init__(self) -> None:
        for name, minimum in (("epochs", 1), ("seed", 0), ("run_ids", 0)):
            if getattr(self, name) is not None:
                check_each(name, getattr(self, name), partial(check_int, name, minimum=minimum))
        for name in ("lr", "clip_norm"):
            if getattr(self, name) is not None:
                check_each(name, getattr(self, name), partial(check_positive, name))
        for name in ("weight_decay", "dropout"):
            check_each(name, getattr(self, name), partial(check_positive, name, allow_zero=True))
        check_each("dropout", self.dropout, partial(_check_below_one, "dropout"))
        for name in ("batch_size", "patience"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), minimum=1)
        if self.max_failures is not None:
            check_int("max_failures", self.max_failures, minimum=0)
        check_choice("rates", self.rates, RATES)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("loss", self.loss, ("auto", *LOSSES))
        check_choice("keep", self.keep, KEEP)
        check_positive("warmup_epochs", self.warmup_epochs, allow_zero=True)
        if self.ema is not None:
            _check_below_one("ema", check_positive("ema", self.ema))
        for name, kind in (("penalty", Penalty), ("augment", Augmentation)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"{name} must be a restt.train.{kind.__name__}, got {shown(value)}")

    @classmethod
    def paper(cls, **changes: Any) -> TrainConfig:
        """Return the paper's settings (Sec. V) with MSE on one-hot classes; ``lr`` is one of ``PAPER_RATES``.

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
        values: dict[str, Any] = plain_json(asdict(self))
        return values


def rate_factor(schedule: str, step: int, steps: int, warmup_steps: float) -> float:
    """Return the rate in step ``step`` (from 0) of a run's ``steps``, as a factor of its ``lr``.

    constant
        1 throughout.
    cosine
        ½(1 + cos πt) from 1 down to 0, t the share of the run's steps that are done.
    warmup, warmup-cosine
        Linear over ``warmup_steps``, then constant or cosine.

    >>> [round(rate_factor("warmup-cosine", step, 6, 2), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if schedule == "constant":
        return 1.0
    warmup = warmup_steps if schedule.startswith("warmup") else 0.0
    if step + 1 <= warmup:
        return (step + 1) / warmup
    if schedule == "warmup":
        return 1.0
    done = (step - math.floor(warmup)) / max(1, steps - math.floor(warmup))
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))


def _check_below_one(name: str, value: float) -> None:
    if not value < 1:
        raise ValueError(f"{name} must be below 1, got {value}")
