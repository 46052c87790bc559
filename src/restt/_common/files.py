"""Files that are either whole or absent: written beside their place, then moved into it."""

from __future__ import annotations

import json
import math
import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any


@contextmanager
def whole_file(path: str | PathLike[str], *, text: bool = False) -> Iterator[IO[Any]]:
    """Open a file to write that takes its place, on disk, once the block ends, and none where the block raises.

    A reader, or a crash, never sees half of it; missing folders are made. Text is UTF-8 with line ends as written.

    >>> folder = getfixture("tmp_path")
    >>> with whole_file(folder / "new" / "a.txt", text=True) as file:
    ...     _ = file.write("abc")
    >>> (folder / "new" / "a.txt").read_text()
    'abc'
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = unfinished(target.parent, f".{target.name}.")
    try:
        # A plain open applies the umask, which cannot be read without setting it for all threads.
        with open(part, "x", encoding="utf-8", newline="") if text else open(part, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
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


def plain_json(value: Any) -> Any:
    """Convert to JSON's own values: arrays and sequences become lists, NaN and infinity null.

    >>> plain_json({"r": (20, float("nan"))})
    {'r': [20, None]}
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def unfinished(folder: Path, prefix: str) -> Path:
    """Return a new name in ``folder`` for an unfinished file or folder.

    >>> path = unfinished(Path("results"), ".a.json.")
    >>> path.name.startswith(".a.json."), path.suffix
    (True, '.part')
    """
    return folder / f"{prefix}-{secrets.token_hex(8)}.part"


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
