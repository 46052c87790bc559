"""The record of an epoch.

Estimators, command line and experiments consume the same records. The library itself prints nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from restt._common.files import plain_json


@dataclass(frozen=True)
class Event:
    """Something a user should know: a run rolled back, a training resumed.

    ``kind`` is one of "rolled-back", "failed", "early-stopped", "finished" and "resumed". ``run`` is the run it
    concerns, None where it concerns all.
    """

    kind: str
    message: str
    run: int | None = None


@dataclass(frozen=True)
class EpochRecord:
    """One epoch. Per-run tuples have one entry for each of the S runs, NaN for runs that had stopped before.

    Attributes
    ----------
    epoch : int
        Counted from 1.
    runs : tuple of int
        The runs that trained in this epoch.
    train_loss : tuple of float
        Mean loss over the run's own rows, each batch before its update, without penalties.
    lr, gradient_norm : tuple of float
        Rate of the epoch's last step; mean over steps of the gradient's norm before clipping.
    validation : mapping of str to tuple of float
        ``"loss"`` and the task's metrics after the epoch, empty without validation data.
    seconds, samples_per_second : float
        Training time without evaluation; rows of all runs per second of it.
    events : tuple of Event
    replayed : bool
        True for epochs before a training was resumed.
    """

    epoch: int
    runs: tuple[int, ...]
    train_loss: tuple[float, ...]
    lr: tuple[float, ...]
    gradient_norm: tuple[float, ...]
    validation: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    seconds: float = math.nan
    samples_per_second: float = math.nan
    events: tuple[Event, ...] = ()
    replayed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; NaN and infinities become None, which every JSON reader accepts.

        >>> EpochRecord(1, (0,), (math.inf,), (1e-3,), (0.5,)).to_dict()["train_loss"]
        [None]
        """
        values: dict[str, Any] = plain_json(asdict(self))
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EpochRecord:
        """Build the record whose ``asdict`` or :meth:`to_dict` this is; None stands for NaN."""
        fields = {name: _known(value) for name, value in values.items()}
        fields["validation"] = {name: _known(value) for name, value in values["validation"].items()}
        fields["events"] = tuple(Event(**event) for event in values["events"])
        return cls(**fields)


def _known(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_known(item) for item in value)
    return math.nan if value is None else value
