"""C libraries inside a wheel: compiled when it is built, for each level of the processors that it is for.

hatch_build.py loads this file by its path where neither restt nor torch can be imported: it needs Python alone. A clone
or an editable install has no such libraries; build.py compiles at first use there.
"""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "libraries"
# products.h decides which sums are fused: a compiler may decide differently for other vector widths.
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-fPIC", "-shared")

_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "ssse3", "sse4_1", "sse4_2"})
_V3 = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


class Level(NamedTuple):
    """Part of a processor that a compiler may use."""

    name: str
    tuning: str
    needed: frozenset[str] = frozenset()  # as /proc/cpuinfo names it


# Best first, as the psABI of x86-64 defines them. Others have no wheels of their own and compile at first use.
LEVELS = {
    ("Linux", "x86_64"): (
        Level("v4", "-march=x86-64-v4", _V4),
        Level("v3", "-march=x86-64-v3", _V3),
        Level("v2", "-march=x86-64-v2", _V2),
    ),
    ("Linux", "aarch64"): (Level("armv8", "-march=armv8-a"),),
    ("Darwin", "arm64"): (Level("m1", "-mcpu=apple-m1"),),
}


def levels() -> tuple[Level, ...]:
    """The levels of this kind of processor, best first; none where wheels hold no libraries."""
    return LEVELS.get((platform.system(), platform.machine()), ())


def find(source: Path, type_name: str) -> Path | None:
    """The best library of this wheel that this processor runs, of exactly this source; None where there is none."""
    if not FOLDER.is_dir():
        return None
    usable = (level for level in levels() if level.needed <= _features())
    paths = (FOLDER / file_name(source, type_name, level) for level in usable)
    return next((path for path in paths if path.is_file()), None)


def file_name(source: Path, type_name: str, level: Level) -> str:
    """Name of a library inside the wheel."""
    return f"{source.stem}-{type_name}-{level.name}-{source_key(source)}.so"


def source_key(source: Path) -> str:
    """Hash of a C file, of the files beside it that it may include, and of the flags."""
    parts = [path.read_text(encoding="utf-8") for path in sorted(source.parent.glob("*.[ch]"))]
    return hashlib.sha256("\0".join([*parts, repr(FLAGS)]).encode()).hexdigest()[:24]


def sources(package: Path) -> Iterator[tuple[Path, str]]:
    """Every C file of the package, with the type it is compiled for; that of the chain has two."""
    for source in sorted(package.rglob("*.c")):
        yield from ((source, name) for name in (("float", "double") if source.name == "sweep.c" else ("double",)))


def command(
    compiler: tuple[str, ...], source: Path, type_name: str, tuning: tuple[str, ...], output: Path
) -> list[str]:
    """Command that compiles a library."""
    return [*compiler, *FLAGS, *tuning, f"-DREAL={type_name}", "-o", str(output), str(source), "-lpthread", "-lm"]


def _features() -> frozenset[str]:
    """Names of what this processor can do, where the system says it in a file."""
    return next((frozenset(line.split()) for line in processor_lines() if line.startswith("flags")), frozenset())


@functools.cache
def processor_lines() -> list[str]:
    """Lines of the system's description of the processor; none where it has no such file."""
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
