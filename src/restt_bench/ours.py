"""restt itself: one backend or the automatic choice, the step of its own training loop, and a user's graphed step."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from restt import chain
from restt.chain.dispatch import unsupported
from restt.train.cuda_graph import GraphedStep as RecordedStep
from restt.train.data import Batch
from restt.train.objective import row_loss
from restt.train.runs import RunsView
from restt.train.step import Adam, TrainStep, Update
from restt_bench.case import Case
from restt_bench.implementation import LEARNING_RATE, WARM_UPS, Implementation, TrainingStep, Work, mse
from restt_bench.parity import averaged_gradients, cotangent, output_and_gradients, reference_gradients

# B·N·I·r² above which the reference, written to be read, is left out.
REFERENCE_WORK = 196 * 2 * 50**2 * 512


class Ours(Implementation):
    """One backend of :data:`restt.chain.BACKENDS`, or ``"auto"``, which is what a user gets."""

    role = "ours"

    def __init__(self, backend: str, *, graph: bool = False) -> None:
        self.backend, self.graph = backend, graph
        self.named(backend, f"restt {backend}")

    def scope(self) -> AbstractContextManager[None]:
        """The backend, as a context."""
        return chain.backend(self.backend)

    def refusal(self, case: Case) -> str | None:
        """Why the case cannot be run, or None."""
        work = case.batch * case.sites * case.feature_dim * case.bond_dim**2 * (case.runs or 1)
        if self.backend == "reference" and work > REFERENCE_WORK:
            return "the reference is for checking; left out at this size"
        if case.precision == "bf16" and self.backend not in ("auto", "fused_cuda"):
            return "has no bf16 products"
        if (reason := super().refusal(case)) is not None or self.backend == "auto":
            return reason
        case = case.scaled_down()
        module = case.module(seed=0)
        try:
            return unsupported(self.backend, case.data(seed=0)[0].unsqueeze(0), module.weights(), module.topology)
        except ImportError as error:
            return str(error)

    def build(self, case: Case, seed: int) -> Work:
        """A training step of the untrained module."""
        module = case.module(seed)
        return TrainingStep(module, module.parameters(), case, seed, self.scope, self.graph)

    def compared(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Output and gradients beside the reference's."""
        module = case.module(seed)
        x, parameters = case.data(seed)[0], dict(module.named_parameters())
        expected = reference_gradients(module, case, seed)
        computed = output_and_gradients(module, parameters, x, cotangent(case, seed), self.scope)
        return {name: (computed[name], expected[name]) for name in expected}


class LibraryStep(Implementation):
    """Step of :func:`restt.train.train` for every batch; on a GPU it replays a recorded step."""

    role = "ours"
    name, label = "auto-train", "restt.train's own step"

    def flags(self, case: Case) -> dict[str, Any]:
        """Settings behind the times, for results files."""
        return {"cuda_graph": case.on_gpu, "products": case.precision, "optimizer": "restt.train's Adam"}

    def refusal(self, case: Case) -> str | None:
        """Why the case cannot be run, or None."""
        return None if case.runs is None else "timed for one run"

    def build(self, case: Case, seed: int) -> _LibraryWork:
        """The recorded step of the untrained module."""
        return _LibraryWork(case, seed)

    def compared(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Adam's averages of the gradient beside the reference's."""
        work = _LibraryWork(case, seed)
        averages = {name: average[0] for name, average in work.adam.first.items()}
        return averaged_gradients(work.module, averages, work.step, case, seed)


class _LibraryWork:
    def __init__(self, case: Case, seed: int) -> None:
        self.module = case.module(seed)
        x, target = case.data(seed)
        view = RunsView(self.module)
        self.adam = Adam(view.weights)
        self.train_step = (RecordedStep if case.on_gpu else TrainStep)(view, self.adam, row_loss("mse"))
        share = torch.full((1, case.batch), 1 / case.batch, device=x.device)
        self.batch = Batch(x[None], target[None], share, float(case.batch))
        self.steps = 0
        for _ in range(WARM_UPS):  # a step is recorded after two ordinary ones
            self.step()

    def step(self) -> None:
        self.steps += 1
        self.train_step(self.batch, [Update(range(1), 0.0, float(self.steps), LEARNING_RATE)])

    @torch.no_grad()
    def infer(self) -> None:
        self.module(self.batch.x[0])

    def is_finite(self) -> bool:
        return bool(self.train_step.totals.isfinite().all())


class GraphedStep(Implementation):
    """A user's whole step by ``torch.cuda.make_graphed_callables``, as docs/gpu_loops.md shows it."""

    role = "ours"
    name, label = "auto-graphed", "restt auto, make_graphed_callables of the whole step, its update by torch.compile"

    def refusal(self, case: Case) -> str | None:
        """Why the case cannot be run, or None."""
        if not case.on_gpu:
            return "CUDA graphs need a GPU"
        # Others take longer to compile than to time.
        return None if case.runs is None and case.precision == "tf32" else "timed for one run in tf32"

    def flags(self, case: Case) -> dict[str, Any]:
        """Settings behind the times, for results files."""
        return {"cuda_graph": True, "products": case.precision, "optimizer": "torch.optim.Adam(foreach=True)"}

    def build(self, case: Case, seed: int) -> _GraphedWork:
        """The graph of the untrained module's step."""
        return _GraphedWork(case.module(seed), case, seed)

    def compared(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Adam's averages of the gradient beside the reference's."""
        module = case.module(seed)
        work = _GraphedWork(module, case, seed)
        averages = {name: work.optimizer.state[weight]["exp_avg"] for name, weight in module.named_parameters()}
        return averaged_gradients(module, averages, work.step, case, seed)


class _GraphedWork(TrainingStep):
    def __init__(self, model: nn.Module, case: Case, seed: int) -> None:
        super().__init__(model, model.parameters(), case, seed)
        rate = torch.tensor(LEARNING_RATE, device=case.device)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=rate, foreach=True, capturable=True)
        update = torch.compile(self.optimizer.step)  # a compiled update uses all processors of a GPU, a fused one few

        def step(x: Tensor, target: Tensor) -> Tensor:
            self.optimizer.zero_grad(set_to_none=True)
            loss = mse(model, x, target)
            loss.backward()
            update()
            return loss.detach()

        self.whole: Any = torch.cuda.make_graphed_callables(step, (self.x.clone(), self.target.clone()))
        for _ in range(WARM_UPS):
            self.step()

    def step(self) -> None:
        self.loss = self.whole(self.x, self.target)
