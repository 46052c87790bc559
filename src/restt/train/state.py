"""Everything a training changes, in one place: what a checkpoint saves is what is here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from restt.train.adam import Adam
from restt.train.config import TrainConfig
from restt.train.guard import Guard
from restt.train.record import EpochRecord
from restt.train.runs import RunState
from restt.train.stacked import Stacked, working_copy


class TrainState:
    """The runs still in training, on a working copy of the module, and what is known of all.

    The user's module (``published``) holds, after every epoch, each run's weights of that epoch, or its final ones once
    it has stopped. It is never half-way through an epoch, whatever interrupts the training.
    """

    def __init__(self, module: nn.Module, config: TrainConfig, track_best: bool) -> None:
        self.config = config
        self.published = Stacked(module)
        self.epoch = 0
        self.history: list[EpochRecord] = []
        self.micro_batch = config.micro_batch
        self.best: dict[str, Tensor] | None = None  # (S, …) each, of all runs
        if track_best:
            self.best = {name: value.clone() for name, value in self.published.weights.items()}
        self._build([RunState(run) for run in range(self.published.runs)])

    def _build(self, runs: list[RunState]) -> None:
        self.runs = runs
        self.working = Stacked(working_copy(self.published.module, [state.run for state in runs]))
        self.working.module.train()
        trained = {name: self.working.weights[name] for name in self.working.parameters}
        self.adam = Adam(trained, self.config.optimizer, self.config.betas, self.config.eps)
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

    def _parts(self) -> dict[str, dict[str, Tensor]]:
        parts = {"work": self.tensors}
        if self.guard is not None:
            parts |= {"newest": self.guard.newest, "proven": self.guard.proven}
        return parts

    def current_weights(self) -> dict[str, Tensor]:  # (working S, …) each
        """The weights to evaluate and return: the moving average where there is one."""
        return {**self.working.weights, **(self.ema or {})}

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the working runs' weights into the user's module."""
        current = self.current_weights()
        places = [state.run for state in self.runs]
        if len(places) == self.published.runs:
            torch._foreach_copy_([self.published.weights[name] for name in current], list(current.values()))
            return
        for name, value in current.items():
            self.published.weights[name][places] = value

    @torch.no_grad()
    def remember_best(self, slots: Sequence[int]) -> None:
        """These working runs are at their best."""
        if self.best is None or not slots:
            return
        places = [self.runs[slot].run for slot in slots]
        for name, value in self.current_weights().items():
            self.best[name][places] = value[list(slots)]

    @torch.no_grad()
    def finish(self, slots: Sequence[int]) -> None:
        """Let working runs go, with the weights they are to end with; the others go on as a smaller batch."""
        if not slots:
            return
        if self.config.keep == "best" and self.best is not None:
            for run in (self.runs[slot].run for slot in slots):
                for name, value in self.published.weights.items():
                    value[run] = self.best[name][run]
        keep = [slot for slot in range(len(self.runs)) if slot not in set(slots)]
        if not keep:
            self.runs = []
            return
        old = self._parts()
        self._build([self.runs[slot] for slot in keep])
        for part, tensors in self._parts().items():
            for name, value in tensors.items():
                value.copy_(old[part][name][keep])

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values from which :meth:`restore` goes on, bit for bit."""
        saved = {f"module/{name}": value for name, value in self.published.weights.items()}
        saved |= {f"best/{name}": value for name, value in (self.best or {}).items()}
        if self.runs:
            for part, tensors in self._parts().items():
                if part != "newest" or not self._newest_is_current():
                    saved |= {f"{part}/{name}": value for name, value in tensors.items()}
        plain = {
            "epoch": self.epoch,
            "runs": [state.to_dict() for state in self.runs],
            "micro_batch": self.micro_batch,
            "history": [vars(record) | {"events": [vars(event) for event in record.events]} for record in self.history],
        }
        return saved, plain

    @torch.no_grad()
    def restore(self, saved: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """The state that :meth:`save` described."""
        self.epoch, self.micro_batch = plain["epoch"], plain["micro_batch"]
        self.history = [EpochRecord.from_dict(values) for values in plain["history"]]
        for name, value in self.published.weights.items():
            value.copy_(saved[f"module/{name}"])
        if self.best is not None:
            for name, value in self.best.items():
                value.copy_(saved[f"best/{name}"])
        runs = [RunState(**values) for values in plain["runs"]]
        if not runs:
            self.runs = []
            return
        self._build(runs)
        for part, tensors in self._parts().items():
            for name, value in tensors.items():
                value.copy_(saved.get(f"{part}/{name}", saved[f"work/{name}"]))

    def _newest_is_current(self) -> bool:
        return all(state.snapshot_steps == state.steps for state in self.runs)
