"""The runs of one module on several devices: each trains its part of them, all at the same time.

Runs know nothing of each other, so each is trained as it would be among all: with its own rate, rows and seed. A thread
for each device asks for the next epoch; once all have it, the module holds the weights of all runs, and one record
tells of them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from restt._common.devices import on_device, read_device
from restt._common.errors import shown
from restt._common.seeds import fresh_seed
from restt.train.config import TrainConfig
from restt.train.data import FeatureMap
from restt.train.records import EpochRecord, Event, RecordStream
from restt.train.regularisation import Penalty
from restt.train.runs import RunsView, as_list, per_run, working_copy

# Settings that may have a value for each run, and weights of the penalty.
OF_RUNS = ("epochs", "lr", "weight_decay", "dropout", "clip_norm", "seed")
GRADES = ("chain", "linear", "head")
PART_FOLDERS = "device-*-of-*"


@dataclass(frozen=True, eq=False)
class Part:
    """Some of a module's runs as a training of their own."""

    runs: range
    module: nn.Module
    device: torch.device
    config: TrainConfig
    subset: Any
    validation_subset: Any
    feature_map: FeatureMap | None
    checkpoint_dir: Path | None


def split_runs(
    module: nn.Module,
    devices: Sequence[Any],
    config: TrainConfig,
    subset: Any,
    validation_subset: Any,
    feature_map: FeatureMap | None,
    checkpoint_dir: str | Path | None,
) -> list[Part]:
    """A part for each device, of which only as many are used as there are runs."""
    if isinstance(devices, str) or not isinstance(devices, Sequence) or not devices:
        raise TypeError(f"devices must be a sequence of devices, got {shown(devices)}")
    total = RunsView(module).runs
    used = [read_device(device, 0.0) for device in devices][:total]
    folder = None if checkpoint_dir is None else Path(checkpoint_dir)
    check_folder(folder, len(used))
    if config.seed is None and folder is None:
        config = replace(config, seed=fresh_seed())  # one for all parts; a checkpoint has its own
    parts = []
    for place, device in enumerate(used):
        runs = range(total * place // len(used), total * (place + 1) // len(used))
        own = folder
        if folder is not None and len(used) > 1:
            own = folder / f"device-{place}-of-{len(used)}"
        own_map = copy.deepcopy(feature_map).to(device) if isinstance(feature_map, nn.Module) else feature_map
        parts.append(
            Part(
                runs,
                working_copy(module, runs).to(device),
                device,
                config_of(config, runs, total),
                _chosen("subset", subset, runs, total),
                _chosen("validation_subset", validation_subset, runs, total),
                own_map,
                own,
            )
        )
    return parts


def check_folder(folder: Path | None, devices: int) -> None:
    """ValueError where a folder has checkpoints of a training on another number of devices."""
    if folder is None or not folder.is_dir():
        return
    found = {int(path.name.rpartition("-")[2]) for path in folder.glob(PART_FOLDERS)}
    if devices > 1 and any(folder.glob("*.safetensors")):
        found.add(1)
    others = sorted(found - {devices})
    if others:
        raise ValueError(
            f"checkpoint_dir {folder} holds a training whose runs are on {others[0]} device(s), got {devices}: choose "
            "another folder, or train on as many devices as before"
        )


def config_of(config: TrainConfig, runs: Sequence[int], total: int) -> TrainConfig:
    """The config of some of ``total`` runs.

    >>> config_of(TrainConfig(lr=(0.1, 0.2, 0.3)), range(1, 3), 3).lr
    [0.2, 0.3]
    """
    changes: dict[str, Any] = {name: _chosen(name, getattr(config, name), runs, total) for name in OF_RUNS}
    changes["run_ids"] = list(runs) if config.run_ids is None else _chosen("run_ids", config.run_ids, runs, total)
    if isinstance(config.penalty, Penalty):
        graded: dict[str, Any] = {
            name: _chosen(f"penalty.{name}", getattr(config.penalty, name), runs, total) for name in GRADES
        }
        changes["penalty"] = replace(config.penalty, **graded)
    return replace(config, **changes)


def _chosen(name: str, value: Any, runs: Sequence[int], total: int) -> Any:
    """The runs' own of a value for each run; one value for all stays as it is."""
    if as_list(value) is None:
        return value
    values = per_run(name, value, total)
    return [values[run] for run in runs]


def begin_all(
    parts: Sequence[Part], begin: Callable[[Part], RecordStream]
) -> tuple[list[RecordStream], Callable[[], None]]:
    """The trainings of all parts, and what closes them; where one is refused, those before it are closed."""
    with ExitStack() as begun:
        streams = []
        for part in parts:
            streams.append(begin(part))
            begun.callback(streams[-1].close)
        return streams, begun.pop_all().close


def trained_together(
    module: nn.Module, parts: Sequence[Part], streams: Sequence[Iterator[EpochRecord]], close: Callable[[], None]
) -> Generator[EpochRecord, None, None]:
    """Epoch after epoch of all parts, each on a thread of its own, until none has one more."""
    whole = RunsView(module)
    with ThreadPoolExecutor(len(parts), thread_name_prefix="restt-device") as pool:
        try:
            while True:
                # A thread has a context of its own, without what was chosen in this one (restt.chain.precision).
                jobs = [
                    pool.submit(copy_context().run, _next_record, part.device, stream)
                    for part, stream in zip(parts, streams, strict=True)
                ]
                wait(jobs)
                records = [job.result() for job in jobs]
                if all(record is None for record in records):
                    return
                _publish(whole, parts)
                yield joined(records, [part.runs for part in parts])
        finally:
            pool.shutdown()
            close()


def _next_record(device: torch.device, stream: Iterator[EpochRecord]) -> EpochRecord | None:
    with on_device(device):
        return next(stream, None)


@torch.no_grad()
def _publish(whole: RunsView, parts: Sequence[Part]) -> None:
    """The weights of all parts, in the module that was given."""
    for part in parts:
        for name, value in RunsView(part.module).weights.items():
            whole.weights[name][part.runs.start : part.runs.stop].copy_(value)


def joined(records: Sequence[EpochRecord | None], runs: Sequence[range]) -> EpochRecord:
    """One record of all runs; None is a part that has stopped before."""
    told = [record for record in records if record is not None]

    def spread(values: Callable[[EpochRecord], Sequence[float]]) -> tuple[float, ...]:
        pairs = zip(records, runs, strict=True)
        return tuple(
            value for record, own in pairs for value in ([math.nan] * len(own) if record is None else values(record))
        )

    events: dict[Event, None] = {}
    for record, own in zip(records, runs, strict=True):
        for event in () if record is None else record.events:
            events[event if event.run is None else replace(event, run=own[event.run])] = None
    return EpochRecord(
        told[0].epoch,
        tuple(own[run] for record, own in zip(records, runs, strict=True) if record is not None for run in record.runs),
        spread(lambda record: record.train_loss),
        spread(lambda record: record.lr),
        spread(lambda record: record.gradient_norm),
        {name: spread(lambda record: record.validation[name]) for name in told[0].validation},  # noqa: B023
        max(record.seconds for record in told),
        sum(record.samples_per_second for record in told),
        tuple(events),
        all(record.replayed for record in told),
    )
