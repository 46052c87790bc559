"""What the loop knows about each run beside its tensors."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class RunState:
    """One run's place in the training. Plain numbers, so that a checkpoint can hold it as JSON."""

    run: int  # its place in the user's module
    steps: int = 0  # Adam's steps in the weights as they are: goes back with a roll-back
    guard_scale: float = 1.0  # halved by each roll-back
    clip: float = math.inf  # largest gradient norm since the first roll-back
    usual_norm: float = math.inf  # mean gradient norm of the last good epoch
    plateau_scale: float = 1.0
    failures: int = 0
    reference: float = math.nan  # the loss an untrained model has, what an explosion is measured against
    lowest: float = math.inf  # lowest training loss of an epoch
    best: float = math.inf  # best monitored value, as something to make small
    best_epoch: int = 0
    waited: int = 0  # epochs since the best one
    plateau_waited: int = 0  # epochs since the best one or the last reduction of the rate
    snapshot_steps: int = 0  # steps at the newest snapshot
    proven_steps: int = 0  # steps at the snapshot that a good stretch of training has started from

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def update_best(state: RunState, value: float, epoch: int, min_delta: float) -> bool:
    """Whether ``value`` (smaller is better) is the run's best so far; counts how long it has waited for one."""
    if value < state.best - min_delta:
        state.best, state.best_epoch = value, epoch
        state.waited = state.plateau_waited = 0
        return True
    state.waited += 1
    state.plateau_waited += 1
    return False
