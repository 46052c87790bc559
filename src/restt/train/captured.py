"""The step of one's own loop as one CUDA graph: what :mod:`restt.train.cuda_graph` is for the library's own.

A loop that calls model, loss, backward and optimizer one by one waits for Python several times longer than for the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import shown
from restt.chain.precision import current_precision

# Calls that go the ordinary way first: they load kernels and make the optimizer's state, which no graph may.
WARM_UPS = 3


class CapturedStep:
    """A training step that is replayed as one CUDA graph, whatever the module, the loss and the optimizer.

    The first three calls with tensors of given shapes run as they are, the fourth is recorded, and from then on a call
    copies its tensors to where the recording reads them and replays it. Tensors of other shapes, as those of a smaller
    last batch, get a recording of their own. On the CPU a call is simply the step.

    Parameters
    ----------
    step : callable
        Takes tensors, does everything from ``zero_grad(set_to_none=True)`` to ``optimizer.step()`` and returns what is
        to be looked at, usually the loss; it is called with tensors only and must not wait for the GPU (no ``item()``).
        Optimizers need ``capturable=True``; a rate that changes must be a tensor, filled in place.

    Notes
    -----
    What comes back is overwritten by the next call: clone what is to be kept. Module and optimizer must not be used on
    a GPU before the first call, nor moved later.

    Examples
    --------
    >>> import torch, restt
    >>> model = restt.ResTT(sites=5, feature_dim=2, bond_dim=4, outputs=1)
    >>> optimizer = torch.optim.Adam(model.parameters(), capturable=False)  # True on a GPU
    >>> @restt.train.CapturedStep
    ... def step(x, y):
    ...     optimizer.zero_grad(set_to_none=True)
    ...     loss = torch.nn.functional.mse_loss(model(x), y)
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss.detach()
    >>> x, y = torch.rand(8, 5, 2), torch.rand(8, 1)
    >>> before, after = float(step(x, y)), float(step(x, y))
    >>> after < before
    True
    """

    def __init__(self, step: Callable[..., Any]) -> None:
        if not callable(step):
            raise TypeError(f"step must be a function of tensors, got {shown(step)}")
        self.step = step
        self._calls: dict[tuple[Any, ...], int] = {}
        self._recordings: dict[tuple[Any, ...], tuple[tuple[Tensor, ...], Callable[[], None], Any]] = {}

    def __call__(self, *batch: Tensor) -> Any:
        """One step with these tensors."""
        for place, tensor in enumerate(batch):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"a captured step takes tensors only, got {shown(tensor)} at place {place}")
        if not self.can_record(batch):
            return self.step(*batch)
        key = (current_precision(), *((tensor.shape, tensor.dtype, tensor.device) for tensor in batch))
        if key not in self._recordings:
            self._calls[key] = self._calls.get(key, 0) + 1
            if self._calls[key] <= WARM_UPS:
                return self.run_aside(lambda: self.step(*batch))
            held = tuple(tensor.clone() for tensor in batch)
            self._recordings[key] = (held, *self.record(lambda: self.step(*held)))
        held, replay, result = self._recordings[key]
        for tensor, given in zip(held, batch, strict=True):
            tensor.copy_(given)
        replay()
        return result

    def can_record(self, batch: Sequence[Tensor]) -> bool:
        """Whether these tensors are on a GPU."""
        return len(batch) > 0 and all(tensor.is_cuda for tensor in batch)

    def run_aside(self, work: Callable[[], Any]) -> Any:
        """On the stream that is recorded later: what the optimizer and the gradients keep belongs to it."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = work()
        current.wait_stream(self._stream)
        return result

    def record(self, work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """How to run the work again by a single launch, and where its result will be."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                result = work()
        except RuntimeError as error:
            error.add_note(
                "the step could not be recorded as a CUDA graph: give the optimizer capturable=True and leave out "
                "whatever waits for the GPU, such as item(), print of a tensor or a comparison"
            )
            raise
        return graph.replay, result

    @property
    def _stream(self) -> torch.cuda.Stream:
        if not hasattr(self, "_own_stream"):
            self._own_stream = torch.cuda.Stream()
        return self._own_stream
