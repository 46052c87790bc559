"""Cases side by side in processes of their own, so that kernels compile in parallel into Triton's cache."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor

from gpu.checks import check
from gpu.measure import DEVICE, Record, guarded
from gpu.tuning import tune

Job = tuple[str, Record, bool]  # "check" or "tune", the case, whether tiny


def _in_worker(job: Job) -> Record:
    name, case, tiny = job
    started = time.perf_counter()
    result = guarded(check, case) if name == "check" else guarded(tune, case, tiny, compile_only=True)
    return {**result, "seconds": time.perf_counter() - started}


def spread(jobs: list[Job], workers: int) -> list[Record]:
    """Checks whole, tuning only as far as the compiler: times are taken alone."""
    if DEVICE == "cpu" or workers <= 1:
        return [_in_worker(job) for job in jobs]
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(_in_worker, jobs))
