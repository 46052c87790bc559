"""Trainings that could be carried out one after the other, carried out side by side on the runs axis.

Trainings of modules of one shape become runs of one module, each on its own rows, from its own initial weights, with
its own rate, penalty, dropout, epochs and seed; each ends as it would alone. That saves what a step costs beside its
arithmetic, for as long as what a step touches stays in the cache.
"""

from __future__ import annotations

import copy
import queue
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from restt import chain
from restt._common.devices import available_memory, fitting_threads, on_device
from restt.estimators.gradient import EncodedExamples, Fit, multiplication, outputs_of, own_outputs
from restt.estimators.history import History
from restt.module import ResTT
from restt.train import EpochRecord, Event, Penalty, TrainConfig, train
from restt.train.memory import training_bytes
from restt.train.runs import per_run

# Bytes that a group of runs may touch in a step on a CPU. Boston's 404 rows with r = 10 in float64, processor time of a
# step per run, all on the same rows: 1.5 ms alone, 0.78 ms for 4 runs, 0.70 for 8, 0.66 for 12 (18 MB), 0.64 for 48.
CACHED_BYTES = 20e6
# Copies of its weights that a step touches: weights, gradients, Adam's moments, what is published and kept.
TOUCHED_WEIGHTS = 8
# Share of a GPU's free memory that one group may take.
GPU_SHARE = 0.5
# In what the runs of a group may differ: settings, and weights of the penalty.
OF_RUNS = ("epochs", "lr", "weight_decay", "dropout", "seed")
GRADES = ("chain", "linear", "head")
SHARED = tuple(each.name for each in fields(TrainConfig) if each.name not in (*OF_RUNS, "penalty"))


@dataclass(frozen=True, eq=False)
class Trained:
    """What became of one fit."""

    cut_out: Callable[[], ResTT]  # its own module, out of that of all runs that were trained side by side
    records: Sequence[EpochRecord]  # of all those runs
    part: slice  # which of the runs are its own
    events: Sequence[Event]  # those of its own runs
    outputs: np.ndarray  # (S, B, O): its own_outputs
    answers: np.ndarray | None  # (S, B, O): outputs for the rows that it was asked for
    seconds: float  # its share of the group's time
    beside: int  # runs that were trained side by side, its own among them

    @cached_property
    def module(self) -> ResTT:
        """Its own module, made when it is asked for: of a search's hundreds hardly any is."""
        return self.cut_out()

    @property
    def epochs(self) -> int:
        """Epochs in which one of its runs was in training."""
        return next((record.epoch for record in reversed(self.records) if _in_training(record, self.part)), 0)

    @property
    def history(self) -> Callable[[], History]:
        """Makes what the records say of its own runs, which are then 0, 1, …"""
        return partial(_history, self.records, self.part)


def train_side_by_side(fits: Sequence[Fit], *, threads: int = 1, runs_at_once: int | None = None) -> list[Trained]:
    """Train a copy of every module, those of one shape in groups of up to ``runs_at_once`` runs.

    By default a group is as large as the cache allows, on a GPU as its memory does. On a CPU ``threads`` groups are
    trained at the same time, and where fits name several devices one group on each.
    """
    found: dict[int, Trained] = {}
    by_devices: dict[tuple[torch.device, ...], list[int]] = {}
    for place, fit in enumerate(fits):
        by_devices.setdefault(fit.settings.devices, []).append(place)
    for devices, places in by_devices.items():
        slots = devices * threads if len(devices) == 1 and devices[0].type == "cpu" else devices
        own = [fits[place] for place in places]
        groups = grouped(own, runs_at_once, at_least=len(slots))
        # The longest first: none is left to one thread in the end.
        groups.sort(key=lambda group: -sum(_work(own[place]) for place in group))
        for group, trained in zip(
            groups, _train_groups([[own[place] for place in g] for g in groups], slots), strict=True
        ):
            found |= zip((places[place] for place in group), trained, strict=True)
    return [found[place] for place in range(len(fits))]


def grouped(fits: Sequence[Fit], runs_at_once: int | None = None, at_least: int = 1) -> list[list[int]]:
    """The fits' places, in groups that can be trained side by side and are no larger than they may be.

    Where all fits could be in fewer than ``at_least`` groups, they are in that many as far as there are fits.

    Neighbours have the same rate where they can, so that Adam moves them together; a group has the same rows where
    there are enough fits on them to fill it, so that it reads them once.
    """
    kinds: dict[Any, list[int]] = {}
    for place, fit in enumerate(fits):
        kinds.setdefault(_kind(fit), []).append(place)
    groups: list[list[int]] = []
    for places in kinds.values():
        places.sort(key=lambda place: (fits[place].config.lr, fits[place].config.epochs))
        sample = fits[places[0]]
        most = max(1, (runs_at_once or _runs_that_fit(sample)) // sample.runs)
        if len(kinds) < at_least:
            most = min(most, -(-len(places) // at_least))
        by_rows: dict[int, list[int]] = {}
        for place in places:
            by_rows.setdefault(id(fits[place].rows), []).append(place)
        parts = list(by_rows.values()) if min(map(len, by_rows.values())) >= most else [places]
        for part in parts:
            groups += [piece.tolist() for piece in np.array_split(part, -(-len(part) // most))]
    return groups


def _kind(fit: Fit) -> tuple[Any, ...]:
    """What must be the same for fits to be runs of one module."""
    module = fit.module
    return (
        *(module.topology, module.feature_dim, module.bond_dim, module.outputs, module.runs, module.bias is None),
        *(fit.settings.devices, fit.settings.precision, fit.rows.targets.dtype, fit.held_rows is None),
        *(getattr(fit.config, name) for name in SHARED),
        (fit.config.penalty or Penalty()).towards,
    )


def _runs_that_fit(fit: Fit) -> int:
    module, rows, itemsize = fit.module, len(fit.rows.vectors), fit.settings.dtype.itemsize
    if fit.settings.device.type == "cpu":
        weights = sum(parameter.numel() for parameter in module.parameters()) // fit.runs
        states = min(rows, fit.config.batch_size or rows) * module.sites * (module.feature_dim + module.bond_dim)
        return int(CACHED_BYTES // ((TOUCHED_WEIGHTS * weights + states) * itemsize))
    need = training_bytes(
        fit.config,
        sites=module.sites,
        width=module.feature_dim,
        bond_dim=module.bond_dim,
        outputs=module.outputs,
        runs=1,
        rows=rows,
        itemsize=itemsize,
    )
    return int(GPU_SHARE * available_memory(fit.settings.device) // need)


def _work(fit: Fit) -> float:
    return fit.settings.step_work * fit.settings.epochs


def _train_groups(groups: Sequence[Sequence[Fit]], slots: Sequence[torch.device]) -> list[list[Trained]]:
    """As many groups at the same time as there are slots, each on one thread: what is compiled runs without Python's
    lock.
    """
    if len(slots) == 1 or len(groups) == 1:
        return [_train_group(group, slots[0]) for group in groups]
    before, stop = torch.get_num_threads(), threading.Event()
    free: queue.SimpleQueue[torch.device] = queue.SimpleQueue()
    for slot in slots:
        free.put(slot)

    def train_where_free(group: Sequence[Fit]) -> list[Trained]:
        device = free.get()
        try:
            with on_device(device):
                return _train_group(group, device, stop)
        finally:
            free.put(device)

    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(len(slots))
    try:
        # A thread has a context of its own, without what was chosen in this one (restt.chain.backend).
        jobs = [pool.submit(copy_context().run, train_where_free, group) for group in groups]
        return [job.result() for job in jobs]
    finally:
        stop.set()  # also where one failed, or Ctrl-C came: the others end with their epoch
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)


def _train_group(fits: Sequence[Fit], device: torch.device, stop: threading.Event | None = None) -> list[Trained]:
    """Train fits of one kind as runs of one module on ``device``; what comes of them is on their own."""
    began = time.perf_counter()
    module = _stacked([fit.module for fit in fits], device)
    rows, held = _joined(fits, [fit.rows for fit in fits]), _joined(fits, [fit.held_rows for fit in fits])
    assert rows is not None
    even = all((part.loss_weights == part.loss_weights[0]).all() for part in rows.parts.values())
    stream = train(
        module,
        rows.vectors,
        rows.targets,
        config=_joint_config(fits),
        sample_weight=None if even else rows.weights,
        subset=rows.subset,
        validation=None if held is None else (held.vectors, held.targets, held.weights),
        validation_subset=None if held is None else held.subset,
    )
    records = []
    precision, work = fits[0].settings.precision, sum(fit.settings.step_work for fit in fits)
    with chain.precision(multiplication(precision)), fitting_threads(work):
        for record in stream.unwatched():
            records.append(record)
            if stop is not None and stop.is_set():
                break
    module = _stacked([module], fits[0].settings.device)
    ends = list(accumulate((fit.runs for fit in fits), initial=0))
    parts = [slice(start, stop) for start, stop in pairwise(ends)]
    said = _said(module, fits, parts, rows.parts, precision)
    events: dict[int | None, list[Event]] = {}
    for event in (event for record in records for event in record.events):
        events.setdefault(event.run, []).append(event)
    trained = []
    seconds = (time.perf_counter() - began) / ends[-1]
    for fit, part, (outputs, answers) in zip(fits, parts, said, strict=True):
        own = [event for run in range(part.start, part.stop) for event in events.get(run, ())]
        cut_out = partial(_cut_out, module, part, fit.module)
        trained.append(Trained(cut_out, records, part, own, outputs, answers, seconds * fit.runs, ends[-1]))
    return trained


def _said(
    module: ResTT, fits: Sequence[Fit], parts: Sequence[slice], rows: Mapping[int, EncodedExamples], precision: str
) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """What each fit's runs say of its own rows and of those that it is asked for, the fits on the same rows at once."""
    by_rows: dict[tuple[int, int], list[int]] = {}
    for place, fit in enumerate(fits):
        by_rows.setdefault((id(fit.rows), id(fit.asked)), []).append(place)
    said: dict[int, tuple[np.ndarray, np.ndarray | None]] = {}
    for places in by_rows.values():
        fit = fits[places[0]]
        runs = [run for place in places for run in range(parts[place].start, parts[place].stop)]
        chosen = torch.tensor(runs, device=module.first.device)
        together = _with_weights(module, {name: value.detach()[chosen] for name, value in module.named_parameters()})
        together.runs = len(runs)
        outputs = own_outputs(together, rows[id(fit.rows)], precision)
        asked = None if fit.asked is None else outputs_of(together, _without_padding(fit, fit.asked), precision)
        for start, place in enumerate(places):
            of_fit = slice(start * fit.runs, (start + 1) * fit.runs)
            said[place] = outputs[of_fit], None if asked is None else asked[of_fit]
    return [said[place] for place in range(len(fits))]


@torch.no_grad()
def _stacked(modules: Sequence[ResTT], device: torch.device) -> ResTT:
    """One module on ``device`` whose runs are those of all.

    Their sites may differ in width as long as the widest agree: entries of the padding are 0, and so are those of x.
    """
    names = [name for name, _ in modules[0].named_parameters()]
    # Hundreds of fits begin with the weights of a few modules.
    distinct = list({id(module): module for module in modules}.values())
    weights = {name: torch.cat([module.get_parameter(name) for module in distinct]).to(device) for name in names}
    if len(distinct) < len(modules):
        ends = list(accumulate((len(module.first) for module in distinct), initial=0))
        runs = {id(module): range(*pair) for module, pair in zip(distinct, pairwise(ends), strict=True)}
        chosen = torch.tensor([run for module in modules for run in runs[id(module)]], device=device)
        weights = {name: value[chosen] for name, value in weights.items()}
    stacked = _with_weights(modules[0], weights)
    stacked._buffers = {"padding": None}
    stacked.runs = len(stacked.first)
    return stacked


def _cut_out(whole: ResTT, part: slice, like: ResTT) -> ResTT:
    """A module of the kind of ``like`` that has some of the runs, in tensors of its own."""
    return _with_weights(like, {name: value.detach()[part].clone() for name, value in whole.named_parameters()})


def _with_weights(module: ResTT, weights: dict[str, Tensor]) -> ResTT:
    """The same module with other weights."""
    made = copy.copy(module)
    made._parameters = {name: nn.Parameter(weights[name]) if name in weights else None for name in module._parameters}
    return made


@dataclass(frozen=True, eq=False)
class _Joined:
    """Rows of several fits in one table, and where each run's are; ``subset`` is None where all share the same."""

    parts: dict[int, EncodedExamples]  # by the id of what the fits hold, padding set to 0
    vectors: Tensor  # (M, N, I)
    targets: Tensor  # (M, O) values or (M,) classes
    weights: np.ndarray  # (M,)
    subset: list[Tensor] | None  # one for each run


def _joined(fits: Sequence[Fit], rows: Sequence[EncodedExamples | None]) -> _Joined | None:
    parts: dict[int, EncodedExamples] = {}
    places: dict[int, Tensor] = {}
    end = 0
    for fit, given in zip(fits, rows, strict=True):
        if given is None:
            return None
        if id(given) not in parts:
            parts[id(given)] = replace(given, vectors=_without_padding(fit, given.vectors))
            places[id(given)] = torch.arange(end, end := end + len(given.vectors))
    found = parts.values()
    subset = None
    if len(parts) > 1:
        subset = [places[id(given)] for fit, given in zip(fits, rows, strict=True) for _ in range(fit.runs)]
    return _Joined(
        parts,
        torch.cat([part.vectors for part in found]),
        torch.cat([part.targets for part in found]),
        np.concatenate([part.loss_weights for part in found]),
        subset,
    )


def _without_padding(fit: Fit, vectors: Tensor) -> Tensor:  # (B, N, I)
    """The vectors with 0 where the fit's sites are narrower, which in a stacked module nothing else says."""
    padding = fit.module.padding
    return vectors if padding is None else vectors.masked_fill(padding, 0)


def _joint_config(fits: Sequence[Fit]) -> TrainConfig:
    """The fits' config with a value for each run where they may differ."""

    def of_runs(name: str, holders: Sequence[Any]) -> list[Any]:
        values = [getattr(holder, name) for holder in holders]
        if all(isinstance(value, (int, float)) for value in values):  # one by one they take longer than a step
            return [value for value, fit in zip(values, fits, strict=True) for _ in range(fit.runs)]
        return [each for value, fit in zip(values, fits, strict=True) for each in per_run(name, value, fit.runs)]

    configs = [fit.config for fit in fits]
    penalties = [config.penalty or Penalty() for config in configs]
    changes: dict[str, Any] = {name: of_runs(name, configs) for name in OF_RUNS}
    graded: dict[str, Any] = {name: of_runs(name, penalties) for name in GRADES}
    changes["penalty"] = replace(penalties[0], **graded)
    changes["run_ids"] = [run for fit in fits for run in range(fit.runs)]
    return replace(configs[0], **changes)


def _history(records: Sequence[EpochRecord], part: slice) -> History:
    return History(_of_runs(record, part) for record in records if _in_training(record, part))


def _in_training(record: EpochRecord, part: slice) -> bool:
    """Whether one of these runs was in training in the epoch."""
    return bisect_left(record.runs, part.start) < bisect_left(record.runs, part.stop)


def _of_runs(record: EpochRecord, part: slice) -> EpochRecord:
    """What the record says of some of the runs, one of which was in training; they are then 0, 1, …"""
    runs = tuple(run - part.start for run in record.runs if part.start <= run < part.stop)
    events = []
    for event in record.events:
        if event.run is None:
            events.append(event)
        elif part.start <= event.run < part.stop:
            events.append(replace(event, run=event.run - part.start))
    return EpochRecord(
        record.epoch,
        runs,
        record.train_loss[part],
        record.lr[part],
        record.gradient_norm[part],
        {name: values[part] for name, values in record.validation.items()},
        record.seconds * len(runs) / len(record.runs),
        record.samples_per_second,
        tuple(events),
    )
