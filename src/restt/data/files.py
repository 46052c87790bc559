"""Files of a data set: found in a data folder, else downloaded, and checked by SHA-256 either way."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from restt._common.errors import shown
from restt._common.files import user_cache, write_bytes_atomic
from restt.data.catalog import RemoteFile

HOME_VARIABLE = "RESTT_DATA_HOME"
Progress = Callable[[str, int, int], None]

CHUNK = 1 << 18
TIMEOUT_SECONDS = 30.0


def system_folders() -> tuple[Path, ...]:
    """Folders an administrator or an environment may have filled."""
    shared = os.environ.get("XDG_DATA_DIRS") or os.pathsep.join(["/usr/local/share", "/usr/share"])
    bases = [Path(sys.prefix) / "share", *(Path(part) for part in shared.split(os.pathsep) if part)]
    return tuple(dict.fromkeys(base / "restt" for base in bases))


def search_folders(data_home: Any = None) -> tuple[Path, ...]:
    """All data homes in the order of the search; the first is where downloads go."""
    if data_home is not None and not isinstance(data_home, (str, os.PathLike)):
        raise TypeError(f"data_home must be a path, got {shown(data_home)} of type {type(data_home).__name__}")
    named = [Path(home).expanduser().absolute() for home in (data_home, os.environ.get(HOME_VARIABLE)) if home]
    return tuple(dict.fromkeys([*named, user_cache(), *system_folders()]))


def read_files(
    files: Sequence[RemoteFile], folders: Sequence[Path], *, may_download: bool = True, progress: Progress | None = None
) -> list[tuple[Path, bytes]]:
    """Return path and verified content of each file.

    A file with the wrong hash is passed over. ``FileNotFoundError`` names every file that is missing, the place to
    put it and its hash.
    """
    contents, missing, reasons = [], [], []
    for file in files:
        hit, notes = _on_disk(file, folders)
        if hit is None and may_download:
            hit, failures = download(file, folders[0], progress)
            notes += failures
        if hit is None:
            missing.append(file)
            reasons += notes
        else:
            contents.append(hit)
    if missing:
        raise FileNotFoundError(_how_to_get(missing, folders, reasons, may_download))
    return contents


def locate(files: Sequence[RemoteFile], folders: Sequence[Path]) -> Path | None:
    """Return the first folder that has all files in the right size; hashes are checked when they are read."""
    for folder in folders:
        paths = [(folder / file.path, file.size) for file in files]
        if all(path.is_file() and path.stat().st_size == size for path, size in paths):
            return folder
    return None


def _on_disk(file: RemoteFile, folders: Sequence[Path]) -> tuple[tuple[Path, bytes] | None, list[str]]:
    notes = []
    for folder in folders:
        path = folder / file.path
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            notes.append(f"{path}: {error}")
            continue
        actual = hashlib.sha256(content).hexdigest()
        if actual == file.sha256:
            return (path, content), notes
        notes.append(f"{path}: SHA-256 is {actual}, so it is not the expected file ({len(content)} bytes)")
    return None, notes


def _how_to_get(
    missing: Sequence[RemoteFile], folders: Sequence[Path], reasons: Sequence[str], tried_download: bool
) -> str:
    tried = "and could not be downloaded" if tried_download else "and downloading was not asked for"
    lines = [f"{len(missing)} data file(s) are not in any of the data folders {tried}. Put"]
    for file in missing:
        lines.append(f"  {folders[0] / file.path}")
        lines.append(f"    {file.size} bytes, SHA-256 {file.sha256}")
        lines += [f"    from {url}" for url in file.mirrors]
    lines.append(f"or set {HOME_VARIABLE} to a folder that has {', '.join(file.path for file in missing)}.")
    lines.append("Looked in: " + ", ".join(str(folder) for folder in folders))
    lines += [f"Tried {reason}" for reason in reasons]
    return "\n".join(lines)


def download(
    file: RemoteFile, folder: Path, progress: Progress | None = None
) -> tuple[tuple[Path, bytes] | None, list[str]]:
    """Try each mirror of ``file``; returns its path under ``folder`` and content, or ``None``, and all failures.

    ``progress(path, bytes so far, bytes in all)`` is called while it arrives.
    """
    failures: list[str] = []
    for url in file.mirrors:
        try:
            content = _download_from(url, file, progress)
            return (write_bytes_atomic(folder / file.path, content), content), failures
        except (OSError, ValueError, http.client.HTTPException) as error:
            failures.append(f"{url}: {str(error) or type(error).__name__}")
    return None, failures


def _download_from(url: str, file: RemoteFile, progress: Progress | None) -> bytes:
    content = bytearray()
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
        while len(content) <= file.size and (chunk := response.read(CHUNK)):
            content += chunk
            if progress is not None:
                progress(file.path, len(content), file.size)
    if len(content) != file.size:
        size = f"more than the {file.size}" if len(content) > file.size else f"only {len(content)} of {file.size}"
        raise ValueError(f"{size} bytes")
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise ValueError(f"SHA-256 is {digest}, expected {file.sha256}")
    return bytes(content)
