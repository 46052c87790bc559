"""What is timed: inference, and a whole training step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from restt_bench.case import Case

# Small, so that hundreds of timed steps on random targets neither diverge nor change what is timed.
LEARNING_RATE = 1e-5


class Work(Protocol):
    """Something with a training step, its three phases, and inference."""

    def forward(self) -> None: ...

    def backward(self) -> None: ...

    def update(self) -> None: ...

    def step(self) -> None: ...

    def infer(self) -> None: ...

    def is_finite(self) -> bool: ...


class TrainingStep:
    """Forward, mean squared error, backward, fused Adam on one fixed batch."""

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        parameters: Iterable[nn.Parameter],
        case: Case,
        seed: int,
        scope: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.model, self.scope = model, scope
        self.x, self.target = case.data(seed)
        self.optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True)
        self.loss = self.target.new_zeros(())

    def forward(self) -> None:
        with self.scope():
            output = self.model(self.x)
        self.loss = torch.nn.functional.mse_loss(output, self.target.expand_as(output))

    def backward(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.loss.backward()

    def update(self) -> None:
        self.optimizer.step()

    def step(self) -> None:
        self.forward()
        self.backward()
        self.update()

    @torch.no_grad()
    def infer(self) -> None:
        with self.scope():
            self.model(self.x)

    def is_finite(self) -> bool:
        """Whether the last loss was a number: a diverged contender's time is no result."""
        return bool(self.loss.detach().isfinite())
