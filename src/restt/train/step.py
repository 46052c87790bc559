"""One training step of all runs: gradients, penalty, clipping, Adam, moving average. Nothing here waits for the device.

The loop only calls ``TrainStep`` with a batch and the rates, and reads ``totals`` once per epoch; on a GPU
captured.py replays the same step as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from restt.train.adam import Adam, Stretch
from restt.train.batches import Batch
from restt.train.losses import RowLoss
from restt.train.stacked import Stacked


class Update(NamedTuple):
    """How one stretch of runs moves in this step."""

    stretch: Stretch
    lr: float | Tensor  # a tensor where a captured graph reads it
    forget: float | Tensor | None  # how far the moving average goes towards the new weights


class TrainStep:
    """Updates the working runs by one batch and adds up what the epoch's record needs.

    ``totals`` (3, S) holds, per run, the sum over the epoch of rows · loss, the sum of gradient norms, and the first
    batch's loss.
    """

    def __init__(
        self,
        working: Stacked,
        adam: Adam,
        loss: RowLoss,
        slopes: dict[str, Tensor],  # (S, 1, …) each: gradient of the penalty per unit of weight
        clip: Tensor | None,  # (S,)
        ema: dict[str, Tensor] | None,  # (S, …) each
        ema_decay: float | None,
        micro_batch: int | None,
    ) -> None:
        self.working, self.adam, self.loss = working, adam, loss
        self.slopes, self.clip = slopes, clip
        self.ema, self.ema_decay = ema, ema_decay
        self.micro_batch = micro_batch
        self.totals = torch.zeros(3, working.runs, dtype=torch.float64, device=working.device)

    def __call__(self, batch: Batch, rates: Sequence[tuple[Stretch, int, float]], first: bool) -> None:
        """One step; ``rates`` names the stretches of runs that take part, their steps done so far and their rate."""
        self.apply(batch, [self.update(*rate) for rate in rates], first)

    def update(self, stretch: Stretch, steps: int, lr: float) -> Update:
        """What a stretch that has done ``steps`` steps does in this one."""
        if self.ema is None or self.ema_decay is None:
            return Update(stretch, lr, None)
        # A young average forgets faster, so that it is not held back by the initial weights.
        return Update(stretch, lr, 1 - min(self.ema_decay, (1 + steps) / (10 + steps)))

    def apply(self, batch: Batch, updates: Sequence[Update], first: bool) -> None:
        """The step itself."""
        loss = self._backward(batch)
        gradients = self.working.gradients()
        with torch.no_grad():
            for name, slope in self.slopes.items():
                if name in gradients:
                    gradients[name].addcmul_(self.working.weights[name], slope)
            norm = gradient_norm(gradients)
            if self.clip is not None:
                shrink = (self.clip / norm).clamp(max=1.0)
                for gradient in gradients.values():
                    gradient.mul_(shrink.view(-1, *[1] * (gradient.dim() - 1)))
            for stretch, lr, forget in updates:
                self.adam.step(gradients, stretch, lr)
                self._average(stretch, forget)
            self.totals[0] += loss * batch.rows
            self.totals[1] += norm
            if first:
                self.totals[2] = loss
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

    def _average(self, stretch: Stretch, forget: float | Tensor | None) -> None:
        if self.ema is None or forget is None:
            return
        for name, average in self.ema.items():
            stretch.of(average).lerp_(stretch.of(self.working.weights[name]), forget)


def gradient_norm(gradients: dict[str, Tensor]) -> Tensor:  # (S,)
    """Norm of each run's whole gradient."""
    parts = [torch.linalg.vector_norm(gradient.reshape(len(gradient), -1), dim=1) for gradient in gradients.values()]
    return torch.linalg.vector_norm(torch.stack(parts), dim=0)
