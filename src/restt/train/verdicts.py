"""Which runs go on after an epoch: rolled back after an explosion, stopped early, at a lower rate, or done."""

from __future__ import annotations

import math
from collections.abc import Sequence

from restt.train.guard import RunState, update_best
from restt.train.objective import RISING
from restt.train.records import Event
from restt.train.training import Training


def check_runs(
    training: Training, losses: list[float], norms: list[float], firsts: list[float], largest: float
) -> tuple[list[Event], list[int]]:
    """Which runs have exploded and were rolled back, and which of them for the last time."""
    state = training.state
    if state.guard is None:
        return [], []
    if math.isnan(state.runs[0].reference):  # and so of all: they begin together
        for run, first in zip(state.runs, firsts, strict=True):
            run.reference = max(training.untrained_loss, first if math.isfinite(first) else 0.0)
    return state.guard.check(state.runs, losses, norms, largest)


def judge(
    training: Training, epoch: int, losses: list[float], scores: dict[str, list[float]], failed: list[int]
) -> tuple[list[Event], list[int], list[int]]:
    """Events, and the slots of the runs that are at their best and of those that stop here."""
    config = training.config
    if not failed and not training.compares_epochs and epoch < training.next_end:
        return [], [], []
    monitored = scores.get(config.monitor, losses)
    sign = -1.0 if config.monitor in RISING else 1.0
    events, stopped, improved = [], list(failed), []
    for slot, run in enumerate(training.state.runs):
        if update_best(run, sign * monitored[slot], epoch, config.min_delta):
            improved.append(slot)
        if slot in failed:
            continue
        event = _verdict(training, run, epoch)
        if event is not None:
            events.append(event)
            if event.kind != "rate-lowered":
                stopped.append(slot)
    return events, improved, sorted(stopped)


def _verdict(training: Training, run: RunState, epoch: int) -> Event | None:
    """Whether the run stops after this epoch or lowers its rate, and why."""
    config = training.config
    if epoch >= training.epochs[run.place]:
        return Event("finished", f"all {epoch} epochs done", run.place)
    if config.patience is not None and run.waited >= config.patience:
        text = f"no better {config.monitor} for {run.waited} epochs; best epoch {run.best_epoch}"
        return Event("early-stopped", text, run.place)
    if config.schedule == "plateau" and run.plateau_waited >= config.plateau_patience:
        run.plateau_scale *= config.plateau_factor
        run.plateau_waited = 0
        return Event("rate-lowered", f"no better {config.monitor}: rate × {run.plateau_scale:g}", run.place)
    return None


def train_on(training: Training, runs: Sequence[int]) -> list[Event]:
    """Finished runs go on, after the verdict on their last epoch that being done with all epochs had forestalled."""
    state = training.state
    state.continue_finished(runs)
    verdicts = [_verdict(training, run, state.epoch) for run in state.runs]
    stopped = [slot for slot, event in enumerate(verdicts) if event is not None and event.kind == "early-stopped"]
    if stopped:
        state.let_go(stopped)
    return [event for event in verdicts if event is not None]
