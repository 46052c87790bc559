"""One training step of all runs: gradients, penalty, clipping, Adam, moving average. Nothing here waits for the device.

The loop only calls ``TrainStep`` with a batch and the rates, and reads ``totals`` once per epoch; on a GPU
cuda_graph.py replays the same step as one CUDA graph.

Adam has a rate of its own for every run. One fused call updates a group of neighbouring runs that agree in everything
Adam needs: rate, decay, number of steps. Usually that is all of them; after a roll-back, or in a grid of rates, it is a
few groups or one per run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from restt._common.ranks import ALONE, Ranks
from restt.chain.cuda.calls import is_recording
from restt.train.data import Batch
from restt.train.objective import RowLoss
from restt.train.runs import RunsView

# Of torch's fused Adam: how many tensors one launch takes, how many numbers it gives to a processor, and of how many a
# piece is so that they are read four by four.
_TENSORS_AT_ONCE = 36
_NUMBERS_PER_PROCESSOR = 65_536
_ALIGNED = 2048


@dataclass(frozen=True)
class RunGroup:
    """Neighbouring runs ``start … stop-1`` that are updated together."""

    start: int
    stop: int
    weight_decay: float

    def of(self, tensor: Tensor) -> Tensor:
        """These runs' part of a stacked tensor."""
        # Asked for every tensor in every step: len of a tensor takes three times as long.
        return tensor if self.stop - self.start == tensor.shape[0] else tensor[self.start : self.stop]


class Adam:
    """Adam (decay added to the gradient) or AdamW (decoupled) on tensors (S, …).

    ``first`` and ``second`` are the moments, one pair per trained tensor.
    """

    def __init__(
        self,
        weights: dict[str, Tensor],  # (S, …) each
        optimizer: str = "adam",
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.weights = weights
        self.first = {name: torch.zeros_like(value) for name, value in weights.items()}
        self.second = {name: torch.zeros_like(value) for name, value in weights.items()}
        self.betas, self.eps = betas, eps
        self._kernel: Callable[..., None] = torch._fused_adamw_ if optimizer == "adamw" else torch._fused_adam_

    def groups(
        self,
        agreement: Sequence[object],  # S: what must be equal for runs to be updated together
        weight_decay: Sequence[float],  # S
        steps: Sequence[int],  # S: steps done so far
    ) -> list[RunGroup]:
        """Neighbours that agree, also in decay and steps."""
        keys = list(zip(agreement, weight_decay, steps, strict=True))
        starts = [run for run in range(len(keys)) if run == 0 or keys[run] != keys[run - 1]]
        return [
            RunGroup(start, stop, weight_decay[start])
            for start, stop in zip(starts, [*starts[1:], len(keys)], strict=True)
        ]

    @torch.no_grad()
    def step(
        self,
        gradients: dict[str, Tensor],  # (S, …) each
        group: RunGroup,
        number: Tensor,  # () float32 on the device, as the fused kernels want it
        lr: float | Tensor,
    ) -> None:
        """The group's update with this ``number``, which counts from 1."""
        names = list(gradients)
        held = (self.weights, gradients, self.first, self.second)
        lists = [[group.of(tensors[name]) for name in names] for tensors in held]
        if is_recording(number.device):
            lists = _in_pieces(lists)
        self._kernel(
            *lists,
            [],
            [number] * len(lists[0]),
            amsgrad=False,
            lr=lr,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=group.weight_decay,
            eps=self.eps,
            maximize=False,
            grad_scale=None,
            found_inf=None,
        )


def _in_pieces(lists: list[list[Tensor]]) -> list[list[Tensor]]:
    """The same numbers in more tensors, for the fused kernel to be shared by more processors.

    It gives 65,536 numbers to each, so that all but the largest models would keep a handful busy.
    """
    numbers = sum(tensor.numel() for tensor in lists[0])
    share = -(-numbers // (_TENSORS_AT_ONCE - len(lists[0])) // _ALIGNED) * _ALIGNED
    if share >= _NUMBERS_PER_PROCESSOR or not all(tensor.is_contiguous() for tensors in lists for tensor in tensors):
        return lists
    return [[piece for tensor in tensors for piece in tensor.view(-1).split(share)] for tensors in lists]


class Update(NamedTuple):
    """How one group of runs moves in this step."""

    group: RunGroup
    number: float | Tensor  # of the step, counted from 1; like the others a tensor where a CUDA graph reads it
    lr: float | Tensor
    forget: float | Tensor | None  # how far the moving average goes towards the new weights


class TrainStep:
    """Updates the working runs by one batch and adds up what the epoch's record needs.

    ``totals`` (3, S) holds, per run, the sum over the epoch of rows · loss, the sum of gradient norms, and the first
    batch's loss.
    """

    def __init__(
        self,
        working: RunsView,
        adam: Adam,
        loss: RowLoss,
        slopes: dict[str, Tensor],  # (S, 1, …) each: gradient of the penalty per unit of weight
        start: dict[str, Tensor] | None,  # (S, …) each: what the penalty pulls towards; None for 0
        clip: Tensor | None,  # (S,)
        ema: dict[str, Tensor] | None,  # (S, …) each
        ema_decay: float | None,
        micro_batch: int | None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.working, self.adam, self.loss = working, adam, loss
        self.slopes, self.start, self.clip = slopes, start, clip
        self.ema, self.ema_decay = ema, ema_decay
        self.micro_batch, self.ranks = micro_batch, ranks
        self.totals = torch.zeros(3, working.runs, dtype=torch.float64, device=working.device)

    def __call__(self, batch: Batch, rates: Sequence[tuple[RunGroup, int, float]], first: bool) -> None:
        """One step; ``rates`` names the groups of runs that take part, their steps done so far and their rate."""
        self.apply(batch, [self.update(*rate) for rate in rates])
        if first:
            self._note_first(batch)

    def update(self, group: RunGroup, steps: int, lr: float) -> Update:
        """What a group that has done ``steps`` steps does in this one."""
        if self.ema is None or self.ema_decay is None:
            return Update(group, steps + 1.0, lr, None)
        # A young average forgets faster, so that it is not held back by the initial weights.
        return Update(group, steps + 1.0, lr, 1 - min(self.ema_decay, (1 + steps) / (10 + steps)))

    def _note_first(self, batch: Batch) -> None:
        """Not a part of the step, which is the same for all batches."""
        torch.div(self.totals[0], batch.count, out=self.totals[2])

    def apply(self, batch: Batch, updates: Sequence[Update]) -> None:
        """The step itself."""
        loss = self._backward(batch)
        gradients = self.working.gradients()
        with torch.no_grad():
            self.ranks.add([*gradients.values(), loss])
            for name, slope in self.slopes.items():
                if name in gradients:
                    weight = self.working.weights[name]
                    gradients[name].addcmul_(weight if self.start is None else weight - self.start[name], slope)
            norm = gradient_norm(gradients)
            if self.clip is not None:
                shrink = (self.clip / norm).clamp(max=1.0)
                for gradient in gradients.values():
                    gradient.mul_(shrink.view(-1, *[1] * (gradient.dim() - 1)))
            for group, number, lr, forget in updates:
                if not isinstance(number, Tensor):
                    number = torch.full((), number, dtype=torch.float32, device=self.working.device)
                self.adam.step(gradients, group, number, lr)
                self._average(group, forget)
            self.totals[0] += loss * batch.count
            self.totals[1] += norm
        self.working.clear_gradients()

    def _backward(self, batch: Batch) -> Tensor:  # (S,)
        """Gradients of the runs' losses; a batch that does not fit is split until it does."""
        while True:
            try:
                return self._accumulate(batch)
            except torch.OutOfMemoryError as error:
                rows = min(batch.x.shape[1], self.micro_batch or batch.x.shape[1])
                if rows == 1:
                    error.add_note("one row of each run does not fit into memory: use fewer runs or a smaller bond_dim")
                    raise
                self.micro_batch = (rows + 1) // 2
            # Only here, with the failed attempt's frames gone, can its memory be given back.
            self.working.clear_gradients()
            if self.working.device.type == "cuda":
                torch.cuda.empty_cache()

    def _accumulate(self, batch: Batch) -> Tensor:  # (S,)
        self.working.clear_gradients()
        total: Tensor | None = None
        for piece in batch.split(self.micro_batch):
            loss = (self.loss(self.working(piece.x), piece.target) * piece.share).sum(1)
            loss.sum().backward()
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        return total

    def _average(self, group: RunGroup, forget: float | Tensor | None) -> None:
        if self.ema is None or forget is None:
            return
        for name, average in self.ema.items():
            group.of(average).lerp_(group.of(self.working.weights[name]), forget)


def gradient_norm(gradients: dict[str, Tensor]) -> Tensor:  # (S,)
    """Norm of each run's whole gradient."""
    if all(gradient.is_cuda and len(gradient) == 1 for gradient in gradients.values()):
        return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(gradients.values()))), dim=0, keepdim=True)
    parts = [torch.linalg.vector_norm(gradient.reshape(len(gradient), -1), dim=1) for gradient in gradients.values()]
    return torch.linalg.vector_norm(torch.stack(parts), dim=0)
