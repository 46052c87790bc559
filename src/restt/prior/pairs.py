"""Covariances of pairs of rows out of tables over the states of each column, and the pull-back to the tables.

Every kernel of this package is ``s1 Π_n F1_n + s2 Π_n F2_n + s3 Π_n F3_n + s4 Σ_n A_n``, where the four entries of
column n are bilinear in the two rows' site vectors: tables (I_n, I_n, 4). A row of a number lies between two
neighbouring knots, so a site vector is a state and the share of the next one.

On the CPU a C function does it in one pass over half of the pairs, without an array of all pairs for any column
(pairs.c, built at first use); elsewhere, or without a compiler, torch does, a block of rows at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from restt.chain.cpu import build

SOURCE = Path(__file__).parent / "pairs.c"
# Entries of the largest array of a block of pairs that torch makes at once.
_BLOCK = 2**22
# Pairs times columns below which a second thread costs more than it saves.
_SERIAL = 5_000_000


@dataclass(frozen=True, eq=False)
class Rows:
    """Site vectors of a table's rows: in each column a state, and the share of the next one."""

    code: Tensor  # (B, N) int32
    share: Tensor  # (B, N) float64

    def __len__(self) -> int:
        return len(self.code)

    def take(self, rows: Tensor | slice) -> Rows:
        """Some of the rows."""
        return Rows(self.code[rows].contiguous(), self.share[rows].contiguous())

    def to(self, device: torch.device) -> Rows:
        """The rows on another device."""
        return Rows(self.code.to(device), self.share.to(device))

    def vectors(self, column: int, width: int) -> Tensor:  # (B, I)
        """Dense site vectors of one column."""
        found = self.share.new_zeros(len(self), width + 1)
        place = self.code[:, column, None].long()
        found.scatter_(1, place, 1 - self.share[:, column, None])
        found.scatter_add_(1, place + 1, self.share[:, column, None])
        return found[:, :width]


class _Pairs(ctypes.Structure):
    """``struct pairs`` of pairs.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("columns", "rows", "others", "symmetric", "first", "step")),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("offset", "width", "start", "code", "code2", "frac", "frac2"),
                *("table", "scale", "out", "grad", "grad_table", "grad_scale"),
            )
        ),
    ]


@torch.no_grad()
def covariance(tables: Sequence[Tensor], scale: Tensor, rows: Rows, others: Rows | None = None) -> Tensor:  # (B, B2)
    """The kernel between rows and others, or among the rows themselves."""
    library = _library(scale)
    if library is None:
        blocks = _blocks(rows, others, tables)
        return torch.cat([_combine(_factors(tables, mine, theirs), scale) for mine, theirs, _ in blocks])
    out = scale.new_empty(len(rows), len(rows if others is None else others))
    _call(library.pairs_forward, tables, scale, rows, others, out=out)
    return out


@torch.no_grad()
def pull_back(
    tables: Sequence[Tensor],  # N of (I_n, I_n, 4)
    scale: Tensor,  # (4,)
    rows: Rows,
    grad: Tensor,  # (B, B): by the covariance
) -> tuple[list[Tensor], Tensor]:  # N of (I_n, I_n, 4), (4,)
    """Gradients by the tables and by the scales of an objective of the rows' covariance."""
    library = _library(scale)
    if library is not None:
        return _call(library.pairs_backward, tables, scale, rows, None, grad=grad.contiguous())
    by_table = [torch.zeros_like(table) for table in tables]
    by_scale = torch.zeros_like(scale)
    for mine, theirs, place in _blocks(rows, None, tables):
        factors = _factors(tables, mine, theirs)  # (N, b, B, 4)
        before, after = torch.ones_like(factors), torch.ones_like(factors)
        before[1:, ..., :3] = factors[:-1, ..., :3].cumprod(0)
        after[:-1, ..., :3] = factors[1:, ..., :3].flip(0).cumprod(0).flip(0)
        by_scale[:3] += (factors[..., :3].prod(0) * grad[place, :, None]).sum((0, 1))
        by_scale[3] += (factors[..., 3].sum(0) * grad[place]).sum()
        slopes = before.mul_(after).mul_(grad[place, :, None] * scale)
        for n, table in enumerate(tables):
            left, right = mine.vectors(n, len(table)), theirs.vectors(n, len(table))
            by_table[n] += torch.einsum("bi,bck,cj->ijk", left, slopes[n], right)
    return by_table, by_scale


def _factors(tables: Sequence[Tensor], rows: Rows, others: Rows) -> Tensor:  # (N, B, B2, 4)
    return torch.stack(
        [
            torch.einsum("bi,ijk,cj->bck", rows.vectors(n, len(table)), table, others.vectors(n, len(table)))
            for n, table in enumerate(tables)
        ]
    )


def _combine(factors: Tensor, scale: Tensor) -> Tensor:  # (N, B, B2, 4) -> (B, B2)
    return factors[..., :3].prod(0) @ scale[:3] + factors[..., 3].sum(0) * scale[3]


def _blocks(rows: Rows, others: Rows | None, tables: Sequence[Tensor]) -> list[tuple[Rows, Rows, slice]]:
    theirs = rows if others is None else others
    step = max(1, _BLOCK // max(1, 4 * len(tables) * len(theirs)))
    places = (slice(start, start + step) for start in range(0, len(rows), step))
    return [(rows.take(place), theirs, place) for place in places]


def _library(scale: Tensor) -> ctypes.CDLL | None:
    return build.library(SOURCE) if scale.device.type == "cpu" else None


def _call(
    function: Callable[..., int],
    tables: Sequence[Tensor],
    scale: Tensor,
    rows: Rows,
    others: Rows | None,
    *,
    out: Tensor | None = None,
    grad: Tensor | None = None,
) -> tuple[list[Tensor], Tensor]:
    """Run one of the C functions on torch's number of threads, every so many rows in each."""
    theirs = rows if others is None else others
    widths = torch.tensor([len(table) for table in tables])
    states = int(widths.sum())
    offsets = widths.cumsum(0) - widths
    starts = widths.square().cumsum(0) - widths.square()
    flat = torch.cat([table.reshape(-1, 4) for table in tables])
    threads = torch.get_num_threads() if len(rows) * len(theirs) * len(tables) > _SERIAL else 1
    by_table = [flat.new_zeros(0)] * threads if grad is None else [torch.zeros_like(flat) for _ in range(threads)]
    by_scale = scale.new_zeros(threads, 4)
    held = [offsets, widths, starts, rows.code, theirs.code, rows.share, theirs.share, flat, scale, by_scale]

    def one(thread: int) -> int:
        given = _Pairs(
            *(len(tables), len(rows), len(theirs), others is None, thread, threads),
            *(tensor.data_ptr() for tensor in held[:9]),
            0 if out is None else out.data_ptr(),
            0 if grad is None else grad.data_ptr(),
            by_table[thread].data_ptr() if grad is not None else 0,
            by_scale[thread].data_ptr(),
        )
        return function(ctypes.byref(given), ctypes.c_int64(states))

    if threads == 1:
        failed = one(0)
    else:
        with ThreadPoolExecutor(threads) as pool:
            failed = max(pool.map(one, range(threads)))
    if failed:
        raise MemoryError("no memory for a line of states")
    if grad is None:
        return [], by_scale
    total = torch.stack(by_table).sum(0)
    parts = total.split([int(width) ** 2 for width in widths])
    return [part.reshape(table.shape) for part, table in zip(parts, tables, strict=True)], by_scale.sum(0)
