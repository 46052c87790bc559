"""The guard: a run that explodes is rolled back and continues with half the rate and a clipped gradient.

The gradient is clipped at the norm it had before. Half the rate alone is often not enough. Late in a training Adam's
second moments are small, and one batch with a gradient many times the usual moves all weights by several times the rate
at once; a chain of N sites multiplies that N times. A clipped gradient cannot do this.

Two snapshots are kept for each run. The newer is the state after a good epoch; the older, the *proven* one, is the
state from which that good epoch was trained. An explosion often begins some steps before the loss shows it, so the
newer snapshot may already be lost; the proven one is not, and it is the one a run goes back to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from restt._common.compat_torch import foreach_copy_, foreach_norm
from restt.train.records import Event

# An epoch's mean loss this far above that of an untrained model is an explosion. Batch noise, dropout and Adam's
# passing spikes stay below it: a mean is only this large when outputs have left the scale of the targets.
EXPLODED = 10.0
# So is a loss above an untrained model's in a run that had come this far below it: everything learned is gone.
LOST = 100.0
# A snapshot is only taken of a state whose epoch was this close to the run's lowest loss.
GOOD = 10.0
# Epochs of a single step would spend as much time on copies as on training.
STEPS_BETWEEN_SNAPSHOTS = 20
# Stretches of neighbouring runs whose parts of all tensors are held, so as not to be cut out again.
MOST_STRETCHES = 64


@dataclass
class RunState:
    """One run's place in the training. Plain numbers, so that a checkpoint can hold it as JSON."""

    place: int  # in the user's module
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
    proven_steps: int = 0  # steps at the snapshot that a good epoch has started from

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        return {"run": values.pop("place"), **values}  # the name it has in checkpoints

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunState:
        return cls(**{"place" if name == "run" else name: value for name, value in values.items()})


def update_best(state: RunState, value: float, epoch: int, min_delta: float) -> bool:
    """Whether ``value`` (smaller is better) is the run's best so far; counts how long it has waited for one."""
    if value < state.best - min_delta:
        state.best, state.best_epoch = value, epoch
        state.waited = state.plateau_waited = 0
        return True
    state.waited += 1
    state.plateau_waited += 1
    return False


class Guard:
    """Watches the working runs' tensors (S, …): weights, moments, averages."""

    def __init__(self, tensors: dict[str, Tensor], max_failures: int, watched: dict[str, Tensor] | None = None) -> None:
        """``watched`` are the tensors whose numbers must stay finite; all of them by default."""
        self.tensors = tensors
        self.watched = tensors if watched is None else watched
        self.max_failures = max_failures
        self.newest = {name: value.clone() for name, value in tensors.items()}
        self.proven = {name: value.clone() for name, value in tensors.items()}
        self._stretches: dict[tuple[int, range], list[Tensor]] = {}
        self._good: list[int] = []  # slots whose snapshots are due
        self._rolled_back: list[int] = []

    def largest(self) -> Tensor:  # ()
        """The size of the largest number that is watched: NaN or infinite where one of them is."""
        # It needs no scratch tensor.
        return torch.stack(foreach_norm(_floats(self.watched), math.inf)).max()

    def check(
        self, runs: Sequence[RunState], losses: Sequence[float], norms: Sequence[float], largest: float
    ) -> tuple[list[Event], list[int]]:
        """Roll back exploded runs and note which ones are good; :meth:`take_snapshots` ends the epoch.

        ``losses`` and ``norms`` are the epoch's mean training losses and gradient norms, ``largest`` is what
        :meth:`largest` found. Returns what happened and which of the working runs have failed for good; those stand at
        their proven state.
        """
        if math.isfinite(largest) and not any(map(has_exploded, runs, losses)):
            is_due = any(run.steps - run.snapshot_steps >= STEPS_BETWEEN_SNAPSHOTS for run in runs)
            for slot, (run, loss) in enumerate(zip(runs, losses, strict=True)):
                if loss < run.lowest:
                    run.lowest = loss
                if is_due:
                    self._remember(slot, run, loss, norms[slot])
            return [], []
        finite = [True] * len(runs) if math.isfinite(largest) else finite_runs(self.watched)
        events, failed = [], []
        for slot, (run, loss, norm) in enumerate(zip(runs, losses, norms, strict=True)):
            if finite[slot] and not has_exploded(run, loss):
                self._remember(slot, run, loss, norm)
                continue
            self._roll_back(slot, run)
            what = f"loss {loss:.3g}" if finite[slot] or not math.isfinite(loss) else "non-finite weights"
            if run.failures > self.max_failures:
                failed.append(slot)
                text = f"{what} for the {run.failures}th time: stopped at the last good state (step {run.steps})"
                events.append(Event("failed", text, run.place))
            else:
                clipped = f", gradient clipped at {run.clip:.3g}" if math.isfinite(run.clip) else ""
                text = f"{what}: back to the last good state (step {run.steps}), rate × {run.guard_scale:g}{clipped}"
                events.append(Event("rolled-back", text, run.place))
        return events, failed

    def take_snapshots(self) -> None:
        """Bring both snapshots up to what the last check found. Until then they are those of the epoch before."""
        if not self._good and not self._rolled_back:
            return
        self._copy(self.newest, self.proven, self._good)
        self._copy(self.tensors, self.newest, self._good)
        self._copy(self.proven, self.newest, self._rolled_back)
        self._good, self._rolled_back = [], []

    def _copy(self, source: dict[str, Tensor], target: dict[str, Tensor], slots: Sequence[int]) -> None:
        """Some runs, mostly all but a few: a launch or two on a GPU for every stretch of neighbours."""
        starts = [place for place, slot in enumerate(slots) if place == 0 or slots[place - 1] != slot - 1]
        for start, stop in pairwise([*starts, len(slots)]):
            runs = range(slots[start], slots[stop - 1] + 1)
            foreach_copy_(self._stretch(target, runs), self._stretch(source, runs))

    def _stretch(self, tensors: dict[str, Tensor], runs: range) -> list[Tensor]:
        """The runs' part of each tensor. Cutting out a hundred takes longer than copying them."""
        key = id(tensors), runs
        if key not in self._stretches:
            if len(self._stretches) >= MOST_STRETCHES:
                self._stretches.clear()
            self._stretches[key] = [value[runs.start : runs.stop] for value in tensors.values()]
        return self._stretches[key]

    def _remember(self, slot: int, run: RunState, loss: float, norm: float) -> None:
        run.lowest = min(run.lowest, loss)
        if loss > GOOD * run.lowest or run.steps - run.snapshot_steps < STEPS_BETWEEN_SNAPSHOTS:
            return
        self._good.append(slot)
        run.proven_steps, run.snapshot_steps = run.snapshot_steps, run.steps
        run.usual_norm = norm

    def _roll_back(self, slot: int, run: RunState) -> None:
        for name, value in self.tensors.items():
            value[slot].copy_(self.proven[name][slot])
        self._rolled_back.append(slot)
        run.steps = run.snapshot_steps = run.proven_steps
        run.guard_scale /= 2
        run.clip = min(run.clip, run.usual_norm)
        run.failures += 1


def has_exploded(run: RunState, loss: float) -> bool:
    """Whether an epoch's mean loss is beyond what noise can do.

    >>> run = RunState(0, reference=1.0, lowest=0.005)
    >>> [has_exploded(run, loss) for loss in (0.004, 0.3, 2.0, 1e24, math.nan)]
    [False, False, True, True, True]
    """
    if not math.isfinite(loss):
        return True
    scale = run.reference if math.isfinite(run.reference) else math.inf
    return loss > EXPLODED * scale or (loss > scale and loss > LOST * run.lowest)


def finite_runs(tensors: dict[str, Tensor]) -> list[bool]:  # S
    """Whether every number of a run is finite."""
    sizes = [
        torch.linalg.vector_norm(value.reshape(len(value), -1), ord=math.inf, dim=1).double()
        for value in _floats(tensors)
    ]
    finite: list[bool] = torch.stack(sizes).isfinite().all(0).tolist()
    return finite


def _floats(tensors: dict[str, Tensor]) -> list[Tensor]:
    return [value for value in tensors.values() if value.dtype.is_floating_point and value.numel()]
