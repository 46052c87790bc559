"""Files of a data set: found on disk, else downloaded, and right by SHA-256 either way."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from restt.data.catalog import RemoteFile
from restt.data.download import Progress, download
from restt.data.folders import HOME_VARIABLE


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
