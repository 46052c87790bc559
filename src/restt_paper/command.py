"""What ``restt reproduce`` does, and says while doing it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import restt_paper as experiments
from restt._common.errors import check_choice, check_file, check_folder, check_new_file
from restt_paper import pack as packing


def reproduce(what: str, profile: str, output: Path | None, device: str) -> None:
    """Run one experiment or ``"all"``: compute, show the tables, draw the pictures."""
    names = list(experiments.EXPERIMENTS)
    check_choice("name", what, [*names, "all"])
    device = experiments.read_device(device)
    left_out = []
    for name in names if what == "all" else [what]:
        try:
            experiments.run(name, profile, output, device)
        except ImportError as error:  # of an optional package: the others can do without
            left_out.append(f"{name} was left out: {error}")
            continue
        for table in experiments.tables_of(name, profile, output):
            table.print()
        _draw(name, profile, output)
        print(f"{name}: results in {experiments.open_store(name, profile, output).folder}", flush=True)
    if profile == "quick":
        print(experiments.QUICK_MEANS)
    if left_out:
        raise ImportError("; ".join(left_out))


def _draw(name: str, profile: str, output: Path | None) -> None:
    """Draw what can be drawn: without an optional package there are still results and tables."""
    try:
        for picture in experiments.pictures_of(name, profile, output):
            print(picture)
    except ImportError as error:
        print(f"no pictures: {error}")


def pack(file: Path, profile: str | None, output: Path | None) -> None:
    """Bundle a folder of results, by default that of the quick profile."""
    folder = check_folder("output", output or experiments.results_folder(profile or "quick"))
    keys = packing.pack(check_new_file("file", file), folder, profile)
    print(f"{_counted(keys)} of {folder} in {file}")


def _counted(keys: Sequence[str]) -> str:
    """
    >>> _counted(["table1/a-1", "pictures/b"]), _counted([])
    ('1 results and 1 pictures', '0 results')
    """
    pictures = sum(key.startswith(f"{experiments.PICTURES}/") for key in keys)
    return f"{len(keys) - pictures} results" + (f" and {pictures} pictures" if pictures else "")


def unpack(file: Path, profile: str | None, output: Path | None) -> bool:
    """Bring results back; whether all that is in the file is now here."""
    packed = packing.unpack_profile(check_file("file", file))
    if profile not in (None, packed):
        raise ValueError(f"profile must be that of {file}, {packed!r}, got {profile!r}")
    folder = check_folder("output", output or experiments.results_folder(packed))
    found = packing.unpack(file, folder)
    print(f"{_counted(found.written)} written to {folder}, {len(found.same)} were there already")
    for key in found.different:
        print(f"kept, and different in the file: {key}")
    for key in found.busy:
        print(f"left out, another process is computing it: {key}")
    return not found.different and not found.busy
