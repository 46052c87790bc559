"""The shape every module with the runs axis takes."""

from __future__ import annotations

from torch import Tensor


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
