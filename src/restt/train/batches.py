"""The batches of an epoch, made on the device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from restt._common.seeds import bits, stream_keys
from restt.train.augment import Augmentation
from restt.train.dropout import SiteDropout
from restt.train.rows import FeatureFunction, Rows


@dataclass(frozen=True, eq=False)
class Batch:
    """One step's data. ``share`` is what each row counts: a run's loss is Σ_b share · loss of row b."""

    x: Tensor  # (S or 1, B, N, I)
    target: Tensor  # (S or 1, B, O)
    share: Tensor  # (S or 1, B), 0 for rows that only fill up
    rows: Tensor | float  # (S,) or one number for all: rows of each run in this batch

    def split(self, at_most: int | None) -> Iterator[Batch]:
        """The batch in pieces whose weighted losses add up to its own."""
        size = self.x.shape[1]
        step = size if at_most is None else at_most
        for start in range(0, size, step):
            piece = slice(start, start + step)
            yield Batch(self.x[:, piece], self.target[:, piece], self.share[:, piece], self.rows)


class Batches:
    """Each run's rows, epoch by epoch, in an order that only depends on its seed, its child number and the epoch.

    A run whose rows all fit into one batch keeps their order. Runs with fewer rows than others have fewer batches;
    in the steps they sit out, their rows have share 0.
    """

    def __init__(
        self,
        rows: Rows,
        batch_size: int | None,
        seeds: Sequence[int],
        run_ids: Sequence[int],
        feature_map: FeatureFunction | None = None,  # applied to each batch, after augmentation
        augment: Augmentation | None = None,
        dropout: SiteDropout | None = None,
    ) -> None:
        self.rows = rows
        self.longest = max(rows.sizes)
        self.batch_size = self.longest if batch_size is None else batch_size
        self.seeds, self.run_ids = seeds, run_ids
        self.feature_map, self.augment, self.dropout = feature_map, augment, dropout
        self.steps = tuple(math.ceil(size / self.batch_size) for size in rows.sizes)  # S
        device = rows.target.device
        self._sizes = torch.tensor(rows.sizes, device=device)[:, None]  # (S, 1)
        self._even = len(set(rows.sizes)) == 1

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of epoch ``epoch``."""
        keys = {
            purpose: stream_keys(self.seeds, self.run_ids, purpose, epoch, self.rows.target.device)
            for purpose, used in (("augment", self.augment), ("dropout", self.dropout))
            if used is not None
        }
        order = self.order(epoch)
        for step in range(max(self.steps)):
            start = step * self.batch_size
            chosen = None if order is None else order[:, start : start + self.batch_size]
            yield self._batch(chosen, start, keys)

    def order(self, epoch: int) -> Tensor | None:  # (S, longest)
        """Row numbers in the order of the epoch; None where every run takes all rows at once, as they are."""
        rows = self.rows
        if self.longest <= self.batch_size:
            return rows.index
        device = rows.target.device
        draws = bits(stream_keys(self.seeds, self.run_ids, "order", epoch, device), (self.longest,))
        place = torch.arange(self.longest, device=device)
        draws = draws.where(self._sizes > self.batch_size, place)
        draws = draws.where(place < self._sizes, torch.iinfo(torch.int64).max)
        order = draws.argsort(dim=1, stable=True)
        return order if rows.index is None else rows.index.gather(1, order)

    def _batch(self, chosen: Tensor | None, start: int, keys: dict[str, Tensor]) -> Batch:
        rows = self.rows
        if chosen is None:
            x, target = rows.x.unsqueeze(0), rows.target.unsqueeze(0)
            weight = None if rows.weight is None else rows.weight.unsqueeze(0)
        else:
            x, target = rows.x[chosen], rows.target[chosen]
            weight = None if rows.weight is None else rows.weight[chosen]
        if self.augment is not None:
            x = self.augment(x, keys["augment"], start)
        if self.feature_map is not None:
            x = self.feature_map(x.flatten(0, 1)).to(target.dtype).unflatten(0, x.shape[:2])
        if self.dropout is not None:
            x = self.dropout(x, keys["dropout"], start * x.shape[2])
        share, count = self._share(target, start)
        if weight is not None:
            assert rows.weight_scale is not None
            share = share * weight * rows.weight_scale
        return Batch(x, target, share, count)

    def _share(self, target: Tensor, start: int) -> tuple[Tensor, Tensor | float]:
        width = target.shape[1]
        if self._even:
            return torch.full((1, width), 1.0 / width, dtype=target.dtype, device=target.device), float(width)
        inside = torch.arange(start, start + width, device=target.device) < self._sizes  # (S, B)
        count = inside.sum(1, keepdim=True)
        share = inside.to(target.dtype) / count.clamp(min=1)
        return share, count[:, 0].to(target.dtype)
