"""Where the time of a training step goes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from restt_bench.case import Case
from restt_bench.contenders.base import Contender
from restt_bench.device import synchronizer
from restt_bench.settings import Settings
from restt_bench.timing import measure

TOP_OPERATIONS = 12
PROFILED_STEPS = 3


def breakdown(contender: Contender, case: Case, settings: Settings) -> dict[str, Any]:
    """Milliseconds of forward, backward and optimizer, and the operations that take the most time.

    The phases are timed without a profiler; the operations come from torch's profiler, which slows small ones down,
    so they are given as shares.
    """
    work = contender.build(case, settings.seed)
    work.step()

    def forward_and_backward() -> None:
        work.forward()
        work.backward()

    # A graph can be walked once, so the backward phase is the difference between the first two.
    phases: dict[str, Callable[[], object]] = {
        "forward": work.forward,
        "forward and backward": forward_and_backward,
        "optimizer": work.update,
    }
    timed = measure(phases, rounds=settings.rounds, budget=settings.budget, synchronize=synchronizer(case.device))
    forward, both, update = (timed[name].median for name in phases)
    return {
        "contender": contender.name,
        "case": case.as_dict(),
        "milliseconds": {
            "forward": round(1e3 * forward, 4),
            "backward": round(1e3 * (both - forward), 4),
            "optimizer": round(1e3 * update, 4),
        },
        "operations": _operations(work.step, case.device),
    }


def _operations(step: Callable[[], object], device: str) -> list[dict[str, Any]]:
    from torch.profiler import ProfilerActivity, profile

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's library announces itself on stderr otherwise
    on_gpu = torch.device(device).type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as recorded:
        for _ in range(PROFILED_STEPS):
            step()
    own_time = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    events = sorted(recorded.key_averages(), key=lambda event: -getattr(event, own_time))
    total = sum(getattr(event, own_time) for event in events) or 1.0
    return [
        {
            "operation": event.key,
            "share": round(getattr(event, own_time) / total, 4),
            "calls_per_step": round(event.count / PROFILED_STEPS, 2),
        }
        for event in events[:TOP_OPERATIONS]
    ]
