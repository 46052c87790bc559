"""The stream of records: what one epoch did, and ways to show or keep it.

Estimators, command line and experiments consume the same stream. The library itself prints nothing: wrap the stream.
"""

from __future__ import annotations

import inspect
import json
import math
import time
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("epoch", "loss", "metric", "rate", "samples/s", "ETA")
SHOWN_ROWS = 12
SHOWN_EVENTS = 4


@dataclass(frozen=True)
class Event:
    """Something worth telling: a run rolled back, a batch split, a checkpoint refused.

    ``kind`` is one of "rolled-back", "failed", "early-stopped", "finished", "rate-lowered", "micro-batch", "resumed",
    "checkpoint-refused". ``run`` is the run it concerns, None where it concerns all.
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
        True where a resumed training tells again what happened before.
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
        return _strict(asdict(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EpochRecord:
        """The record whose ``asdict`` this is, after a round trip through JSON."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        fields["validation"] = {name: tuple(value) for name, value in values["validation"].items()}
        fields["events"] = tuple(Event(**event) for event in values["events"])
        return cls(**fields)


class RecordStream(Iterator[EpochRecord]):
    """The records of a training, which happens as they are asked for."""

    def __init__(
        self,
        epochs: Generator[EpochRecord, None, None],
        release: Callable[[], None] | None,
    ) -> None:
        self._epochs, self._release = epochs, release
        # Also when Python ends with the stream still in a variable: its last epochs are then saved.
        self._leave = weakref.finalize(self, _leave, epochs, release, dropped=True)

    def __next__(self) -> EpochRecord:
        return next(self._epochs)

    def close(self) -> None:
        """Stop here. A training with checkpoints saves the last finished epoch."""
        if self._leave.detach() is not None:
            _leave(self._epochs, self._release, dropped=False)


def _leave(epochs: Generator[EpochRecord, None, None], release: Callable[[], None] | None, dropped: bool) -> None:
    if dropped and inspect.getgeneratorstate(epochs) == inspect.GEN_CREATED:
        warnings.warn(
            "train(…) was never iterated, so nothing was trained: write `for record in train(…): …` or "
            "`list(train(…))`",
            RuntimeWarning,
            stacklevel=3,
        )
    epochs.close()
    if release is not None:
        release()


def write_jsonl(records: Iterable[EpochRecord], path: str | Path) -> Iterator[EpochRecord]:
    """Pass records on and write each as one line of JSON, the whole history also where a training was resumed.

    >>> import os, tempfile
    >>> record = EpochRecord(1, (0,), (0.5,), (1e-3,), (0.1,), seconds=1.0, samples_per_second=100.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "history.jsonl")
    ...     _ = list(write_jsonl([record], path))
    ...     print(Path(path).read_text()[:25])
    {"epoch": 1, "runs": [0],
    """
    with open(path, "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record.to_dict(), allow_nan=False) + "\n")
            file.flush()
            yield record


def live_table(records: Iterable[EpochRecord], epochs: int, console: Any = None) -> Iterator[EpochRecord]:
    """Pass records on and show them as a live table: epoch, loss, metric, rate, samples/s and time left.

    Several runs show as mean and spread. ``console`` is a :class:`rich.console.Console`; standard output by default.
    """
    try:
        from rich.console import Console, Group
        from rich.live import Live
    except ImportError:  # the extra `app` brings it
        yield from _printed(records, epochs)
        return
    lines: list[tuple[str, ...]] = []
    notes: list[str] = []
    began, fresh = time.monotonic(), 0
    shown = console or Console()
    try:
        with Live(console=shown, auto_refresh=False, transient=False) as live:
            for record in records:
                fresh += not record.replayed
                left = (epochs - record.epoch) * (time.monotonic() - began) / fresh if fresh else math.nan
                lines.append(_line(record, epochs, left))
                notes += [_note(record, event.run, event.message) for event in record.events]
                live.update(Group(_table(lines[-SHOWN_ROWS:]), *notes[-SHOWN_EVENTS:]), refresh=True)
                yield record
    finally:  # also where the loop is left early
        if not shown.is_terminal:
            shown.line()  # rich only ends the last line on a terminal


def _printed(records: Iterable[EpochRecord], epochs: int) -> Iterator[EpochRecord]:
    """Pass records on and print one line for each."""
    print("  ".join(COLUMNS))
    for record in records:
        print("  ".join(_line(record, epochs, math.nan)))
        yield record


def _table(lines: list[tuple[str, ...]]) -> Table:
    from rich.table import Table

    table = Table()
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(*line)
    return table


def _line(record: EpochRecord, epochs: int, left: float) -> tuple[str, ...]:
    name = next((name for name in ("accuracy", "r2", "loss") if name in record.validation), None)
    metric = "" if name is None else f"{name} {_spread(record.validation[name])}"
    return (
        f"{record.epoch}/{epochs}",
        _spread(record.train_loss),
        metric,
        _spread(record.lr),
        f"{record.samples_per_second:,.0f}",
        _duration(left),
    )


def _note(record: EpochRecord, run: int | None, message: str) -> str:
    return f"epoch {record.epoch}, {'all runs' if run is None else f'run {run}'}: {message}"


def _spread(values: tuple[float, ...]) -> str:
    finite = [value for value in values if not math.isnan(value)]
    if not finite:
        return "–"
    mean = sum(finite) / len(finite)
    if max(finite) == min(finite):
        return f"{mean:.4g}"
    half = max(abs(value - mean) for value in finite)
    return f"{mean:.4g} ± {half:.1g}"


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "–"
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _strict(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
