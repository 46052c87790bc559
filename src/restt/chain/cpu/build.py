"""Libraries of C files: the wheel's (bundled.py), or built at first use, by a C compiler, into the user's cache.

Nothing here is needed to install or to use restt: without a compiler the chain runs on ``eager``; a compiler that fails
brings a warning. The cache holds machine code that every later process of this user runs, so it is loaded only from a
folder and a file that nobody else can write, and only if its bytes are those that were built: the file's name ends in
their hash.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import site
import stat
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import torch

from restt._common.errors import warn_caller
from restt._common.files import user_cache
from restt.chain.cpu import bundled
from restt.chain.precision import untraced

TYPES = {torch.float32: "float", torch.float64: "double"}

DISABLE_VARIABLE = "RESTT_NO_COMPILE"
SLOWER = "2 to 8 times slower"  # a training step on eager over the compiled one at r = 100 and 20, results/bench

SOURCE = Path(__file__).parent / "sweep.c"
# The first that the compiler accepts: ARM compilers have another spelling, some have neither.
_TUNING = (("-march=native",), ("-mcpu=native",), ())
_TIMEOUT_SECONDS = 180


class BuildError(RuntimeError):
    """Why there is no compiled path."""


@untraced  # a constant of the compiled module
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
    """The compiled chain for this type, built if need be; BuildError where that is not possible."""
    if dtype not in TYPES:
        raise BuildError(f"there is no compiled path for {dtype}")
    return _load(SOURCE, TYPES[dtype])


def library(source: Path) -> ctypes.CDLL | None:
    """The compiled library of another C file, built if need be; None where that is not possible."""
    try:
        return _load(source, "double")
    except BuildError:
        return None


def _load(source: Path, type_name: str) -> ctypes.CDLL:
    if os.environ.get(DISABLE_VARIABLE, "0") not in ("", "0"):
        raise BuildError(f"the environment variable {DISABLE_VARIABLE} is set")
    loaded = _loaded(source, type_name)
    if isinstance(loaded, str):
        raise BuildError(loaded)
    return loaded


@functools.cache
def _loaded(source: Path, type_name: str) -> ctypes.CDLL | str:
    """The library, or why there is none."""
    brought = bundled.find(source, type_name)
    if brought is not None:
        try:
            return ctypes.CDLL(str(brought))
        except OSError:  # such as a folder from which nothing may be run
            pass
    available = compilers()
    if not available:
        return "no C compiler was found; `pip install restt[fast]` brings one"
    failures = []
    for compiler in available:
        try:
            return _built(compiler, source, type_name)
        except (BuildError, OSError) as error:
            failures.append(f"{' '.join(compiler)}: {error}")
    reason = "; ".join(failures)
    _warn_once(
        f"restt's C code did not compile here, so it runs on plain torch, {SLOWER}: {reason}. "
        f"{DISABLE_VARIABLE}=1 accepts that without this warning"
    )
    return reason


def compilers() -> list[tuple[str, ...]]:
    """The C compilers found, best first: by absolute paths only, so that nothing in the working folder is run."""
    folders = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder)]
    names = (os.environ.get("CC") or "cc", "cc", "gcc", "clang")
    tools = [shutil.which(name, path=os.pathsep.join(folders)) for name in names]
    available: list[tuple[str, ...]] = [(path,) for path in tools if path is not None and os.path.isabs(path)]
    zig = _zig()
    if zig is not None:
        available.append((str(zig), "cc"))
    return list(dict.fromkeys(available))


def _zig() -> Path | None:
    """The compiler of the ``fast`` extra, where it was installed; sys.path may name the working folder."""
    installed = [Path(torch.__file__).parents[1], *(Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))]
    if site.ENABLE_USER_SITE:
        installed.append(Path(site.getusersitepackages()))
    name = "zig.exe" if os.name == "nt" else "zig"
    places = (folder / "ziglang" / name for folder in installed if folder.is_absolute())
    return next((place for place in places if place.is_file()), None)


def _built(compiler: tuple[str, ...], source: Path, type_name: str) -> ctypes.CDLL:
    """The library of this compiler, from the cache or built into it; where that is impossible, for this process."""
    name = f"{source.stem}-{type_name}-{_key(compiler, source)}"
    try:
        cache = _usable_cache()
        return ctypes.CDLL(str(_cached(cache, name) or _compile(compiler, source, type_name, cache, name)))
    except (OSError, RuntimeError, ValueError) as error:
        unusable = error  # no home, a relative path, someone else's folder, a full disk: or the compiler itself
    library = ctypes.CDLL(str(_compile(compiler, source, type_name, Path(_private_folder().name), name)))
    _warn_once(
        f"restt's compiled code cannot be kept in the user's cache ({unusable}), so it was built into a temporary "
        f"folder and every new process builds it again, which takes seconds; plain torch would be {SLOWER}"
    )
    return library


def _cached(cache: Path, name: str) -> Path | None:
    """The library in the cache whose bytes are those that were built, or None; damaged ones are removed."""
    for path in sorted(cache.glob(f"{name}-*.so")):
        _check_ownership(path)
        if path.stem == f"{name}-{_digest(path)}":
            return path
        path.unlink()
    return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _usable_cache() -> Path:
    """The folder of the cache, made if need be; raises where it is not this user's alone."""
    folder = _cache_folder()
    if not folder.is_absolute():
        raise ValueError(f"the cache folder must be an absolute path, got {str(folder)!r}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_ownership(folder)
    return folder


def _check_ownership(path: Path) -> None:
    if os.name != "posix":
        return
    status = path.stat()
    if status.st_uid not in (os.getuid(), 0):
        raise PermissionError(f"{path} belongs to another user (number {status.st_uid})")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} can be written by other users; `chmod go-w` takes that away")


def _compile(compiler: tuple[str, ...], source: Path, type_name: str, cache: Path, name: str) -> Path:
    """Build the library and rename it into ``cache``, so that another process never loads half a file."""
    with tempfile.TemporaryDirectory(prefix="building-", dir=cache, ignore_cleanup_errors=True) as folder:
        output = Path(folder) / f"{name}.so"
        environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
        options: dict[str, Any] = {"env": environment, "cwd": folder, "capture_output": True, "text": True}
        for tuning in _TUNING:
            command = bundled.command(compiler, source, type_name, tuning, output)
            try:
                done = subprocess.run(command, timeout=_TIMEOUT_SECONDS, check=False, **options)
            except subprocess.TimeoutExpired:
                raise BuildError(f"it took longer than {_TIMEOUT_SECONDS} s") from None
            if done.returncode == 0 and output.is_file():
                output.chmod(0o700)  # not writable by others, whatever the umask
                return output.replace(cache / f"{name}-{_digest(output)}.so")
    raise BuildError(f"it failed: {(done.stderr.strip() or 'no error message').splitlines()[-1]}")


def _cache_folder() -> Path:
    return user_cache() / "compiled"


@functools.cache
def _private_folder() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder of this process alone: a shared one could hold other users' code."""
    return tempfile.TemporaryDirectory(prefix="restt-", ignore_cleanup_errors=True)


@functools.cache
def _warn_once(message: str) -> None:
    warn_caller(message, RuntimeWarning)


def _key(compiler: tuple[str, ...], source: Path) -> str:
    """Hash of all that the machine code depends on: source, flags, compiler and processor."""
    status = Path(compiler[0]).resolve().stat()
    parts = [bundled.source_key(source), repr((_TUNING, compiler, status.st_size, status.st_mtime_ns)), _processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _processor() -> str:
    described = [platform.machine(), platform.processor(), platform.system()]
    kinds = ("model name", "flags", "Features", "CPU part", "CPU implementer")
    return repr([*described, *sorted({line for line in bundled.processor_lines() if line.startswith(kinds)})])


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
