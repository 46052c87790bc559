"""Epochs of all runs: their steps, launched one after the other, and the numbers that come back from the device.

A step of a graph takes a GPU less time than the loop takes between two epochs. Where nothing can follow from an epoch
but the next one, and nobody looks at the module in between, several are launched at once and looked at together. Should
a run have exploded in one of them, the state goes back to before the first, and those before that one come first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from restt.train.config import rate_factor
from restt.train.data import Batches
from restt.train.guard import STEPS_BETWEEN_SNAPSHOTS
from restt.train.step import RunGroup, TrainStep
from restt.train.stream import StreamBatches
from restt.train.training import Training

# Kinds of devices that work while Python does something else.
ASYNCHRONOUS = ("cuda",)


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


@dataclass(frozen=True, eq=False)
class LaunchedEpochs:
    """K epochs that may still be under way on the device."""

    rates: list[list[float]]  # K of S: of each run's last step
    totals: Tensor  # (K, 3, S): those of the step, after each epoch
    largest: Tensor  # (): what the guard has to know of the weights after the last one

    def means(self, batches: Batches | StreamBatches) -> tuple[list[EpochMeans], np.ndarray, float]:
        """Results of each epoch, the losses (K, S) once more, and what the guard needs.

        The loop waits for the device only here.
        """
        flat = torch.cat((self.totals.flatten(), self.largest.to(self.totals).view(1))).cpu().numpy()
        totals = flat[:-1].reshape(self.totals.shape)
        totals[:, 0] /= np.array(batches.data.sizes)
        totals[:, 1] /= np.array(batches.steps)
        by_epoch = zip(self.rates, totals.tolist(), strict=True)
        return [EpochMeans(rates, *means) for rates, means in by_epoch], totals[:, 0], float(flat[-1])


class EpochMeans(NamedTuple):
    """Rate, mean loss, mean gradient norm and first loss of each of S runs in an epoch."""

    rates: list[float]
    losses: list[float]
    norms: list[float]
    firsts: list[float]


def launch_epochs(
    training: Training, batches: Batches | StreamBatches, step: TrainStep, pace: Pace, epoch: int, count: int
) -> LaunchedEpochs:
    """All batches of ``count`` epochs, of which ``epoch`` is the first."""
    guard, totals, rates = training.state.guard, step.totals.unsqueeze(0), []
    if count > 1:
        totals = totals.new_empty(count, *totals.shape[1:])
    for number in range(count):
        rates.append(_launch_epoch(training, batches, step, pace, epoch + number, number))
        if count > 1:
            totals[number].copy_(step.totals)
    return LaunchedEpochs(rates, totals, totals.new_zeros(()) if guard is None else guard.largest())


def _launch_epoch(
    training: Training, batches: Batches | StreamBatches, step: TrainStep, pace: Pace, epoch: int, uncounted: int
) -> list[float]:  # S
    """All batches of an epoch, after some whose steps are not counted yet; the rates of each run's last step."""
    state, config = training.state, training.config
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
            rates.append((group, state.runs[group.start].steps + uncounted * steps + number, last[place]))
        # What an explosion is measured against is known by the time that several epochs are launched at once.
        step(batch, rates, first=number == 0 and uncounted == 0)
    return [lr for group, lr in zip(pace.groups, last, strict=True) for _ in range(group.start, group.stop)]


def epochs_at_once(training: Training, batches: Batches | StreamBatches, step: TrainStep, epoch: int) -> int:
    """How many epochs from this one on can be launched before the first is looked at.

    More than one only where they are single steps that are known to fit into memory, and where nothing is decided after
    them but whether a run has exploded. The last may be one after which runs end or their state is to be kept.
    """
    state = training.state
    if (
        training.is_watched
        or epoch == 1
        or state.published.device.type not in ASYNCHRONOUS
        or max(batches.steps) > 1
        or step.micro_batch != state.micro_batch
        or training.validation is not None
        or training.compares_epochs
        or training.ranks.size > 1
    ):
        return 1
    due = STEPS_BETWEEN_SNAPSHOTS
    if state.guard is not None:
        due -= max(run.steps - run.snapshot_steps for run in state.runs)
    # A run that explodes mostly does so in its first epochs, and takes all that were launched with it back.
    return max(1, min(due, epoch, training.next_end - epoch + 1))
