"""One process at a time per file name, freed by the system when its holder dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def claimed(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock file ``path`` inside the block; yields whether it is ours.

    With ``wait`` the answer is always True, once whoever holds it is done or dead.

    >>> path = getfixture("tmp_path") / "cell.lock"
    >>> with claimed(path, wait=False) as first, claimed(path, wait=False) as second:
    ...     first, second
    (True, False)
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(path).acquire(blocking=wait)
    except Timeout:
        yield False
        return
    with lock:
        yield True
