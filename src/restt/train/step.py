"""One training step of all runs: gradients, penalty, clipping, Adam, moving average. Nothing here waits for the device.

The loop calls ``TrainStep`` with a batch and its updates, and reads ``totals`` once per epoch; on a GPU cuda_graph.py
replays the same step as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from restt._common.compat_torch import foreach_norm, fused_adam_, fused_adamw_
from restt._common.ranks import ALONE, Ranks
from restt.chain.cuda.calls import Beside
from restt.train.config import Penalty
from restt.train.data import Batch
from restt.train.objective import RowLoss
from restt.train.runs import RunsView, per_run

# W(1) is site 1's linear entry: y(1) = x(1) W(1). A bias (order 0) is never penalised.
GRADE_OF_ROLE = {
    "first": "linear",
    "chain": "chain",
    "linear": "linear",
    "last_chain": "head",
    "last_linear": "head",
    "last_skip": "head",
}
# Most tensors of the Triton kernel, in which every block is compared with the range of each tensor.
MOST_TENSORS = 16
BETAS, EPS = (0.9, 0.999), 1e-8  # Kingma and Ba (2015)


class Update(NamedTuple):
    """Move of a group of neighbouring runs in a step; tensors () where a CUDA graph reads the numbers."""

    runs: range
    weight_decay: float
    number: float | Tensor  # of the step, counted from 1
    lr: float | Tensor
    forget: float | Tensor | None = None  # how far the moving average goes towards the new weights

    def of(self, tensor: Tensor) -> Tensor:
        """Slice these runs' part of a stacked tensor."""
        return tensor if len(self.runs) == tensor.shape[0] else tensor[self.runs.start : self.runs.stop]


def neighbours(keys: Sequence[Hashable]) -> list[range]:
    """Group the neighbours whose keys are equal.

    >>> neighbours([0.1, 0.1, 0.3])
    [range(0, 2), range(2, 3)]
    """
    starts = [run for run in range(len(keys)) if run == 0 or keys[run] != keys[run - 1]]
    return [range(start, stop) for start, stop in pairwise([*starts, len(keys)])]


class Adam:
    """Adam (decay added to the gradient) or AdamW (decoupled) on tensors (S, …), with a rate for every run.

    One fused call updates a group of neighbouring runs that agree in rate, decay and number of steps: on a GPU a Triton
    kernel (adam_kernel.py), elsewhere torch's own. ``first`` and ``second`` are the moments.
    """

    def __init__(
        self,
        weights: dict[str, Tensor],  # (S, …) each
        optimizer: str = "adam",
        limits: Mapping[str, float] | None = None,  # largest rate of a tensor
    ) -> None:
        self.weights = weights
        self.first = {name: torch.zeros_like(value) for name, value in weights.items()}
        self.second = {name: torch.zeros_like(value) for name, value in weights.items()}
        limits = limits or {}
        self._names = {  # by the limit of their rate
            limit: [name for name in weights if limits.get(name) == limit] for limit in map(limits.get, weights)
        }
        self._fused: Callable[..., None] = fused_adamw_ if optimizer == "adamw" else fused_adam_
        self._kernel = _kernel(weights, optimizer)
        self._decays: dict[float, Tensor] = {}  # () each, where the kernel reads them

    @property
    def finds_norms(self) -> bool:
        """Whether :meth:`step` returns the norms of the gradients."""
        return self._kernel is not None

    @torch.no_grad()
    def step(self, gradients: dict[str, Tensor], update: Update) -> Tensor | None:  # (S, …) each
        """Move a group; the norm of each of its runs' gradients where this :attr:`finds_norms`."""
        device = next(iter(self.weights.values())).device
        number, norms = _number(update.number, device), []
        for limit, named in self._names.items():
            names = [name for name in named if name in gradients]
            every = (self.weights, gradients, self.first, self.second)
            parts, lr = [[tensors[name] for name in names] for tensors in every], update.lr
            if limit is not None:
                lr = lr.clamp(max=limit) if isinstance(lr, Tensor) else min(lr, limit)
            if names and self._kernel is not None:
                parts[1] = [gradient.contiguous() for gradient in parts[1]]
                decay = self._decay(update.weight_decay, device)
                norms.append(self._kernel(*parts, update.runs, number, _number(lr, device), decay))
            elif names:
                self._fused(
                    *([update.of(tensor) for tensor in tensors] for tensors in parts),
                    [],
                    [number] * len(names),
                    amsgrad=False,
                    lr=lr,
                    beta1=BETAS[0],
                    beta2=BETAS[1],
                    weight_decay=update.weight_decay,
                    eps=EPS,
                    maximize=False,
                    grad_scale=None,
                    found_inf=None,
                )
        return torch.linalg.vector_norm(torch.stack(norms), dim=0) if len(norms) > 1 else next(iter(norms), None)

    def _decay(self, weight_decay: float, device: torch.device) -> Tensor:
        if weight_decay not in self._decays:
            self._decays[weight_decay] = torch.full((), weight_decay, dtype=torch.float64, device=device)
        return self._decays[weight_decay]


class TrainStep:
    """Updates the working runs by one batch and adds up losses and gradient norms for the record.

    ``totals`` (2, S) holds, per run, the sums over the epoch of rows · loss and of gradient norms.
    """

    def __init__(
        self,
        working: RunsView,
        adam: Adam,
        loss: RowLoss,
        slopes: dict[str, Tensor] | None = None,  # (S, 1, …) each: gradient of the penalty per unit of weight
        start: dict[str, Tensor] | None = None,  # (S, …) each: what the penalty pulls towards; None for 0
        clip: Tensor | None = None,  # (S,)
        ema: dict[str, Tensor] | None = None,  # (S, …) each
        ranks: Ranks = ALONE,
    ) -> None:
        self.working, self.adam, self.loss = working, adam, loss
        self.slopes, self.start, self.clip = slopes or {}, start, clip
        self.ema, self.ranks = ema or {}, ranks
        self.totals = torch.zeros(2, working.runs, dtype=torch.float64, device=working.device)

    def __call__(self, batch: Batch, updates: Sequence[Update]) -> None:
        """Compute gradients and move the groups of runs that take part."""
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
            for update in updates:
                own_norm = self.adam.step(gradients, update)
                if norm is None and own_norm is not None:
                    update.of(self.totals[1]).add_(own_norm)
                if update.forget is not None:
                    for name, average in self.ema.items():
                        update.of(average).lerp_(update.of(self.working.weights[name]), update.forget)
            if isinstance(batch.count, float):
                self.totals[0].add_(loss, alpha=batch.count)
            else:
                self.totals[0] += loss * batch.count
            if norm is not None:
                self.totals[1] += norm
        self.working.clear_gradients()

    def _backward(self, batch: Batch) -> Tensor:  # (S,)
        """Losses of the runs, whose gradients the parameters then have."""
        rows = self.loss(self.working(batch.x), batch.target)  # (S, B)
        beside = Beside(rows.device)
        loss = beside.launch(lambda: (rows.detach() * batch.share).sum(1))
        _Shared.apply(rows, batch.share).backward()
        beside.join()
        return loss


class _Shared(torch.autograd.Function):
    """A number that stands for Σ rows · share: it has the sum's gradient, without the launches of the sum.

    ``rows.backward(share)`` would do too, but there torch imports sympy, seconds of a process's first step.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, share: Tensor) -> Tensor:
        ctx.shape, ctx.share = rows.shape, share
        return rows.new_empty(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        return ctx.share.expand(ctx.shape), None


def penalty_slopes(
    penalty: Penalty,
    weights: dict[str, Tensor],  # (S, …) each
    runs: Sequence[int],  # which of ``total`` runs the stacked weights hold
    total: int,
) -> dict[str, Tensor]:  # (S, 1, …) each
    """Twice the penalty's weight for each penalised tensor: the factor of W, or W - W₀, in the gradient."""
    if not GRADE_OF_ROLE.keys() & weights.keys():
        raise ValueError(f"penalty is graded by the roles of a restt.ResTT, got tensors {sorted(weights)}")
    slopes = {}
    for name, tensor in weights.items():
        grade = GRADE_OF_ROLE.get(name)
        if grade is None:
            continue
        values = per_run(f"penalty.{grade}", getattr(penalty, grade), total)
        # Compared on the host: a comparison on a device waits for it.
        chosen = torch.tensor([2.0 * values[run] for run in runs], dtype=tensor.dtype)
        if bool(chosen.any()):
            slopes[name] = chosen.to(tensor.device).view(-1, *[1] * (tensor.dim() - 1))
    return slopes


def gradient_norm(gradients: dict[str, Tensor]) -> Tensor:  # (S,)
    """Norm of each run's whole gradient."""
    if all(gradient.is_cuda and len(gradient) == 1 for gradient in gradients.values()):
        return torch.linalg.vector_norm(torch.stack(foreach_norm(list(gradients.values()))), dim=0, keepdim=True)
    parts = [torch.linalg.vector_norm(gradient.reshape(len(gradient), -1), dim=1) for gradient in gradients.values()]
    return torch.linalg.vector_norm(torch.stack(parts), dim=0)


def _number(value: float | Tensor, device: torch.device) -> Tensor:  # () float32, as the fused kernels read it
    return value if isinstance(value, Tensor) else torch.full((), value, dtype=torch.float32, device=device)


def _kernel(weights: dict[str, Tensor], optimizer: str) -> Callable[..., Tensor] | None:
    """Return the Triton kernel, or None where it cannot take these tensors."""
    readable = all(value.is_cuda and value.is_contiguous() for value in weights.values())
    kinds = {value.dtype for value in weights.values()}
    if not readable or kinds not in ({torch.float32}, {torch.float64}) or len(weights) > MOST_TENSORS:
        return None
    from restt.chain.cuda.contraction import triton_problem

    if triton_problem() is not None:
        return None
    from restt.train.adam_kernel import Update as KernelUpdate

    return KernelUpdate(BETAS, EPS, decoupled=optimizer == "adamw")
