"""Downloads that leave either the right file or none."""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from restt._common.files import sync_folder
from restt.data.catalog import Mirror, RemoteFile

Progress = Callable[[str, int, int], None]

CHUNK = 1 << 18
TIMEOUT_SECONDS = 30.0
ARCHIVE_LIMIT = 1 << 24


class WrongContentError(ValueError):
    """A mirror served something other than the file asked for."""


def download(file: RemoteFile, folder: Path, progress: Progress | None = None) -> tuple[Path | None, list[str]]:
    """Try each mirror of ``file``; the path under ``folder``, or ``None``, and what went wrong on the way.

    The content goes to a temporary file beside its place, and takes its name only once its SHA-256 is right and it
    is on disk. ``progress(path, bytes so far, bytes in all)`` is called as it arrives.
    """
    target = folder / file.path
    failures = []
    for mirror in file.mirrors:
        try:
            _download_from(mirror, file, target, progress)
        except (OSError, ValueError, http.client.HTTPException, zipfile.BadZipFile) as error:
            failures.append(f"{mirror.url}: {error}")
        else:
            return target, failures
    return None, failures


def _download_from(mirror: Mirror, file: RemoteFile, target: Path, progress: Progress | None) -> None:
    with urllib.request.urlopen(mirror.url, timeout=TIMEOUT_SECONDS) as response:
        source: IO[bytes] = response if mirror.member is None else _member(response, mirror.member)
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as sink:
                _copy_checked(source, sink, file, progress)
                sink.flush()
                os.fsync(sink.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    sync_folder(target.parent)


def _copy_checked(source: IO[bytes], sink: IO[bytes], file: RemoteFile, progress: Progress | None) -> None:
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(source):
        size += len(chunk)
        if size > file.size:
            raise WrongContentError(f"more than the {file.size} bytes expected")
        digest.update(chunk)
        sink.write(chunk)
        if progress is not None:
            progress(file.path, size, file.size)
    if size < file.size:
        raise WrongContentError(f"only {size} of {file.size} bytes")
    if digest.hexdigest() != file.sha256:
        raise WrongContentError(f"SHA-256 is {digest.hexdigest()}, expected {file.sha256}")


def _chunks(source: IO[bytes]) -> Iterator[bytes]:
    while chunk := source.read(CHUNK):
        yield chunk


def _member(response: IO[bytes], member: str) -> IO[bytes]:
    content = response.read(ARCHIVE_LIMIT + 1)
    if len(content) > ARCHIVE_LIMIT:
        raise WrongContentError(f"archive of more than {ARCHIVE_LIMIT} bytes")
    archive = zipfile.ZipFile(io.BytesIO(content))
    names = [name for name in archive.namelist() if name.rsplit("/", 1)[-1] == member]
    if not names:
        raise WrongContentError(f"archive has no {member}, only {archive.namelist()[:5]}")
    return archive.open(names[0])
