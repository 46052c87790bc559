"""restt itself: one backend or its own choice, and the step of its own training loop."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from restt import chain
from restt.chain.dispatch import unsupported
from restt.train.cuda_graph import GraphedStep
from restt.train.data import Batch
from restt.train.objective import row_loss
from restt.train.runs import RunsView
from restt.train.step import Adam, TrainStep
from restt_bench.case import Case
from restt_bench.implementations.base import (
    LEARNING_RATE,
    Implementation,
    TrainingStep,
    Work,
    graph_name,
    graph_refusal,
)
from restt_bench.parity import cotangent, output_and_gradients, reference_gradients

# B·N·I·r² above which the reference, written to be read, is left out.
REFERENCE_WORK = 196 * 2 * 50**2 * 512
# Of a recorded step the first two go the ordinary way.
_TO_RECORD = 3


class Ours(Implementation):
    """One backend of :data:`restt.chain.BACKENDS`, or ``"auto"``, which is what a user gets."""

    role = "ours"

    def __init__(self, backend: str, topology: str | None = None, *, graph: bool = False) -> None:
        self.backend, self.topology, self.graph = backend, topology, graph
        name = backend if topology is None else f"{backend}-{topology}"
        label = f"restt {backend}" if topology is None else f"restt {backend}, {topology} chain"
        self.name, self.label = graph_name(name, label, graph)

    def scope(self) -> AbstractContextManager[None]:
        """The backend, as a context."""
        return chain.backend(self.backend)

    def _case(self, case: Case) -> Case:
        return case if self.topology is None else replace(case, topology=self.topology)

    def refusal(self, case: Case) -> str | None:
        """Why the case cannot be run, or None."""
        work = case.batch * case.sites * case.feature_dim * case.bond_dim**2 * (case.runs or 1)
        if self.backend == "reference" and work > REFERENCE_WORK:
            return "the reference is for checking; left out at this size"
        if case.precision == "bf16" and self.backend not in ("auto", "fused_cuda"):
            return "has no bf16 products"
        if (reason := graph_refusal(self, case)) is not None:
            return reason
        return None if self.backend == "auto" else self._unsupported(self._case(case.scaled_down()))

    def _unsupported(self, case: Case) -> str | None:
        module = case.module(seed=0)
        try:
            return unsupported(self.backend, case.data(seed=0)[0].unsqueeze(0), module.weights(), module.topology)
        except ImportError as error:
            return str(error)

    def build(self, case: Case, seed: int) -> Work:
        """The untrained module."""
        case = self._case(case)
        module = case.module(seed)
        return TrainingStep(module, module.parameters(), case, seed, self.scope, self.graph)

    def found_and_expected(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Own numbers beside the reference's."""
        case = self._case(case)
        module = case.module(seed)
        x, parameters = case.data(seed)[0], dict(module.named_parameters())
        expected = reference_gradients(module, case, seed)
        found = output_and_gradients(module, parameters, x, cotangent(case, seed), self.scope)
        return {name: (found[name], expected[name]) for name in expected}


class LibraryStep(Implementation):
    """What :func:`restt.train.train` does for every batch; on a GPU it replays a recorded step."""

    role = "ours"
    name, label = "auto-train", "restt.train's own step"

    def flags(self, case: Case) -> dict[str, Any]:
        """Settings behind the times, for results files."""
        return {"cuda_graph": case.on_gpu, "products": case.precision, "optimizer": "restt.train's Adam"}

    def refusal(self, case: Case) -> str | None:
        """Why the case cannot be run, or None."""
        return None if case.runs is None else "timed for one run"

    def build(self, case: Case, seed: int) -> _Step:
        """The untrained module."""
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

    def is_finite(self) -> bool:
        return bool(self.taken.totals.isfinite().all())
