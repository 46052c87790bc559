"""The training loop: a plain generator of one record per epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from restt.train.adam import Stretch
from restt.train.batches import Batches
from restt.train.checkpoint import Checkpoints
from restt.train.config import TrainConfig
from restt.train.evaluate import RISING, evaluate
from restt.train.record import EpochRecord, Event
from restt.train.runs import update_best
from restt.train.schedules import rate_factor
from restt.train.step import TrainStep
from restt.train.training import FeatureMap, Training


def train(
    module: nn.Module,
    x: Any,  # (M, N, I), or whatever feature_map takes
    y: Any,  # (M,) classes or values, or (M, O) values
    *,
    config: TrainConfig | None = None,
    sample_weight: Any = None,  # (M,)
    subset: Any = None,  # S sequences of row numbers
    validation: Sequence[Any] | None = None,  # (x, y) or (x, y, sample_weight)
    validation_subset: Any = None,  # S sequences of row numbers
    feature_map: FeatureMap | None = None,
    checkpoint_dir: str | Path | None = None,
    fingerprint: Mapping[str, Any] | None = None,
) -> Iterator[EpochRecord]:
    """Train all runs of ``module`` side by side; iterate to make it happen, one :class:`EpochRecord` per epoch.

    After each record the module holds the weights of that epoch (the moving average with ``ema``), and at the end each
    run's last or best ones (``config.keep``). Leaving the iteration early leaves a usable module.

    Parameters
    ----------
    module : torch.nn.Module
        A :class:`restt.ResTT`, or any module that maps (B, …) to (B, O). A module with an integer ``runs`` maps
        (S, B, …) or (B, …) to (S, B, O), and all its parameters have S as first axis.
    x, y
        Data; moved to the module's device once. Whole numbers in ``y`` are classes.
    config : TrainConfig
    sample_weight
        How much each row counts; only ratios matter.
    subset
        For each run the rows it trains on, which may differ in number: folds, bootstrap samples, fractions.
    validation, validation_subset
        Held-out rows; with ``validation_subset`` alone, row numbers of ``x`` for each run.
    feature_map : callable
        From raw values to site vectors (B, N, I), after augmentation.
    checkpoint_dir : path
        Save here and, if the folder holds the same training, go on from there: earlier records are told again with
        ``replayed=True``. Another training's folder is refused with a ValueError that says what differs.
    fingerprint : mapping
        More entries that must be the same for a checkpoint to go on.

    Examples
    --------
    >>> import torch, restt
    >>> x = torch.rand(200, 4, 2, generator=torch.Generator().manual_seed(0))
    >>> y = x[:, 0, 0] * x[:, 2, 1]
    >>> module = restt.ResTT(sites=4, feature_dim=2, bond_dim=3, outputs=1, runs=2)
    >>> module.reset_parameters(seed=0)
    >>> config = TrainConfig(epochs=100, batch_size=None, lr=(0.05, 0.1), schedule="cosine", seed=0)
    >>> records = list(train(module, x, y, config=config, validation=(x, y)))
    >>> len(records), all(r2 > 0.9 for r2 in records[-1].validation["r2"])
    (100, True)
    """
    config = TrainConfig() if config is None else config
    training = Training(
        module,
        x,
        y,
        config,
        sample_weight,
        subset,
        validation,
        validation_subset,
        feature_map,
        track_best=checkpoint_dir is not None,
    )
    events: list[Event] = []
    checkpoints = None
    if checkpoint_dir is not None:
        checkpoints = Checkpoints(checkpoint_dir, training.fingerprint(fingerprint or {}))
        events = checkpoints.load(training.state)
        training.seeds = checkpoints.seeds = checkpoints.seeds or training.seeds
        # At once, so that a folder that cannot be written is known before any work is done.
        checkpoints.save(training.state)
    return _epochs(training, checkpoints, events)


def _epochs(training: Training, checkpoints: Checkpoints | None, events: list[Event]) -> Iterator[EpochRecord]:
    state, total = training.state, training.total
    yield from (replace(record, replayed=True) for record in state.history)
    try:
        ready = training.prepare() if state.runs else None
        while state.runs and ready is not None:
            batches, step, validation = ready
            epoch, runs = state.epoch + 1, [run.run for run in state.runs]

            began = time.perf_counter()
            rates = _train_epoch(training, batches, step, epoch)
            losses, norms, firsts = _epoch_means(step, batches)
            seconds = time.perf_counter() - began

            events += _memory_events(training, step, batches)
            failed: list[int] = []
            rolled_back: list[Event] = []
            if state.guard is not None:
                for run, first in zip(state.runs, firsts, strict=True):
                    if math.isnan(run.reference):
                        run.reference = max(training.untrained_loss, first if math.isfinite(first) else 0.0)
                rolled_back, failed = state.guard.check(state.runs, losses, norms)
                events += rolled_back
            state.publish()
            scores: dict[str, list[float]] = {}
            if validation is not None:
                weights = None if state.ema is None else state.current_weights()
                scores = evaluate(state.working, validation, training.loss, training.classes, weights, step.micro_batch)
            judged, stopped = _judge(training, epoch, losses, scores, failed)
            events += judged

            record = EpochRecord(
                epoch,
                tuple(runs),
                _spread(losses, runs, total),
                _spread(rates, runs, total),
                _spread(norms, runs, total),
                {name: _spread(values, runs, total) for name, values in scores.items()},
                seconds,
                sum(batches.rows.sizes) / seconds,
                tuple(events),
            )
            events = []
            state.epoch = epoch
            state.history.append(record)
            if stopped:
                state.finish(stopped)
            if stopped or rolled_back:
                ready = training.prepare() if state.runs else None
            if checkpoints is not None and (checkpoints.due() or not state.runs):
                checkpoints.save(state)
            yield record
    except KeyboardInterrupt:
        saved = "the module holds the last finished epoch" if checkpoints is None else checkpoints.how_to_resume()
        raise KeyboardInterrupt(f"training stopped in epoch {state.epoch + 1}: {saved}") from None
    except GeneratorExit:
        # Only raised at the yield, where the state is that of a finished epoch.
        if checkpoints is not None:
            checkpoints.save(state)
        raise


def _train_epoch(training: Training, batches: Batches, step: TrainStep, epoch: int) -> list[float]:  # S
    """All batches of the epoch; returns the rates of each run's last step."""
    state, config = training.state, training.config
    scale = [training.lr[run.run] * run.guard_scale * run.plateau_scale for run in state.runs]
    epochs = [training.epochs[run.run] for run in state.runs]
    decay = [training.weight_decay[run.run] for run in state.runs]
    stretches = state.adam.stretches(
        list(zip(scale, epochs, batches.steps, strict=True)), decay, [run.steps for run in state.runs]
    )
    last = [0.0] * len(state.runs)
    step.totals.zero_()
    for number, batch in enumerate(batches.epoch(epoch)):
        rates: list[tuple[Stretch, int, float]] = []
        for stretch in stretches:
            run, steps = stretch.start, batches.steps[stretch.start]
            if number >= steps:
                continue
            done, warmup = (epoch - 1) * steps + number, config.warmup_epochs * steps
            lr = scale[run] * rate_factor(config.schedule, done, epochs[run] * steps, warmup)
            rates.append((stretch, state.runs[run].steps + number, lr))
            last[stretch.start : stretch.stop] = [lr] * (stretch.stop - stretch.start)
        step(batch, rates, first=number == 0)
    for trained, steps in zip(state.runs, batches.steps, strict=True):
        trained.steps += steps
    return last


def _epoch_means(step: TrainStep, batches: Batches) -> tuple[list[float], list[float], list[float]]:
    """Mean loss, mean gradient norm and first loss of each run: the one place where an epoch waits for the device."""
    totals, norms, firsts = step.totals.tolist()
    losses = [total / size for total, size in zip(totals, batches.rows.sizes, strict=True)]
    return losses, [norm / steps for norm, steps in zip(norms, batches.steps, strict=True)], firsts


def _judge(
    training: Training, epoch: int, losses: list[float], scores: dict[str, list[float]], failed: list[int]
) -> tuple[list[Event], list[int]]:
    """Which runs are at their best, which lower their rate, and which stop here and why."""
    state, config = training.state, training.config
    monitored = scores.get(config.monitor, losses)
    sign = -1.0 if config.monitor in RISING else 1.0
    events, stopped, improved = [], list(failed), []
    for slot, run in enumerate(state.runs):
        if update_best(run, sign * monitored[slot], epoch, config.min_delta):
            improved.append(slot)
        if slot in failed:
            continue
        if epoch >= training.epochs[run.run]:
            stopped.append(slot)
            events.append(Event("finished", f"all {epoch} epochs done", run.run))
        elif config.patience is not None and run.waited >= config.patience:
            stopped.append(slot)
            text = f"no better {config.monitor} for {run.waited} epochs; best epoch {run.best_epoch}"
            events.append(Event("early-stopped", text, run.run))
        elif config.schedule == "plateau" and run.plateau_waited >= config.plateau_patience:
            run.plateau_scale *= config.plateau_factor
            run.plateau_waited = 0
            events.append(Event("rate-lowered", f"no better {config.monitor}: rate × {run.plateau_scale:g}", run.run))
    state.remember_best(improved)
    return events, sorted(stopped)


def _memory_events(training: Training, step: TrainStep, batches: Batches) -> list[Event]:
    state = training.state
    rows = min(batches.batch_size, batches.longest)
    if step.micro_batch == state.micro_batch and state.epoch > 0:
        return []
    split_by_memory = step.micro_batch != state.micro_batch
    state.micro_batch = step.micro_batch
    if step.micro_batch is None or step.micro_batch >= rows:
        return []
    why = "out of memory" if split_by_memory else "as configured"
    return [Event("micro-batch", f"{why}: batches of {rows} rows are split into micro-batches of {step.micro_batch}")]


def _spread(values: Sequence[float], runs: Sequence[int], total: int) -> tuple[float, ...]:
    """One entry per run of the module, NaN for those that no longer train."""
    found = dict(zip(runs, values, strict=True))
    return tuple(found.get(run, math.nan) for run in range(total))
