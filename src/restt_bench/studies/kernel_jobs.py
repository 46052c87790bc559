"""What the checks and the tuning of the fused GPU chain share: cases over processes, told as JSON takes them.

Kernels take longer to compile than to run, so cases are spread over processes; one that fails costs the others nothing.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import Any

import torch

from restt.chain.cuda import launch as cuda_launch

Record = dict[str, Any]


def spread(work: Callable[..., Record], jobs: list[tuple[Any, ...]], device: str, workers: int) -> list[Record]:
    """``work`` of every job, in ``workers`` processes where the device is a GPU; each tells its seconds too."""
    if workers == 1 or not device.startswith("cuda"):
        return [_timed_job(work, job) for job in jobs]
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(_timed_job, [work] * len(jobs), jobs))


def _timed_job(work: Callable[..., Record], job: tuple[Any, ...]) -> Record:
    started = time.perf_counter()
    return {**guarded(work, *job), "seconds": round(time.perf_counter() - started, 2)}


def guarded(work: Callable[..., Record], *arguments: Any) -> Record:
    """What ``work`` finds, or its error."""
    try:
        return work(*arguments)
    except Exception as error:
        traceback.print_exc(limit=4)
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def described(case: Record) -> Record:
    """A case as JSON takes it: a failed check must still be written."""
    plain = {key: value for key, value in case.items() if key != "topology"}
    plain |= {key: asdict(plain[key]) for key in ("sweep", "weights") if key in plain}
    if "topology" in case:
        plain["topology"] = f"{case['topology'].name}, {case['topology'].sites} sites"
        if len(set(plain.get("widths", [0]))) == 1:
            plain["width"] = plain.pop("widths", [2])[0]
    return plain


def launch_tables() -> Record:
    """The constants that are in use."""
    sweeps = {f"{tile} {precision}": asdict(launch) for (tile, precision), launch in cuda_launch.SWEEPS.items()}
    by_tile: dict[str, dict[int, Any]] = {
        "one wave": cuda_launch.ONE_WAVE,
        "one wave back": cuda_launch.ONE_WAVE_BACK,
        "weights": cuda_launch.WEIGHTS,
        "weights of tf32": cuda_launch.TF32_WEIGHTS,
    }
    tables = {name: {str(tile): asdict(launch) for tile, launch in table.items()} for name, table in by_tile.items()}
    cuts = {str(tile): list(shares) for tile, shares in cuda_launch.CUTS.items()}
    return {"sweeps": sweeps, **tables, "cuts": cuts}


def features(device: str, batch: int, sites: int, width: int, runs: int | None = None) -> torch.Tensor:
    """Trigonometric features (B, N, I) of random pixels, of norm 1 per site."""
    generator = torch.Generator().manual_seed(0)
    leading = () if runs is None else (runs,)
    angle = torch.rand(*leading, batch, sites, (width + 1) // 2, generator=generator) * torch.pi / 2
    both = torch.cat([angle.cos(), angle.sin()], dim=-1)[..., :width]
    return (both / both.norm(dim=-1, keepdim=True)).to(device)
