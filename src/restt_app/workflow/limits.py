"""A limit on the time that work in the main thread may take."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """TimeoutError in the main thread after so many seconds, between two steps of Python; None for no limit.

    >>> with time_limit(0.01):
    ...     while True:
    ...         pass
    Traceback (most recent call last):
    TimeoutError: stopped after 0.01 s
    """
    if seconds is None:
        yield
        return
    over = threading.Event()

    def stop() -> None:
        over.set()
        _thread.interrupt_main()

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except KeyboardInterrupt:
        if over.is_set():
            raise TimeoutError(f"stopped after {seconds:g} s") from None
        raise
    finally:
        timer.cancel()
