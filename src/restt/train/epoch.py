"""One epoch of all runs: its steps, launched one after the other, and the numbers that come back from the device.

What the loop does between two epochs takes as long for a hundred runs as their step does on a GPU. Where nothing can
follow from an epoch but the next one, that one is launched before the loop looks at the first, so that the device is
never idle. Should a run have exploded after all, the state goes back to where it was set aside.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from restt.train.config import rate_factor
from restt.train.data import Batches
from restt.train.step import RunGroup, TrainStep
from restt.train.stream import StreamBatches
from restt.train.training import Training

# Kinds of devices that work while Python does something else.
ASYNCHRONOUS = ("cuda",)
# For fewer runs, setting their state aside takes longer than the loop does between epochs.
RUNS_WORTH_IT = 16


@dataclass(frozen=True)
class Pace:
    """The groups of runs that move together, and how fast; the same from epoch to epoch until something happens."""

    groups: list[RunGroup]
    scale: list[float]  # of each group's rate
    epochs: list[int]  # of each group

    @classmethod
    def of(cls, training: Training, batches: Batches | StreamBatches) -> Pace:
        runs = training.state.runs
        scale = [training.lr[run.place] * run.guard_scale * run.plateau_scale for run in runs]
        epochs = [training.epochs[run.place] for run in runs]
        decay = [training.weight_decay[run.place] for run in runs]
        agreement = list(zip(scale, epochs, batches.steps, strict=True))
        groups = training.state.adam.groups(agreement, decay, [run.steps for run in runs])
        return cls(groups, [scale[group.start] for group in groups], [epochs[group.start] for group in groups])


@dataclass
class LaunchedEpoch:
    """An epoch that may still be under way on the device."""

    rates: list[float]  # S: of each run's last step
    began: float  # when it was launched or, where it was launched ahead, when the epoch before it was done
    numbers: Tensor  # (4, S): the step's totals, and what the guard has to know of the weights
    arrived: torch.cuda.Event | None  # None where the numbers are to be asked for

    def means(self, batches: Batches | StreamBatches) -> tuple[list[float], list[float], list[float], float]:
        """Mean loss, mean gradient norm and first loss of each run, and what the guard has to know of the weights: the
        one place where an epoch waits for the device.
        """
        if self.arrived is not None:
            self.arrived.synchronize()
        totals, norms, firsts, (largest, *_) = self.numbers.tolist()
        losses = [total / size for total, size in zip(totals, batches.data.sizes, strict=True)]
        return losses, [norm / steps for norm, steps in zip(norms, batches.steps, strict=True)], firsts, largest


def launch_epoch(
    training: Training,
    batches: Batches | StreamBatches,
    step: TrainStep,
    pace: Pace,
    epoch: int,
    *,
    ahead: bool = False,
) -> LaunchedEpoch:
    """All batches of the epoch; ``ahead`` where the steps of the one before it are not counted yet."""
    began, state, config = time.perf_counter(), training.state, training.config
    last = [0.0] * len(pace.groups)
    step.totals.zero_()
    for number, batch in enumerate(batches.epoch(epoch)):
        rates: list[tuple[RunGroup, int, float]] = []
        for place, group in enumerate(pace.groups):
            steps = batches.steps[group.start]
            if number >= steps:
                continue
            done, warmup = (epoch - 1) * steps + number, config.warmup_epochs * steps
            last[place] = pace.scale[place] * rate_factor(config.schedule, done, pace.epochs[place] * steps, warmup)
            before = state.runs[group.start].steps + (steps if ahead else 0)
            rates.append((group, before + number, last[place]))
        step(batch, rates, first=number == 0)
    of_runs = [lr for group, lr in zip(pace.groups, last, strict=True) for _ in range(group.start, group.stop)]
    largest = step.totals.new_zeros(()) if state.guard is None else state.guard.largest().to(step.totals)
    numbers, arrived = torch.cat((step.totals, largest.expand(1, step.totals.shape[1]))), None
    if numbers.is_cuda and _is_even(training, batches):
        # Without an event to wait for, they would be waited for behind all that is launched after them.
        numbers, arrived = numbers.to("cpu", non_blocking=True), torch.cuda.Event()
        arrived.record()
    return LaunchedEpoch(of_runs, began, numbers, arrived)


def can_go_ahead(training: Training, batches: Batches | StreamBatches, step: TrainStep, epoch: int) -> bool:
    """Whether the epoch after this one can be launched before this one is looked at: no run ends with this one or is
    judged by it, and its batch is known to fit into memory.
    """
    fits = epoch > 1 and step.micro_batch == training.state.micro_batch
    return fits and _is_even(training, batches) and epoch < training.next_end


def _is_even(training: Training, batches: Batches | StreamBatches) -> bool:
    """Whether epochs are single steps of many runs, after which nothing is decided but whether one has exploded."""
    state = training.state
    return (
        state.published.device.type in ASYNCHRONOUS
        and len(state.runs) >= RUNS_WORTH_IT
        and max(batches.steps) == 1
        and training.validation is None
        and not training.compares_epochs
        and training.ranks.size == 1
    )
