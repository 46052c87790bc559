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
from restt.train.guard import Guard, RunState, copied
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
        weights, penalty = self.published.weights, config.penalty
        pulled = penalty is not None and penalty.towards == "start"
        # (S, …) each, of all runs; start is what a penalty may pull towards
        self.best = copied(weights) if config.keep == "best" else None
        self.start = copied(weights) if pulled else None
        self._build([RunState(place) for place in range(self.published.runs)])

    def _build(self, runs: list[RunState]) -> None:
        self.runs = runs
        self.working = RunsView(working_copy(self.published.module, [run.place for run in runs]))
        self.working.module.train()
        trained = {name: self.working.weights[name] for name in self.working.parameters}
        self.adam = Adam(trained, self.config.optimizer, self._rate_limits())
        self.ema = None if self.config.ema is None else copied(trained)
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
        """Tensors of the working runs."""
        if self.guard is None:
            return {"work": self.tensors}
        return {"work": self.tensors, "newest": self.guard.newest, "proven": self.guard.proven}

    def current_weights(self) -> dict[str, Tensor]:  # (working S, …) each
        """Return the weights to evaluate and publish: the moving average where there is one."""
        return {**self.working.weights, **(self.ema or {})}

    @torch.no_grad()
    def end_epoch(self, record: EpochRecord, improved: Sequence[int]) -> None:
        """Publish the epoch's weights and drop the runs that ended with it, unless all have.

        ``improved`` are slots of the working runs that are at their best.
        """
        places, current = [run.place for run in self.runs], self.current_weights()
        if len(places) == self.published.runs:
            foreach_copy_([self.published.weights[name] for name in current], list(current.values()))
        else:
            for name, value in current.items():
                self.published.weights[name][places] = value
        self.epoch = record.epoch
        self.history.append(record)
        if self.best is not None:
            ended = [run.place for run in self.runs if run.ended]
            for name, best in self.best.items():
                best[[places[slot] for slot in improved]] = current[name][list(improved)]
                self.published.weights[name][ended] = best[ended]
        self.drop_ended()

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

    def _all_tensors(self) -> dict[str, Tensor]:
        parts = {"module": self.published.weights, "best": self.best or {}, "start": self.start or {}, **self._parts()}
        return {f"{part}/{name}": value for part, tensors in parts.items() for name, value in tensors.items()}

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values from which :meth:`restore` goes on, bit for bit."""
        plain = {
            "epoch": self.epoch,
            "runs": [asdict(run) for run in self.runs],
            "history": [asdict(record) for record in self.history],
        }
        return self._all_tensors(), plain

    def share(self, ranks: Ranks) -> None:
        """Take over the state of rank 0."""
        saved, plain = self.save()
        saved, plain = ranks.same(({name: value.cpu() for name, value in saved.items()}, plain))
        if not ranks.first:
            self.restore(saved, plain)

    @torch.no_grad()
    def restore(self, saved: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Take over the state that :meth:`save` described."""
        self.epoch = plain["epoch"]
        self.history = [EpochRecord.from_dict(values) for values in plain["history"]]
        self._build([RunState(**values) for values in plain["runs"]])
        for name, value in self._all_tensors().items():
            value.copy_(saved[name])
