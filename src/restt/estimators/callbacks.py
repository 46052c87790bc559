"""scikit-learn's callbacks, where it has them (1.9, experimental); everything that touches that API is here."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from restt.train import EpochRecord

Method = TypeVar("Method", bound=Callable[..., Any])

if TYPE_CHECKING:

    class CallbackSupport:
        """``set_callbacks`` where scikit-learn offers it."""

    def with_callbacks(method: Method) -> Method:
        """Tear callbacks down when the method ends, however it ends."""
        return method

    SUPPORTED = True
else:
    try:
        from sklearn.callback import CallbackSupportMixin as CallbackSupport
        from sklearn.callback import with_callbacks

        SUPPORTED = True
    except ImportError:
        SUPPORTED = False

        class CallbackSupport:
            """This scikit-learn has no callbacks."""

        def with_callbacks(method):
            """Nothing to tear down."""
            return method


def observed(estimator: Any, records: Iterable[EpochRecord], epochs: int, x: Any, y: Any) -> Iterator[EpochRecord]:
    """Pass records on and tell the estimator's callbacks of each epoch, which may ask to stop.

    Callbacks that take a ``fitted_estimator`` get a copy that stays as it was after that epoch.
    """
    if not SUPPORTED:
        yield from records
        return
    root = estimator._init_callback_context(max_subtasks=epochs)
    data: dict[str, Any] = {"estimator": estimator, "X": x, "y": y}
    root.call_on_fit_task_begin(**data)

    def state() -> dict[str, Any]:
        return {"module_": copy.deepcopy(estimator.module_), "history_": list(estimator.history_)}

    stream = iter(records)
    for _ in range(epochs):
        task = root.subcontext(task_name="epoch").call_on_fit_task_begin(**data)
        record = next(stream)
        yield record
        if task.call_on_fit_task_end(**data, reconstruction_attributes=state) or _was_last(record):
            break
    root.call_on_fit_task_end(**data, reconstruction_attributes=state)


def _was_last(record: EpochRecord) -> bool:
    """Whether every run that was in training has stopped with this epoch."""
    ended = {event.run for event in record.events if event.kind in ("finished", "early-stopped", "failed")}
    return ended >= set(record.runs)
