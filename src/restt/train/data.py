"""Training data in memory: rows on the device, the subset of each run, the batches of an epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import shown
from restt._common.ranks import ALONE, Ranks
from restt._common.seeds import bits, stream_keys
from restt.features.inputs import read_weights
from restt.train.augment import Augmentation, SiteDropout

FeatureMap = Callable[[Tensor], Tensor]  # raw values (M, …) -> site vectors (M, N, I)


@dataclass(frozen=True, eq=False)
class RunData:
    """M rows on the device and the subset of each of S runs."""

    x: Tensor  # (M, N, I) features, or raw values (M, …) with a feature map
    target: Tensor  # (M, O)
    weight: Tensor | None  # (M,)
    index: Tensor | None  # (S, longest subset), filled up with row 0; None where every run sees all rows
    sizes: tuple[int, ...]  # S: length of each run's subset
    weight_scale: Tensor | None  # (S, 1): 1 / mean weight of the run's rows
    feature_map: FeatureMap | None = None  # from raw values to features, for the rows of one batch at a time

    def keep(self, runs: Sequence[int]) -> RunData:
        """Keep some of the runs."""
        chosen = list(runs)
        return replace(
            self,
            index=None if self.index is None else self.index[chosen],
            sizes=tuple(self.sizes[run] for run in chosen),
            weight_scale=None if self.weight_scale is None else self.weight_scale[chosen],
        )

    def batches(self, *arguments: Any) -> Batches:
        """Make the batches of an epoch; ``arguments`` are those of :class:`Batches` but the rows."""
        return Batches(self, *arguments)

    def tensors(self) -> dict[str, Any]:
        """All that fixes the rows of each run, by the names a user knows."""
        named = {"x": self.x, "y": self.target, "sample_weight": self.weight, "subset": self.index}
        return {**named, "rows per run": self.sizes}

    def take(
        self,
        chosen: Tensor | None,  # (S or 1, B) row numbers; None takes all rows as they are
        part: slice = slice(None),
    ) -> tuple[Tensor, Tensor, Tensor | None]:  # (S or 1, B, …) each
        """Values, targets and weights of these rows, or of a ``part`` of them."""
        rows: Any = (None, part) if chosen is None else chosen[:, part]
        return self.x[rows], self.target[rows], None if self.weight is None else self.weight[rows]

    def features(self, values: Tensor) -> Tensor:  # (S or 1, B, …) -> (S or 1, B, N, I)
        """Features of rows that were taken."""
        if self.feature_map is None:
            return values
        return self.feature_map(values.flatten(0, 1)).to(self.target.dtype).unflatten(0, values.shape[:2])


def read_data(
    x: Tensor,  # (M, …)
    target: Tensor,  # (M, O)
    weight: Any,  # (M,) or None
    subset: Any,  # (S, m), a list of S index tensors, or None
    runs: int,
    name: str = "subset",
    feature_map: FeatureMap | None = None,
) -> RunData:
    """Check data; everything is on ``target``'s device."""
    if len(x) != len(target):
        raise ValueError(f"x and y must have the same number of rows, got {len(x)} and {len(target)}")
    if len(x) == 0:
        raise ValueError("x must have at least one row, got none")
    index, sizes = _read_subset(subset, len(x), runs, name)
    index = None if index is None else index.to(target.device)
    weight = None if weight is None else read_weights(weight, len(x)).to(target.device)
    scale = None
    if weight is not None:
        inside = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]  # (S, m)
        own = weight.expand(runs, -1) if index is None else weight[index] * inside.to(weight.device)
        mean = own.sum(1, keepdim=True) / torch.tensor(sizes, device=weight.device)[:, None]
        if bool((mean <= 0).any()):
            raise ValueError("sample_weight must be above 0 for at least one row of every run, got a run without any")
        scale = (1 / mean).to(target.dtype)
        weight = weight.to(target.dtype)
    return RunData(x, target, weight, index, sizes, scale, feature_map)


def read_x(x: Any, dtype: torch.dtype, device: torch.device, name: str = "x") -> Tensor:
    """Check ``x`` and move it to the device."""
    values = torch.as_tensor(x)
    if values.dim() < 2:
        raise ValueError(f"{name} must have shape (M, N) or (M, N, I), got {tuple(values.shape)}")
    values = values.to(device, dtype)
    if not bool(values.isfinite().all()):
        raise ValueError(f"{name} must be finite, got NaN or infinite values")
    return values


@dataclass(frozen=True, eq=False)
class Batch:
    """One step's data. ``share`` weighs each row: a run's loss is Σ_b share · loss of row b."""

    x: Tensor  # (S or 1, B, N, I)
    target: Tensor  # (S or 1, B, O)
    share: Tensor  # (S or 1, B), 0 for rows that only fill up
    count: Tensor | float  # (S,) or one number for all: rows of each run in this batch


class Batches:
    """Each run's rows, epoch by epoch, in an order that only depends on its seed, its child number and the epoch.

    A run whose rows all fit into one batch keeps their order. Runs with fewer rows than others have fewer batches;
    in the steps they sit out, their rows have share 0. Each of several processes makes its own part of every batch.
    """

    def __init__(
        self,
        data: RunData,
        batch_size: int | None,
        seeds: Sequence[int],
        run_ids: Sequence[int],
        augment: Augmentation | None = None,  # of raw values, before their map
        dropout: SiteDropout | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.data, self.ranks = data, ranks
        self.longest = max(data.sizes)
        self.batch_size = self.longest if batch_size is None else batch_size
        self.seeds, self.run_ids = seeds, run_ids
        self.augment, self.dropout = augment, dropout
        self.steps = tuple(math.ceil(size / self.batch_size) for size in data.sizes)  # S
        device = data.target.device
        self._sizes = torch.tensor(data.sizes, device=device)[:, None]  # (S, 1)
        self._even = len(set(data.sizes)) == 1
        self._whole: Batch | None = None  # all rows as one batch, which is the same in every epoch

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Yield the batches of an epoch."""
        if self._whole is not None:
            yield self._whole
            return
        keys = {
            purpose: stream_keys(self.seeds, self.run_ids, purpose, epoch, self.data.target.device)
            for purpose, used in (("augment", self.augment), ("dropout", self.dropout))
            if used is not None
        }
        order = self.order(epoch)
        for step in range(max(self.steps)):
            start = step * self.batch_size
            chosen = None if order is None else order[:, start : start + self.batch_size]
            batch = self._batch(chosen, start, keys)
            if self.longest <= self.batch_size and self.augment is None and self.dropout is None:
                self._whole = batch
            yield batch

    def order(self, epoch: int) -> Tensor | None:  # (S, longest)
        """Row numbers in the order of the epoch; None where every run takes all rows at once, as they are."""
        data = self.data
        if self.longest <= self.batch_size:
            return data.index
        device = data.target.device
        draws = bits(stream_keys(self.seeds, self.run_ids, "order", epoch, device), (self.longest,))
        place = torch.arange(self.longest, device=device)
        draws = draws.where(self._sizes > self.batch_size, place)
        draws = draws.where(place < self._sizes, torch.iinfo(torch.int64).max)
        order = draws.argsort(dim=1, stable=True)
        return order if data.index is None else data.index.gather(1, order)

    def _batch(self, chosen: Tensor | None, start: int, keys: dict[str, Tensor]) -> Batch:
        data = self.data
        width = self.longest if chosen is None else chosen.shape[1]
        begin, end = self.ranks.part(width)
        # A rank without a row takes one that does not count, so that it takes part in the step.
        own = slice(begin, end) if begin < end else slice(0, 1)
        x, target, weight = data.take(chosen, own)
        if self.augment is not None:
            x = self.augment(x, keys["augment"], start + own.start)
        x = data.features(x)
        if self.dropout is not None:
            x = self.dropout(x, keys["dropout"], (start + own.start) * x.shape[2])
        share, count = self._share(target, start, width)
        share = share[:, own] if begin < end else share[:, own] * 0
        if weight is not None:
            assert data.weight_scale is not None
            share = share * weight * data.weight_scale
        return Batch(x, target, share, count)

    def _share(self, target: Tensor, start: int, width: int) -> tuple[Tensor, Tensor | float]:
        """Weights of the batch's ``width`` rows, and how many of each run's own are among them."""
        if self._even:
            return torch.full((1, width), 1.0 / width, dtype=target.dtype, device=target.device), float(width)
        inside = torch.arange(start, start + width, device=target.device) < self._sizes  # (S, B)
        count = inside.sum(1, keepdim=True)
        share = inside.to(target.dtype) / count.clamp(min=1)
        return share, count[:, 0].to(target.dtype)


def _read_subset(subset: Any, rows: int, runs: int, name: str) -> tuple[Tensor | None, tuple[int, ...]]:
    if subset is None:
        return None, (rows,) * runs
    parts = list(subset)
    if len(parts) != runs:
        raise ValueError(f"{name} must hold row numbers for each of the {runs} run(s), got {len(parts)}")
    indices = [torch.as_tensor(part).cpu() for part in parts]
    for run, part in enumerate(indices):
        if part.dim() != 1 or part.dtype.is_floating_point or part.dtype == torch.bool:
            raise TypeError(f"{name} must hold row numbers, got {shown(part)} of {part.dtype} for run {run}")
        if len(part) == 0:
            raise ValueError(f"{name} must name at least one row for every run, got none for run {run}")
        if int(part.min()) < 0 or int(part.max()) >= rows:
            raise ValueError(
                f"{name} must hold row numbers 0 … {rows - 1}, got {int(part.min())} … {int(part.max())} for run {run}"
            )
    sizes = tuple(len(part) for part in indices)
    return torch.nn.utils.rnn.pad_sequence([part.long() for part in indices], batch_first=True), sizes
