"""What ``restt reproduce`` does, and says while doing it."""

from __future__ import annotations

from pathlib import Path

from restt import reproduce as experiments
from restt._errors import check_choice
from restt.reproduce import pack as packing


def reproduce(what: str, profile: str, output: Path | None, device: str) -> None:
    """Run one experiment or ``"all"``: compute, show the tables, draw the pictures."""
    names = list(experiments.EXPERIMENTS)
    check_choice("name", what, [*names, "all"])
    device = experiments.read_device(device)
    for name in names if what == "all" else [what]:
        experiments.run(name, profile, output, device)
        for table in experiments.tables_of(name, profile, output):
            table.print()
        for picture in experiments.pictures_of(name, profile, output):
            print(picture)
        print(f"{name}: results in {experiments.open_store(name, profile, output).folder}", flush=True)
    if profile == "quick":
        print(experiments.QUICK_MEANS)


def pack(file: Path, profile: str | None, output: Path | None) -> None:
    """Bundle a folder of results, by default that of the quick profile."""
    folder = experiments.results_folder(profile or "quick") if output is None else output
    keys = packing.pack(file, folder, profile)
    print(f"{len(keys)} results of {folder} in {file}")


def unpack(file: Path, profile: str | None, output: Path | None) -> bool:
    """Bring results back; whether all that is in the file is now here."""
    folder = output or experiments.results_folder(profile or packing.unpack_profile(file))
    found = packing.unpack(file, folder)
    print(f"{len(found.written)} results written to {folder}, {len(found.same)} were there already")
    for key in found.different:
        print(f"kept, and different in the file: {key}")
    for key in found.busy:
        print(f"left out, another process is computing it: {key}")
    return not found.different and not found.busy
