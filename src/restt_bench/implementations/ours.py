"""restt itself, by one backend or by its own choice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from restt import chain
from restt.chain.dispatch import unsupported
from restt.module import ResTT
from restt_bench.case import Case
from restt_bench.implementations.base import Implementation, TrainingStep, Work, graph_name, graph_refusal
from restt_bench.parity import cotangent, output_and_gradients, reference_gradients

# B·N·I·r² above which the reference, written to be read, is left out.
REFERENCE_WORK = 196 * 2 * 50**2 * 512


# What a loop of one's own may do to the module before it is called, each by torch's own means.
WAYS = {
    "compiled": "torch.compile",
    "reduce-overhead": 'torch.compile, mode="reduce-overhead"',
    "graphed": "torch.cuda.make_graphed_callables",
}


class Ours(Implementation):
    """One backend of :data:`restt.chain.BACKENDS`, or ``"auto"``, which is what a user gets.

    ``way`` is one of ``WAYS``: loss and optimizer are called one by one, the module as that way leaves it.
    """

    role = "ours"

    def __init__(
        self, backend: str, topology: str | None = None, *, graph: bool = False, way: str | None = None
    ) -> None:
        self.backend, self.topology, self.graph, self.way = backend, topology, graph, way
        parts = [part for part in (topology, way) if part is not None]
        name = "-".join([backend, *parts])
        label = f"restt {backend}" if topology is None else f"restt {backend}, {topology} chain"
        label = label if way is None else f"{label}, {WAYS[way]}"
        self.name, self.label = graph_name(name, label, graph)

    def scope(self) -> AbstractContextManager[None]:
        return chain.backend(self.backend)

    def _case(self, case: Case) -> Case:
        return case if self.topology is None else replace(case, topology=self.topology)

    def refusal(self, case: Case) -> str | None:
        work = case.batch * case.sites * case.feature_dim * case.bond_dim**2 * (case.runs or 1)
        if self.backend == "reference" and work > REFERENCE_WORK:
            return "the reference is for checking; left out at this size"
        if case.precision == "bf16" and self.backend not in ("auto", "fused_cuda"):
            return "has no bf16 products"
        if (reason := graph_refusal(self, case)) is not None:
            return reason
        if self.way in ("reduce-overhead", "graphed") and not case.on_gpu:
            return "CUDA graphs need a GPU"
        return None if self.backend == "auto" else self._unsupported(self._case(case.scaled_down()))

    def _unsupported(self, case: Case) -> str | None:
        module = case.module(seed=0)
        try:
            return unsupported(self.backend, case.data(seed=0)[0].unsqueeze(0), module.weights(), module.topology)
        except ImportError as error:
            return str(error)

    def build(self, case: Case, seed: int) -> Work:
        case = self._case(case)
        module = case.module(seed)
        model = self._as_called(module, case.data(seed)[0])
        return TrainingStep(model, module.parameters(), case, seed, self.scope, self.graph)

    def _as_called(self, module: ResTT, x: Tensor) -> Callable[[Tensor], Tensor]:
        if self.way is None:
            return module
        with self.scope():
            made: Callable[[Tensor], Tensor]
            if self.way == "graphed":
                made = torch.cuda.make_graphed_callables(module, (x,))  # type: ignore[assignment]
            else:
                mode = None if self.way == "compiled" else self.way
                made = torch.compile(module, fullgraph=True, mode=mode)
        return made

    def flags(self, case: Case) -> dict[str, Any]:
        return super().flags(case) | ({} if self.way is None else {"way": WAYS[self.way]})

    def found_and_expected(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        case = self._case(case)
        module = case.module(seed)
        x, parameters = case.data(seed)[0], dict(module.named_parameters())
        expected = reference_gradients(module, case, seed)
        model = self._as_called(module, x.clone().requires_grad_())
        found = output_and_gradients(model, parameters, x, cotangent(case, seed), self.scope)
        return {name: (found[name], expected[name]) for name in expected}
