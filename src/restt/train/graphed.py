"""A whole training step as one CUDA graph: forward, loss, backward and optimizer replayed by a single launch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_WARM_UPS = 3


class GraphedStep:
    """Captures one training step for fixed shapes; calling it copies a batch in and replays the step.

    A step of the fused chain is a dozen short kernels: launched one by one they wait for Python, replayed they do not.
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
    >>> from restt.train.graphed import GraphedStep
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
