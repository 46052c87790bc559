"""Covariances of pairs of rows out of tables over the states of each column, and the pull-back to the tables.

Every kernel of this package is ``s1 Π_n F1_n + s2 Π_n F2_n + s3 Π_n F3_n + s4 Σ_n A_n``, where the four entries of
column n are bilinear in the two rows' site vectors: tables (I_n, I_n, 4). A row of a number lies between two
neighbouring knots, so a site vector is a state and the share of the next one.

On the CPU a C function does it in one pass over half of the pairs, without an array of all pairs for any column
(pairs.c, built at first use); elsewhere, or without a compiler, torch does, a block of rows at a time.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from restt._common.devices import in_threads
from restt.chain.cpu import build

SOURCE = Path(__file__).parent / "pairs.c"
# Entries of the arrays of a block of pairs that torch makes at once: small enough for a cache, and 2 GB on a GPU, whose
# time goes into launches.
_BLOCK, _DEVICE_BLOCK = 2**22, 2**28
# Pairs times columns below which a second thread costs more than it saves.
_SERIAL = 1_000_000
# Rows of a symmetric matrix whose upper half is copied at once.
_MIRRORED = 256


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


@dataclass(frozen=True, eq=False)
class Tables:
    """Tables (I_n, I_n, 4) of all columns in one array."""

    flat: Tensor  # (entries, 4)
    widths: tuple[int, ...]  # N: I_n
    starts: tuple[int, ...]  # N: the first entry of each

    @classmethod
    def of(cls, tables: Sequence[Tensor]) -> Tables:  # N of (I_n, I_n, 4)
        """Tables one after the other."""
        widths = tuple(len(table) for table in tables)
        ends = itertools.accumulate(width**2 for width in widths)
        starts = tuple(end - width**2 for end, width in zip(ends, widths, strict=True))
        return cls(torch.cat([table.reshape(-1, 4) for table in tables]), widths, starts)

    def split(self, flat: Tensor | None = None) -> list[Tensor]:  # N of (I_n, I_n, 4)
        """The tables of each column, or parts of an array like theirs."""
        flat = self.flat if flat is None else flat
        places = zip(self.starts, self.widths, strict=True)
        return [flat[start : start + width**2].reshape(width, width, 4) for start, width in places]


class _Pairs(ctypes.Structure):
    """``struct pairs`` of pairs.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("columns", "rows", "others", "half", "first", "step")),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("offset", "width", "start", "code", "code2", "frac", "frac2"),
                *("table", "scale", "out", "grad", "grad_table", "grad_scale"),
            )
        ),
    ]


@torch.no_grad()
def covariance(
    tables: Tables, scale: Tensor, rows: Rows, others: Rows | None = None, half: bool = False
) -> Tensor:  # (B, B2)
    """The kernel between rows and others, or among the rows: with ``half`` their upper half may be anything."""
    library = _library(scale)
    if library is None:
        parts = tables.split()
        left = [rows.vectors(n, len(table)) for n, table in enumerate(parts)]
        right = left if others is None else [others.vectors(n, len(table)) for n, table in enumerate(parts)]
        blocks = _blocks(len(rows), 4 * len(right[0]), scale)
        return torch.cat([_block_covariance(parts, scale, [x[block] for x in left], right) for block in blocks])
    out = scale.new_empty(len(rows), len(rows if others is None else others))
    _call(library.pairs_forward, tables, scale, rows, others, out=out)
    return out if half or others is not None else _mirrored(out)


def _mirrored(lower: Tensor) -> Tensor:  # (B, B)
    """The symmetric matrix of a lower half, in its place."""
    for start in range(0, len(lower), _MIRRORED):
        own, after = slice(start, start + _MIRRORED), slice(start + _MIRRORED, None)
        lower[own, own] = lower[own, own].tril() + lower[own, own].tril(-1).T
        lower[own, after] = lower[after, own].T
    return lower


@torch.no_grad()
def pull_back(
    tables: Tables,
    scale: Tensor,  # (4,)
    rows: Rows,
    grad: Tensor,  # (B, B), symmetric: by the covariance; its lower half is read
) -> tuple[Tensor, Tensor]:  # (entries, 4), (4,)
    """Gradients by the tables and by the scales of an objective of the rows' covariance."""
    library = _library(scale)
    if library is not None:
        return _call(library.pairs_backward, tables, scale, rows, None, grad=grad.contiguous())
    grad = grad.tril() + grad.tril(-1).T
    parts, by_table, by_scale = tables.split(), torch.zeros_like(tables.flat), torch.zeros_like(scale)
    by_part = tables.split(by_table)
    vectors = [rows.vectors(n, len(table)) for n, table in enumerate(parts)]
    for block in _blocks(len(rows), 12 * len(parts) * len(rows), scale):
        left, slope = [x[block] for x in vectors], grad[block]
        factors = torch.stack([_bilinear(table, x, y) for table, x, y in zip(parts, left, vectors, strict=True)])
        before, after = torch.ones_like(factors), torch.ones_like(factors)  # (N, 4, b, B)
        before[1:, :3] = factors[:-1, :3].cumprod(0)
        after[:-1, :3] = factors[1:, :3].flip(0).cumprod(0).flip(0)
        by_scale[:3] += (before[-1, :3] * factors[-1, :3] * slope).sum((1, 2))
        by_scale[3] += (factors[:, 3].sum(0) * slope).sum()
        by_factor = before.mul_(after).mul_(scale[:, None, None] * slope)
        for part, x, y, own in zip(by_part, left, vectors, by_factor, strict=True):
            part += (x.T @ own @ y).permute(1, 2, 0)
    return by_table, by_scale


def _bilinear(table: Tensor, left: Tensor, right: Tensor) -> Tensor:  # (I, I, 4), (b, I), (B, I) -> (4, b, B)
    return left @ table.permute(2, 0, 1) @ right.T


def _block_covariance(
    tables: Sequence[Tensor], scale: Tensor, left: Sequence[Tensor], right: Sequence[Tensor]
) -> Tensor:  # (b, B)
    products, sums = scale[:3, None, None], scale.new_zeros(())
    for table, x, y in zip(tables, left, right, strict=True):
        factor = _bilinear(table, x, y)
        products, sums = products * factor[:3], sums + factor[3]
    return products.sum(0).add_(scale[3] * sums)


def _blocks(rows: int, entries: int, like: Tensor) -> list[slice]:
    """Slices of rows, each of which needs so many entries, that fit into the largest array."""
    step = max(1, (_BLOCK if like.device.type == "cpu" else _DEVICE_BLOCK) // max(1, entries))
    return [slice(start, start + step) for start in range(0, rows, step)]


def _library(scale: Tensor) -> ctypes.CDLL | None:
    return build.library(SOURCE) if scale.device.type == "cpu" else None


@cache
def _places(widths: tuple[int, ...], starts: tuple[int, ...]) -> Tensor:  # (3, N)
    """First state of each column among all states, number of states, and first entry of its table."""
    offsets = [end - width for end, width in zip(itertools.accumulate(widths), widths, strict=True)]
    return torch.tensor([offsets, widths, starts])


def _call(
    function: Callable[..., int],
    tables: Tables,
    scale: Tensor,
    rows: Rows,
    others: Rows | None,
    *,
    out: Tensor | None = None,
    grad: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run one of the C functions on torch's number of threads, every so many rows in each."""
    theirs, columns = rows if others is None else others, len(tables.widths)
    flat = tables.flat.contiguous()
    threads = torch.get_num_threads() if len(rows) * len(theirs) * columns > _SERIAL else 1
    by_table = flat.new_zeros(threads, *(flat.shape if grad is not None else ()))
    by_scale = scale.new_zeros(threads, 4)
    places = _places(tables.widths, tables.starts)
    held = [*places, rows.code, theirs.code, rows.share, theirs.share, flat, scale]

    def one(thread: int) -> int:
        given = _Pairs(
            *(columns, len(rows), len(theirs), others is None, thread, threads),
            *(tensor.data_ptr() for tensor in held),
            0 if out is None else out.data_ptr(),
            0 if grad is None else grad.data_ptr(),
            by_table[thread].data_ptr(),
            by_scale[thread].data_ptr(),
        )
        return function(ctypes.byref(given), ctypes.c_int64(sum(tables.widths)))

    if any(in_threads(one, range(threads), threads)):
        raise MemoryError("no memory for a line of states")
    return (by_table[0], by_scale[0]) if threads == 1 else (by_table.sum(0), by_scale.sum(0))
