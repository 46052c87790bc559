"""The training loop: a plain generator of one record per epoch. Read it from the top; all else is detail.

:func:`train` reads the arguments (training.py) and goes on from a checkpoint where there is one (checkpoint.py).
:func:`_epochs` is the loop itself. An epoch's steps are in epoch.py, what a step does in step.py, what goes into it in
data.py, which runs go on after an epoch in verdicts.py, what it leaves behind in state.py.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from restt._common.ranks import LostRank, read_group
from restt.chain.precision import precision
from restt.train.checkpoint import Checkpoints
from restt.train.config import TrainConfig
from restt.train.data import Batches, FeatureMap
from restt.train.epoch import EpochMeans, Pace, run_epoch
from restt.train.objective import evaluate
from restt.train.records import EpochRecord, Event, RecordStream
from restt.train.state import TrainState
from restt.train.step import TrainStep
from restt.train.stream import StreamBatches
from restt.train.training import Training
from restt.train.verdicts import check_runs, judge, train_on


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
    map_batches: bool = False,
    checkpoint_dir: str | Path | None = None,
    fingerprint: Mapping[str, Any] | None = None,
    group: Any = "auto",
) -> RecordStream:
    """Train all runs of ``module`` side by side; iterate to make it happen, one :class:`EpochRecord` per epoch.

    After each record the module holds the weights of that epoch (the moving average with ``ema``), and at the end each
    run's last or best ones (``config.keep``). Leaving the iteration early leaves a usable module. Arguments are checked
    at once; nothing is trained before the first record is asked for, and a stream that is dropped without that brings a
    RuntimeWarning.

    Parameters
    ----------
    module : torch.nn.Module
        A :class:`restt.ResTT`, or any module that maps (B, …) to (B, O). A module with an integer ``runs`` maps
        (S, B, …) or (B, …) to (S, B, O), and all its parameters have S as first axis.
    x, y
        Data; moved to the module's device once. Whole numbers in ``y`` are classes. Rows that do not fit into memory
        are a stream, such as :func:`restt.data.stream` makes: it holds y too, its own seed orders the rows, the same
        for all runs, and ``feature_map`` is applied to each batch.
    config : TrainConfig
    sample_weight
        How much each row counts; only ratios matter.
    subset
        For each run the rows it trains on, which may differ in number: folds, bootstrap samples, fractions.
    validation, validation_subset
        Held-out rows; with ``validation_subset`` alone, row numbers of ``x`` for each run.
    feature_map : callable
        From raw values to site vectors (B, N, I), after augmentation.
    map_batches : bool
        Apply ``feature_map`` to each batch, not once to all rows: memory then holds raw values alone, which for wide
        site vectors is far less, and every epoch maps again. So it always is with augmentation.
    checkpoint_dir : path
        Save here and, if the folder holds the same training, go on from there: earlier records are told again with
        ``replayed=True``. Another training's folder is refused with a ValueError that says what differs, and one that
        another process trains into with a RuntimeError that names it. More ``epochs`` than before are the same
        training: it goes on, also where it was finished. Under a schedule that does not depend on the length
        (constant, warmup, plateau) the result is, bit for bit, that of the longer training; under a cosine the rate is
        read off the longer curve from here on.
    fingerprint : mapping
        More entries that must be the same for a checkpoint to go on.
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
            module,
            x,
            y,
            config,
            sample_weight,
            subset,
            validation,
            validation_subset,
            feature_map,
            map_batches,
            saved=checkpoint_dir is not None,
            ranks=ranks,
        )
    entries: dict[str, Any] = {}
    if checkpoint_dir is not None or ranks.size > 1:
        entries = training.fingerprint(fingerprint or {})
        ranks.check_same(entries | {"checkpoint_dir": "given" if checkpoint_dir is not None else None})
    checkpoints: Checkpoints | None = None
    events: list[Event] = []
    with ranks.agreed("open its checkpoint_dir"):
        if checkpoint_dir is not None and ranks.first:
            checkpoints, events = _open(training, checkpoint_dir, entries)
    if ranks.size > 1:
        events, training.seeds = ranks.same((events, training.seeds))
        training.state.share(ranks)
    release = None if checkpoints is None else checkpoints.release
    return RecordStream(_epochs(training, checkpoints, events), release)


def _open(
    training: Training, checkpoint_dir: str | Path, entries: Mapping[str, Any]
) -> tuple[Checkpoints, list[Event]]:
    """The training's folder, and what happened where it goes on from there."""
    checkpoints = Checkpoints(checkpoint_dir, entries)
    try:
        events, lengthened = checkpoints.load(training.state)
        if lengthened:
            events += train_on(training, lengthened)
        training.seeds = checkpoints.seeds = checkpoints.seeds or training.seeds
        # At once, so that a folder that cannot be written is known before any work is done.
        checkpoints.save(training.state)
    except BaseException:
        checkpoints.release()
        raise
    return checkpoints, events


def _epochs(
    training: Training, checkpoints: Checkpoints | None, events: list[Event]
) -> Generator[EpochRecord, None, None]:
    """The loop: what was done before is told again, then epoch after epoch until no run is left."""
    state, total, ranks = training.state, training.total, training.ranks
    try:
        yield from [replace(record, replayed=True) for record in state.history]
        ready = pace = None
        while state.runs:
            if ready is None:
                ready = training.prepare()
            batches, step, validation = ready
            if pace is None:
                pace = Pace.of(training, batches)
            epoch, runs = state.epoch + 1, tuple(run.place for run in state.runs)

            with _multiplying(training.config):
                began = time.perf_counter()
                means, largest = run_epoch(training, batches, step, pace, epoch)
                # The clock is rank 0's, as is every number that something is decided by.
                seconds, means = ranks.same((time.perf_counter() - began, means))
                samples = sum(batches.data.sizes) / seconds
                _, losses, norms, firsts = means
                for run, steps in zip(state.runs, batches.steps, strict=True):
                    run.steps += steps

                events += _memory_events(training, step, batches)
                rolled_back, failed = check_runs(training, losses, norms, firsts, largest)
                scores: dict[str, list[float]] = {}
                if validation is not None:
                    weights = None if state.ema is None else state.current_weights()
                    scores = evaluate(
                        state.working, validation, training.loss, training.classes, weights, step.micro_batch, ranks
                    )
            judged, improved, stopped = judge(training, epoch, losses, scores, failed)

            told = (*events, *rolled_back, *judged)
            record = _told(epoch, runs, total, means, scores, seconds, samples, told)
            events = []
            state.end_epoch(record, improved, stopped)
            if stopped:
                ready = None  # other runs
            elif rolled_back:
                ready = batches, training.limited(step), validation
            if stopped or rolled_back or judged:
                pace = None
            if checkpoints is not None and (checkpoints.due() or not state.runs):
                checkpoints.save(state)
            yield record
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"training stopped in epoch {state.epoch + 1}: {_stop(state, checkpoints)}") from None
    except LostRank as error:
        text = f"training stopped in epoch {state.epoch + 1}, {error}: {_stop(state, checkpoints)}"
        raise LostRank(text) from error
    except GeneratorExit:
        # Only raised at a yield, where the state is that of a finished epoch.
        if checkpoints is not None and checkpoints.ours:
            checkpoints.save(state)
        raise
    finally:
        if checkpoints is not None:
            checkpoints.release()


def _stop(state: TrainState, checkpoints: Checkpoints | None) -> str:
    """Save the last finished epoch of a training that ends within one, and say what is left of it."""
    if checkpoints is None:
        return "the module holds the last finished epoch"
    if state.rewind() and checkpoints.ours:
        checkpoints.save(state)
    return checkpoints.how_to_resume()


def _memory_events(training: Training, step: TrainStep, batches: Batches | StreamBatches) -> list[Event]:
    state, ranks = training.state, training.ranks
    rows = -(-min(batches.batch_size, batches.longest) // ranks.size)
    if ranks.size > 1:
        found = [size for size in ranks.all(step.micro_batch) if size is not None]
        step.micro_batch = min(found, default=None)
    if step.micro_batch == state.micro_batch and state.epoch > 0:
        return []
    split_by_memory = step.micro_batch != state.micro_batch
    state.micro_batch = step.micro_batch
    if step.micro_batch is None or step.micro_batch >= rows:
        return []
    why = "out of memory" if split_by_memory else "as configured"
    return [Event("micro-batch", f"{why}: batches of {rows} rows are split into micro-batches of {step.micro_batch}")]


def _multiplying(config: TrainConfig) -> contextlib.AbstractContextManager[None]:
    """The configured precision, for as long as an epoch computes and not for what happens between epochs."""
    return contextlib.nullcontext() if config.precision is None else precision(config.precision)


def _told(
    epoch: int,
    runs: tuple[int, ...],
    total: int,
    means: EpochMeans,
    scores: Mapping[str, list[float]],
    seconds: float,
    samples: float,
    events: tuple[Event, ...],
) -> EpochRecord:
    """The record of an epoch in which these of ``total`` runs were in training."""
    return EpochRecord(
        epoch,
        runs,
        _spread(means.losses, runs, total),
        _spread(means.rates, runs, total),
        _spread(means.norms, runs, total),
        {name: _spread(values, runs, total) for name, values in scores.items()},
        seconds,
        samples,
        events,
    )


def _spread(values: Sequence[float], runs: Sequence[int], total: int) -> tuple[float, ...]:
    """One entry per run of the module, NaN for those that no longer train."""
    if len(runs) == total:
        return tuple(values)
    found = dict(zip(runs, values, strict=True))
    return tuple(found.get(run, math.nan) for run in range(total))
