"""The training step as one CUDA graph: forward, loss, backward and optimizer replayed by a single launch.

A step of the fused chain is a few dozen short kernels; launched one by one they wait for Python, replayed they do not.
``GraphedTrainStep`` is the step of the training loop, ``GraphedStep`` one of your own with a torch optimizer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from restt.chain.precision import current_precision
from restt.train.data import Batch
from restt.train.step import RunGroup, TrainStep, Update

Replay = Callable[[], None]

_WARM_UPS = 3


def capture_graph(work: Replay) -> Replay:
    """Record what ``work`` launches, without running it; the result runs it again by a single launch."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


class GraphedTrainStep(TrainStep):
    """A :class:`TrainStep` that replays batches of a shape it has seen before.

    The first batch of an epoch and the last, smaller one go the ordinary way, which also warms everything up before
    the capture. What changes from step to step (data, rates, step counts) is copied into tensors the graph reads.
    """

    capture: Callable[[Replay], Replay] = staticmethod(capture_graph)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._seen: tuple[Any, ...] | None = None
        self._recorded: _Recorded | None = None
        self._refused = False

    def __call__(self, batch: Batch, rates: Sequence[tuple[RunGroup, int, float]], first: bool) -> None:
        key = self._key(batch, rates)
        if first or self._refused or key != self._seen:
            super().__call__(batch, rates, first)
            # After the step: only now is the micro-batch known to fit.
            self._seen = self._key(batch, rates)
            return
        if self._recorded is None or self._recorded.key != key:
            self._recorded = self._record(key, batch, rates)
            if self._recorded is None:
                super().__call__(batch, rates, first)
                return
        self._recorded.run(batch, [self.update(*rate) for rate in rates])

    def _key(self, batch: Batch, rates: Sequence[tuple[RunGroup, int, float]]) -> tuple[Any, ...]:
        """All that is fixed in a recording."""
        shapes = tuple(tensor.shape for tensor in (batch.x, batch.target, batch.share))
        rows = batch.count if isinstance(batch.count, float) else batch.count.shape
        groups = tuple((group.start, group.stop, group.weight_decay) for group, _, _ in rates)
        return shapes, rows, groups, self.micro_batch, current_precision()

    def _record(
        self, key: tuple[Any, ...], batch: Batch, rates: Sequence[tuple[RunGroup, int, float]]
    ) -> _Recorded | None:
        recorded = _Recorded(key, batch, [self.update(*rate) for rate in rates])
        try:
            recorded.replay = self.capture(lambda: self.apply(recorded.batch, recorded.updates, first=False))
        except (torch.OutOfMemoryError, RuntimeError):
            # Not every module can be captured; it then trains as it would have anyway.
            self._refused = True
            self.working.clear_gradients()
            return None
        return recorded


class _Recorded:
    """The tensors a recording reads, and how to run it."""

    replay: Replay

    def __init__(self, key: tuple[Any, ...], batch: Batch, updates: Sequence[Update]) -> None:
        self.key = key
        rows = batch.count if isinstance(batch.count, float) else batch.count.clone()
        self.batch = Batch(batch.x.clone(), batch.target.clone(), batch.share.clone(), rows)
        device = batch.x.device
        self.updates = [
            Update(
                replace(update.group, step=update.group.step.clone()),
                torch.tensor(update.lr, dtype=torch.float32, device=device),
                None if update.forget is None else torch.tensor(update.forget, dtype=torch.float32, device=device),
            )
            for update in updates
        ]

    def run(self, batch: Batch, updates: Sequence[Update]) -> None:
        for held, given in (
            (self.batch.x, batch.x),
            (self.batch.target, batch.target),
            (self.batch.share, batch.share),
        ):
            held.copy_(given)
        if not isinstance(self.batch.count, float):
            self.batch.count.copy_(torch.as_tensor(batch.count))
        for held_update, update in zip(self.updates, updates, strict=True):
            held_update.group.step.copy_(update.group.step)
            for tensor, value in ((held_update.lr, update.lr), (held_update.forget, update.forget)):
                if isinstance(tensor, Tensor) and value is not None:
                    tensor.fill_(value)
        self.replay()
        for update in updates:
            update.group.step += 1


class GraphedStep:
    """Captures one training step for fixed shapes; calling it copies a batch in and replays the step.

    Capturing changes neither parameters nor the optimizer's state. Parameters, their ``.grad`` and the learning rate
    (give Adam a tensor ``lr`` to schedule it) stay readable and writable between calls, in place.

    Parameters
    ----------
    module : nn.Module
        On a CUDA device.
    loss_fn : callable
        ``loss_fn(module(x), *targets)``, a tensor; a loss per run (S,) is summed for the backward pass.
    optimizer : torch.optim.Optimizer
        Capturable, e.g. ``torch.optim.Adam(..., fused=True, capturable=True)``.
    x, *targets : Tensor
        An example batch, of the shapes and dtypes every later one has.

    Examples
    --------
    >>> import restt, torch
    >>> from restt.train.cuda_graph import GraphedStep
    >>> if torch.cuda.is_available():
    ...     module = restt.ResTT(8, 2, 4, 1, device="cuda")
    ...     optimizer = torch.optim.Adam(module.parameters(), fused=True, capturable=True)
    ...     x, y = torch.rand(16, 8, 2, device="cuda"), torch.rand(16, 1, device="cuda")
    ...     step = GraphedStep(module, torch.nn.functional.mse_loss, optimizer, x, y)
    ...     losses = [step(x, y).item() for _ in range(3)]
    ...     assert losses[2] < losses[0]
    """

    def __init__(
        self,
        module: nn.Module,
        loss_fn: Callable[..., Tensor],
        optimizer: torch.optim.Optimizer,
        x: Tensor,
        *targets: Tensor,
    ) -> None:
        _check_capturable(module, optimizer, x, targets)
        self._module, self._loss_fn, self._optimizer = module, loss_fn, optimizer
        self._inputs = [tensor.detach().clone() for tensor in (x, *targets)]
        parameters = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        state = copy.deepcopy(optimizer.state_dict())
        side = torch.cuda.Stream(x.device)
        side.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                self._step()
        torch.cuda.current_stream(x.device).wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self._graph):
            self._loss = self._step()
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(parameters[name])
            for name, buffer in module.named_buffers():
                buffer.copy_(buffers[name])
        _restore_in_place(optimizer, state)

    def _step(self) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        x, *targets = self._inputs
        loss = self._loss_fn(self._module(x), *targets)
        loss.sum().backward()
        self._optimizer.step()
        return loss.detach()

    def __call__(self, x: Tensor, *targets: Tensor) -> Tensor:
        """One step on this batch. The loss returned is overwritten by the next call."""
        given = (x, *targets)
        if len(given) != len(self._inputs):
            raise ValueError(f"the step was captured with {len(self._inputs) - 1} target(s), got {len(targets)}")
        for number, (held, tensor) in enumerate(zip(self._inputs, given, strict=True)):
            if tensor.shape != held.shape or tensor.dtype != held.dtype:
                name = "x" if number == 0 else f"target {number}"
                expected = f"{tuple(held.shape)} of {held.dtype}"
                raise ValueError(
                    f"{name} must have the captured shape {expected}, got {tuple(tensor.shape)} of {tensor.dtype}"
                )
            held.copy_(tensor, non_blocking=True)
        self._graph.replay()
        return self._loss


def _check_capturable(
    module: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, targets: tuple[Tensor, ...]
) -> None:
    devices = {tensor.device for tensor in (x, *targets, *module.parameters(), *module.buffers())}
    if any(device.type != "cuda" for device in devices):
        names = ", ".join(sorted(map(str, devices)))
        raise ValueError(
            f"a CUDA graph needs module and batch on a CUDA device, got {names}; train without a graph there"
        )
    if not all(group.get("capturable", False) for group in optimizer.param_groups):
        raise ValueError(f"optimizer must be made with capturable=True, got {type(optimizer).__name__} without it")


def _restore_in_place(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """The state as it was, in the tensors the graph writes to; what did not exist yet goes back to zero."""
    order = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, parameter in enumerate(order):
        before = saved["state"].get(index, {})
        for name, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                value.copy_(before[name]) if name in before else value.zero_()
