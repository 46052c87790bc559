"""An epoch of all runs: its steps, launched one after the other, and the numbers that come back from the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from restt.train.config import rate_factor
from restt.train.data import Batches
from restt.train.step import RunGroup, TrainStep
from restt.train.stream import StreamBatches
from restt.train.training import Training


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


class EpochMeans(NamedTuple):
    """Rate, mean loss, mean gradient norm and first loss of each of S runs in an epoch."""

    rates: list[float]
    losses: list[float]
    norms: list[float]
    firsts: list[float]


def run_epoch(
    training: Training, batches: Batches | StreamBatches, step: TrainStep, pace: Pace, epoch: int
) -> tuple[EpochMeans, float]:
    """Take all steps of an epoch; returns its means and the size of the largest weight, which the guard looks at."""
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
            rates.append((group, state.runs[group.start].steps + number, last[place]))
        step(batch, rates, first=number == 0)
    largest = step.totals.new_zeros(()) if state.guard is None else state.guard.largest()
    # The loop waits for the device only here.
    flat = torch.cat((step.totals.flatten(), largest.to(step.totals).view(1))).cpu().numpy()
    totals = flat[:-1].reshape(step.totals.shape)
    totals[0] /= np.array(batches.data.sizes)
    totals[1] /= np.array(batches.steps)
    rates_of_runs = [lr for group, lr in zip(pace.groups, last, strict=True) for _ in range(group.start, group.stop)]
    return EpochMeans(rates_of_runs, *totals.tolist()), float(flat[-1])
