"""A folder of results as one compressed file, and back."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePosixPath

from restt._files import write_bytes_atomic
from restt.reproduce.cells import DIGEST_DIGITS, NAME, Cell
from restt.reproduce.locks import claimed
from restt.reproduce.store import LOCKS, parse_cell, read_cell

CELL_FILE = re.compile(rf"(?P<name>{NAME.pattern})-[0-9a-f]{{{DIGEST_DIGITS}}}\.json")
# No results file comes near; what does is no results file.
LARGEST_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Unpacked:
    """Keys of the cells in a pack, by what became of them."""

    written: tuple[str, ...]
    same: tuple[str, ...]  # already here, with the same content
    different: tuple[str, ...]  # already here with another content, which was kept
    busy: tuple[str, ...]  # being computed here by another process, and left to it


def pack(file: str | PathLike[str], folder: str | PathLike[str], profile: str | None = None) -> list[str]:
    """Bundle all finished cells of ``folder`` into the gzipped tar ``file``; returns their keys.

    The same results give the same bytes. ``profile`` is noted, so that :func:`unpack_profile` can tell where they
    belong; by default it is the one the results name. Pictures are left out: they are drawn from the results.

    >>> from restt.reproduce.store import Store
    >>> home = getfixture("tmp_path")
    >>> _ = Store(home / "there").compute(Cell("sums", "two", {}), lambda cell: {"sum": 2})
    >>> pack(home / "results.tar.gz", home / "there", "quick")
    ['sums/two-44136fa3']
    >>> unpack(home / "results.tar.gz", home / "here").written
    ('sums/two-44136fa3',)
    """
    root = Path(folder)
    paths = sorted(path for path in root.glob("*/*.json") if CELL_FILE.fullmatch(path.name))
    if not paths:
        raise FileNotFoundError(f"{root} holds no results to pack")
    profile = _one_profile(root, paths, profile)
    buffer = io.BytesIO()
    keys = []
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for path in paths:
            content = path.read_bytes()
            key = path.relative_to(root).with_suffix("").as_posix()
            member = tarfile.TarInfo(f"{profile}/{key}.json")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
            keys.append(key)
    write_bytes_atomic(file, buffer.getvalue())
    return keys


def _one_profile(root: Path, paths: list[Path], wanted: str | None) -> str:
    """The profile of the results; a damaged file is told here, not where it is unpacked."""
    settings = [cell["settings"] for path in paths if (cell := read_cell(path)) is not None]
    found = {str(one["profile"]) for one in settings if "profile" in one}
    if wanted is None:
        if len(found) != 1:
            raise ValueError(f"results in {root} must name one profile, got {sorted(found)}: say which by profile")
        return found.pop()
    if found - {wanted}:
        raise ValueError(f"profile must be that of the results in {root}, {sorted(found)}, got {wanted!r}")
    return wanted


def unpack_profile(file: str | PathLike[str]) -> str:
    """The profile that was noted when ``file`` was packed."""
    profiles = {PurePosixPath(name).parts[0] for name in _read(file)}
    if len(profiles) != 1:
        raise ValueError(f"{file} must hold the results of one profile, got {sorted(profiles)}")
    return profiles.pop()


def unpack(file: str | PathLike[str], folder: str | PathLike[str]) -> Unpacked:
    """Bring the cells of a pack into ``folder``.

    Everything in the pack is checked before anything is written, each file appears whole or not at all, and a cell
    that is finished here is never overwritten: where it differs, it is reported.
    """
    root = Path(folder)
    found: dict[str, list[str]] = {"written": [], "same": [], "different": [], "busy": []}
    for name, content in _read(file).items():
        key = PurePosixPath(name).relative_to(PurePosixPath(name).parts[0]).with_suffix("").as_posix()
        path = root / f"{key}.json"
        with claimed(root / LOCKS / f"{key}.lock", wait=False) as ours:
            if path.exists():
                found["same" if path.read_bytes() == content else "different"].append(key)
            elif not ours:
                found["busy"].append(key)
            else:
                write_bytes_atomic(path, content)
                found["written"].append(key)
    return Unpacked(**{name: tuple(keys) for name, keys in found.items()})


def _read(file: str | PathLike[str]) -> dict[str, bytes]:
    """Members by name, after making sure that each is a results file under the name it should have."""
    try:
        # To the very end, where the checksum is: a tar is read no further than its last member.
        with gzip.open(file) as zipped:
            content = zipped.read()
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            return {member.name: _content(tar, member, file) for member in tar}
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{file} is not a whole pack of results ({error})") from error


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo, file: str | PathLike[str]) -> bytes:
    parts = member.name.split("/")
    well_named = len(parts) == 3 and all(NAME.fullmatch(part) for part in parts[:2])
    matched = CELL_FILE.fullmatch(parts[-1])
    if not (member.isreg() and well_named and matched):
        raise ValueError(f"{file} holds {member.name!r}, which is no results file")
    if member.size > LARGEST_BYTES:
        raise ValueError(f"{file} holds {member.name!r} of {member.size} bytes, too large for a results file")
    stream = tar.extractfile(member)
    assert stream is not None
    content = stream.read()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{member.name!r} in {file} is not text ({error})") from error
    found = parse_cell(f"{member.name!r} in {file}", text)
    cell = Cell(parts[1], matched["name"], found["settings"])
    if (cell.title, f"{cell.key}.json") != (found["cell"], "/".join(parts[1:])):
        raise ValueError(f"{file} holds {member.name!r}, whose content belongs to another cell")
    return content
