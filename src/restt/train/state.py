"""Everything a training changes: the content of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from restt._common.compat_torch import foreach_copy_
from restt._common.ranks import Ranks
from restt.init.stability import largest_rates
from restt.module import ResTT
from restt.train.config import TrainConfig
from restt.train.guard import Guard, RunState
from restt.train.records import EpochRecord
from restt.train.runs import RunsView, working_copy
from restt.train.step import Adam


class TrainState:
    """The runs in training, on a working copy of the module, and the history of all.

    The user's module (``published``) holds, after every epoch, each run's weights of that epoch, or its final ones once
    it has ended; only :meth:`end_epoch` writes to it.
    """

    def __init__(self, module: nn.Module, config: TrainConfig) -> None:
        self.config = config
        self.published = RunsView(module)
        self.epoch = 0
        self.history: list[EpochRecord] = []
        self.micro_batch: int | None = None  # rows that fit into memory at once, once more did not
        weights = self.published.weights
        self.best: dict[str, Tensor] | None = None  # (S, …) each, of all runs
        if config.keep == "best":
            self.best = {name: value.clone() for name, value in weights.items()}
        self.start: dict[str, Tensor] | None = None  # (S, …) each, of all runs: what a penalty may pull towards
        if config.penalty is not None and config.penalty.towards == "start":
            self.start = {name: value.clone() for name, value in weights.items()}
        self._build([RunState(place) for place in range(self.published.runs)])

    def _build(self, runs: list[RunState]) -> None:
        self.runs = runs
        self.working = RunsView(working_copy(self.published.module, [run.place for run in runs]))
        self.working.module.train()
        trained = {name: self.working.weights[name] for name in self.working.parameters}
        self.adam = Adam(trained, self.config.optimizer, self._rate_limits())
        self.ema = None if self.config.ema is None else {name: value.clone() for name, value in trained.items()}
        groups = {
            "weights": self.working.weights,
            "first": self.adam.first,
            "second": self.adam.second,
            "ema": self.ema or {},
        }
        self.tensors = {f"{group}/{name}": value for group, part in groups.items() for name, value in part.items()}
        failures = self.config.max_failures
        self.guard = None if failures is None else Guard(self.tensors, failures, self.working.weights)

    def _rate_limits(self) -> dict[str, float]:
        """Limits below the rates of this training: others would only cost an update of their own."""
        module, largest = self.published.module, np.max(self.config.lr)
        if self.config.rates == "uniform" or not isinstance(module, ResTT):
            return {}
        return {name: limit for name, limit in largest_rates(module.sites, module.bond_dim).items() if limit < largest}

    @property
    def active(self) -> bool:
        """Whether some run is still in training."""
        return any(not run.ended for run in self.runs)

    def _parts(self) -> dict[str, dict[str, Tensor]]:
        parts = {"work": self.tensors}
        if self.guard is not None:
            parts |= {"newest": self.guard.newest, "proven": self.guard.proven}
        return parts

    def current_weights(self) -> dict[str, Tensor]:  # (working S, …) each
        """Return the weights to evaluate and publish: the moving average where there is one."""
        return {**self.working.weights, **(self.ema or {})}

    @torch.no_grad()
    def end_epoch(self, record: EpochRecord, improved: Sequence[int]) -> None:
        """Publish the epoch's weights and drop the runs that ended with it, unless all have.

        ``improved`` are slots of the working runs that are at their best.
        """
        self._publish(improved)
        self.epoch = record.epoch
        self.history.append(record)
        self._restore_best()
        self.drop_ended()

    def _publish(self, improved: Sequence[int]) -> None:
        """Copy the working runs' weights into the user's module, and those at their best into ``best``."""
        places, current = [run.place for run in self.runs], self.current_weights()
        if len(places) == self.published.runs:
            foreach_copy_([self.published.weights[name] for name in current], list(current.values()))
        else:
            for name, value in current.items():
                self.published.weights[name][places] = value
        if self.best is not None and improved:
            for name, value in current.items():
                self.best[name][[places[slot] for slot in improved]] = value[list(improved)]

    def _restore_best(self) -> None:
        """Give the runs that have ended their best weights."""
        if self.best is not None:
            for place in (run.place for run in self.runs if run.ended):
                for name, value in self.published.weights.items():
                    value[place] = self.best[name][place]

    @torch.no_grad()
    def drop_ended(self) -> None:
        """Let runs that have ended go, so that the others continue as a smaller batch; the last ones stay."""
        slots = [slot for slot, run in enumerate(self.runs) if not run.ended]
        if not slots or len(slots) == len(self.runs):
            return
        old = self._parts()
        self._build([self.runs[slot] for slot in slots])
        for part, tensors in self._parts().items():
            for name, value in tensors.items():
                value.copy_(old[part][name][slots])

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values from which :meth:`restore` goes on, bit for bit."""
        saved = {f"module/{name}": value for name, value in self.published.weights.items()}
        parts = {"best": self.best or {}, "start": self.start or {}, **self._parts()}
        if all(run.snapshot_steps == run.steps for run in self.runs):
            parts.pop("newest", None)  # it is the work itself
        saved |= {f"{part}/{name}": value for part, tensors in parts.items() for name, value in tensors.items()}
        plain = {
            "epoch": self.epoch,
            "runs": [asdict(run) for run in self.runs],
            "micro_batch": self.micro_batch,
            "history": [asdict(record) for record in self.history],
        }
        return saved, plain

    def share(self, ranks: Ranks) -> None:
        """Take over the state of rank 0."""
        saved, plain = self.save()
        saved, plain = ranks.same_tensors(saved, self.published.device), ranks.same(plain)
        if not ranks.first:
            self.restore(saved, plain)

    @torch.no_grad()
    def restore(self, saved: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Take over the state that :meth:`save` described."""
        self.epoch, self.micro_batch = plain["epoch"], plain["micro_batch"]
        self.history = [EpochRecord.from_dict(values) for values in plain["history"]]
        self._build([RunState(**values) for values in plain["runs"]])
        for name, value in self.published.weights.items():
            value.copy_(saved[f"module/{name}"])
        for part, tensors in {"best": self.best or {}, "start": self.start or {}, **self._parts()}.items():
            source = "work" if part == "newest" and not any(key.startswith("newest/") for key in saved) else part
            for name, value in tensors.items():
                value.copy_(saved[f"{source}/{name}"])
