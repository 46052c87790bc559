"""One training step of all runs: gradients, penalty, clipping, Adam, moving average. Nothing here waits for the device.

The loop calls ``TrainStep`` with a batch and the rates, and reads ``totals`` once per epoch; on a GPU cuda_graph.py
replays the same step as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

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


@dataclass(frozen=True)
class RunGroup:
    """Neighbouring runs ``start … stop-1`` that are updated together."""

    start: int
    stop: int
    weight_decay: float

    def of(self, tensor: Tensor) -> Tensor:
        """Slice these runs' part of a stacked tensor."""
        return tensor if self.stop - self.start == tensor.shape[0] else tensor[self.start : self.stop]


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
        self.limits = {} if limits is None else limits
        self.first = {name: torch.zeros_like(value) for name, value in weights.items()}
        self.second = {name: torch.zeros_like(value) for name, value in weights.items()}
        self._fused: Callable[..., None] = fused_adamw_ if optimizer == "adamw" else fused_adam_
        self._kernel = _kernel(weights, optimizer)
        self._decays: dict[float, Tensor] = {}  # () each, where the kernel reads them

    @property
    def finds_norms(self) -> bool:
        """Whether :meth:`step` returns the norms of the gradients."""
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
        """Update a group; ``number`` counts its steps from 1.

        Returns the norm of each of its runs' gradients where this :attr:`finds_norms`, else None.
        """
        norms = []
        for limit in dict.fromkeys(self.limits.get(name) for name in gradients):
            names = [name for name in gradients if self.limits.get(name) == limit]
            norms.append(self._update(names, gradients, group, number, _limited(lr, limit)))
        known = [norm for norm in norms if norm is not None]
        return torch.linalg.vector_norm(torch.stack(known), dim=0) if len(known) > 1 else next(iter(known), None)

    def _update(
        self, names: list[str], gradients: dict[str, Tensor], group: RunGroup, number: Tensor, lr: float | Tensor
    ) -> Tensor | None:
        """Update the tensors that share a rate."""
        parts = [[tensors[name] for name in names] for tensors in (self.weights, gradients, self.first, self.second)]
        if self._kernel is not None:
            if not isinstance(lr, Tensor):
                lr = torch.full((), lr, dtype=torch.float32, device=number.device)
            parts[1] = [gradient.contiguous() for gradient in parts[1]]
            decay = self._decay(group.weight_decay, number.device)
            return self._kernel(*parts, range(group.start, group.stop), number, lr, decay)
        self._fused(
            *([group.of(tensor) for tensor in tensors] for tensors in parts),
            [],
            [number] * len(names),
            amsgrad=False,
            lr=lr,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=group.weight_decay,
            eps=EPS,
            maximize=False,
            grad_scale=None,
            found_inf=None,
        )
        return None

    def _decay(self, weight_decay: float, device: torch.device) -> Tensor:
        if weight_decay not in self._decays:
            self._decays[weight_decay] = torch.full((), weight_decay, dtype=torch.float64, device=device)
        return self._decays[weight_decay]


class Update(NamedTuple):
    """How one group of runs moves in this step."""

    group: RunGroup
    number: float | Tensor  # of the step, counted from 1; like the others a tensor where a CUDA graph reads it
    lr: float | Tensor
    forget: float | Tensor | None  # how far the moving average goes towards the new weights


class TrainStep:
    """Updates the working runs by one batch and adds up losses and gradient norms for the record.

    ``totals`` (3, S) holds, per run, the sum over the epoch of rows · loss, the sum of gradient norms, and the first
    batch's loss.
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
        ema_decay: float | None = None,
        micro_batch: int | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.working, self.adam, self.loss = working, adam, loss
        self.slopes, self.start, self.clip = slopes or {}, start, clip
        self.ema, self.ema_decay = ema, ema_decay
        self.micro_batch, self.ranks = micro_batch, ranks
        self.totals = torch.zeros(3, working.runs, dtype=torch.float64, device=working.device)

    def __call__(self, batch: Batch, rates: Sequence[tuple[RunGroup, int, float]], first: bool) -> None:
        """Take a step; ``rates`` names the groups of runs that take part, their steps done so far and their rate."""
        self.apply(batch, [self.update(*rate) for rate in rates])
        if first:
            self._note_first(batch)

    def update(self, group: RunGroup, steps: int, lr: float) -> Update:
        """Describe the step of a group that has done ``steps`` steps."""
        if self.ema is None or self.ema_decay is None:
            return Update(group, steps + 1.0, lr, None)
        # A young average forgets faster, so that the initial weights do not stay in it.
        return Update(group, steps + 1.0, lr, 1 - min(self.ema_decay, (1 + steps) / (10 + steps)))

    def _note_first(self, batch: Batch) -> None:
        """Keep the first batch's loss; no part of :meth:`apply`, which is the same for all batches."""
        torch.div(self.totals[0], batch.count, out=self.totals[2])

    def apply(self, batch: Batch, updates: Sequence[Update]) -> None:
        """Compute gradients and update all groups."""
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
                own_norm = self.adam.step(gradients, group, number, lr)
                if norm is None and own_norm is not None:
                    group.of(self.totals[1]).add_(own_norm)
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
            loss = beside.launch(partial(_weighted_sum, rows.detach(), piece.share))
            # The gradient of the sum over runs and rows without that sum, which would take launches of its own.
            # On a CPU there is: given a gradient, torch imports sympy, a second of a process's first step.
            if rows.device.type == "cpu":
                (rows * piece.share).sum().backward()
            else:
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


def _weighted_sum(
    rows: Tensor,  # (S, B)
    share: Tensor,  # (S or 1, B)
) -> Tensor:  # (S,)
    return (rows * share).sum(1)


def _limited(lr: float | Tensor, limit: float | None) -> float | Tensor:
    if limit is None:
        return lr
    return lr.clamp(max=limit) if isinstance(lr, Tensor) else min(lr, limit)


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
