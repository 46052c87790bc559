"""Builds cpu/sweep.c at first use, where a C compiler can be found, and keeps what was built.

Nothing here is needed to install or to use restt: without a compiler the chain runs on ``eager``.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

TYPES = {torch.float32: "float", torch.float64: "double"}

DISABLE_VARIABLE = "RESTT_NO_COMPILE"

_SOURCE = Path(__file__).parent / "cpu" / "sweep.c"
_FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fPIC", "-shared")
# The first that the compiler takes; arm compilers spell it differently, some know neither.
_TUNING = (("-march=native",), ("-mcpu=native",), ())
_TIMEOUT_SECONDS = 180


class BuildError(RuntimeError):
    """Why there is no compiled path."""


def problem(dtype: torch.dtype) -> str | None:
    """Why the compiled path is missing for this type, or None; builds it when that is what is missing.

    >>> problem(torch.float16)
    'there is no compiled path for torch.float16'
    """
    try:
        load(dtype)
    except BuildError as error:
        return str(error)
    return None


def load(dtype: torch.dtype) -> ctypes.CDLL:
    """The compiled path for this type, built if need be; BuildError where that is not possible."""
    if os.environ.get(DISABLE_VARIABLE, "0") not in ("", "0"):
        raise BuildError(f"the environment variable {DISABLE_VARIABLE} is set")
    if dtype not in TYPES:
        raise BuildError(f"there is no compiled path for {dtype}")
    found = _loaded(dtype)
    if isinstance(found, str):
        raise BuildError(found)
    return found


@functools.cache
def _loaded(dtype: torch.dtype) -> ctypes.CDLL | str:
    compilers = _compilers()
    if not compilers:
        return "no C compiler was found; `pip install restt[fast]` brings one"
    failures = []
    for compiler in compilers:
        try:
            return _built(compiler, TYPES[dtype])
        except (BuildError, OSError) as error:
            failures.append(f"{' '.join(compiler)}: {error}")
    return "; ".join(failures)


def _compilers() -> list[tuple[str, ...]]:
    names = (os.environ.get("CC") or "cc", "cc", "gcc", "clang")
    found: list[tuple[str, ...]] = [(path,) for name in names if (path := shutil.which(name))]
    if importlib.util.find_spec("ziglang") is not None:
        found.append((sys.executable, "-m", "ziglang", "cc"))
    return list(dict.fromkeys(found))


def _built(compiler: tuple[str, ...], type_name: str) -> ctypes.CDLL:
    """The library of this compiler, from the cache or built into it; where that is impossible, for this process."""
    name = f"sweep-{type_name}-{_key(compiler)}.so"
    try:
        cache = _cache_folder()
        if (cache / name).is_file():
            return ctypes.CDLL(str(cache / name))
    except (OSError, RuntimeError):  # no home, an unreadable folder or a damaged file: build it again
        pass
    try:
        cache = _cache_folder()
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        return ctypes.CDLL(str(_compile(compiler, type_name, cache / name)))
    except (OSError, RuntimeError) as error:
        if isinstance(error, BuildError):
            raise
    return ctypes.CDLL(str(_compile(compiler, type_name, _private_folder() / name)))


def _compile(compiler: tuple[str, ...], type_name: str, target: Path) -> Path:
    output = "it said nothing"
    # Built beside the target and renamed, so that another process never loads half a file.
    with tempfile.TemporaryDirectory(prefix="building-", dir=target.parent) as folder:
        made = Path(folder) / target.name
        environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
        for tuning in _TUNING:
            command = [*compiler, *_FLAGS, *tuning, f"-DREAL={type_name}", "-o", str(made), str(_SOURCE), "-lpthread"]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False, env=environment
                )
            except subprocess.TimeoutExpired:
                raise BuildError(f"it took longer than {_TIMEOUT_SECONDS} s") from None
            if done.returncode == 0 and made.is_file():
                return made.replace(target)
            output = done.stderr.strip() or output
    raise BuildError(f"it failed: {output.splitlines()[-1]}")


def _cache_folder() -> Path:
    from restt._common.files import user_cache

    return user_cache() / "compiled"


@functools.cache
def _private_folder() -> Path:
    """A folder of this process, for when the cache cannot be written to. A shared one could hold others' code."""
    folder = Path(tempfile.mkdtemp(prefix="restt-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _key(compiler: tuple[str, ...]) -> str:
    """What decides about the machine code: the source, the flags, the compiler and the processor."""
    tool = Path(compiler[0]).resolve()
    stat = tool.stat()
    sources = [path.read_text() for path in sorted(_SOURCE.parent.glob("*.[ch]"))]
    parts = [*sources, repr((_FLAGS, _TUNING, compiler, stat.st_size, stat.st_mtime_ns))]
    if "ziglang" in compiler:
        parts.append(importlib.metadata.version("ziglang"))
    return hashlib.sha256("\0".join([*parts, _processor()]).encode()).hexdigest()[:24]


def _processor() -> str:
    described = [platform.machine(), platform.processor(), platform.system()]
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return repr(described)
    kinds = ("model name", "flags", "Features", "CPU part", "CPU implementer")
    return repr([*described, *sorted({line for line in lines if line.startswith(kinds)})])


@functools.cache
def thread_team() -> int:
    """Address of the OpenMP function that starts torch's own threads; 0 where torch brings none.

    A second pool would compete with torch's, whose idle threads spin.
    """
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        # Looked up through torch's library, the name resolves to the very OpenMP runtime that torch was linked with.
        return ctypes.cast(ctypes.CDLL(str(library)).GOMP_parallel, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0
