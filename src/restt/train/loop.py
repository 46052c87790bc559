"""The training loop: a plain generator of one record per epoch.

:func:`train` reads the arguments (training.py) and goes on from a checkpoint where there is one (checkpoint.py).
:func:`_epochs` is the loop itself. A step is in step.py, its batch in data.py, the end of a run in guard.py, and
everything that changes in state.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from restt._common.ranks import LostRank, read_group
from restt.train.checkpoint import Checkpoints, fingerprint
from restt.train.config import TrainConfig, rate_factor
from restt.train.data import Batches, FeatureMap
from restt.train.guard import judge
from restt.train.objective import evaluate
from restt.train.records import EpochRecord, Event
from restt.train.step import TrainStep, Update, neighbours
from restt.train.training import Training


def train(
    module: nn.Module,
    x: Any,  # (M, N, I), or whatever feature_map takes, or a stream
    y: Any = None,  # (M,) classes or values, or (M, O) values; None with a stream
    *,
    config: TrainConfig | None = None,
    sample_weight: Any = None,  # (M,)
    subset: Any = None,  # S sequences of row numbers
    validation: Sequence[Any] | None = None,  # (x, y) or (x, y, sample_weight)
    validation_subset: Any = None,  # S sequences of row numbers
    feature_map: FeatureMap | None = None,
    checkpoint_dir: str | Path | None = None,
    group: Any = "auto",
) -> Generator[EpochRecord, None, None]:
    """Train all runs of ``module`` side by side; iterate to make it happen, one :class:`EpochRecord` per epoch.

    After each record the module holds the weights of that epoch (the moving average with ``ema``), and at the end each
    run's last or best ones (``config.keep``). Leaving the iteration early leaves a usable module. Arguments are checked
    at once; training begins with the first record.

    Parameters
    ----------
    module : torch.nn.Module
        A :class:`restt.ResTT`, or any module that maps (B, …) to (B, O). A module with an integer ``runs`` maps
        (S, B, …) or (B, …) to (S, B, O), and all its parameters have S as first axis.
    x, y
        Data; moved to the module's device once. Whole numbers in ``y`` are classes. Rows that do not fit into memory
        are a stream, such as :class:`restt.data.Stream`: it holds y too, its own seed orders the rows, the same
        for all runs.
    config : TrainConfig
    sample_weight
        How much each row counts; only ratios matter.
    subset
        For each run the rows it trains on, which may differ in number: folds, bootstrap samples, fractions.
    validation, validation_subset
        Held-out rows; with ``validation_subset`` alone, row numbers of ``x`` for each run.
    feature_map : callable
        From raw values to site vectors (B, N, I), applied to each batch after augmentation. Without augmentation,
        vectors that fit into memory can be made once instead and given as x.
    checkpoint_dir : path
        Save here and, if the folder holds the same training, go on from there: earlier records come again with
        ``replayed=True``. Another training's folder is refused with a ValueError that says what differs, and one that
        another process trains into with a RuntimeError. More ``epochs`` than before are the same training: it goes on,
        also where it was finished. Under a schedule that does not depend on the length (constant, warmup) the result
        is, bit for bit, that of the longer training; under a cosine the rate is that of the longer curve from here on.
    group : "auto", torch.distributed.ProcessGroup or None
        Processes that train one model together: by default those of the default group where ``torch.distributed`` was
        initialised, as under ``torchrun``. Each makes this same call with the same rows, which is checked before
        anything is trained; a batch is divided among them, and steps, records and the module are the same in all and,
        up to rounding, those of one process. Initial weights are rank 0's, as are ``checkpoint_dir`` and its files. A
        process that ends, or does not answer within the timeout of ``init_process_group``, ends the others with a
        RuntimeError. None trains alone.

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
    if checkpoint_dir is not None and not str(checkpoint_dir):
        raise ValueError("checkpoint_dir must be a folder, got ''; use '.' for the current folder")
    ranks = read_group(group)
    with ranks.agreed("read its arguments"):
        training = Training(
            module, x, y, config, sample_weight, subset, validation, validation_subset, feature_map, ranks
        )
    entries: dict[str, Any] = {}
    if checkpoint_dir is not None or ranks.size > 1:
        entries = fingerprint(module, training.config, training.data, training.validation, feature_map)
        ranks.check_same(entries | {"checkpoint_dir": "given" if checkpoint_dir is not None else None})
    checkpoints: Checkpoints | None = None
    events: list[Event] = []
    with ranks.agreed("open its checkpoint_dir"):
        if checkpoint_dir is not None and ranks.first:
            checkpoints = Checkpoints(checkpoint_dir, entries, training.seeds)
            events = checkpoints.load(training.state)
            training.seeds = checkpoints.seeds
    if ranks.size > 1:
        events, training.seeds = ranks.same((events, training.seeds))
        training.state.share(ranks)
    return _epochs(training, checkpoints, events)


def _epochs(
    training: Training, checkpoints: Checkpoints | None, events: list[Event]
) -> Generator[EpochRecord, None, None]:
    """Replay earlier records, then train epoch after epoch until no run is left."""
    state, total, ranks = training.state, training.total, training.ranks
    try:
        yield from [replace(record, replayed=True) for record in state.history]
        ready = None
        while state.active:
            if ready is None:
                ready = training.prepare()
            batches, step, validation = ready
            epoch, runs = state.epoch + 1, tuple(run.place for run in state.runs)

            began = time.perf_counter()
            means = run_epoch(training, batches, step, epoch)
            # The clock is rank 0's, as is every number that decides something.
            seconds, means = ranks.same((time.perf_counter() - began, means))
            for run, steps in zip(state.runs, batches.steps, strict=True):
                run.steps += steps

            rolled_back = []
            if state.guard is not None:
                for run, first in zip(state.runs, means.firsts, strict=True):
                    if math.isnan(run.reference):
                        run.reference = max(training.untrained_loss, first if math.isfinite(first) else 0.0)
                rolled_back = state.guard.check(state.runs, means.losses, means.norms, means.largest)
            scores: dict[str, list[float]] = {}
            if validation is not None:
                weights = None if state.ema is None else state.current_weights()
                scores = evaluate(state.working, validation, training.loss, training.classes, weights, ranks)
            ends, improved = _judge_runs(training, epoch, scores.get("loss", means.losses))
            record = EpochRecord(
                epoch,
                runs,
                _by_run(means.losses, runs, total),
                _by_run(means.rates, runs, total),
                _by_run(means.norms, runs, total),
                {name: _by_run(values, runs, total) for name, values in scores.items()},
                seconds,
                sum(batches.data.sizes) / seconds,
                (*events, *rolled_back, *ends),
            )
            events = []
            state.end_epoch(record, improved)
            if rolled_back or ends:
                ready = None
            if checkpoints is not None and (checkpoints.due() or not state.active):
                checkpoints.save(state)
            yield record
    except (KeyboardInterrupt, LostRank) as error:
        left = "the module holds the last finished epoch" if checkpoints is None else checkpoints.how_to_resume()
        reason = f", {error}" if isinstance(error, LostRank) else ""
        raise type(error)(f"training stopped in epoch {state.epoch + 1}{reason}: {left}") from error.__cause__
    except GeneratorExit:
        # Only raised at a yield, where the state is that of a finished epoch.
        if checkpoints is not None and checkpoints.ours:
            checkpoints.save(state)
        raise
    finally:
        if checkpoints is not None:
            checkpoints.release()


class EpochMeans(NamedTuple):
    """Rate, mean loss, mean gradient norm and first loss of each of S runs in an epoch; size of the largest weight."""

    rates: list[float]
    losses: list[float]
    norms: list[float]
    firsts: list[float]
    largest: float


def run_epoch(training: Training, batches: Batches, step: TrainStep, epoch: int) -> EpochMeans:
    """Take all steps of an epoch."""
    config, runs, ema = training.config, training.state.runs, training.config.ema
    # What runs that are updated together agree in: rate, epochs, steps of an epoch, decay, steps done.
    keys = [
        (training.lr[run.place] * run.guard_scale, training.epochs[run.place], steps,
         training.weight_decay[run.place], run.steps)
        for run, steps in zip(runs, batches.steps, strict=True)
    ]  # fmt: skip
    groups = neighbours(keys)
    last = dict.fromkeys(groups, 0.0)  # rate of each group's last step
    step.totals.zero_()
    firsts = torch.zeros_like(step.totals[0])
    for number, batch in enumerate(batches.epoch(epoch)):
        updates = []
        for group in groups:
            rate, length, steps, decay, before = keys[group.start]
            if number >= steps:
                continue
            done, warmup = (epoch - 1) * steps + number, config.warmup_epochs * steps
            last[group] = rate * rate_factor(config.schedule, done, length * steps, warmup)
            taken = before + number
            # A young average forgets faster, so that the initial weights do not stay in it.
            forget = None if ema is None else 1 - min(ema, (1 + taken) / (10 + taken))
            updates.append(Update(group, decay, taken + 1.0, last[group], forget))
        step(batch, updates)
        if number == 0:
            firsts = step.totals[0] / batch.count
    guard = training.state.guard
    largest = step.totals.new_zeros(()) if guard is None else guard.largest()
    # The loop waits for the device only here.
    flat = torch.cat((step.totals.flatten(), firsts, largest.to(firsts).view(1))).cpu().numpy()
    losses, norms, first_losses = flat[:-1].reshape(3, -1)
    rates = [lr for group, lr in last.items() for _ in group]
    losses, norms = losses / np.array(batches.data.sizes), norms / np.array(batches.steps)
    return EpochMeans(rates, losses.tolist(), norms.tolist(), first_losses.tolist(), float(flat[-1]))


def _judge_runs(training: Training, epoch: int, losses: Sequence[float]) -> tuple[list[Event], list[int]]:
    """Events of the epoch, and the slots of the runs that are at their best."""
    events, improved = [], []
    for slot, run in enumerate(training.state.runs):
        end, is_best = judge(run, losses[slot], epoch, training.epochs[run.place], training.config.patience)
        events += [end] if end is not None else []
        improved += [slot] if is_best else []
    return events, improved


def _by_run(values: Sequence[float], runs: Sequence[int], total: int) -> tuple[float, ...]:
    """One entry per run of the module, NaN for those that no longer train."""
    known = dict(zip(runs, values, strict=True))
    return tuple(known.get(run, math.nan) for run in range(total))
