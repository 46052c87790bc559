"""Adam on stacked runs: fused kernels, and a rate of its own for every run.

One fused call updates a stretch of neighbouring runs that agree in everything Adam needs: rate, decay, number of steps.
Usually that is all of them; after a roll-back, or in a grid of rates, it is a few stretches or one per run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(eq=False)
class Stretch:
    """Neighbouring runs ``start … stop-1`` that are updated together."""

    start: int
    stop: int
    weight_decay: float
    step: Tensor  # () float32 on the device: steps done so far, as the fused kernels want it

    def of(self, tensor: Tensor) -> Tensor:
        """These runs' part of a stacked tensor."""
        return tensor if self.stop - self.start == len(tensor) else tensor[self.start : self.stop]


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
        self._kernel = torch._fused_adamw_ if optimizer == "adamw" else torch._fused_adam_

    def stretches(
        self,
        agreement: Sequence[object],  # S: what must be equal for runs to be updated together
        weight_decay: Sequence[float],  # S
        steps: Sequence[int],  # S: steps done so far
    ) -> list[Stretch]:
        """Neighbours that agree, also in decay and steps."""
        device = next(iter(self.weights.values())).device
        keys = list(zip(agreement, weight_decay, steps, strict=True))
        starts = [run for run in range(len(keys)) if run == 0 or keys[run] != keys[run - 1]]
        return [
            Stretch(start, stop, weight_decay[start], torch.tensor(float(steps[start]), device=device))
            for start, stop in zip(starts, [*starts[1:], len(keys)], strict=True)
        ]

    @torch.no_grad()
    def step(
        self,
        gradients: dict[str, Tensor],  # (S, …) each
        stretch: Stretch,
        lr: float | Tensor,
    ) -> None:
        """One update of the stretch's runs."""
        stretch.step += 1
        names = list(gradients)
        self._kernel(
            [stretch.of(self.weights[name]) for name in names],
            [stretch.of(gradients[name]) for name in names],
            [stretch.of(self.first[name]) for name in names],
            [stretch.of(self.second[name]) for name in names],
            [],
            [stretch.step] * len(names),
            amsgrad=False,
            lr=lr,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=stretch.weight_decay,
            eps=self.eps,
            maximize=False,
            grad_scale=None,
            found_inf=None,
        )
