"""Files that are either whole or absent: written beside their place, then moved into it.

An unfinished file carries a tag of its process, so that the leftovers of a killed process can be removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from os import PathLike
from pathlib import Path
from typing import IO, Any

_TAG = re.compile(r"(?P<machine>[0-9a-f]{8})-(?P<process>[0-9]+)-[0-9a-f]{8}\.part$")
_ABANDONED_AFTER_SECONDS = 24 * 3600  # where the process cannot be asked for, being on another machine


@contextmanager
def whole_file(path: str | PathLike[str], *, text: bool = False, keep_as: Path | None = None) -> Iterator[IO[Any]]:
    """Open a file to write that takes its place, on disk, once the block ends, and none where the block raises.

    A reader, or a crash, never sees half of it; missing folders are made. Text is UTF-8 with line ends as written. An
    old file gets the name ``keep_as`` where given.

    >>> folder = getfixture("tmp_path")
    >>> with whole_file(folder / "new" / "a.txt", text=True) as file:
    ...     _ = file.write("abc")
    >>> (folder / "new" / "a.txt").read_text()
    'abc'
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(target.parent)
    made = unfinished(target.parent, f".{target.name}.")
    try:
        # A plain open applies the umask, which cannot be read without setting it for all threads.
        with open(made, "x", encoding="utf-8", newline="") if text else open(made, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep_as is not None and target.exists():
            os.replace(target, keep_as)
        os.replace(made, target)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def write_bytes_atomic(path: str | PathLike[str], content: bytes) -> Path:
    """Write ``content`` as a :func:`whole_file`.

    >>> folder = getfixture("tmp_path")
    >>> write_bytes_atomic(folder / "new" / "a.bin", b"abc").read_bytes()
    b'abc'
    """
    with whole_file(path) as file:
        file.write(content)
    return Path(path)


def write_json_atomic(path: str | PathLike[str], content: Any) -> Path:
    """Write ``content`` as readable JSON, atomically. NaN and infinity are refused, as in JSON itself.

    >>> folder = getfixture("tmp_path")
    >>> json.loads(write_json_atomic(folder / "a.json", {"r": 20}).read_text())
    {'r': 20}
    """
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return write_bytes_atomic(path, text.encode())


def unfinished(folder: Path, prefix: str) -> Path:
    """Return a new name in ``folder`` for an unfinished file or folder, which others remove if this process dies.

    >>> path = unfinished(Path("results"), ".a.json.")
    >>> path.name.startswith(".a.json."), path.suffix
    (True, '.part')
    """
    return folder / f"{prefix}{_machine()}-{os.getpid()}-{secrets.token_hex(4)}.part"


def remove_abandoned(folder: Path) -> None:
    """Delete the unfinished files and folders of dead processes in ``folder``."""
    for entry in os.scandir(folder):
        if not entry.name.endswith(".part") or not _is_abandoned(entry):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            Path(entry.path).unlink(missing_ok=True)


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    tag = _TAG.search(entry.name)
    if tag is None:
        return False
    if tag["machine"] == _machine() and os.name == "posix":
        return not _is_running(int(tag["process"]))
    try:
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > _ABANDONED_AFTER_SECONDS
    except FileNotFoundError:  # its process has just finished it
        return False


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)  # signal 0 is sent to nobody: it only asks
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@cache
def _machine() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def sync_folder(folder: Path) -> None:
    """Make a rename inside ``folder`` durable."""
    if os.name != "posix":  # elsewhere a folder cannot be opened, and the rename is already durable
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def user_cache() -> Path:
    """Return the platform's cache folder of this user."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        return base / "restt" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "restt"
    given = os.environ.get("XDG_CACHE_HOME")
    if given and not os.path.isabs(given):
        raise ValueError(f"the environment variable XDG_CACHE_HOME must be an absolute path, got {given!r}")
    return Path(given or Path.home() / ".cache") / "restt"
