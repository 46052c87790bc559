"""A folder of results as one compressed file, and back."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from restt._common.files import write_bytes_atomic
from restt._common.lock import claimed
from restt_paper.engine.cell import DIGEST_DIGITS, NAME, Cell
from restt_paper.engine.experiment import PICTURES
from restt_paper.engine.store import LOCKS, parse_file

CELL_FILE = re.compile(rf"(?P<experiment>{NAME.pattern})/(?P<name>{NAME.pattern})-[0-9a-f]{{{DIGEST_DIGITS}}}\.json")
PICTURE_FILE = re.compile(rf"{PICTURES}/{NAME.pattern}\.png")
PNG = b"\x89PNG\r\n\x1a\n"
# No archive comes near, inflated; what does is no archive of results.
LARGEST_BYTES = 256 * 2**20
# The only extension that names of this length may need; others (sparse files, other sizes) are no work of ours.
EXTENSIONS = {"path"}


@dataclass(frozen=True)
class Unpacked:
    """Keys of what is in an archive, cells and pictures, by what became of them."""

    written: tuple[str, ...]
    same: tuple[str, ...]  # already here, with the same content
    different: tuple[str, ...]  # already here with another content, which was kept; pictures of such a cell
    busy: tuple[str, ...]  # being computed here by another process, and left to it


def pack(file: str | PathLike[str], folder: str | PathLike[str], profile: str | None = None) -> list[str]:
    """Bundle all finished cells of ``folder`` into the gzipped tar ``file``; returns the keys of what is in it.

    The same results give the same bytes. ``profile`` is noted, so that :func:`unpack_profile` can tell where they
    belong; by default it is the one the results name. Of the pictures only those come along that a cell's settings
    name: they were drawn while it was computed, and cannot be drawn again from its results.

    >>> from restt_paper.engine.store import Store
    >>> home = getfixture("tmp_path")
    >>> _ = Store(home / "there").compute(Cell("sums", "two", {}), lambda cell: {"sum": 2})
    >>> pack(home / "results.tar.gz", home / "there", "quick")
    ['sums/two-44136fa3']
    >>> unpack(home / "results.tar.gz", home / "here").written
    ('sums/two-44136fa3',)
    """
    root = Path(folder)
    found = [path.relative_to(root).as_posix() for path in sorted(root.glob("*/*.json"))]
    contents = {name: (root / name).read_bytes() for name in found if CELL_FILE.fullmatch(name)}
    if not contents:
        raise FileNotFoundError(f"{root} holds no results to pack")
    # What unpacking would refuse is told here, where it can still be mended.
    settings = {name: _checked_cell(name, content, root)["settings"] for name, content in contents.items()}
    for name in _owners(settings):
        if (root / name).is_file():
            contents[name] = (root / name).read_bytes()
            _check_picture(name, contents[name], root)
    tarred = _tarred(_one_profile(root, settings.values(), profile), contents)
    if len(tarred) > LARGEST_BYTES:
        raise ValueError(f"results in {root} must be at most {LARGEST_BYTES} bytes to be packed, got {len(tarred)}")
    write_bytes_atomic(file, _zipped(tarred))
    return [_key(name) for name in contents]


def unpack_profile(file: str | PathLike[str]) -> str:
    """The profile that was noted when ``file`` was packed."""
    return _read(file)[0]


def unpack(file: str | PathLike[str], folder: str | PathLike[str]) -> Unpacked:
    """Bring the cells of an archive into ``folder``.

    Everything in it is checked before anything is written, each file appears whole or not at all, and what is finished
    here is never overwritten: where it differs, it is reported.
    """
    root = Path(folder)
    _, contents, owners = _read(file)
    fates: dict[str, str] = {}
    # Pictures last, when it is known whether the cell they show is the one here.
    for name, content in sorted(contents.items(), key=lambda item: item[0] in owners):
        owner = fates.get(owners.get(name, ""), "written")
        fates[name] = owner if owner in ("different", "busy") else _bring(root, name, content)
    kinds = ("written", "same", "different", "busy")
    return Unpacked(**{kind: tuple(_key(name) for name, fate in fates.items() if fate == kind) for kind in kinds})


def _bring(root: Path, name: str, content: bytes) -> str:
    """What became of one file of an archive."""
    path = root / name
    with claimed(root / LOCKS / f"{_key(name)}.lock", wait=False) as ours:
        if path.exists():
            return "same" if path.read_bytes() == content else "different"
        if not ours:
            return "busy"
        write_bytes_atomic(path, content)
        return "written"


def _read(file: str | PathLike[str]) -> tuple[str, dict[str, bytes], dict[str, str]]:
    """Profile, files by name and each picture's cell, once every member is what its name says."""
    members = _members(file)
    profiles = {member.partition("/")[0] for member in members}
    contents: dict[str, bytes] = {}
    settings: dict[str, Mapping[str, Any]] = {}
    for member, content in members.items():
        profile, _, name = member.partition("/")
        if not NAME.fullmatch(profile) or not (CELL_FILE.fullmatch(name) or PICTURE_FILE.fullmatch(name)):
            raise ValueError(f"{file} holds {member!r}, which is no results file")
        contents[name] = content
        if PICTURE_FILE.fullmatch(name):
            _check_picture(name, content, file)
            continue
        settings[name] = _checked_cell(name, content, file)["settings"]
        its_own = settings[name].get("profile", profile)
        if its_own != profile:
            raise ValueError(f"{file} holds {member!r}, a result of the {its_own} profile")
    if len(profiles) != 1:
        raise ValueError(f"{file} must hold the results of one profile, got {sorted(profiles)}")
    owners = _owners(settings)
    for name in contents:
        if name not in settings and name not in owners:
            raise ValueError(f"{file} holds {name!r}, which no result in it names")
    return profiles.pop(), contents, owners


def _members(file: str | PathLike[str]) -> dict[str, bytes]:
    """Contents by name; whatever cannot be read, or was made by another program than ours, is refused."""
    try:
        inflated = _inflated(file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{file} is not a whole archive of results ({error})") from error
    if len(inflated) > LARGEST_BYTES:
        raise ValueError(f"{file} holds more than {LARGEST_BYTES} bytes, too many for an archive of results")
    refused: str | None = None
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(inflated), mode="r:") as tar:
            for member in tar:
                if not member.isreg() or member.issparse() or set(member.pax_headers) - EXTENSIONS:
                    refused = f"{member.name!r}, which is no results file"
                elif member.name in found:
                    refused = f"{member.name!r} twice"
                if refused is not None:
                    break
                stream = tar.extractfile(member)
                assert stream is not None
                found[member.name] = stream.read()
            else:
                _check_end(tar, inflated)
    except Exception as error:  # tarfile meets damaged headers with errors of every kind
        raise ValueError(f"{file} is not a whole archive of results ({error})") from error
    if refused is not None:
        raise ValueError(f"{file} holds {refused}")
    return found


def _inflated(file: str | PathLike[str]) -> bytes:
    # To the very end, where the checksum is: a tar is read no further than its last member. But hardly further than an
    # archive can reach: a small file may inflate to more than there is memory.
    with gzip.open(file) as zipped:
        return zipped.read(LARGEST_BYTES + 1)


def _check_end(tar: tarfile.TarFile, inflated: bytes) -> None:
    """Two empty blocks end a tar; anything else is a member that could not be read, which tarfile passes over."""
    last = max(tar.getmembers(), key=lambda member: member.offset_data, default=None)
    if last is None:
        raise tarfile.ReadError("it is empty")
    blocks = -(-last.size // tarfile.BLOCKSIZE)
    rest = inflated[last.offset_data + blocks * tarfile.BLOCKSIZE :]
    if len(rest) < 2 * tarfile.BLOCKSIZE or any(rest):
        raise tarfile.ReadError(f"it is damaged after {last.name!r}")


def _checked_cell(name: str, content: bytes, source: str | PathLike[str]) -> dict[str, Any]:
    """The results in the file ``name`` of a folder or an archive, which must belong there."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{name!r} in {source} is not text ({error})") from error
    found = parse_file(f"{name!r} in {source}", text)
    named = CELL_FILE.fullmatch(name)
    assert named is not None
    cell = Cell(named["experiment"], named["name"], found["settings"])
    if (cell.title, f"{cell.key}.json") != (found["cell"], name):
        raise ValueError(f"{source} holds {name!r}, whose content belongs to another cell")
    return found


def _check_picture(name: str, content: bytes, source: str | PathLike[str]) -> None:
    if not content.startswith(PNG):
        raise ValueError(f"{source} holds {name!r}, which is no picture")


def _owners(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """For each picture that a cell's settings name, the cell's file."""
    return {
        f"{PICTURES}/{picture}": name
        for name, of_cell in settings.items()
        for picture in _listed(of_cell.get(PICTURES))
        if PICTURE_FILE.fullmatch(f"{PICTURES}/{picture}")
    }


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _one_profile(root: Path, settings: Iterable[Mapping[str, Any]], wanted: str | None) -> str:
    """The profile of the results."""
    found = {str(one["profile"]) for one in settings if "profile" in one}
    if wanted is None:
        if len(found) != 1:
            raise ValueError(f"results in {root} must name one profile, got {sorted(found)}: say which by profile")
        return found.pop()
    if found - {wanted}:
        raise ValueError(f"profile must be that of the results in {root}, {sorted(found)}, got {wanted!r}")
    return wanted


def _tarred(profile: str, contents: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{profile}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _zipped(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped:
        zipped.write(content)
    return buffer.getvalue()


def _key(name: str) -> str:
    return name.rpartition(".")[0]
