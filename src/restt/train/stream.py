"""Batches of rows that come in blocks and are never all in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
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

    def head(self) -> tuple[Tensor, ...]:
        """Return some rows in the form of a block."""

    def blocks(self, epoch: int, own: Callable[[np.ndarray], np.ndarray]) -> Iterator[tuple[Tensor, ...]]:
        """Yield the rows of an epoch, shuffled: x (b, …), y (b,) or (b, O), and optionally weights (b,) of mean 1.

        ``own`` takes positions (b,) in the epoch and returns which of these rows are wanted.
        """

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
    feature_map: FeatureMap | None  # applied to the rows of one batch at a time
    filler: list[Tensor]  # a row, for a step in which a process has none of its own

    def keep(self, runs: Sequence[int]) -> StreamData:
        """Keep some of the runs."""
        return replace(self, sizes=tuple(self.sizes[run] for run in runs))


class StreamBatches:
    """The batches of an epoch, cut out of the blocks of a source: :class:`~restt.train.data.Batches` beyond memory.

    Batches are the same however many processes train together; each asks the source for its part of every batch.
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
        keys = None
        if self.dropout is not None:
            keys = stream_keys(self.seeds, self.run_ids, "dropout", epoch, self.data.device)
        blocks = prefetched(self.data.source.blocks(epoch, self._own))
        left: list[Tensor] = []
        read = 0
        for start in range(0, self.longest, self.batch_size):
            width = min(self.batch_size, self.longest - start)
            low, high = self.ranks.part(width)
            while (len(left[0]) if left else 0) < high - low:
                block = next(blocks, None)
                if block is None:
                    raise self._miscount(str(read), epoch)
                read += len(block[0])
                left = [torch.cat(pair) for pair in zip(left, block, strict=True)] if left else list(block)
            rows = [tensor[: high - low] for tensor in left]
            left = [tensor[high - low :] for tensor in left]
            yield self._batch(rows, start + low, width, keys)
        if (left and len(left[0])) or any(len(block[0]) for block in blocks):
            raise self._miscount("more", epoch)

    def _own(self, positions: np.ndarray) -> np.ndarray:
        """Mark the positions (b,) in an epoch that are this process's part of their batch."""
        start = positions - positions % self.batch_size
        width = np.minimum(self.batch_size, self.longest - start)
        rank, size = self.ranks.rank, self.ranks.size
        within = positions - start
        return (within >= width * rank // size) & (within < width * (rank + 1) // size)

    def _batch(self, rows: list[Tensor], start: int, width: int, keys: Tensor | None) -> Batch:
        """Make a part of a batch of ``width`` rows; its first row is row ``start`` of the epoch."""
        data = self.data
        # A rank without a row takes one that does not count, so that it takes part in the step.
        counts = bool(rows) and len(rows[0]) > 0
        x, y, *weight = rows if counts else data.filler
        # Checked before they move: a check on a device waits for it.
        target = read_targets(y, data.outputs, data.loss, data.dtype, y.device).to(data.device)
        x = x.to(data.device)
        x = (x if data.feature_map is None else data.feature_map(x)).to(data.dtype)[None]
        if self.dropout is not None and keys is not None:
            x = self.dropout(x, keys, start * x.shape[2])
        share = torch.full((1, len(target)), 1.0 / width if counts else 0.0, dtype=data.dtype, device=data.device)
        if weight:
            share = share * weight[0].to(share)
        return Batch(x, target[None], share, float(width))

    def _miscount(self, got: str, epoch: int) -> ValueError:
        return ValueError(f"x must give its {self.longest} rows in every epoch, got {got} in epoch {epoch}")


def prefetched(items: Iterator[Item]) -> Iterator[Item]:
    """Yield items, each made by a thread while the one before is used."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="restt-prefetch") as pool:
        item: Any = pool.submit(next, items, end).result()
        while item is not end:
            following = pool.submit(next, items, end)
            yield item
            item = following.result()
