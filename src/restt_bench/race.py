"""One case, everybody in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from restt_bench.case import Case
from restt_bench.contenders.base import Contender
from restt_bench.device import synchronizer, usable_bytes
from restt_bench.settings import Settings
from restt_bench.timing import Summary, measure
from restt_bench.work import Work

MODES = ("step", "infer")
Row = dict[str, Any]


def race(
    case: Case,
    contenders: Sequence[Contender],
    settings: Settings,
    left_out: dict[str, str] | None = None,
) -> list[Row]:
    """A row per contender: median and quartiles of a training step and of inference, or why it did not run.

    All training steps are interleaved with each other, then all inferences. ``left_out`` names contenders that should
    not even try, and why.
    """
    skipped: dict[str, str] = dict(left_out or {})
    works: dict[str, Work] = {}
    for contender in contenders:
        if contender.name in skipped:
            continue
        reason = contender.refusal(case) or _too_large(contender, case)
        if reason is None:
            works[contender.name] = contender.build(case, settings.seed)
        else:
            skipped[contender.name] = reason
    timed = {mode: _timed(works, mode, case, settings) for mode in MODES}
    rows = []
    for contender in contenders:
        row: Row = {"contender": contender.name, "label": contender.label, "role": contender.role}
        row["case"] = case.as_dict()
        if contender.name in skipped:
            row["skipped"] = skipped[contender.name]
        elif not works[contender.name].is_finite():
            row["skipped"] = "diverged: its times are not reported"
        else:
            row |= {mode: timed[mode][contender.name].as_milliseconds() for mode in MODES}
        rows.append(row)
    return rows


def _timed(works: dict[str, Work], mode: str, case: Case, settings: Settings) -> dict[str, Summary]:
    calls: dict[str, Callable[[], object]] = {name: getattr(work, mode) for name, work in works.items()}
    return measure(calls, rounds=settings.rounds, budget=settings.budget, synchronize=synchronizer(case.device))


def _too_large(contender: Contender, case: Case) -> str | None:
    needed, usable = contender.extra_bytes(case), usable_bytes(case.device)
    if usable is None or needed <= usable:
        return None
    return f"would need about {needed / 2**30:.0f} GiB, {usable / 2**30:.0f} GiB are usable"


def median_ms(rows: Sequence[Row], contender: str, case: Case, mode: str = "step") -> float | None:
    """The median of one contender on one case in milliseconds, or None where it did not run."""
    for row in rows:
        if row["contender"] == contender and row["case"] == case.as_dict():
            return row[mode]["median"] if mode in row else None
    return None
