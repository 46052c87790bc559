"""One process at a time per name, freed by the system when its holder dies; its forked children hold nothing."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

POLL_SECONDS = 0.1
# The lock files open in this process. A lock is shared by all copies of its descriptor, and a fork copies it: a child
# that outlived its parent would hold it on.
_opened: set[int] = set()
_fork_guard = threading.RLock()  # nobody forks between opening or closing a file and noting it


@contextlib.contextmanager
def claimed(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock file ``path`` inside the block; yields whether it is ours.

    With ``wait`` the answer is always True, after whoever holds it is done or dead. The lock is the system's (flock,
    on Windows msvcrt's byte lock), not the file's existence: a file left by a killed process holds nothing. Nor does
    a child forked inside the block.

    >>> path = getfixture("tmp_path") / "cell.lock"
    >>> with claimed(path, wait=False) as first, claimed(path, wait=False) as second:
    ...     first, second
    (True, False)
    >>> path.exists()
    False
    """
    descriptor = _take(path)
    while descriptor is None and wait:
        _pause()
        descriptor = _take(path)
    if descriptor is None:
        yield False
        return
    holder = os.getpid()
    try:
        yield True
    finally:
        if os.getpid() == holder:  # a forked child that leaves the block has nothing to give back
            # While it is still ours, so that nobody's fresh lock is removed. Windows refuses to remove an open file;
            # there the empty file stays.
            with contextlib.suppress(OSError):
                path.unlink()
            _close(descriptor)


def _pause() -> None:
    time.sleep(POLL_SECONDS)


def _take(path: Path) -> int | None:
    """An open descriptor that holds the lock, or None where somebody else does."""
    path.parent.mkdir(parents=True, exist_ok=True)  # each time: somebody may tidy up while we wait
    descriptor = _open(path)
    try:
        if _try_lock(descriptor) and _still_there(descriptor, path):
            return descriptor
    except BaseException:
        _close(descriptor)
        raise
    _close(descriptor)
    return None


def _open(path: Path) -> int:
    with _fork_guard:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        _opened.add(descriptor)
    return descriptor


def _close(descriptor: int) -> None:
    with _fork_guard:
        _opened.discard(descriptor)
        os.close(descriptor)


def _still_there(descriptor: int, path: Path) -> bool:
    """Whether the locked file is the one under ``path``: its last holder may have removed it since we opened it."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _hold_nothing() -> None:
        """In a forked child: closing a copy leaves the parent's lock alone, where unlocking would end it."""
        for descriptor in _opened:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        _opened.clear()
        _fork_guard.release()

    os.register_at_fork(before=_fork_guard.acquire, after_in_parent=_fork_guard.release, after_in_child=_hold_nothing)
