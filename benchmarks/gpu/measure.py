"""What every part of the GPU benchmark shares: sizes, data, clocks."""

from __future__ import annotations

import statistics
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SITES, OUTPUTS, BATCH = 196, 10, 512
TINY_SITES, TINY_BATCH = 5, 19
Record = dict[str, Any]


def guarded(measure: Callable[..., Record], *args: Any, **options: Any) -> Record:
    """The measurement, or why there is none: one that fails must not cost the others."""
    try:
        return measure(*args, **options)
    except Exception as error:
        traceback.print_exc(limit=4)
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}
    finally:
        if DEVICE == "cuda":
            torch.cuda.empty_cache()


def features(batch: int, sites: int, width: int, runs: int | None = None, seed: int = 0) -> torch.Tensor:
    """Trigonometric features (B, N, I) of random pixels, of norm 1 per site."""
    generator = torch.Generator().manual_seed(seed)
    leading = () if runs is None else (runs,)
    angle = torch.rand(*leading, batch, sites, (width + 1) // 2, generator=generator) * torch.pi / 2
    both = torch.cat([angle.cos(), angle.sin()], dim=-1)[..., :width]
    return (both / both.norm(dim=-1, keepdim=True)).to(DEVICE)


def milliseconds(call: Callable[[], Any], *, samples: int = 15, repeats: int = 20) -> float:
    """Median time of one call, by device events around batches of calls."""
    if DEVICE == "cpu":
        start = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - start)
    for _ in range(3):
        call()
    times = []
    for _ in range(samples):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / repeats)
    return statistics.median(times)


def graphed(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call as a graph replay."""
    if DEVICE == "cpu":
        return call
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def kernel_times(call: Callable[[], Any], repeats: int = 5) -> dict[str, float]:
    """Microseconds per call of each kernel, by name."""
    if DEVICE == "cpu":
        return {}
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
    found = {event.key[:60]: event.device_time_total / repeats for event in record.key_averages()}
    return dict(sorted(found.items(), key=lambda item: -item[1])[:16])
