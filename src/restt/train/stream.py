"""Batches of rows that come in blocks and are never all in memory.

A source gives the rows of an epoch block by block (:class:`Source`; :func:`restt.data.stream` makes one of Parquet
files). While one block is trained on, a thread reads the next.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from restt._common.ranks import ALONE, Ranks
from restt._common.seeds import stream_keys
from restt.train.data import Batch, FeatureMap
from restt.train.objective import read_targets
from restt.train.regularisation import SiteDropout

Item = TypeVar("Item")
# Blocks that wait to be trained on, beside the one that is and the one that is read.
AHEAD = 1


@runtime_checkable
class Source(Protocol):
    """Rows that come in blocks: ``x`` of :func:`restt.train.train`, with y None."""

    rows: int

    def head(self) -> tuple[Tensor, ...]:
        """Some rows, as a block holds them."""

    def blocks(self, epoch: int) -> Iterator[tuple[Tensor, ...]]:
        """The rows of an epoch, shuffled: x (b, …), y (b,) or (b, O), and optionally weights (b,) of mean 1."""

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

    def keep(self, runs: Sequence[int]) -> StreamData:
        """The same rows for some of the runs."""
        return replace(self, sizes=tuple(self.sizes[run] for run in runs))


class StreamBatches:
    """The batches of an epoch, cut out of one block after the other; what :class:`~restt.train.data.Batches` is for
    rows in memory.

    The order of rows is the source's. Each of several processes reads all blocks and makes its part of every batch.
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
        """The batches of epoch ``epoch``."""
        data, keys = self.data, None
        if self.dropout is not None:
            keys = stream_keys(self.seeds, self.run_ids, "dropout", epoch, data.device)
        start = 0
        for rows in self._cut(prefetched(data.source.blocks(epoch))):
            yield self._batch(rows, start, keys)
            start += len(rows[0])
        if start != self.longest:
            raise ValueError(f"x must give its {self.longest} rows in every epoch, got {start} in epoch {epoch}")

    def _cut(self, blocks: Iterator[tuple[Tensor, ...]]) -> Iterator[list[Tensor]]:
        """Pieces of one batch's rows: what a block leaves over begins the next batch."""
        left: list[Tensor] | None = None
        for block in blocks:
            tensors = list(block)
            if left is not None:
                tensors = [torch.cat(pair) for pair in zip(left, tensors, strict=True)]
            whole = len(tensors[0])
            for begin in range(0, whole - whole % self.batch_size, self.batch_size):
                yield [tensor[begin : begin + self.batch_size] for tensor in tensors]
            rest = whole % self.batch_size
            left = [tensor[whole - rest :].clone() for tensor in tensors] if rest else None
        if left is not None:
            yield left

    def _batch(self, rows: list[Tensor], start: int, keys: Tensor | None) -> Batch:
        data, width = self.data, len(rows[0])
        begin, end = self.ranks.part(width)
        # A rank without a row takes one that does not count, so that it takes part in the step.
        own = slice(begin, end) if begin < end else slice(0, 1)
        x, y, *weight = (tensor[own] for tensor in rows)
        # Looked at where they are: on a device every look would wait for it.
        target = read_targets(y, data.outputs, data.loss, data.dtype, y.device).to(data.device)
        x = x.to(data.device)
        x = (x if data.feature_map is None else data.feature_map(x)).to(data.dtype)[None]
        if self.dropout is not None and keys is not None:
            x = self.dropout(x, keys, (start + own.start) * x.shape[2])
        share = torch.full((1, len(target)), 1.0 / width, dtype=data.dtype, device=data.device)
        if weight:
            share = share * weight[0].to(share)
        return Batch(x, target[None], share if begin < end else share * 0, float(width))


def prefetched(items: Iterator[Item]) -> Iterator[Item]:
    """The same items, made by a thread while the ones before are used. It ends when the iteration does."""
    held: queue.Queue[tuple[bool, Any]] = queue.Queue(maxsize=AHEAD)
    stop = threading.Event()

    def put(entry: tuple[bool, Any]) -> bool:
        while not stop.is_set():
            try:
                held.put(entry, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put((True, item)):
                    return
            put((False, None))
        except BaseException as error:
            put((False, error))

    thread = threading.Thread(target=work, name="restt-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            more, item = held.get()
            if more:
                yield item
            elif item is not None:
                raise item
            else:
                return
    finally:
        stop.set()
        thread.join()
