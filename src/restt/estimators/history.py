"""What ``history_`` holds: one record per epoch, and the same as a table of plain columns."""

from __future__ import annotations

import math
from typing import Any, Self

from restt.train import EpochRecord

# Values of a record that are one per run, and those that are one per epoch.
OF_RUNS = ("train_loss", "lr", "gradient_norm")
OF_EPOCHS = ("seconds", "samples_per_second")


class History(list[EpochRecord]):
    """The records of a fit, in order.

    >>> record = EpochRecord(1, (0, 1), (0.5, 0.4), (0.1, 0.1), (1.0, 2.0), {"r2": (0.7, 0.8)}, 0.5, 100.0)
    >>> History([record]).to_frame()[["epoch", "run", "train_loss", "validation_r2"]]
       epoch  run  train_loss  validation_r2
    0      1    0         0.5            0.7
    1      1    1         0.4            0.8
    """

    def to_columns(self) -> dict[str, list[Any]]:
        """Plain columns by name: one entry for each epoch and run that was in training.

        Metrics of held-out rows are ``validation_loss`` and so on, NaN where an epoch has none; ``events`` is text.
        """
        metrics = list(dict.fromkeys(name for record in self for name in record.validation))
        names = ["epoch", "run", *OF_RUNS, *(f"validation_{name}" for name in metrics), *OF_EPOCHS]
        columns: dict[str, list[Any]] = {name: [] for name in [*names, "replayed", "events"]}
        for record in self:
            for run in record.runs:
                told = [event.message for event in record.events if event.run in (None, run)]
                values = {
                    "epoch": record.epoch,
                    "run": run,
                    **{name: getattr(record, name)[run] for name in OF_RUNS},
                    **{f"validation_{name}": _of_run(record, name, run) for name in metrics},
                    **{name: getattr(record, name) for name in OF_EPOCHS},
                    "replayed": record.replayed,
                    "events": "; ".join(told),
                }
                for name, value in values.items():
                    columns[name].append(value)
        return columns

    def to_frame(self) -> Any:
        """:meth:`to_columns` as a pandas data frame."""
        import pandas as pd

        return pd.DataFrame(self.to_columns())

    def to_config(self) -> list[dict[str, Any]]:
        """Plain values for JSON, where NaN is null."""
        return [record.to_dict() for record in self]

    @classmethod
    def from_config(cls, config: list[dict[str, Any]]) -> Self:
        """The history that :meth:`to_config` wrote."""
        return cls(_record(values) for values in config)


def _of_run(record: EpochRecord, name: str, run: int) -> float:
    values = record.validation.get(name)
    return math.nan if values is None else values[run]


def _record(values: dict[str, Any]) -> EpochRecord:
    of_runs = {name: _with_nan(values[name]) for name in OF_RUNS}
    validation = {name: _with_nan(entries) for name, entries in values["validation"].items()}
    of_epochs = {name: math.nan if values[name] is None else values[name] for name in OF_EPOCHS}
    return EpochRecord.from_dict({**values, **of_runs, **of_epochs, "validation": validation})


def _with_nan(entries: list[float | None]) -> list[float]:
    return [math.nan if entry is None else entry for entry in entries]
