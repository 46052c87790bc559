"""Batches of rows that come in blocks and are never all in memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from restt._common.seeds import stream_keys
from restt.train.data import Batch, Batches, RunData
from restt.train.objective import read_targets

Item = TypeVar("Item")


@runtime_checkable
class Source(Protocol):
    """Rows that come in blocks: ``x`` of :func:`restt.train.train`, with y None."""

    rows: int

    def blocks(self, epoch: int) -> Iterator[tuple[Tensor, ...]]:
        """Yield the rows of an epoch, shuffled: x (b, …), y (b,) or (b, O), and optionally weights (b,) of mean 1."""

    def features(self, x: Tensor) -> Tensor:
        """Map rows x of a batch to what the training takes; called in a thread, on the CPU."""

    def to_config(self) -> Any:
        """Plain values that differ where the rows or their order do."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamData(RunData):
    """All rows of a source for each of S runs; x and target are those of its first row."""

    source: Source
    loss: str

    def batches(self, *arguments: Any) -> StreamBatches:
        """Make the batches of an epoch; ``arguments`` are those of :class:`Batches` but the rows."""
        return StreamBatches(self, *arguments)

    def tensors(self) -> dict[str, Any]:
        """All that fixes the rows of each run."""
        return {"x": self.source.to_config()}


class StreamBatches(Batches):
    """The batches of an epoch, cut out of the blocks of a source.

    Every process reads all rows and takes its part of each batch.
    """

    data: StreamData

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Yield the batches of an epoch."""
        data, like = self.data, self.data.target
        keys = stream_keys(self.seeds, self.run_ids, "dropout", epoch, like.device)
        for step, (x, y, *weight) in enumerate(prefetched(self._parts(epoch))):
            start = step * self.batch_size
            width = min(self.batch_size, self.longest - start)
            low, high = self.ranks.part(width)
            # Checked before they move: a check on a device waits for it.
            target = read_targets(y, like.shape[1], data.loss, like.dtype, y.device).to(like.device)
            x = data.features(x.to(like.device)[None]).to(like.dtype)
            if self.dropout is not None:
                x = self.dropout(x, keys, (start + low) * x.shape[2])
            share = torch.full((1, len(y)), float(low < high) / width, dtype=like.dtype, device=like.device)
            if weight:
                share = share * weight[0].to(share)
            yield Batch(x, target[None], share, float(width))

    def _parts(self, epoch: int) -> Iterator[tuple[Tensor, ...]]:
        """Yield this process's rows of each batch; one row, which does not count, where it has none."""
        source, start = self.data.source, 0
        left: list[Tensor] = []
        for block in prefetched(source.blocks(epoch)):
            left = [torch.cat(pair) for pair in zip(left, block, strict=True)] if left else list(block)
            while len(left[0]) >= (width := min(self.batch_size, self.longest - start)) > 0:
                low, high = self.ranks.part(width)
                x, *rest = (tensor[low : max(high, low + 1)] for tensor in left)
                yield source.features(x), *rest
                left, start = [tensor[width:] for tensor in left], start + width
        read = start + (len(left[0]) if left else 0)
        if read != self.longest:
            raise ValueError(f"x must give its {self.longest} rows in every epoch, got {read} in epoch {epoch}")


def prefetched(items: Iterator[Item]) -> Iterator[Item]:
    """Yield items, each made by a thread while the one before is used."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="restt-prefetch") as pool:
        item: Any = pool.submit(next, items, end).result()
        while item is not end:
            following = pool.submit(next, items, end)
            yield item
            item = following.result()
