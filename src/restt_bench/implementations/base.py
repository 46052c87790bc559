"""What an implementation offers the benchmark, and what is timed of it: inference, and a whole training step."""

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
        """One training step."""

    def infer(self) -> None:
        """One inference."""

    def is_finite(self) -> bool:
        """Whether the last loss was finite."""


class Implementation:
    """One way to compute the step. Subclasses fill in the class attributes and :meth:`build`.

    ``graph`` says that steps and inference are captured as CUDA graphs, whose replay waits for no Python.
    """

    role: ClassVar[Role]
    name: str  # short and stable: the key in results files
    label: str  # for tables and plots
    graph: bool = False

    def refusal(self, case: Case) -> str | None:
        """Why this implementation cannot run the case, or None."""
        return None

    def extra_bytes(self, case: Case) -> int:
        """Roughly how much memory a training step takes beyond the states, so that none is started that cannot end."""
        return 0

    def flags(self, case: Case) -> dict[str, Any]:
        """What was set, for results files: a speed is that of a setting."""
        return {"cuda_graph": self.graph, "products": case.precision, "optimizer": "torch.optim.Adam(fused=True)"}

    def build(self, case: Case, seed: int) -> Work:
        """Everything a step needs, made before the clock starts."""
        raise NotImplementedError

    def found_and_expected(self, case: Case, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Output and gradients beside the reference's in float64, by name; empty where there is nothing to compare."""
        return {}


def graph_name(name: str, label: str, graph: bool) -> tuple[str, str]:
    """Name and label with what a CUDA graph adds to them.

    >>> graph_name("eager", "restt eager", True)
    ('eager-graph', 'restt eager, CUDA graph')
    """
    return (f"{name}-graph", f"{label}, CUDA graph") if graph else (name, label)


def graph_refusal(implementation: Implementation, case: Case) -> str | None:
    """Why a captured implementation cannot run the case, or None."""
    return "CUDA graphs need a GPU" if implementation.graph and not case.on_gpu else None


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

    def forward(self) -> None:
        """Outputs of every run."""
        with self.scope():
            output = self.model(self.x)
        self.loss = torch.nn.functional.mse_loss(output, self.target.expand_as(output))

    def backward(self) -> None:
        """Backward pass."""
        self.optimizer.zero_grad(set_to_none=True)
        self.loss.backward()

    def update(self) -> None:
        """Update of the weights."""
        self.optimizer.step()

    def step(self) -> None:
        """One training step."""
        self.forward()
        self.backward()
        self.update()

    @torch.no_grad()
    def infer(self) -> None:
        """One inference."""
        with self.scope():
            self.model(self.x)

    def is_finite(self) -> bool:
        """Whether the last loss was a number: a diverged implementation's time is no result."""
        return bool(self.loss.detach().isfinite())

    def _capture(self) -> None:
        """Replace step and inference by replays of what they launch."""
        batch = self.x, self.target
        self.x, self.target = self.x.clone(), self.target.clone()
        replays = {name: captured(getattr(self, name)) for name in ("step", "infer")}

        def replayed(name: str) -> None:
            self.x.copy_(batch[0])
            if name == "step":
                self.target.copy_(batch[1])
            replays[name]()

        self.step = lambda: replayed("step")  # type: ignore[method-assign]
        self.infer = lambda: replayed("infer")  # type: ignore[method-assign]


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
