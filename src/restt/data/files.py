"""Files of a data set: found in a data folder, else downloaded, and right by SHA-256 either way."""

from __future__ import annotations

import hashlib
import http.client
import io
import lzma
import os
import struct
import sys
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from restt._common.errors import shown
from restt._common.files import user_cache, whole_file
from restt.data.catalog import Mirror, RemoteFile

HOME_VARIABLE = "RESTT_DATA_HOME"
Progress = Callable[[str, int, int], None]

CHUNK = 1 << 18
TIMEOUT_SECONDS = 30.0
ARCHIVE_LIMIT = 1 << 24
# What a mirror that is away, cut off or damaged ends in; zipfile lets its decompressors' own errors through, and those
# of methods it does not know and of encryption.
MIRROR_ERRORS = (
    OSError,
    ValueError,
    EOFError,
    RuntimeError,
    http.client.HTTPException,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def system_folders() -> tuple[Path, ...]:
    """Folders an administrator or an environment may have filled."""
    shared = os.environ.get("XDG_DATA_DIRS") or os.pathsep.join(["/usr/local/share", "/usr/share"])
    bases = [Path(sys.prefix) / "share", *(Path(part) for part in shared.split(os.pathsep) if part)]
    return tuple(dict.fromkeys(base / "restt" for base in bases))


def search_folders(data_home: Any = None) -> tuple[Path, ...]:
    """All data homes in the order they are looked at; the first is where downloads go."""
    first = [_folder("data_home", data_home)] if data_home is not None else []
    named = os.environ.get(HOME_VARIABLE)
    second = [_folder(HOME_VARIABLE, named)] if named else []
    return tuple(dict.fromkeys([*first, *second, user_cache(), *system_folders()]))


def _folder(name: str, value: Any) -> Path:
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, got {shown(value)} of type {type(value).__name__}")
    return Path(value).expanduser().absolute()


def read_files(
    files: Sequence[RemoteFile], folders: Sequence[Path], *, may_download: bool = True, progress: Progress | None = None
) -> list[tuple[Path, bytes]]:
    """Path and verified content of each file.

    A file with the wrong hash is passed over. ``FileNotFoundError`` names every file that is missing, the place to
    put it and its hash.
    """
    found, missing, reasons = [], [], []
    for file in files:
        hit, notes = _on_disk(file, folders)
        if hit is None and may_download:
            path, failures = download(file, folders[0], progress)
            notes += failures
            hit = None if path is None else (path, path.read_bytes())
        if hit is None:
            missing.append(file)
            reasons += notes
        else:
            found.append(hit)
    if missing:
        raise FileNotFoundError(_how_to_get(missing, folders, reasons, may_download))
    return found


def locate(files: Sequence[RemoteFile], folders: Sequence[Path]) -> Path | None:
    """The first folder that has all files in the right size; hashes are checked when they are read."""
    for folder in folders:
        if all(_has_size(folder / file.path, file.size) for file in files):
            return folder
    return None


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.is_file() and path.stat().st_size == size
    except OSError:
        return False


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
        lines += [f"    from {mirror.url}" + _inside(mirror.member) for mirror in file.mirrors]
    lines.append(f"or set {HOME_VARIABLE} to a folder that has {', '.join(file.path for file in missing)}.")
    lines.append("Looked in: " + ", ".join(str(folder) for folder in folders))
    lines += [f"Tried {reason}" for reason in reasons]
    return "\n".join(lines)


def _inside(member: str | None) -> str:
    return "" if member is None else f" (as {member} in the archive)"


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
        except MIRROR_ERRORS as error:
            failures.append(f"{mirror.url}: {str(error) or type(error).__name__}")
        else:
            return target, failures
    return None, failures


def _download_from(mirror: Mirror, file: RemoteFile, target: Path, progress: Progress | None) -> None:
    with urllib.request.urlopen(mirror.url, timeout=TIMEOUT_SECONDS) as response:
        source: IO[bytes] = response if mirror.member is None else _member(response, mirror.member)
        with whole_file(target) as sink:
            _copy_checked(source, sink, file, progress)


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
    if len(names) > 1:
        raise WrongContentError(f"archive has {len(names)} files called {member}: {names[:5]}")
    return archive.open(names[0])
