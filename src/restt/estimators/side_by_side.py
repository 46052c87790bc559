"""Trainings of modules of one shape as runs of one module, each on its own rows with its own settings and seed.

Each ends as it would alone. That saves what a step costs beside its arithmetic, for as long as what a step touches
stays in the cache.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, fields, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from restt import chain
from restt._common.devices import available_memory, fitting_threads
from restt.estimators.gradient import EncodedExamples, Fit, multiplication
from restt.estimators.progress import History
from restt.estimators.settings import training_bytes
from restt.module import ResTT
from restt.train import EpochRecord, Penalty, TrainConfig, train
from restt.train.runs import per_run

# Bytes that the training of a group may need on a CPU, about three times what a step touches. Boston's 404 rows with
# r = 10 in float64, processor time of a step per run, all on the same rows: 1.5 ms alone, 0.78 ms for 4 runs, 0.70 for
# 8, 0.66 for 12 (18 MB touched), 0.64 for 48.
CACHED_BYTES = 60e6
# Share of a GPU's free memory that one group may take.
GPU_SHARE = 0.5
# In what the runs of a group may differ: settings, and weights of the penalty.
OF_RUNS = ("epochs", "lr", "weight_decay", "dropout", "seed")
GRADES = ("chain", "linear", "head")
SHARED = tuple(field.name for field in fields(TrainConfig) if field.name not in (*OF_RUNS, "penalty"))


@dataclass(frozen=True, eq=False)
class Trained:
    """One trained fit."""

    module: ResTT
    history: History
    seconds: float  # its share of the group's time


def train_side_by_side(fits: Sequence[Fit], runs_at_once: int | None = None) -> list[Trained]:
    """Train a copy of every module, those of one shape in groups of up to ``runs_at_once`` runs.

    By default a group is as large as the cache allows, on a GPU as its memory does. On a CPU as many groups are trained
    at the same time as torch has threads, each on one of them.
    """
    threads = torch.get_num_threads() if all(fit.settings.device.type == "cpu" for fit in fits) else 1
    groups = grouped(fits, runs_at_once, at_least=threads)
    pairs = zip(groups, _on_threads([[fits[place] for place in group] for group in groups], threads), strict=True)
    by_place = {place: fit for group, trained in pairs for place, fit in zip(group, trained, strict=True)}
    return [by_place[place] for place in range(len(fits))]


def _on_threads(groups: Sequence[Sequence[Fit]], threads: int) -> list[list[Trained]]:
    if threads == 1 or len(groups) == 1:
        return [_train_group(group) for group in groups]
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            # A thread has a context of its own, without what was chosen in this one (restt.chain.backend).
            jobs = [pool.submit(copy_context().run, _train_group, group) for group in groups]
            return [job.result() for job in jobs]
    finally:
        torch.set_num_threads(threads)


def grouped(fits: Sequence[Fit], runs_at_once: int | None = None, at_least: int = 1) -> list[list[int]]:
    """Group the fits' places by what can be trained side by side, in at least ``at_least`` groups of each kind.

    Neighbours have the same rows, which a group then reads once, and the same rate, so that Adam moves them together.
    """
    kinds: dict[Any, list[int]] = {}
    rows = {id(fit.rows): place for place, fit in reversed(list(enumerate(fits)))}  # by where they come first
    for place in sorted(range(len(fits)), key=lambda place: (rows[id(fits[place].rows)], fits[place].config.lr)):
        kinds.setdefault(_kind(fits[place]), []).append(place)
    groups: list[list[int]] = []
    for places in kinds.values():
        sample = fits[places[0]]
        most = max(1, (runs_at_once or _runs_that_fit(sample)) // sample.runs)
        most = min(most, -(-len(places) // at_least))
        groups += [piece.tolist() for piece in np.array_split(places, -(-len(places) // most))]
    return groups


def _kind(fit: Fit) -> tuple[Any, ...]:
    """Everything that must be the same for fits to be runs of one module."""
    module = fit.module
    return (
        *(module.topology, module.feature_dim, module.bond_dim, module.outputs, module.runs, module.bias is None),
        *(fit.settings.device, fit.settings.precision, fit.rows.targets.dtype, fit.held_rows is None),
        *(getattr(fit.config, name) for name in SHARED),
        (fit.config.penalty or Penalty()).towards,
    )


def _runs_that_fit(fit: Fit) -> int:
    module, on_cpu = fit.module, fit.settings.device.type == "cpu"
    sizes = module.sites, module.feature_dim, module.bond_dim, module.outputs
    need = training_bytes(fit.settings, *sizes, runs=1, rows=len(fit.rows.vectors))
    return int((CACHED_BYTES if on_cpu else GPU_SHARE * available_memory(fit.settings.device)) // need)


def _train_group(fits: Sequence[Fit]) -> list[Trained]:
    """Train fits of one kind as runs of one module."""
    began, settings = time.perf_counter(), fits[0].settings
    module = _stacked([fit.module for fit in fits])
    vectors, targets, weights, subset = _joined(fits, [fit.rows for fit in fits])
    held = None if fits[0].held_rows is None else _joined(fits, [fit.held_rows for fit in fits if fit.held_rows])
    stream = train(
        module,
        vectors,
        targets,
        config=_joint_config(fits),
        sample_weight=None if (weights == weights[0]).all() else weights,
        subset=subset,
        validation=None if held is None else held[:3],
        validation_subset=None if held is None else held[3],
    )
    work = sum(fit.settings.step_work for fit in fits)
    with chain.precision(multiplication(settings.precision)), fitting_threads(work):
        records = list(stream)
    ends = list(accumulate((fit.runs for fit in fits), initial=0))
    seconds = (time.perf_counter() - began) / ends[-1]
    trained = []
    for fit, (start, stop) in zip(fits, pairwise(ends), strict=True):
        part = slice(start, stop)
        own = {name: value.detach()[part].clone() for name, value in module.named_parameters()}
        history = History(_of_runs(record, part) for record in records if set(record.runs) & set(range(start, stop)))
        trained.append(Trained(_with_weights(fit.module, own), history, seconds * fit.runs))
    return trained


@torch.no_grad()
def _stacked(modules: Sequence[ResTT]) -> ResTT:
    """Stack modules into one whose runs are those of all.

    Their sites may differ in width as long as the widest agree: entries of the padding are 0, and so are those of x.
    """
    names = [name for name, _ in modules[0].named_parameters()]
    weights = {name: torch.cat([module.get_parameter(name) for module in modules]) for name in names}
    stacked = _with_weights(modules[0], weights)
    stacked._buffers = {"padding": None}
    stacked.runs = len(stacked.first)
    return stacked


def _with_weights(module: ResTT, weights: dict[str, Tensor]) -> ResTT:
    """Copy a module with other weights."""
    made = copy.copy(module)
    made._parameters = {name: nn.Parameter(weights[name]) if name in weights else None for name in module._parameters}
    return made


def _joined(
    fits: Sequence[Fit], rows: Sequence[EncodedExamples]
) -> tuple[Tensor, Tensor, np.ndarray, list[Tensor] | None]:
    """Join the rows of fits, (M, N, I), (M, …) and (M,), and say which are each run's; None where all are."""
    parts: dict[int, tuple[Tensor, EncodedExamples, Tensor]] = {}
    end = 0
    for fit, given in zip(fits, rows, strict=True):
        if id(given) not in parts:
            padding = fit.module.padding
            # In a stacked module nothing else says where the fit's sites are narrower.
            vectors = given.vectors if padding is None else given.vectors.masked_fill(padding, 0)
            parts[id(given)] = vectors, given, torch.arange(end, end := end + len(vectors))
    every = list(parts.values())
    subset = [parts[id(given)][2] for fit, given in zip(fits, rows, strict=True) for _ in range(fit.runs)]
    return (
        torch.cat([vectors for vectors, _, _ in every]),
        torch.cat([given.targets for _, given, _ in every]),
        np.concatenate([given.loss_weights for _, given, _ in every]),
        subset if len(every) > 1 else None,
    )


def _joint_config(fits: Sequence[Fit]) -> TrainConfig:
    """Join the fits' settings, with a value for each run where they may differ."""

    def of_runs(name: str, holders: Sequence[Any]) -> list[Any]:
        pairs = zip(holders, fits, strict=True)
        return [value for holder, fit in pairs for value in per_run(name, getattr(holder, name), fit.runs)]

    configs = [fit.config for fit in fits]
    penalties = [config.penalty or Penalty() for config in configs]
    changes: dict[str, Any] = {name: of_runs(name, configs) for name in OF_RUNS}
    graded: dict[str, Any] = {name: of_runs(name, penalties) for name in GRADES}
    changes["penalty"] = replace(penalties[0], **graded)
    changes["run_ids"] = [run for fit in fits for run in range(fit.runs)]
    return replace(configs[0], **changes)


def _of_runs(record: EpochRecord, part: slice) -> EpochRecord:
    """Cut a record to some of the runs, which are then numbered from 0."""
    runs = tuple(run - part.start for run in record.runs if part.start <= run < part.stop)
    own = [event for event in record.events if event.run is None or part.start <= event.run < part.stop]
    return EpochRecord(
        record.epoch,
        runs,
        record.train_loss[part],
        record.lr[part],
        record.gradient_norm[part],
        {name: values[part] for name, values in record.validation.items()},
        record.seconds * len(runs) / len(record.runs),
        record.samples_per_second,
        tuple(event if event.run is None else replace(event, run=event.run - part.start) for event in own),
    )
