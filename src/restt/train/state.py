"""Everything a training changes, in one place: what a checkpoint saves is what is here."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from restt._common.compat_torch import foreach_copy_
from restt._common.ranks import Ranks
from restt.init.rates import largest_rates
from restt.module import ResTT
from restt.train.adam import Adam
from restt.train.config import TrainConfig
from restt.train.guard import Guard, RunState
from restt.train.records import EpochRecord
from restt.train.runs import RunsView, working_copy


class TrainState:
    """The runs still in training, on a working copy of the module, and what is known of all.

    The user's module (``published``) holds, after every epoch, each run's weights of that epoch, or its final ones once
    it has stopped. It is never half-way through an epoch, whatever interrupts the training: only :meth:`end_epoch`
    writes to it. With ``saved`` (a training with checkpoints) :meth:`rewind` brings everything else back there too.
    """

    def __init__(self, module: nn.Module, config: TrainConfig, saved: bool) -> None:
        self.config, self.saved = config, saved
        self.published = RunsView(module)
        self.epoch = 0
        self.history: list[EpochRecord] = []
        self.micro_batch = config.micro_batch
        self.finished: list[RunState] = []  # the last runs in training, once none is left
        self.best: dict[str, Tensor] | None = None  # (S, …) each, of all runs
        if saved or config.keep == "best":
            self.best = {name: value.clone() for name, value in self.published.weights.items()}
        self.start: dict[str, Tensor] | None = None  # (S, …) each, of all runs: what a penalty may pull towards
        if config.penalty is not None and config.penalty.towards == "start":
            self.start = {name: value.clone() for name, value in self.published.weights.items()}
        self._ending = False
        self._build([RunState(place) for place in range(self.published.runs)])

    def _build(self, runs: list[RunState]) -> None:
        self.runs = runs
        self.working = RunsView(working_copy(self.published.module, [state.place for state in runs]))
        self.working.module.train()
        trained = {name: self.working.weights[name] for name in self.working.parameters}
        self.adam = Adam(trained, self.config.optimizer, self.config.betas, self.config.eps, self._rate_limits())
        self.ema = None if self.config.ema is None else {name: value.clone() for name, value in trained.items()}
        groups = {
            "weights": self.working.weights,
            "first": self.adam.first,
            "second": self.adam.second,
            "ema": self.ema or {},
        }
        self.tensors = {f"{group}/{name}": value for group, held in groups.items() for name, value in held.items()}
        failures = self.config.max_failures
        self.guard = None if failures is None else Guard(self.tensors, failures, self.working.weights)
        self._epoch_tensors = {name: value.clone() for name, value in self.tensors.items()} if self.saved else {}
        self._note_epoch()

    def _rate_limits(self) -> dict[str, float]:
        """Those below the rates of this training: others would only cost an update of their own."""
        module, largest = self.published.module, np.max(self.config.lr)
        if self.config.rates == "uniform" or not isinstance(module, ResTT):
            return {}
        return {name: limit for name, limit in largest_rates(module.sites, module.bond_dim).items() if limit < largest}

    def _note_epoch(self) -> None:
        """Remember what a step changes, as it is at the end of an epoch."""
        self._epoch_runs = [replace(run) for run in self.runs] if self.saved else []
        self._epoch_micro_batch = self.micro_batch
        if self._epoch_tensors:
            names = list(self._epoch_tensors)
            foreach_copy_([self._epoch_tensors[name] for name in names], [self.tensors[name] for name in names])

    def _parts(self) -> dict[str, dict[str, Tensor]]:
        parts = {"work": self.tensors}
        if self.guard is not None:
            parts |= {"newest": self.guard.newest, "proven": self.guard.proven}
        return parts

    def current_weights(self) -> dict[str, Tensor]:  # (working S, …) each
        """The weights to evaluate and return: the moving average where there is one."""
        return {**self.working.weights, **(self.ema or {})}

    @torch.no_grad()
    def end_epoch(self, record: EpochRecord, improved: Sequence[int], stopped: Sequence[int]) -> None:
        """The epoch is done: its weights become the module's, and working runs that have stopped are let go.

        ``improved`` and ``stopped`` are slots of the working runs: those at their best, and those that end here.
        """
        with _uninterrupted():
            self._ending = True
            if self.guard is not None:
                self.guard.take_snapshots()
            self._publish()
            self._remember_best(improved)
            self.epoch = record.epoch
            self.history.append(record)
            if stopped:
                self.let_go(stopped)
            self._note_epoch()
            self._ending = False

    @torch.no_grad()
    def rewind(self) -> bool:
        """Back to the end of the last finished epoch; False where :meth:`end_epoch` itself had failed."""
        if self._ending or not self.saved:
            return False
        self.runs = [replace(run) for run in self._epoch_runs]
        self.micro_batch = self._epoch_micro_batch
        for name, value in self._epoch_tensors.items():
            self.tensors[name].copy_(value)
        return True

    def _publish(self) -> None:
        """Copy the working runs' weights into the user's module."""
        current = self.current_weights()
        places = [state.place for state in self.runs]
        if len(places) == self.published.runs:
            foreach_copy_([self.published.weights[name] for name in current], list(current.values()))
            return
        for name, value in current.items():
            self.published.weights[name][places] = value

    def _remember_best(self, slots: Sequence[int]) -> None:
        if self.best is None or not slots:
            return
        places = [self.runs[slot].place for slot in slots]
        for name, value in self.current_weights().items():
            self.best[name][places] = value[list(slots)]

    @torch.no_grad()
    def let_go(self, slots: Sequence[int]) -> None:
        """These working runs end with the weights they are to keep; the others go on as a smaller batch."""
        if self.config.keep == "best" and self.best is not None:
            for run in (self.runs[slot].place for slot in slots):
                for name, value in self.published.weights.items():
                    value[run] = self.best[name][run]
        keep = [slot for slot in range(len(self.runs)) if slot not in set(slots)]
        if keep:
            self._keep(keep)
        else:
            self.finished, self.runs = self.runs, []

    def _keep(self, slots: Sequence[int]) -> None:
        """Only these slots of the working tensors, in tensors of their own."""
        old = self._parts()
        self._build([(self.runs or self.finished)[slot] for slot in slots])
        for part, tensors in self._parts().items():
            for name, value in tensors.items():
                value.copy_(old[part][name][list(slots)])
        self._note_epoch()

    @torch.no_grad()
    def continue_finished(self, runs: Sequence[int]) -> None:
        """These of the ``finished`` runs train on, where a longer training was asked for."""
        self._keep([slot for slot, state in enumerate(self.finished) if state.place in set(runs)])
        self.finished = []

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values from which :meth:`restore` goes on, bit for bit."""
        saved = {f"module/{name}": value for name, value in self.published.weights.items()}
        saved |= {f"best/{name}": value for name, value in (self.best or {}).items()}
        saved |= {f"start/{name}": value for name, value in (self.start or {}).items()}
        working = self.runs or self.finished
        if working:
            newest_is_current = all(state.snapshot_steps == state.steps for state in working)
            for part, tensors in self._parts().items():
                if part != "newest" or not newest_is_current:
                    saved |= {f"{part}/{name}": value for name, value in tensors.items()}
        plain = {
            "epoch": self.epoch,
            "runs": [state.to_dict() for state in self.runs],
            "finished": [state.to_dict() for state in self.finished],
            "micro_batch": self.micro_batch,
            "history": [vars(record) | {"events": [vars(event) for event in record.events]} for record in self.history],
        }
        return saved, plain

    def share(self, ranks: Ranks) -> None:
        """The state of rank 0, on all ranks."""
        saved, plain = self.save()
        saved, plain = ranks.same_tensors(saved, self.published.device), ranks.same(plain)
        if not ranks.first:
            self.restore(saved, plain)

    @torch.no_grad()
    def restore(self, saved: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """The state that :meth:`save` described."""
        self.epoch, self.micro_batch = plain["epoch"], plain["micro_batch"]
        self.history = [EpochRecord.from_dict(values) for values in plain["history"]]
        for name, value in self.published.weights.items():
            value.copy_(saved[f"module/{name}"])
        for part, held in (("best", self.best), ("start", self.start)):
            for name, value in (held or {}).items():
                value.copy_(saved[f"{part}/{name}"])
        runs = [RunState.from_dict(values) for values in plain["runs"]]
        finished = [RunState.from_dict(values) for values in plain.get("finished", [])]  # absent in files of restt 0.1
        if runs or finished:
            self._build(runs or finished)
            for part, tensors in self._parts().items():
                for name, value in tensors.items():
                    value.copy_(saved.get(f"{part}/{name}", saved[f"work/{name}"]))
        self.runs, self.finished = runs, finished
        self._note_epoch()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits for the end of the block, which would otherwise leave half an epoch behind."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # only the main thread is ever interrupted
        return
    came: list[tuple[Any, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[0])
