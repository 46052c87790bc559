"""Tables over the states of columns of numbers, from a few parameters a column; letters are those of kernel.py.

On the CPU a C function makes them, and one takes gradients by the tables back to the parameters (columns.c, built at
first use); elsewhere, or without a compiler, torch does both.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from restt.chain.cpu import build
from restt.prior.sites import Site

SOURCE = Path(__file__).parent / "columns.c"
# Less variance is that of a column of one value.
LEAST_VARIANCE = 1e-12


class NumberColumns:
    """Columns of numbers, whose covariances are centred under the rows of a fit and have a mean variance of 1.

    Parameters
    ----------
    sites : K of them
    means : K of (I_k,)
        Mean site vectors of the rows.
    moments : K of (I_k, I_k)
        Their second moments.
    like : Tensor
        Whose type and device are used.
    """

    def __init__(self, sites: Sequence[Site], means: Sequence[Tensor], moments: Sequence[Tensor], like: Tensor) -> None:
        self.width = max([site.width for site in sites], default=0)
        count = len(sites)
        self.value, self._further, self._mean = (like.new_zeros(count, self.width) for _ in range(3))
        self._moment = like.new_zeros(count, self.width, self.width)
        self._knots = torch.tensor([len(site.positions) for site in sites], dtype=torch.int64, device=like.device)
        for k, (site, mean, moment) in enumerate(zip(sites, means, moments, strict=True)):
            seen, knots = site.width, len(site.positions)
            self.value[k, :knots] = like.new_tensor(site.values)
            # From a value to its rank: a position is half of each.
            self._further[k, :knots] = 2 * (like.new_tensor(site.positions) - self.value[k, :knots])
            self._mean[k, :seen], self._moment[k, :seen, :seen] = mean, moment

    def tables(self, parameters: Tensor) -> Tensor:  # (9, K) -> (K·I·I, 4)
        """Factors of the three products and the sum's term for each pair of states.

        Parameters of a column: its sizes in the five terms a, j, b, r and w, one over the smooth and over the rough
        length, the share of a straight line, and that of the rank in its position.
        """
        library = build.library(SOURCE) if parameters.device.type == "cpu" else None
        return self.in_torch(parameters) if library is None else _Compiled.apply(parameters, self, library)

    def in_torch(self, parameters: Tensor) -> Tensor:  # (9, K) -> (K·I·I, 4)
        """Make the tables of :meth:`tables` without the C function."""
        a, j, b, r, w, length, rough_length, share, mix = parameters[..., None, None]  # (K, 1, 1)
        place = self.value + mix[..., 0] * self._further
        far = place[:, :, None] - place[:, None, :]
        square = far.square()
        both = torch.stack([(-0.5 * length.square() * square).exp(), (-rough_length * far.abs()).exp()])
        known, same, apart = self._kinds
        smooth, rough = self._unit(torch.where(known, both, same)).unbind()
        smooth = torch.lerp(smooth, self._line, share)
        joint = (-0.5 * w * (square + apart)).exp()
        return torch.stack([1 + a * smooth, 1 + j * rough, joint, b * smooth + r * rough], -1).reshape(-1, 4)

    def _unit(self, table: Tensor) -> Tensor:  # (…, K, I, I): centred, mean variance 1
        means = (table @ self._mean[:, :, None])[..., 0]
        whole = (means * self._mean).sum(-1)[..., None, None]
        table = table - means[..., :, None] - means[..., None, :] + whole
        variance = (self._moment * table).sum((-2, -1))
        scale = torch.where(variance > LEAST_VARIANCE, 1 / variance.clamp(min=LEAST_VARIANCE), 0.0)
        return table * scale[..., None, None]

    @cached_property
    def _kinds(self) -> tuple[Tensor, Tensor, Tensor]:  # (K, I, I) bool, (K, I, I), (K, I, I)
        """Pairs of knots, a missing value with itself, and a missing value with a knot.

        A missing value is as far from the middle as others, in a direction of its own.
        """
        is_knot = torch.arange(self.width, device=self._knots.device) < self._knots[:, None]
        known = is_knot[:, :, None] & is_knot[:, None, :]
        same = torch.eye(self.width, dtype=torch.bool, device=known.device) & ~known
        return known, same.to(self.value), (~(known | same)).to(self.value)

    @cached_property
    def _line(self) -> Tensor:  # (K, I, I)
        return self._unit(self.value[:, :, None] * self.value[:, None, :])

    def call(self, function: Callable[..., int], parameters: Tensor, *results: Tensor | None) -> None:
        """Run one of the C functions on a table, covariances kept, and the gradients by a table and the parameters."""
        inputs = (self._knots, self.value, self._further, self._mean, self._moment, self._line, parameters)
        pointers = [0 if one is None else one.data_ptr() for one in (*inputs, *results)]
        given = _Columns(len(self._knots), self.width, LEAST_VARIANCE, *pointers)
        if function(ctypes.byref(given)):
            raise MemoryError("no memory for the tables of a column")


class _Columns(ctypes.Structure):
    """``struct columns`` of columns.c."""

    _fields_ = [
        ("columns", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("least", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("knots", "value", "further", "mean", "moment", "line", "parameters")),
        *((name, ctypes.c_void_p) for name in ("table", "kept", "grad", "by")),
    ]


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameters: Tensor, columns: NumberColumns, library: ctypes.CDLL) -> Tensor:
        given, entries = parameters.detach().contiguous(), len(columns.value) * columns.width**2
        table, kept = given.new_empty(entries, 4), given.new_empty(2 * entries)
        columns.call(library.columns_forward, given, table, kept, None, None)
        ctx.columns, ctx.library = columns, library
        ctx.save_for_backward(given, table, kept)
        return table

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        given, table, kept = ctx.saved_tensors
        by = torch.empty_like(given)
        ctx.columns.call(ctx.library.columns_backward, given, table, kept, grad.contiguous(), by)
        return by, None, None
