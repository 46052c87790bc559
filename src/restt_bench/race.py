"""One case, everybody in turn, and where the time of a step goes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from restt_bench.case import Case, Settings
from restt_bench.implementations.base import Implementation, Work
from restt_bench.timing import Summary, measure_on, usable_bytes

MODES = ("step", "infer")
Row = dict[str, Any]
TOP_OPERATIONS = 12
PROFILED_STEPS = 3


def race(
    case: Case,
    implementations: Sequence[Implementation],
    settings: Settings,
    left_out: dict[str, str] | None = None,
    modes: Sequence[str] = MODES,
) -> list[Row]:
    """A row per implementation: median and quartiles of a training step and of inference, or why it did not run.

    All training steps are interleaved with each other, then all inferences. ``left_out`` names implementations that
    should not even try, and why. On a GPU a row also has the peak memory of its step.
    """
    skipped: dict[str, str] = dict(left_out or {})
    works: dict[str, Work] = {}
    peaks: dict[str, float] = {}
    with case.multiplying():
        for implementation in implementations:
            name = implementation.name
            reason = skipped.get(name) or implementation.refusal(case) or _too_large(implementation, case)
            if reason is not None:
                skipped[name] = reason
                continue
            try:
                works[name], peaks[name] = _built(implementation, case, settings.seed)
            except Exception as error:  # of a graph that cannot be captured, or of memory: one row, not the run
                line, _, _ = str(error).strip().partition("\n")  # an assertion may have none
                skipped[name] = f"{type(error).__name__}: {line[:200]}"
        timed = {mode: _timed(works, mode, case, settings) for mode in modes}
    rows = []
    for implementation in implementations:
        name = implementation.name
        row: Row = {"implementation": name, "label": implementation.label, "role": implementation.role}
        row["case"] = case.as_dict()
        if name in skipped:
            row["skipped"] = skipped[name]
        elif not works[name].is_finite():
            row["skipped"] = "diverged: its times are not reported"
        else:
            row["flags"] = implementation.flags(case)
            row |= {mode: timed[mode][name].as_milliseconds() for mode in modes}
            if case.on_gpu:
                row["peak_gib"] = round(peaks[name] / 2**30, 4)
        rows.append(row)
    return rows


def _built(implementation: Implementation, case: Case, seed: int) -> tuple[Work, float]:
    """The work and, on a GPU, the bytes its making and first step took at most beyond what was in use."""
    if not case.on_gpu:
        return implementation.build(case, seed), 0.0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work = implementation.build(case, seed)
    work.step()
    torch.cuda.synchronize()
    return work, float(torch.cuda.max_memory_allocated() - before)


def _timed(works: dict[str, Work], mode: str, case: Case, settings: Settings) -> dict[str, Summary]:
    calls: dict[str, Callable[[], object]] = {name: getattr(work, mode) for name, work in works.items()}
    return measure_on(case.device, calls, rounds=settings.rounds, budget=settings.budget)


def _too_large(implementation: Implementation, case: Case) -> str | None:
    needed, usable = implementation.extra_bytes(case), usable_bytes(case.device)
    if needed <= usable:
        return None
    return f"would need about {needed / 2**30:.0f} GiB, {usable / 2**30:.0f} GiB are usable"


def row_of(rows: Sequence[Row], implementation: str, case: Case) -> Row | None:
    """The row of one implementation on one case, or None."""
    found = (row for row in rows if row["implementation"] == implementation and row["case"] == case.as_dict())
    return next(found, None)


def median_ms(rows: Sequence[Row], implementation: str, case: Case, mode: str = "step") -> float | None:
    """The median of one implementation on one case in milliseconds, or None where it did not run."""
    row = row_of(rows, implementation, case)
    return None if row is None or mode not in row else float(row[mode]["median"])


def breakdown(implementation: Implementation, case: Case, settings: Settings) -> dict[str, Any]:
    """Milliseconds of forward, backward and optimizer, and the operations that take the most time.

    The phases are timed without a profiler; the operations come from torch's profiler, which slows small ones down,
    so they are given as shares.
    """
    with case.multiplying():
        return _breakdown(implementation.build(case, settings.seed), implementation.name, case, settings)


def _breakdown(work: Work, name: str, case: Case, settings: Settings) -> dict[str, Any]:
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
    timed = measure_on(case.device, phases, rounds=settings.rounds, budget=settings.budget)
    forward, both, update = (timed[name].median for name in phases)
    return {
        "implementation": name,
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
