"""What a network sees: columns on a common scale, and the runs axis in front."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_choice

SCALINGS = ("none", "standard", "minmax", "shared")


def check_log_target(y: np.ndarray) -> None:
    """Refuse targets whose logarithm ``log_target`` cannot take."""
    if (y <= 0).any():
        raise ValueError(f"y must be above 0 where log_target is True, got {y.min():g}")


@dataclass(frozen=True, eq=False)
class Inputs:
    """(x - shift) / scale for each column, in float32; with ``bounded`` kept within [0, 1] also for new rows."""

    shift: np.ndarray  # (C,)
    scale: np.ndarray  # (C,)
    bounded: bool

    @classmethod
    def fit(cls, rows: np.ndarray, scaling: str = "none") -> Inputs:
        """The scaling, learned from rows (B, C).

        ``"standard"``: mean 0 and variance 1; ``"minmax"``: [0, 1], constant columns 0 in both. ``"shared"``: divided
        by the largest absolute value of all columns, so that pixels of any range become at most 1. ``"none"``: as they
        are.

        >>> Inputs.fit(np.array([[1.0], [3.0]]), "minmax")(np.array([[2.0], [9.0]])).tolist()
        [[0.5], [1.0]]
        """
        check_choice("scaling", scaling, SCALINGS)
        if scaling == "none":
            return cls(np.zeros(rows.shape[1]), np.ones(rows.shape[1]), False)
        if scaling == "shared":
            largest = np.abs(rows).max()
            return cls(np.zeros(rows.shape[1]), np.full(rows.shape[1], largest if largest > 0 else 1.0), False)
        if scaling == "standard":
            shift, scale = rows.mean(axis=0), rows.std(axis=0)
        else:
            shift, scale = rows.min(axis=0), np.ptp(rows, axis=0)
        # By the range: rounding leaves a constant column a tiny standard deviation, and dividing by that a huge input.
        constant = np.ptp(rows, axis=0) == 0
        return cls(np.where(constant, rows[0], shift), np.where(constant, 1.0, scale), scaling == "minmax")

    def __call__(self, rows: np.ndarray) -> Tensor:  # (B, C)
        values = torch.from_numpy((rows - self.shift) / self.scale).float()
        return values.clamp(0.0, 1.0) if self.bounded else values


def with_runs(
    x: Tensor,  # (B, …) or (S, B, …)
    runs: int,
    row: tuple[int, ...],  # shape of one row
) -> Tensor:  # (1 or S, B, …)
    """``x`` with the runs axis in front, of length 1 where all runs see the same rows.

    >>> import torch
    >>> with_runs(torch.zeros(5, 4), 3, (4,)).shape, with_runs(torch.zeros(3, 5, 4), 3, (4,)).shape
    (torch.Size([1, 5, 4]), torch.Size([3, 5, 4]))
    """
    leading, own = tuple(x.shape[: x.dim() - len(row)]), tuple(x.shape[x.dim() - len(row) :])
    if own != row or len(leading) not in (1, 2) or (len(leading) == 2 and leading[0] != runs):
        sizes = ", ".join(map(str, row))
        raise ValueError(f"x must have shape (B, {sizes}) or ({runs}, B, {sizes}), got {tuple(x.shape)}")
    return x if len(leading) == 2 else x.unsqueeze(0)
