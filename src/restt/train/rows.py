"""Training data on the device: rows, targets, weights, and which rows each run sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import shown

FeatureFunction = Callable[[Tensor], Tensor]

# Rows mapped to features at once, so that the map's scratch stays small beside the data.
ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Rows:
    """M rows on the device and, for each of S runs, which of them are its own."""

    x: Tensor  # (M, N, I) features, or raw values (M, …) where each batch is augmented first
    target: Tensor  # (M, O)
    weight: Tensor | None  # (M,)
    index: Tensor | None  # (S, longest subset), filled up with row 0; None where every run sees all rows
    sizes: tuple[int, ...]  # S: length of each run's subset
    weight_scale: Tensor | None  # (S, 1): 1 / mean weight of the run's rows

    @property
    def runs(self) -> int:
        return len(self.sizes)

    def keep(self, runs: Sequence[int]) -> Rows:
        """The same rows for some of the runs."""
        chosen = list(runs)
        return replace(
            self,
            index=None if self.index is None else self.index[chosen],
            sizes=tuple(self.sizes[run] for run in chosen),
            weight_scale=None if self.weight_scale is None else self.weight_scale[chosen],
        )


def read_rows(
    x: Tensor,  # (M, …)
    target: Tensor,  # (M, O)
    weight: Any,  # (M,) or None
    subset: Any,  # (S, m), a list of S index tensors, or None
    runs: int,
    name: str = "subset",
) -> Rows:
    """Checked rows; everything is on ``target``'s device."""
    if len(x) != len(target):
        raise ValueError(f"x and y must have the same number of rows, got {len(x)} and {len(target)}")
    if len(x) == 0:
        raise ValueError("x must have at least one row, got none")
    index, sizes = _read_subset(subset, len(x), runs, name)
    index = None if index is None else index.to(target.device)
    weight = None if weight is None else _read_weight(weight, len(x)).to(target.device)
    scale = None
    if weight is not None:
        inside = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]  # (S, m)
        own = weight.expand(runs, -1) if index is None else weight[index] * inside.to(weight.device)
        mean = own.sum(1, keepdim=True) / torch.tensor(sizes, device=weight.device)[:, None]
        if bool((mean <= 0).any()):
            raise ValueError("sample_weight must be above 0 for at least one row of every run, got a run without any")
        scale = (1 / mean).to(target.dtype)
        weight = weight.to(target.dtype)
    return Rows(x, target, weight, index, sizes, scale)


def read_x(x: Any, dtype: torch.dtype, device: torch.device, name: str = "x") -> Tensor:
    """``x`` as a finite tensor on the device."""
    values = torch.as_tensor(x)
    if values.dim() < 2:
        raise ValueError(f"{name} must have shape (M, N) or (M, N, I), got {tuple(values.shape)}")
    values = values.to(device, dtype)
    if not bool(values.isfinite().all()):
        raise ValueError(f"{name} must be finite, got NaN or infinite values")
    return values


def mapped(x: Tensor, feature_map: FeatureFunction | None, dtype: torch.dtype) -> Tensor:  # (M, N, I)
    """The features of all rows; ``x`` itself without a map."""
    if feature_map is None or len(x) == 0:
        return x
    return torch.cat([feature_map(chunk).to(dtype) for chunk in x.split(ROWS_AT_ONCE)])


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


def _read_weight(weight: Any, rows: int) -> Tensor:
    values = torch.as_tensor(weight)
    if tuple(values.shape) != (rows,):
        raise ValueError(f"sample_weight must have shape ({rows},), one per row of x, got {tuple(values.shape)}")
    values = values.double()
    if not bool(values.isfinite().all()) or bool((values < 0).any()):
        raise ValueError("sample_weight must be finite and at least 0")
    return values
