"""The training step as one CUDA graph: forward, loss, backward and optimizer replayed by a single launch.

A step of the fused chain is a few dozen short kernels; launched one by one they wait for Python, replayed they do not.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from restt._common.compat_torch import foreach_add_, foreach_zero_
from restt._common.devices import available_memory, on_device
from restt.chain.precision import current_precision
from restt.train.data import Batch
from restt.train.step import TrainStep, Update

Replay = Callable[[], None]
# Freed memory beyond which it is given back before a capture.
SPARE_BYTES = 2**30
# torch allows one capture at a time in a process.
_CAPTURING = threading.Lock()


def capture_graph(work: Replay, device: torch.device) -> Replay:
    """Record the launches of ``work`` on a device, without running it; the result replays them by a single launch."""
    graph = torch.cuda.CUDAGraph()
    with _CAPTURING, on_device(device):
        torch.cuda.synchronize(device)
        # torch.cuda.graph always empties the cache, which makes later steps allocate again. A recording has its own
        # memory pool, at most as large as the step before it, and cannot use cached blocks.
        reserved = torch.cuda.memory_reserved(device)
        if reserved - torch.cuda.memory_allocated(device) > SPARE_BYTES or available_memory(device) < reserved:
            torch.cuda.empty_cache()
        collecting = gc.isenabled()
        gc.disable()  # garbage may hold graphs, which cannot be freed while another is recorded
        try:
            # What another thread does meanwhile, to read rows ahead, is not recorded.
            with torch.cuda.stream(torch.cuda.Stream(device)):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    work()
                finally:
                    graph.capture_end()
        finally:
            if collecting:
                gc.enable()
    return graph.replay


class GraphedStep(TrainStep):
    """A :class:`TrainStep` that replays batches of a shape it has seen before.

    The first batch of a shape goes the ordinary way, which also warms everything up before the capture, as does the
    last, smaller one of an epoch and whatever follows it. What changes from step to step (data, rates, step counts) is
    copied into tensors the graph reads.
    """

    capture: Callable[[Replay, torch.device], Replay] = staticmethod(capture_graph)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._seen: tuple[Any, ...] | None = None
        self._recorded: _Recorded | None = None
        self._refused = False

    def __call__(self, batch: Batch, updates: Sequence[Update]) -> None:
        """Take a step, by a recording where there is one."""
        shapes = tuple(tensor.shape for tensor in (batch.x, batch.target, batch.share))
        count = batch.count if isinstance(batch.count, float) else batch.count.shape
        fixed = tuple((update.runs, update.weight_decay) for update in updates)
        key = shapes, count, fixed, current_precision()
        if key == self._seen and not self._refused:
            if self._recorded is None or self._recorded.key != key:
                self._recorded = self._record(key, batch, updates)
            if self._recorded is not None:
                self._recorded.run(batch, updates)
                return
        self._seen = key
        super().__call__(batch, updates)

    def _record(self, key: tuple[Any, ...], batch: Batch, updates: Sequence[Update]) -> _Recorded | None:
        try:
            recorded = _Recorded(key, batch, updates)
            step = partial(super().__call__, recorded.batch, recorded.updates)
            recorded.replay = self.capture(step, batch.x.device)
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
        count = batch.count if isinstance(batch.count, float) else batch.count.clone()
        self.batch = Batch(batch.x.clone(), batch.target.clone(), batch.share.clone(), count)
        self._copied = batch  # the last one, which may come again: all rows are the same batch in every epoch
        self._numbers = [torch.empty((), dtype=torch.float32, device=batch.x.device) for _ in _numbers(updates)]
        numbers = iter(self._numbers)
        self.updates = [
            Update(*update[:2], next(numbers), next(numbers), None if update.forget is None else next(numbers))
            for update in updates
        ]

    def run(self, batch: Batch, updates: Sequence[Update]) -> None:
        """Copy what changed and replay."""
        if batch is not self._copied:
            self._copy(batch)
        # As many launches for any number of groups, and nothing to wait for.
        foreach_zero_(self._numbers)
        foreach_add_(self._numbers, _numbers(updates))
        self.replay()

    def _copy(self, batch: Batch) -> None:
        for name in ("x", "target", "share"):
            getattr(self.batch, name).copy_(getattr(batch, name))
        if not isinstance(self.batch.count, float):
            self.batch.count.copy_(torch.as_tensor(batch.count))
        self._copied = batch


def _numbers(updates: Sequence[Update]) -> list[float]:
    """Numbers that change from step to step, group after group."""
    return [float(value) for update in updates for value in update[2:] if value is not None]
