"""The end of an epoch for each run: rolled back after an explosion, stopped early, or done.

A run that explodes is rolled back and continues with half the rate and a gradient clipped at the norm it had before.
Half the rate alone is often not enough. Late in a training Adam's second moments are small, and one batch with a
gradient many times the usual moves all weights by several times the rate at once; a chain of N sites multiplies that N
times. A clipped gradient cannot do this.

Two snapshots are kept for each run. The newer is the state after a good epoch; the older, the *proven* one, is the
state from which that good epoch was trained. An explosion often begins some steps before the loss shows it, so the
newer snapshot may already be lost; the proven one is not, and it is the one a run goes back to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from restt._common.compat_torch import foreach_copy_, foreach_norm
from restt.train.records import Event


@dataclass(frozen=True)
class GuardSettings:
    """Tuning numbers of the guard."""

    # An epoch's mean loss this far above that of an untrained model is an explosion. Batch noise, dropout and Adam's
    # passing spikes stay below it: a mean is only this large when outputs have left the scale of the targets.
    exploded: float = 10.0
    # So is a loss above an untrained model's in a run that had come this far below it: everything learned is gone.
    lost: float = 100.0
    # A snapshot is only taken of a state whose epoch was this close to the run's lowest loss.
    good: float = 10.0
    # Epochs of a single step would spend as much time on copies as on training.
    steps_between_snapshots: int = 20


GUARD = GuardSettings()


@dataclass
class RunState:
    """One run's place in the training. Plain values, so that a checkpoint can hold it as JSON."""

    place: int  # in the user's module
    steps: int = 0  # Adam's steps in the current weights: goes back with a roll-back
    guard_scale: float = 1.0  # halved by each roll-back
    clip: float = math.inf  # largest gradient norm since the first roll-back
    usual_norm: float = math.inf  # mean gradient norm of the last good epoch
    failures: int = 0
    reference: float = math.nan  # loss of an untrained model, which an explosion is measured against
    lowest: float = math.inf  # lowest training loss of an epoch
    best: float = math.inf  # best monitored loss
    best_epoch: int = 0
    waited: int = 0  # epochs since the best one
    snapshot_steps: int = 0  # steps at the newest snapshot
    proven_steps: int = 0  # steps at the snapshot that a good epoch has started from
    ended: str = ""  # kind of the event that ended it


def judge(run: RunState, loss: float, epoch: int, epochs: int, patience: int | None) -> tuple[Event | None, bool]:
    """Update a run by the monitored loss of an epoch: the event that ends it, if any, and whether it is at its best.

    ``epochs`` is the number of epochs that the run is to have.
    """
    improved = loss < run.best
    if improved:
        run.best, run.best_epoch, run.waited = loss, epoch, 0
    else:
        run.waited += 1
    if run.ended:
        return None, improved
    if patience is not None and run.waited >= patience:
        run.ended, text = "early-stopped", f"no better loss for {run.waited} epochs; best epoch {run.best_epoch}"
    elif epoch >= epochs:
        run.ended, text = "finished", f"all {epoch} epochs done"
    else:
        return None, improved
    return Event(run.ended, text, run.place), improved


class Guard:
    """Watches the working runs' tensors (S, …): weights, moments, averages."""

    def __init__(self, tensors: dict[str, Tensor], max_failures: int, watched: dict[str, Tensor]) -> None:
        """Take snapshots of ``tensors``; ``watched`` are those whose numbers must stay finite."""
        self.tensors, self.watched, self.max_failures = tensors, watched, max_failures
        self.newest, self.proven = copied(tensors), copied(tensors)

    def largest(self) -> Tensor:  # ()
        """Size of the largest watched number: NaN or infinite where one of them is."""
        return torch.stack(foreach_norm(_floats(self.watched), math.inf)).max()

    def check(
        self, runs: Sequence[RunState], losses: Sequence[float], norms: Sequence[float], largest: float
    ) -> list[Event]:
        """Roll back exploded runs and take snapshots of good ones.

        ``losses`` and ``norms`` are the epoch's mean training losses and gradient norms, ``largest`` is the result of
        :meth:`largest`. A run that has failed for good stands at its proven state.
        """
        finite = [True] * len(runs) if math.isfinite(largest) else finite_runs(self.watched)
        events, good, rolled_back = [], [], []
        for slot, (run, loss, norm) in enumerate(zip(runs, losses, norms, strict=True)):
            if finite[slot] and not has_exploded(run, loss):
                run.lowest = min(run.lowest, loss)
                is_due = run.steps - run.snapshot_steps >= GUARD.steps_between_snapshots
                if is_due and loss <= GUARD.good * run.lowest:
                    good.append(slot)
                    run.proven_steps, run.snapshot_steps, run.usual_norm = run.snapshot_steps, run.steps, norm
                continue
            rolled_back.append(slot)
            run.steps = run.snapshot_steps = run.proven_steps
            run.guard_scale /= 2
            run.clip = min(run.clip, run.usual_norm)
            run.failures += 1
            what = f"loss {loss:.3g}" if finite[slot] or not math.isfinite(loss) else "non-finite weights"
            if run.failures > self.max_failures:
                text = f"{what} for the {run.failures}th time: stopped at the last good state (step {run.steps})"
                run.ended = "failed"
            else:
                clipped = f", gradient clipped at {run.clip:.3g}" if math.isfinite(run.clip) else ""
                text = f"{what}: back to the last good state (step {run.steps}), rate × {run.guard_scale:g}{clipped}"
            events.append(Event(run.ended or "rolled-back", text, run.place))
        _copy(self.newest, self.proven, good)
        _copy(self.tensors, self.newest, good)
        _copy(self.proven, self.tensors, rolled_back)
        _copy(self.proven, self.newest, rolled_back)
        return events


def has_exploded(run: RunState, loss: float) -> bool:
    """Whether an epoch's mean loss is larger than noise can make it.

    >>> run = RunState(0, reference=1.0, lowest=0.005)
    >>> [has_exploded(run, loss) for loss in (0.004, 0.3, 2.0, 1e24, math.nan)]
    [False, False, True, True, True]
    """
    if not math.isfinite(loss):
        return True
    scale = run.reference if math.isfinite(run.reference) else math.inf
    return loss > GUARD.exploded * scale or (loss > scale and loss > GUARD.lost * run.lowest)


def copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy all tensors."""
    return {name: value.clone() for name, value in tensors.items()}


def finite_runs(tensors: dict[str, Tensor]) -> list[bool]:  # S
    """Whether every number of a run is finite."""
    sizes = [
        torch.linalg.vector_norm(value.reshape(len(value), -1), ord=math.inf, dim=1).double()
        for value in _floats(tensors)
    ]
    finite: list[bool] = torch.stack(sizes).isfinite().all(0).tolist()
    return finite


def _copy(source: dict[str, Tensor], target: dict[str, Tensor], slots: Sequence[int]) -> None:
    """Copy some runs of all tensors."""
    if not slots:
        return
    if len(slots) == len(next(iter(target.values()))):
        foreach_copy_(list(target.values()), list(source.values()))
        return
    for name, value in target.items():
        value[list(slots)] = source[name][list(slots)]


def _floats(tensors: dict[str, Tensor]) -> list[Tensor]:
    return [value for value in tensors.values() if value.dtype.is_floating_point and value.numel()]
