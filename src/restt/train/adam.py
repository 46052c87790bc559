"""Adam on tensors (S, …) that hold a run each S, with a rate of its own for every run.

One fused call updates a group of neighbouring runs that agree in everything Adam needs: rate, decay, number of steps.
Usually that is all of them; after a roll-back, or in a grid of rates, it is a few groups or one per run. On a GPU the
call is a Triton kernel (adam_kernel.py), elsewhere torch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from restt._common.compat_torch import fused_adam_, fused_adamw_

# The Triton kernel takes at most this many tensors: it asks for each whether a block is of that one.
MOST_TENSORS = 16


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
        limits: Mapping[str, float] | None = None,  # largest rate of a tensor
    ) -> None:
        self.weights = weights
        self.limits = {} if limits is None else limits
        self.first = {name: torch.zeros_like(value) for name, value in weights.items()}
        self.second = {name: torch.zeros_like(value) for name, value in weights.items()}
        self.betas, self.eps = betas, eps
        self._torchs: Callable[..., None] = fused_adamw_ if optimizer == "adamw" else fused_adam_
        self._kernel = _kernel(weights, optimizer, betas, eps)
        self._decays: dict[float, Tensor] = {}  # () each, where the kernel reads them

    @property
    def finds_norms(self) -> bool:
        """Whether an update comes by the norms of the gradients, for nothing."""
        return self._kernel is not None

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
    ) -> Tensor | None:
        """The group's update with this ``number``, which counts from 1.

        Returns the norm of each of its runs' gradients where this :attr:`finds_norms`, else None.
        """
        norms = []
        for limit in dict.fromkeys(self.limits.get(name) for name in gradients):
            names = [name for name in gradients if self.limits.get(name) == limit]
            norms.append(self._step(names, gradients, group, number, _limited(lr, limit)))
        found = [norm for norm in norms if norm is not None]
        return torch.linalg.vector_norm(torch.stack(found), dim=0) if len(found) > 1 else next(iter(found), None)

    def _step(
        self, names: list[str], gradients: dict[str, Tensor], group: RunGroup, number: Tensor, lr: float | Tensor
    ) -> Tensor | None:
        """The update of the tensors that share a rate."""
        held = [[tensors[name] for name in names] for tensors in (self.weights, gradients, self.first, self.second)]
        if self._kernel is not None:
            if not isinstance(lr, Tensor):
                lr = torch.full((), lr, dtype=torch.float32, device=number.device)
            held[1] = [gradient.contiguous() for gradient in held[1]]
            decay = self._decay(group.weight_decay, number.device)
            return self._kernel(*held, range(group.start, group.stop), number, lr, decay)
        self._torchs(
            *([group.of(tensor) for tensor in tensors] for tensors in held),
            [],
            [number] * len(names),
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
        return None

    def _decay(self, weight_decay: float, device: torch.device) -> Tensor:
        if weight_decay not in self._decays:
            self._decays[weight_decay] = torch.full((), weight_decay, dtype=torch.float64, device=device)
        return self._decays[weight_decay]


def _limited(lr: float | Tensor, limit: float | None) -> float | Tensor:
    if limit is None:
        return lr
    return lr.clamp(max=limit) if isinstance(lr, Tensor) else min(lr, limit)


def _kernel(
    weights: dict[str, Tensor], optimizer: str, betas: tuple[float, float], eps: float
) -> Callable[..., Tensor] | None:
    """The Triton kernel, or None where it cannot take these tensors."""
    readable = all(value.is_cuda and value.is_contiguous() for value in weights.values())
    kinds = {value.dtype for value in weights.values()}
    if not readable or kinds not in ({torch.float32}, {torch.float64}) or len(weights) > MOST_TENSORS:
        return None
    from restt.chain.cuda.contraction import triton_problem

    if triton_problem() is not None:
        return None
    from restt.train.adam_kernel import Update

    return Update(betas, eps, decoupled=optimizer == "adamw")
