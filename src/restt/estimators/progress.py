"""Progress of a fit: ``history_``, ``verbose``, and scikit-learn's callbacks where it has them (1.9, experimental)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from restt.train import EpochRecord

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupport
    from sklearn.callback import with_callbacks

    SUPPORTED = True
except ImportError:
    SUPPORTED = False

    class CallbackSupport:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method: Any) -> Any:
        """Return the method as it is: there are no callbacks to tear down."""
        return method


# Lines that verbose=1 prints.
LINES = 10


class History(list[EpochRecord]):
    """The records of a fit, in order.

    >>> record = EpochRecord(1, (0, 1), (0.5, 0.4), (0.1, 0.1), (1.0, 2.0), {"r2": (0.7, 0.8)}, 0.5, 100.0)
    >>> History([record]).to_frame()[["epoch", "run", "train_loss", "validation_r2"]]
       epoch  run  train_loss  validation_r2
    0      1    0         0.5            0.7
    1      1    1         0.4            0.8
    """

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row for each epoch and run that was in training.

        Metrics of held-out rows are ``validation_loss`` and so on; ``events`` is text.
        """
        import pandas as pd

        return pd.DataFrame([_row(record, run) for record in self for run in record.runs])


def _row(record: EpochRecord, run: int) -> dict[str, Any]:
    of_run = {name: getattr(record, name)[run] for name in ("train_loss", "lr", "gradient_norm")}
    metrics = {f"validation_{name}": values[run] for name, values in record.validation.items()}
    events = "; ".join(event.message for event in record.events if event.run in (None, run))
    of_epoch = {name: getattr(record, name) for name in ("seconds", "samples_per_second", "replayed")}
    return {"epoch": record.epoch, "run": run, **of_run, **metrics, **of_epoch, "events": events}


def with_callback_calls(
    estimator: CallbackSupport,
    records: Iterable[EpochRecord],
    epochs: int,
    x: Any,
    y: Any,
    state: Callable[[], dict[str, Any]],
) -> Iterator[EpochRecord]:
    """Pass records on and call the estimator's callbacks after each epoch, which may ask to stop.

    Callbacks that take a ``fitted_estimator`` get one with the fitted attributes of ``state()``, which must stay as
    they were after that epoch.
    """
    # Without callbacks scikit-learn would make a context for every epoch all the same.
    if not SUPPORTED or not getattr(estimator, "_skl_callbacks", None):
        yield from records
        return
    root = estimator._init_callback_context(max_subtasks=epochs)
    data: dict[str, Any] = {"estimator": estimator, "X": x, "y": y}
    root.call_on_fit_task_begin(**data)
    stream = iter(records)
    for _ in range(epochs):
        task = root.subcontext(task_name="epoch").call_on_fit_task_begin(**data)
        record = next(stream)
        yield record
        if task.call_on_fit_task_end(**data, reconstruction_attributes=state):
            break
        if _was_last(record):
            # To the end, so that the last line of the progress is printed.
            yield from stream
            break
    root.call_on_fit_task_end(**data, reconstruction_attributes=state)


def _was_last(record: EpochRecord) -> bool:
    """Whether every run that was in training has stopped with this epoch."""
    ended = {event.run for event in record.events if event.kind in ("finished", "early-stopped", "failed")}
    return ended >= set(record.runs)


def shown_progress(records: Iterable[EpochRecord], epochs: int, verbose: int) -> Iterator[EpochRecord]:
    """Pass records on; 0 prints nothing, 1 about ten lines, 2 or more a line per epoch."""
    began = time.monotonic()
    every, text, printed = max(1, epochs // LINES) if verbose == 1 else 1, "", ""
    try:
        for number, record in enumerate(records):
            if verbose > 0:
                text = describe(record, epochs, time.monotonic() - began)
                if number == 0 or record.epoch % every == 0:
                    print(text, flush=True)
                    printed = text
            yield record
    finally:
        if text != printed:
            print(text, flush=True)


def describe(record: EpochRecord, epochs: int, seconds: float) -> str:
    """Format a record as one line; several runs as their mean.

    >>> describe(EpochRecord(3, (0, 1), (0.5, 0.7), (0.01, 0.01), (1.0, 1.0), {"r2": (0.8, 0.6)}), 9, 1.0)
    'epoch 3/9 · loss 0.6 · validation r2 0.7 · 1.0 s'
    """
    runs = list(record.runs)
    parts = [f"epoch {record.epoch}/{epochs}", f"loss {np.take(record.train_loss, runs).mean():.4g}"]
    for name in ("accuracy", "r2"):
        if name in record.validation:
            parts.append(f"validation {name} {np.take(record.validation[name], runs).mean():.4g}")
    return " · ".join([*parts, f"{seconds:.1f} s"])
