"""Batches of rows that come in blocks and are never all in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from restt._common.ranks import ALONE, Ranks
from restt._common.seeds import stream_keys
from restt.train.augment import SiteDropout
from restt.train.data import Batch, FeatureMap
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


@dataclass(frozen=True, eq=False)
class StreamData:
    """The rows of a source for S runs, all of which see the same."""

    source: Source
    sizes: tuple[int, ...]  # S times the number of rows
    outputs: int
    loss: str
    dtype: torch.dtype
    device: torch.device
    feature_map: FeatureMap | None  # applied to the rows of one batch at a time, on the device

    def keep(self, runs: Sequence[int]) -> StreamData:
        """Keep some of the runs."""
        return replace(self, sizes=tuple(self.sizes[run] for run in runs))


class StreamBatches:
    """The batches of an epoch, cut out of the blocks of a source: :class:`~restt.train.data.Batches` beyond memory.

    Every process reads all rows and takes its part of each batch.
    """

    def __init__(
        self,
        data: StreamData,
        batch_size: int,
        seeds: Sequence[int],
        run_ids: Sequence[int],
        dropout: SiteDropout | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.data, self.ranks = data, ranks
        self.longest = data.source.rows
        self.batch_size = batch_size
        self.seeds, self.run_ids, self.dropout = seeds, run_ids, dropout
        self.steps = (math.ceil(self.longest / batch_size),) * len(data.sizes)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Yield the batches of an epoch."""
        data, keys = self.data, None
        if self.dropout is not None:
            keys = stream_keys(self.seeds, self.run_ids, "dropout", epoch, data.device)
        parts = prefetched(self._parts(epoch))
        for step, (x, y, *weight) in enumerate(parts):
            start = step * self.batch_size
            width = min(self.batch_size, self.longest - start)
            low, high = self.ranks.part(width)
            # Checked before they move: a check on a device waits for it.
            target = read_targets(y, data.outputs, data.loss, data.dtype, y.device).to(data.device)
            x = x.to(data.device)
            x = (x if data.feature_map is None else data.feature_map(x)).to(data.dtype)[None]
            if self.dropout is not None and keys is not None:
                x = self.dropout(x, keys, (start + low) * x.shape[2])
            share = torch.full((1, len(y)), float(low < high) / width, dtype=data.dtype, device=data.device)
            if weight:
                share = share * weight[0].to(share)
            yield Batch(x, target[None], share, float(width))

    def _parts(self, epoch: int) -> Iterator[tuple[Tensor, ...]]:
        """Yield this process's rows of each batch; one row, which does not count, where it has none."""
        source = self.data.source
        blocks = prefetched(source.blocks(epoch))
        left: list[Tensor] = []
        start = 0
        for block in blocks:
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
