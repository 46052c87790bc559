"""What an implementation offers the benchmark: inference and a training step; and the limit, bare matrix products."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from restt_bench.case import Case

Role = Literal["ours", "baseline", "limit"]
# Small, so that hundreds of timed steps on random targets neither diverge nor change what is timed.
LEARNING_RATE = 1e-5
WARM_UPS = 3


class Work(Protocol):
    """Something with a training step and inference."""

    def step(self) -> None:
        """Take one training step."""

    def infer(self) -> None:
        """Compute outputs once."""

    def is_finite(self) -> bool:
        """Whether the last loss was finite."""


class Implementation:
    """One way to compute the step.

    Subclasses fill in the class attributes, :meth:`build` and :meth:`compared`. ``graph`` is whether steps and
    inference are captured as CUDA graphs, whose replay does not wait for Python.
    """

    role: ClassVar[Role]
    name: str  # short and stable: the key in results files
    label: str  # for tables and plots
    graph: bool = False

    def named(self, name: str, label: str) -> None:
        """Set name and label, with what a CUDA graph adds to them."""
        self.name, self.label = (f"{name}-graph", f"{label}, CUDA graph") if self.graph else (name, label)

    def refusal(self, case: Case) -> str | None:
        """Why this implementation cannot run the case, or None."""
        return "CUDA graphs need a GPU" if self.graph and not case.on_gpu else None

    def extra_bytes(self, case: Case) -> int:
        """Memory of a training step beyond the states, about; a case that would not fit is not started."""
        return 0

    def flags(self, case: Case) -> dict[str, Any]:
        """Settings behind the times, for results files."""
        return {"cuda_graph": self.graph, "products": case.precision, "optimizer": "torch.optim.Adam(fused=True)"}

    def build(self, case: Case, seed: int) -> Work:
        """Everything a step needs, made before the clock starts."""
        raise NotImplementedError

    def compared(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Own tensors beside the reference's in float64, by name; empty where there is nothing to compare."""
        return {}


def mse(model: Callable[[Tensor], Tensor], x: Tensor, target: Tensor) -> Tensor:
    """Mean squared error of the outputs of every run."""
    output = model(x)
    return torch.nn.functional.mse_loss(output, target.expand_as(output))


class TrainingStep:
    """Forward, mean squared error, backward, fused Adam on one fixed batch.

    With ``graph`` a step copies the batch to where the graph reads it, as a training loop does, and replays.
    """

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        parameters: Iterable[nn.Parameter],
        case: Case,
        seed: int,
        scope: Callable[[], AbstractContextManager[None]] = nullcontext,
        graph: bool = False,
    ) -> None:
        self.model, self.scope = model, scope
        self.x, self.target = case.data(seed)
        self.optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True, capturable=graph)
        self.loss = self.target.new_zeros(())
        if graph:
            self._capture()

    def step(self) -> None:
        """Take one training step."""
        with self.scope():
            self.loss = mse(self.model, self.x, self.target)
        self.optimizer.zero_grad(set_to_none=True)
        self.loss.backward()
        self.optimizer.step()

    @torch.no_grad()
    def infer(self) -> None:
        """Compute outputs once."""
        with self.scope():
            self.model(self.x)

    def is_finite(self) -> bool:
        """Whether the last loss was finite: the time of a diverged implementation is no result."""
        return bool(self.loss.detach().isfinite())

    def _capture(self) -> None:
        """Replace step and inference by replays of what they launch."""
        x, target = self.x, self.target
        self.x, self.target = x.clone(), target.clone()
        step, infer = captured(self.step), captured(self.infer)

        def replay_step() -> None:
            self.x.copy_(x)
            self.target.copy_(target)
            step()

        def replay_inference() -> None:
            self.x.copy_(x)
            infer()

        self.step, self.infer = replay_step, replay_inference  # type: ignore[method-assign]


def captured(call: Callable[[], object]) -> Callable[[], None]:
    """The call as one CUDA graph; warmed up first on a stream of its own, as capturing asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


class Products:
    """Per inner site one product forward and two backward, into outputs allocated beforehand.

        (B×IR)@(IR×R)    the state        (B×R)@(R×IR)    its gradient        (IR×B)@(B×R)    the core's gradient

    All sites share one set of operands, which therefore stay in cache: a chain that reads N different cores is hardly
    as quick. There are no outer products, no first and last site and no optimizer.
    """

    def __init__(self, case: Case, graph: bool = False) -> None:
        self.sites = max(0, case.sites - 2)
        runs, batch, bond, wide = case.runs or 1, case.batch, case.bond_dim, case.feature_dim * case.bond_dim
        generator = torch.Generator().manual_seed(0)
        operands = (
            torch.randn(runs, *size, generator=generator, dtype=getattr(torch, case.dtype)).to(case.device)
            for size in ((batch, wide), (wide, bond), (batch, bond))
        )
        self.product, self.core, self.grad = (operand[0] if runs == 1 else operand for operand in operands)
        self.multiply = torch.mm if runs == 1 else torch.bmm
        self.state, self.back, self.core_grad = map(torch.empty_like, (self.grad, self.product, self.core))
        if graph:
            self.step, self.infer = captured(self.step), captured(self.infer)  # type: ignore[method-assign]

    def step(self) -> None:
        """Compute the products of one training step."""
        self.infer()
        core, product = self.core.transpose(-1, -2), self.product.transpose(-1, -2)
        for _ in range(self.sites):
            self.multiply(self.grad, core, out=self.back)
            self.multiply(product, self.grad, out=self.core_grad)

    def infer(self) -> None:
        """Compute the products of one inference."""
        for _ in range(self.sites):
            self.multiply(self.product, self.core, out=self.state)

    def is_finite(self) -> bool:
        """There is no loss that could diverge."""
        return True


class Limit(Implementation):
    """The products alone, :class:`Products`."""

    role = "limit"

    def __init__(self, *, graph: bool = False) -> None:
        self.graph = graph
        self.named("limit", "limit: bare GEMMs")

    def refusal(self, case: Case) -> str | None:
        """Why the case cannot be run, or None."""
        if case.precision == "bf16":
            return "torch has no bf16 products of float32 operands"
        return "no inner site, no product" if case.sites < 3 else super().refusal(case)

    def flags(self, case: Case) -> dict[str, Any]:
        """Settings behind the times, for results files."""
        return {"cuda_graph": self.graph, "products": case.precision}

    def build(self, case: Case, seed: int) -> Work:
        """The operands and, with ``graph``, the captured products."""
        return Products(case, self.graph)
