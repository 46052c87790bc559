"""A limit on the time that work may take."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


class _TimeIsOver(BaseException):
    """Raised in the thread whose time is over; a BaseException, so that no handler of errors catches it."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """TimeoutError in this thread after so many seconds, between two steps of Python; None for no limit.

    It needs no signal, which a process in the background may ignore.

    >>> with time_limit(0.01):
    ...     while True:
    ...         pass
    Traceback (most recent call last):
    TimeoutError: stopped after 0.01 s
    """
    if seconds is None:
        yield
        return
    thread, lock, ended = ctypes.c_ulong(threading.get_ident()), threading.Lock(), False

    def stop() -> None:
        with lock:
            if not ended:
                _raise_in(thread, ctypes.py_object(_TimeIsOver))

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except _TimeIsOver:
        raise TimeoutError(f"stopped after {seconds:g} s") from None
    finally:
        timer.cancel()
        with lock:
            ended = True
            _raise_in(thread, None)  # one that has not come yet would come outside
