"""The step of restt's own loop, with what its records need: gradient norms, sums over the epoch."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from restt import chain
from restt.train.cuda_graph import GraphedStep
from restt.train.data import Batch
from restt.train.objective import row_loss
from restt.train.runs import RunsView
from restt.train.step import Adam, TrainStep
from restt_bench.case import Case
from restt_bench.implementations.base import LEARNING_RATE, Implementation

# Of a recorded step the first two go the ordinary way.
_TO_RECORD = 3


class LibraryStep(Implementation):
    """What :func:`restt.train.train` does for every batch; on a GPU it replays a recorded step."""

    role = "ours"
    name, label = "auto-train", "restt.train's own step"

    def flags(self, case: Case) -> dict[str, Any]:
        return {"cuda_graph": case.on_gpu, "products": case.precision, "optimizer": "restt.train's Adam"}

    def refusal(self, case: Case) -> str | None:
        return None if case.runs is None else "timed for one run"

    def build(self, case: Case, seed: int) -> _Step:
        return _Step(case, seed)

    def found_and_expected(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Adam's averages of the gradient after one more step: a stale recording would show."""
        work = _Step(case, seed)
        exact = copy.deepcopy(work.module).to("cpu", torch.float64)
        before = {name: value[0].to("cpu", torch.float64) for name, value in work.adam.first.items()}
        work.step()
        x, target = (tensor.to("cpu", torch.float64) for tensor in case.data(seed))
        with chain.backend("reference"):
            output = exact(x)
            torch.nn.functional.mse_loss(output, target.expand_as(output)).backward()
        return {
            name: (work.adam.first[name][0].clone(), 0.9 * before[name] + 0.1 * _gradient(parameter))
            for name, parameter in exact.named_parameters()
        }


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


class _Step:
    def __init__(self, case: Case, seed: int) -> None:
        self.module = case.module(seed)
        x, target = case.data(seed)
        working = RunsView(self.module)
        self.adam = Adam(working.weights)
        (self.group,) = self.adam.groups([0], [0.0], [0])
        kind = GraphedStep if case.on_gpu else TrainStep
        self.taken = kind(working, self.adam, row_loss("mse"))
        target = target.expand(case.batch, case.outputs)
        share = torch.full((1, case.batch), 1 / case.batch, device=x.device)
        self.batch = Batch(x[None], target[None], share, float(case.batch))
        self.steps = 0
        for _ in range(_TO_RECORD):
            self.step()

    def step(self) -> None:
        self.taken(self.batch, [(self.group, self.steps, LEARNING_RATE)], first=False)
        self.steps += 1

    @torch.no_grad()
    def infer(self) -> None:
        self.module(self.batch.x[0])

    # The phases are those of one call.
    def forward(self) -> None:
        self.step()

    def backward(self) -> None: ...

    def update(self) -> None: ...

    def is_finite(self) -> bool:
        return bool(self.taken.totals.isfinite().all())
