"""Showing a training: wrap the stream of records. The library itself prints nothing."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from restt.train.record import EpochRecord

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("epoch", "loss", "metric", "rate", "samples/s", "ETA")
SHOWN_ROWS = 12
SHOWN_EVENTS = 4


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
    from rich.console import Console, Group
    from rich.live import Live

    lines: list[tuple[str, ...]] = []
    notes: list[str] = []
    began, fresh = time.monotonic(), 0
    with Live(console=console or Console(), auto_refresh=False, transient=False) as live:
        for record in records:
            fresh += not record.replayed
            left = (epochs - record.epoch) * (time.monotonic() - began) / fresh if fresh else math.nan
            lines.append(_line(record, epochs, left))
            notes += [_note(record, event.run, event.message) for event in record.events]
            live.update(Group(_table(lines[-SHOWN_ROWS:]), *notes[-SHOWN_EVENTS:]), refresh=True)
            yield record
    if not live.console.is_terminal:
        live.console.line()  # rich only ends the last line on a terminal


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
