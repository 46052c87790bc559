"""Files that are either whole or absent: written beside their place, then moved into it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from os import PathLike
from pathlib import Path
from typing import Any


def write_bytes_atomic(path: str | PathLike[str], content: bytes) -> Path:
    """Write ``content`` so that a reader, or a crash, never sees half a file; missing folders are made.

    >>> folder = getfixture("tmp_path")
    >>> write_bytes_atomic(folder / "new" / "a.bin", b"abc").read_bytes()
    b'abc'
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes files only the owner may read
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(target.parent)
    return target


def write_json_atomic(path: str | PathLike[str], content: Any) -> Path:
    """Write ``content`` as readable JSON, atomically. NaN and infinity are refused: JSON has no word for them.

    >>> folder = getfixture("tmp_path")
    >>> write_json_atomic(folder / "a.json", {"r": 20}).read_text()
    '{\\n  "r": 20\\n}\\n'
    """
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return write_bytes_atomic(path, text.encode())


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


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
    """The folder of this user for what can be made or fetched again, as the platform has it."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        return base / "restt" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "restt"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "restt"
