"""The rate over a run's epochs, as a factor of its ``lr``.

constant
    1 throughout.
cosine
    ½(1 + cos πt) from 1 down to 0, t the share of the run's steps that are done.
warmup, warmup-cosine
    Up in a straight line over ``warmup_epochs``, then constant or cosine.
plateau
    Constant; each stretch of ``plateau_patience`` epochs without a better value multiplies it by ``plateau_factor``.
"""

from __future__ import annotations

import math

SCHEDULES = ("constant", "cosine", "warmup", "warmup-cosine", "plateau")


def rate_factor(schedule: str, step: int, steps: int, warmup_steps: float) -> float:
    """The factor for step ``step`` (from 0) of ``steps``; plateau's reductions are kept by the run itself.

    >>> [round(rate_factor("warmup-cosine", step, 6, 2), 3) for step in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if schedule in ("constant", "plateau"):
        return 1.0
    warmup = warmup_steps if schedule.startswith("warmup") else 0.0
    if step + 1 <= warmup:
        return (step + 1) / warmup
    if schedule == "warmup":
        return 1.0
    done = (step - math.floor(warmup)) / max(1, steps - math.floor(warmup))
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
