"""What ``verbose`` shows while an estimator is fitted."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator

from restt.train import EpochRecord, live_table


def shown_progress(records: Iterable[EpochRecord], epochs: int, verbose: int) -> Iterator[EpochRecord]:
    """Pass records on; 0 shows nothing, 1 one line that is kept up to date, 2 or more a table."""
    if verbose <= 0:
        return iter(records)
    return live_line(records, epochs) if verbose == 1 else live_table(records, epochs)


def live_line(records: Iterable[EpochRecord], epochs: int) -> Iterator[EpochRecord]:
    """One line on standard output: rewritten where it is a terminal, else written once at the end."""
    terminal, began, text = sys.stdout.isatty(), time.monotonic(), ""
    try:
        for record in records:
            text = describe(record, epochs, time.monotonic() - began)
            if terminal:
                print(f"\r{text}\x1b[K", end="", flush=True)
            yield record
    finally:
        if text:
            print("" if terminal else text, flush=True)


def describe(record: EpochRecord, epochs: int, seconds: float) -> str:
    """The record in one line; several runs as their mean.

    >>> describe(EpochRecord(3, (0, 1), (0.5, 0.7), (0.01, 0.01), (1.0, 1.0), {"r2": (0.8, 0.6)}), 9, 1.0)
    'epoch 3/9 · loss 0.6 · validation r2 0.7 · 1.0 s'
    """
    parts = [f"epoch {record.epoch}/{epochs}", f"loss {_mean(record.train_loss):.4g}"]
    for name in ("accuracy", "r2"):
        if name in record.validation:
            parts.append(f"validation {name} {_mean(record.validation[name]):.4g}")
    return " · ".join([*parts, f"{seconds:.1f} s"])


def _mean(values: tuple[float, ...]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
