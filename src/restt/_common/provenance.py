"""Origin of a measured number: commit, versions, device. Every results file carries it."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from restt._common.version import __version__

PACKAGES = (
    *("torch", "numpy", "scikit-learn", "triton", "tensorkrowch", "opt_einsum"),
    *("lightgbm", "catboost", "interpret-core", "tabpfn"),  # baselines of the tables
)


def provenance(
    device: str = "cpu",
    *,
    seed: int | list[int] | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """Describe the origin of a result, so that it can be repeated, without paths and host names.

    Call it before the work begins: the commit is that of the loaded code, looked up once in a process.

    Parameters
    ----------
    device : str
        The torch device the work ran on.
    seed : int or list of int, optional
        Seeds of the run's random numbers.
    command : str, optional
        The command that repeats the result.

    Examples
    --------
    >>> from restt._common.provenance import provenance
    >>> sorted(provenance(seed=0))
    ['command', 'commit', 'date', 'device', 'dirty', 'platform', 'seed', 'threads', 'versions']
    """
    import torch

    commit, dirty = _commit()
    return {
        "commit": commit,
        "dirty": dirty,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "seed": seed,
        "device": describe_device(device),
        "threads": torch.get_num_threads(),
        "platform": f"{platform.system()} {_release()} {platform.machine()}",
        "versions": _versions(),
    }


def describe_device(device: str = "cpu") -> str:
    """Name the processor's model and its cores, or the accelerator."""
    import torch

    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return f"{_cpu_model()}, {cores} core{'s' * (cores != 1)}"


def _release() -> str:
    """Return the system's version without the name of its build, which may name a machine."""
    numbers = re.match(r"\d+(\.\d+)*", platform.release())
    return numbers[0] if numbers else platform.release()


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "restt": __version__}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _commit() -> tuple[str, bool | None]:
    """Return the commit of the checkout restt runs from and whether its files differ from it.

    RESTT_COMMIT comes first: it names the commit of a copy outside git. Without either the commit is the version.
    """
    if named := os.environ.get("RESTT_COMMIT"):
        return named, None
    return _checkout(Path(__file__).resolve().parents[2]) or (f"restt {__version__}", None)


@functools.cache
def _checkout(source: Path) -> tuple[str, bool] | None:
    """Commit and dirty flag of the checkout whose packages are in ``source``; None where they are elsewhere."""
    top = _git(source, "rev-parse", "--show-toplevel")
    # The checkout may be another project's that has an environment inside.
    if top is None or Path(top).resolve() / "src" != source:
        return None
    commit = _git(source, "rev-parse", "HEAD")
    if commit is None:
        return None
    # A run writes results, which are no change of the code.
    written = (":(exclude)results", ":(exclude)docs/results.md", ":(exclude)docs/report.html")
    changed = _git(Path(top), "status", "--porcelain", "--untracked-files=no", "--", ".", *written)
    added = _git(source, "ls-files", "--others", "--exclude-standard")
    return commit, changed != "" or added != ""


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
