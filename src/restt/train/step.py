"""One training step of all runs: gradients, penalty, clipping, Adam, moving average. Nothing here waits for the device.

The loop only calls ``TrainStep`` with a batch and the rates, and reads ``totals`` once per epoch; on a GPU
cuda_graph.py replays the same step as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from restt._common.compat_torch import foreach_norm
from restt._common.ranks import ALONE, Ranks
from restt.chain.cuda.calls import Beside
from restt.train.adam import Adam, RunGroup
from restt.train.data import Batch
from restt.train.objective import RowLoss
from restt.train.runs import RunsView


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
            norm = gradient_norm(gradients) if self.clip is not None or not self.adam.finds_norms else None
            if self.clip is not None and norm is not None:
                shrink = (self.clip / norm).clamp(max=1.0)
                for gradient in gradients.values():
                    gradient.mul_(shrink.view(-1, *[1] * (gradient.dim() - 1)))
            for group, number, lr, forget in updates:
                if not isinstance(number, Tensor):
                    number = torch.full((), number, dtype=torch.float32, device=self.working.device)
                found = self.adam.step(gradients, group, number, lr)
                if norm is None and found is not None:
                    group.of(self.totals[1]).add_(found)
                self._average(group, forget)
            if isinstance(batch.count, float):
                self.totals[0].add_(loss, alpha=batch.count)
            else:
                self.totals[0] += loss * batch.count
            if norm is not None:
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
            rows = self.loss(self.working(piece.x), piece.target)  # (S, B)
            beside = Beside(rows.device)
            loss = beside.launch(partial(_added_up, rows.detach(), piece.share))
            # As of the sum over runs and rows, whose gradients would take launches of their own.
            rows.backward(piece.share.expand_as(rows))
            beside.join()
            total = loss if total is None else total + loss
        assert total is not None
        return total

    def _average(self, group: RunGroup, forget: float | Tensor | None) -> None:
        if self.ema is None or forget is None:
            return
        for name, average in self.ema.items():
            group.of(average).lerp_(group.of(self.working.weights[name]), forget)


def _added_up(
    rows: Tensor,  # (S, B)
    share: Tensor,  # (S or 1, B)
) -> Tensor:  # (S,)
    return (rows * share).sum(1)


def gradient_norm(gradients: dict[str, Tensor]) -> Tensor:  # (S,)
    """Norm of each run's whole gradient."""
    if all(gradient.is_cuda and len(gradient) == 1 for gradient in gradients.values()):
        return torch.linalg.vector_norm(torch.stack(foreach_norm(list(gradients.values()))), dim=0, keepdim=True)
    parts = [torch.linalg.vector_norm(gradient.reshape(len(gradient), -1), dim=1) for gradient in gradients.values()]
    return torch.linalg.vector_norm(torch.stack(parts), dim=0)
