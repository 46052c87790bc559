"""Sums of products over sites, Σ_j c_j Π_n φ_n(j)·x(n), and their gradient by x, in blocks of bounded memory.

With z = T_n x(n) the factor of state (g, r) is (1 - share)·z[g, code] + share·z[g, code + 1]. The gradient is
∂/∂v_n(j) = c_j Π_{m<n} v_m Π_{m>n} v_m, two running products, gathered back to z and from there to x(n).

On the CPU a C function does it for a chunk of rows of x at a time (products.c, built at first use); elsewhere, in other
types, or without a compiler, torch does, a block of rows of x and of states at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from restt._common.devices import in_threads
from restt.chain.cpu import build

SOURCE = Path(__file__).parent / "products.c"
# Rows of x at once: their lines of z stay in the cache in C; blocks of torch are bounded by numbers too.
_CHUNK, _LARGEST_BATCH, _BLOCK = 64, 512, 2**19
# Factors below which a second thread costs more than it saves.
_SERIAL = 2_000_000


@dataclass(frozen=True, eq=False)
class Factors:
    """The factors of G·R products: in each site a row has a code and the share of the next vector of its table."""

    tables: Sequence[Tensor]  # N of (G, M_n, I_n)
    code: Tensor  # (R, N) int32
    share: Tensor  # (R, N)
    coefficients: Tensor  # (G, R, O)

    @property
    def groups(self) -> int:
        """Number of groups G."""
        return self.coefficients.shape[0]

    @property
    def rows(self) -> int:
        """Number of rows R."""
        return self.coefficients.shape[1]

    @property
    def outputs(self) -> int:
        """Number of outputs O."""
        return self.coefficients.shape[2]

    def memberships(self, site: int, rows: slice) -> Tensor:  # (R, M_n)
        """Share of each factor vector in each row."""
        code, share = self.code[rows, site, None].long(), self.share[rows, site, None]
        shares = share.new_zeros(len(code), self.tables[site].shape[1] + 1)
        return shares.scatter_(1, code, 1 - share).scatter_add_(1, code + 1, share)[:, :-1]

    def seen(self, x: Tensor) -> list[Tensor]:  # (B, N, I) -> N of (G, M_n, B)
        """Products of all factor vectors with x."""
        return [table @ x[:, n, : table.shape[2]].T for n, table in enumerate(self.tables)]

    def by_sites(self, back: Sequence[Tensor], x: Tensor) -> Tensor:  # N of (G, M_n, B) -> (B, N, I)
        """The gradient by x from the gradient by what the factor vectors see."""
        gradient = torch.zeros_like(x)
        for n, (table, part) in enumerate(zip(self.tables, back, strict=True)):
            gradient[:, n, : table.shape[2]] = part.flatten(0, 1).T @ table.flatten(0, 1)
        return gradient


def sum_of_products(x: Tensor, factors: Factors) -> Tensor:  # (B, N, I) -> (B, O)
    """Σ_j c_j Π_n φ_n(j)·x(n); gradients flow to x, once."""
    output: Tensor = _Products.apply(x, factors)
    return output


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factors: Factors) -> Tensor:
        ctx.save_for_backward(x)
        ctx.factors = factors
        return torch.cat([x.new_zeros(0, factors.outputs), *_forward(x, factors)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return torch.cat([torch.zeros_like(x[:0]), *_backward(x, grad, ctx.factors)]), None


def _forward(x: Tensor, factors: Factors) -> list[Tensor]:  # of (B, O)
    library = _library(x)
    if library is not None:
        return [out.T for _, out, _ in _called(library.products_forward, factors, x.split(_CHUNK))]
    parts = []
    for chunk in x.split(_batch(factors)):
        seen = factors.seen(chunk)
        blocks = (_block(factors, rows, seen) for rows in _row_blocks(factors, 2 * len(chunk)))
        parts.append(sum(blocks, x.new_zeros(())))
    return parts


def _backward(x: Tensor, grad: Tensor, factors: Factors) -> list[Tensor]:  # (B, N, I), (B, O) -> of (B, N, I)
    library = _library(x)
    if library is not None:
        grads = [part.T.contiguous() for part in grad.split(_CHUNK)]
        called = _called(library.products_backward, factors, x.split(_CHUNK), grads)
        return [factors.by_sites(back, chunk) for chunk, _, back in called]
    parts, step = [], _batch(factors)
    for chunk, chunk_grad in zip(x.split(step), grad.split(step), strict=True):
        seen = [z.requires_grad_() for z in factors.seen(chunk)]
        back = [torch.zeros_like(z) for z in seen]
        for rows in _row_blocks(factors, 2 * len(seen) * len(chunk)):
            with torch.enable_grad():
                output = _block(factors, rows, seen)
            for total, part in zip(back, torch.autograd.grad(output, seen, chunk_grad), strict=True):
                total += part
        parts.append(factors.by_sites(back, chunk))
    return parts


def _block(factors: Factors, rows: slice, seen: list[Tensor]) -> Tensor:  # (B, O)
    """The sum over a block of rows, from the products of all factor vectors with x."""
    state = torch.ones_like(seen[0][:1, :1])
    for n, z in enumerate(seen):
        state = state * (factors.memberships(n, rows) @ z)
    return torch.einsum("grb,gro->bo", state, factors.coefficients[:, rows])


def _batch(factors: Factors) -> int:
    lines = sum(table.shape[0] * table.shape[1] for table in factors.tables)
    return max(1, min(_LARGEST_BATCH, 4 * _BLOCK // lines))


def _row_blocks(factors: Factors, numbers: int) -> Iterator[slice]:
    step = max(16, _BLOCK // (factors.groups * max(1, numbers)))
    return (slice(start, min(factors.rows, start + step)) for start in range(0, factors.rows, step))


class _Given(ctypes.Structure):
    """``struct products`` of products.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("sites", "rows", "groups", "outputs", "batch")),
        *(
            (name, ctypes.c_void_p)
            for name in ("start", "count", "code", "share", "coefficients", "z", "out", "grad", "back")
        ),
    ]


def _library(x: Tensor) -> ctypes.CDLL | None:
    return build.library(SOURCE) if x.device.type == "cpu" and x.dtype == torch.float64 else None


def _called(
    function: Any,
    factors: Factors,
    chunks: Sequence[Tensor],  # of (B, N, I)
    grads: Sequence[Tensor] | None = None,  # of (O, B)
) -> list[tuple[Tensor, Tensor, list[Tensor]]]:
    """Run one of the C functions for every chunk of x, on torch's number of threads: chunk, out (O, B), back."""
    sizes = [table.shape[0] * table.shape[1] for table in factors.tables]
    start = torch.tensor([0, *sizes]).cumsum(0)[:-1].contiguous()
    count = torch.tensor([table.shape[1] for table in factors.tables])
    inputs = [start, count, factors.code, factors.share, factors.coefficients]

    def call(place: int) -> tuple[Tensor, Tensor, list[Tensor]]:
        x = chunks[place]
        # One line more than there are is read where a code is the last, with the share 0.
        z = torch.cat([*(seen.flatten(0, 1) for seen in factors.seen(x)), x.new_zeros(1, len(x))])
        out = x.new_zeros(factors.outputs, len(x))
        back = None if grads is None else torch.zeros_like(z)
        lines = [tensor.data_ptr() for tensor in inputs]
        pointers = [z.data_ptr(), out.data_ptr(), 0, 0]
        if grads is not None and back is not None:
            pointers[2:] = grads[place].data_ptr(), back.data_ptr()
        sites = len(factors.tables)
        given = _Given(sites, factors.rows, factors.groups, factors.outputs, len(x), *lines, *pointers)
        if function(ctypes.byref(given)):
            raise MemoryError("no memory for the factors of one product")
        parts = [] if back is None else list(back[:-1].split(sizes))
        shapes = [(*table.shape[:2], len(x)) for table in factors.tables]
        return x, out, [part.view(shape) for part, shape in zip(parts, shapes, strict=False)]

    places = range(len(chunks))
    work = sum(map(len, chunks)) * factors.groups * factors.rows * len(factors.tables)
    threads = min(torch.get_num_threads(), len(places)) if work > _SERIAL else 1
    return in_threads(call, places, threads)
