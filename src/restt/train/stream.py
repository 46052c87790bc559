"""Batches of rows that come in blocks and are never all in memory.

A source deals the rows of an epoch into lanes and gives each block by block (:class:`Source`;
:func:`restt.data.stream` makes one of Parquet files). A batch is made of the next rows of every lane, each giving its
share. So the batches are the same however many processes train together, and a process needs only the lanes whose rows
are its part of every batch. While one block is trained on, a thread reads the next.
"""

from __future__ import annotations

import math
import queue
import threading
from collections import defaultdict, deque
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

    def lanes(self, epoch: int) -> Sequence[int]:
        """How many rows each lane of an epoch has; one lane of all rows where processes need not share the reading."""

    def blocks(self, epoch: int, lane: int) -> Iterator[tuple[Tensor, ...]]:
        """The rows of a lane, shuffled: x (b, …), y (b,) or (b, O), and optionally weights (b,) of mean 1."""

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
        """The same rows for some of the runs."""
        return replace(self, sizes=tuple(self.sizes[run] for run in runs))


class StreamBatches:
    """The batches of an epoch, made of the lanes of a source.

    :class:`~restt.train.data.Batches` is the same for rows in memory. The order of rows is the source's. Each of
    several processes reads the lanes that its part of every batch is of.
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
        sizes = data.source.lanes(epoch)
        if sum(sizes) != self.longest:
            raise ValueError(f"x must deal its {self.longest} rows into lanes, got lanes of {sum(sizes)} rows")
        lanes, sharers, place = self._own_lanes(len(sizes))
        filled = [lane for lane in lanes if sizes[lane]]
        read = _Lanes(prefetched(self._in_turn(epoch, filled, sizes)), sum(sizes[lane] for lane in filled), epoch)
        start = 0
        for counts in shares(sizes, self.batch_size):
            before, width = sum(counts[: lanes.start]), sum(counts)
            rows = _joined([read.take(lane, counts[lane]) for lane in lanes if counts[lane]])
            if sharers > 1 and rows:
                count = len(rows[0])
                begin, end = count * place // sharers, count * (place + 1) // sharers
                rows, before = [tensor[begin:end] for tensor in rows], before + begin
            yield self._batch(rows, start + before, width, keys)
            start += width
        read.check_empty()

    def _own_lanes(self, lanes: int) -> tuple[range, int, int]:
        """The lanes that this process reads, by how many processes they are read, and which of these it is."""
        rank, size = self.ranks.rank, self.ranks.size
        if size <= lanes:
            return range(*self.ranks.part(lanes)), 1, 0
        lane = rank * lanes // size
        sharers = [other for other in range(size) if other * lanes // size == lane]
        return range(lane, lane + 1), len(sharers), sharers.index(rank)

    def _in_turn(
        self, epoch: int, lanes: Sequence[int], sizes: Sequence[int]
    ) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
        """Blocks of several lanes, each of the one that is furthest behind, and which lane it is."""
        unread = {lane: self.data.source.blocks(epoch, lane) for lane in lanes}
        done = dict.fromkeys(unread, 0)
        while unread:
            lane = min(unread, key=lambda lane: done[lane] / sizes[lane])
            block = next(unread[lane], None)
            if block is None:
                del unread[lane]
                continue
            done[lane] += len(block[0])
            yield lane, block
            del block  # not held while the next is read

    def _batch(self, rows: list[Tensor], start: int, width: int, keys: Tensor | None) -> Batch:
        """The part of a batch of ``width`` rows that these are; the first of them is row ``start`` of the epoch."""
        data = self.data
        # A rank without a row takes one that does not count, so that it takes part in the step.
        counts = bool(rows) and len(rows[0]) > 0
        x, y, *weight = rows if counts else data.filler
        # Looked at where they are: on a device every look would wait for it.
        target = read_targets(y, data.outputs, data.loss, data.dtype, y.device).to(data.device)
        x = x.to(data.device)
        x = (x if data.feature_map is None else data.feature_map(x)).to(data.dtype)[None]
        if self.dropout is not None and keys is not None:
            x = self.dropout(x, keys, start * x.shape[2])
        share = torch.full((1, len(target)), 1.0 / width if counts else 0.0, dtype=data.dtype, device=data.device)
        if weight:
            share = share * weight[0].to(share)
        return Batch(x, target[None], share, float(width))


def shares(sizes: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """How many rows each lane gives to one batch after the other, so that all lanes come to their end together.

    ``sizes`` are the lanes' rows. After every batch a lane has given its share of all rows so far, up to rounding.

    >>> list(shares([4, 2, 0], 4))
    [[3, 1, 0], [1, 1, 0]]
    """
    total, taken = sum(sizes), [0] * len(sizes)
    for start in range(0, total, batch_size):
        width = min(batch_size, total - start)
        # What a lane owes, in parts of a row of which there are ``total``.
        owed = [size * (start + width) - rows * total for size, rows in zip(sizes, taken, strict=True)]
        counts = [max(0, each // total) for each in owed]
        while (wrong := width - sum(counts)) != 0:
            one = 1 if wrong > 0 else -1
            can = [lane for lane in range(len(sizes)) if 0 <= counts[lane] + one <= sizes[lane] - taken[lane]]
            counts[max(can, key=lambda lane: one * (owed[lane] - counts[lane] * total))] += one
        taken = [rows + count for rows, count in zip(taken, counts, strict=True)]
        yield counts


class _Lanes:
    """Rows of lanes that were read and not yet taken; ``rows`` are to come in the epoch."""

    def __init__(self, blocks: Iterator[tuple[int, tuple[Tensor, ...]]], rows: int, epoch: int) -> None:
        self._blocks, self._rows, self._epoch = blocks, rows, epoch
        self._held: defaultdict[int, deque[list[Tensor]]] = defaultdict(deque)
        self._read = 0

    def take(self, lane: int, count: int) -> list[Tensor]:
        """The next ``count`` rows of a lane."""
        held, parts = self._held[lane], []
        while count > 0:
            if not held:
                self._read_on()
                continue
            block = held.popleft()
            parts.append([tensor[:count] for tensor in block])
            if len(block[0]) > count:
                held.appendleft([tensor[count:] for tensor in block])
            count -= len(parts[-1][0])
        return _joined(parts)

    def check_empty(self) -> None:
        """ValueError where there are more rows than were to come."""
        if any(self._held.values()) or next(self._blocks, None) is not None:
            raise self._failure("more")

    def _read_on(self) -> None:
        found = next(self._blocks, None)
        if found is None:
            raise self._failure(str(self._read))
        lane, block = found
        self._read += len(block[0])
        self._held[lane].append(list(block))

    def _failure(self, got: str) -> ValueError:
        return ValueError(f"x must give its {self._rows} rows in every epoch, got {got} in epoch {self._epoch}")


def _joined(parts: Sequence[list[Tensor]]) -> list[Tensor]:
    """Some rows after the other, as one list of tensors; an empty one of none."""
    return [torch.cat(pieces) if len(pieces) > 1 else pieces[0] for pieces in zip(*parts, strict=True)]


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
