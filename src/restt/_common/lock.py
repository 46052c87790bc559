"""One process at a time per name, freed by the system when its holder dies; its forked children hold nothing.

The lock is the system's (flock, on Windows msvcrt's byte lock), not the file's existence: a file left by a killed
process holds nothing. While it is held the file names the holder's process.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

POLL_SECONDS = 0.1
# The lock files open in this process. A lock is shared by all copies of its descriptor, and a fork copies it: a child
# that outlived its parent would hold it on.
_opened: set[int] = set()
_fork_guard = threading.RLock()  # nobody forks between opening or closing a file and noting it


class Lock:
    """A lock file that is this process's own until it is released, forgotten, or the process dies.

    >>> path = getfixture("tmp_path") / "folder.lock"
    >>> lock = Lock.take(path)
    >>> Lock.take(path) is None, holder(path) == os.getpid()
    (True, True)
    >>> lock.release()
    >>> path.exists()
    False
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.process = os.getpid()
        self._finalizer = weakref.finalize(self, _let_go, path, descriptor, self.process)

    @classmethod
    def take(cls, path: Path) -> Lock | None:
        """The lock, or None where somebody else holds it. OSError where the file system has no locks."""
        path.parent.mkdir(parents=True, exist_ok=True)  # each time: somebody may tidy up while we wait
        descriptor = _open(path)
        try:
            if _try_lock(descriptor) and _still_there(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode())
                return cls(path, descriptor)
        except BaseException:
            _close(descriptor)
            raise
        _close(descriptor)
        return None

    @property
    def ours(self) -> bool:
        """Whether it is still held, and by this process rather than by the one it was forked from."""
        return self._finalizer.alive and self.process == os.getpid()

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        self._finalizer()


def holder(path: Path) -> int | None:
    """The process that holds the lock file ``path``, None where the file does not say."""
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdecimal() else None


@contextlib.contextmanager
def claimed(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock file ``path`` inside the block; yields whether it is ours.

    With ``wait`` the answer is always True, after whoever holds it is done or dead. A child forked inside the block
    holds nothing.

    >>> path = getfixture("tmp_path") / "cell.lock"
    >>> with claimed(path, wait=False) as first, claimed(path, wait=False) as second:
    ...     first, second
    (True, False)
    """
    lock = Lock.take(path)
    while lock is None and wait:
        _pause()
        lock = Lock.take(path)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


def _pause() -> None:
    time.sleep(POLL_SECONDS)


def _let_go(path: Path, descriptor: int, process: int) -> None:
    if os.getpid() != process:  # a forked child has nothing to give back
        return
    # While it is still ours, so that nobody's fresh lock is removed. Windows refuses to remove an open file; there it
    # stays.
    with contextlib.suppress(OSError):
        path.unlink()
    _close(descriptor)


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
