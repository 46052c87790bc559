"""One case, every implementation in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from restt_bench.case import Case, Settings
from restt_bench.implementations.base import Implementation, Work
from restt_bench.timing import Summary, measure_on, usable_bytes

MODES = ("step", "infer")
Row = dict[str, Any]


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
