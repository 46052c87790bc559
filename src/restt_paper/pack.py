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
from restt_paper import PICTURES
from restt_paper.cells import DIGEST_DIGITS, NAME, Cell
from restt_paper.fig_meanfield import DRAWN
from restt_paper.locks import claimed
from restt_paper.store import LOCKS, parse_cell

CELL_FILE = re.compile(rf"(?P<experiment>{NAME.pattern})/(?P<name>{NAME.pattern})-[0-9a-f]{{{DIGEST_DIGITS}}}\.json")
# Pictures that show more than the results keep, so that nothing can draw them again, and the experiment they belong to.
DRAWN_ONCE = tuple(f"{PICTURES}/{file}" for file in DRAWN.values())
STUDY = "fig-meanfield"
PNG = b"\x89PNG\r\n\x1a\n"
# No pack comes near, inflated; what does is no pack of results.
LARGEST_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Unpacked:
    """Keys of what is in a pack, cells and pictures, by what became of them."""

    written: tuple[str, ...]
    same: tuple[str, ...]  # already here, with the same content
    different: tuple[str, ...]  # already here with another content, which was kept; pictures of such a study
    busy: tuple[str, ...]  # being computed here by another process, and left to it


def pack(file: str | PathLike[str], folder: str | PathLike[str], profile: str | None = None) -> list[str]:
    """Bundle all finished cells of ``folder`` into the gzipped tar ``file``; returns the keys of what is in it.

    The same results give the same bytes. ``profile`` is noted, so that :func:`unpack_profile` can tell where they
    belong; by default it is the one the results name. Of the pictures only those come along that cannot be drawn again
    from the results: the mean-field study's.

    >>> from restt_paper.store import Store
    >>> home = getfixture("tmp_path")
    >>> _ = Store(home / "there").compute(Cell("sums", "two", {}), lambda cell: {"sum": 2})
    >>> pack(home / "results.tar.gz", home / "there", "quick")
    ['sums/two-44136fa3']
    >>> unpack(home / "results.tar.gz", home / "here").written
    ('sums/two-44136fa3',)
    """
    root = Path(folder)
    names = [path.relative_to(root).as_posix() for path in sorted(root.glob("*/*.json"))]
    names = [name for name in names if CELL_FILE.fullmatch(name)]
    if not names:
        raise FileNotFoundError(f"{root} holds no results to pack")
    if any(_is_study(name) for name in names):
        names += [name for name in DRAWN_ONCE if (root / name).is_file()]
    contents = {name: (root / name).read_bytes() for name in names}
    # What unpacking would refuse is told here, where it can still be mended.
    settings = [_checked(name, content, root).get("settings", {}) for name, content in contents.items()]
    tarred = _tarred(_one_profile(root, settings, profile), contents)
    if len(tarred) > LARGEST_BYTES:
        raise ValueError(f"results in {root} must be at most {LARGEST_BYTES} bytes to be packed, got {len(tarred)}")
    write_bytes_atomic(file, _zipped(tarred))
    return [_key(name) for name in names]


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


def unpack_profile(file: str | PathLike[str]) -> str:
    """The profile that was noted when ``file`` was packed."""
    profiles = {member.split("/")[0] for member in _read(file)}
    if len(profiles) != 1:
        raise ValueError(f"{file} must hold the results of one profile, got {sorted(profiles)}")
    return profiles.pop()


def unpack(file: str | PathLike[str], folder: str | PathLike[str]) -> Unpacked:
    """Bring the cells of a pack into ``folder``.

    Everything in the pack is checked before anything is written, each file appears whole or not at all, and what is
    finished here is never overwritten: where it differs, it is reported.
    """
    root = Path(folder)
    found: dict[str, list[str]] = {"written": [], "same": [], "different": [], "busy": []}
    contents = [(member.partition("/")[2], content) for member, content in _read(file).items()]
    # Pictures last, when it is known whether their study is the one here.
    for name, content in sorted(contents, key=lambda one: one[0] in DRAWN_ONCE):
        fate = _study_left_out(found) if name in DRAWN_ONCE else None
        found[fate or _bring(root, name, content)].append(_key(name))
    return Unpacked(**{fate: tuple(keys) for fate, keys in found.items()})


def _study_left_out(found: Mapping[str, list[str]]) -> str | None:
    """What became of the pack's study, where it was not brought: its pictures would not show the one here."""
    return next((fate for fate in ("different", "busy") if any(map(_is_study, found[fate]))), None)


def _bring(root: Path, name: str, content: bytes) -> str:
    """What became of one file of a pack."""
    path = root / name
    with claimed(root / LOCKS / f"{_key(name)}.lock", wait=False) as ours:
        if path.exists():
            return "same" if path.read_bytes() == content else "different"
        if not ours:
            return "busy"
        write_bytes_atomic(path, content)
        return "written"


def _is_study(name: str) -> bool:
    return name.startswith(f"{STUDY}/")


def _key(name: str) -> str:
    return name.rpartition(".")[0]


def _read(file: str | PathLike[str]) -> dict[str, bytes]:
    """Members by name, after making sure that each is a results file under the name it should have."""
    try:
        inflated = _inflated(file)
        with tarfile.open(fileobj=io.BytesIO(inflated), mode="r:") as tar:
            found = {member.name: _content(tar, member, file) for member in tar}
            _check_end(tar, inflated)
            return found
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{file} is not a whole pack of results ({error})") from error


def _check_end(tar: tarfile.TarFile, inflated: bytes) -> None:
    """Two empty blocks end a tar; anything else is a member that could not be read, which tarfile passes over."""
    last = max(tar.getmembers(), key=lambda member: member.offset_data, default=None)
    if last is None:
        raise tarfile.ReadError("it is empty")
    blocks = -(-last.size // tarfile.BLOCKSIZE)
    rest = inflated[last.offset_data + blocks * tarfile.BLOCKSIZE :]
    if len(rest) < 2 * tarfile.BLOCKSIZE or any(rest):
        raise tarfile.ReadError(f"it is damaged after {last.name!r}")


def _inflated(file: str | PathLike[str]) -> bytes:
    # To the very end, where the checksum is: a tar is read no further than its last member. But no further than a pack
    # can reach: a small file may inflate to more than there is memory.
    with gzip.open(file) as zipped:
        content = zipped.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise ValueError(f"{file} holds more than {LARGEST_BYTES} bytes, too many for a pack of results")
    return content


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo, file: str | PathLike[str]) -> bytes:
    profile, _, name = member.name.partition("/")
    well_named = NAME.fullmatch(profile) and (name in DRAWN_ONCE or CELL_FILE.fullmatch(name))
    # A sparse member says itself how large it is, whatever was read.
    if not (well_named and member.isreg() and not member.issparse()):
        raise ValueError(f"{file} holds {member.name!r}, which is no results file")
    stream = tar.extractfile(member)
    assert stream is not None
    content = stream.read()
    its_own = _checked(name, content, file).get("settings", {}).get("profile", profile)
    if its_own != profile:
        raise ValueError(f"{file} holds {member.name!r}, a result of the {its_own} profile")
    return content


def _checked(name: str, content: bytes, source: str | PathLike[str]) -> dict[str, Any]:
    """The results in the file ``name`` of a folder or a pack, which must belong there; a picture has none."""
    if name in DRAWN_ONCE:
        if not content.startswith(PNG):
            raise ValueError(f"{source} holds {name!r}, which is no picture")
        return {}
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{name!r} in {source} is not text ({error})") from error
    found = parse_cell(f"{name!r} in {source}", text)
    named = CELL_FILE.fullmatch(name)
    assert named is not None
    cell = Cell(named["experiment"], named["name"], found["settings"])
    if (cell.title, f"{cell.key}.json") != (found["cell"], name):
        raise ValueError(f"{source} holds {name!r}, whose content belongs to another cell")
    return found
