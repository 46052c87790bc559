"""The factors 1 + k_n of all columns side by side, between blocks of rows, and the slopes by their parameters.

They are those of :meth:`restt.prior.kernels.Kernel.factor`. What is different is the order of the work: a step of the
search needs every column's factor and every column's slopes, and a few products over stacks of columns find them in
less time than many small ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from restt.prior.kernels import Kernel, Levels, Number, scaled_table

_ROWS_AT_ONCE = 64
# Numbers of all columns' factors that a GPU holds at once: a gibibyte.
_FACTORS_AT_ONCE = 1 << 27


class Columns(ABC):
    """G columns of one kind over one set of rows.

    First :meth:`set` is told the parameters, then every block of factors and the weights that it is pulled by follow;
    :meth:`slopes` sums over them.
    """

    numbers: np.ndarray  # (G,): which of the table's columns they are
    places: np.ndarray  # (G, P): of their parameters in the vector of all

    @abstractmethod
    def set(self, theta: np.ndarray) -> None:
        """From here on with these parameters."""

    @abstractmethod
    def factors(self, rows: slice, others: slice, out: Tensor) -> None:  # (G, b, c)
        """1 + k_n of the rows with the others, into ``out``."""

    @abstractmethod
    def pull(self, weights: Tensor, rows: slice, others: slice) -> None:  # (G, b, c)
        """Σ_ij weight_ij ∂k(i, j)/∂parameter is to have these terms."""

    @abstractmethod
    def slopes(self, total: Tensor) -> Tensor:  # () -> (G·P,)
        """The sum for every parameter, still on the device; ``total`` is Σ_ij weight_ij (1 + k(i, j)) of any column."""


class NumberColumns(Columns):
    """Columns of numbers, their tables padded to one width."""

    def __init__(self, kernels: Sequence[Number], states: Sequence[Tensor], places: np.ndarray) -> None:
        self.places = places
        width = max(kernel.site.width for kernel in kernels)

        def stacked(tables: list[Tensor]) -> Tensor:  # G of (I_n, I_n) -> (G, I, I)
            return torch.stack([pad(table, (0, width - len(table)) * 2) for table in tables])

        self.distances = stacked([kernel.distances for kernel in kernels])
        self.within = stacked([kernel.within for kernel in kernels])
        self.centre = stacked([kernel.centre for kernel in kernels])
        self.measure = stacked([kernel.measure for kernel in kernels])
        self.line = stacked([kernel.line for kernel in kernels])
        self.parabola = stacked([kernel.bend * kernel.parabola for kernel in kernels])
        self.curved = self.line.new_tensor([1 - kernel.bend for kernel in kernels])[:, None, None]
        self.power = np.array([kernel.power for kernel in kernels])
        self.states = torch.stack([pad(rows, (0, width - rows.shape[1])) for rows in states])  # (G, B, I)
        self.turned = self.states.mT.contiguous()

    def set(self, theta: np.ndarray) -> None:
        scale, length, line = (theta[self.places[:, part]] for part in range(3))
        share = 1 / (1 + np.exp(-line))
        # One transfer for all that differs between columns.
        given = np.stack([np.exp(-self.power * length), 0.5 * self.power, np.exp(scale), share])
        shrunk, half, size, straight = torch.from_numpy(given).to(self.states)[..., None, None]
        ratio = self.distances * shrunk
        curved = torch.exp(-0.5 * ratio) * self.within
        unit, inverse = scaled_table(curved, self.centre, self.measure)
        slope = self.centre @ ratio.mul_(curved).mul_(half) @ self.centre.mT
        slope = (slope - unit * (self.measure * slope).sum((1, 2), keepdim=True)) * inverse
        unit = self.curved * unit + self.parabola
        self.by_length = size * (1 - straight) * self.curved * slope
        self.by_share = size * straight * (1 - straight) * (self.line - unit)
        # Site vectors sum to one, so that the constant can be in the table.
        self.crossed = self.states @ (size * ((1 - straight) * unit + straight * self.line) + 1)
        self.pulled = torch.zeros_like(self.line)

    def factors(self, rows: slice, others: slice, out: Tensor) -> None:
        torch.bmm(self.crossed[:, rows], self.turned[:, :, others], out=out)

    def pull(self, weights: Tensor, rows: slice, others: slice) -> None:
        self.pulled.baddbmm_(self.turned[:, :, rows], weights @ self.states[:, others])

    def slopes(self, total: Tensor) -> Tensor:
        by_scale = total - self.pulled.sum((1, 2))
        parts = [by_scale, *((self.pulled * table).sum((1, 2)) for table in (self.by_length, self.by_share))]
        return torch.stack(parts, dim=1).flatten()


class LevelColumns(Columns):
    """Columns of categories, whose levels are compared."""

    def __init__(self, kernels: Sequence[Levels], states: Sequence[Tensor], places: np.ndarray) -> None:
        self.places, self.kernels = places, kernels
        self.read = [kernel.read(rows) for kernel, rows in zip(kernels, states, strict=True)]

    def set(self, theta: np.ndarray) -> None:
        self.values = theta[self.places]
        self.pulled = self.read[0].share.new_zeros(len(self.kernels))

    def factors(self, rows: slice, others: slice, out: Tensor) -> None:
        for kernel, read, values, into in zip(self.kernels, self.read, self.values, out, strict=True):
            kernel.compare(read.take(rows), read.take(others), values, into)

    def pull(self, weights: Tensor, rows: slice, others: slice) -> None:
        self.pulled += weights.sum((1, 2))

    def slopes(self, total: Tensor) -> Tensor:
        return total - self.pulled


def side_by_side(
    kernels: Sequence[Kernel],
    states: Sequence[Tensor],  # N of (B, I_n)
    parts: Sequence[slice],  # N: where their parameters are
) -> list[Columns]:
    """All columns: numbers of about the same width together, and all categories."""
    kinds: dict[int, list[int]] = {}
    for n, kernel in enumerate(kernels):
        kind = 0 if isinstance(kernel, Levels) else (kernel.site.width - 1).bit_length() + 1
        kinds.setdefault(kind, []).append(n)
    found: list[Columns] = []
    for chosen in kinds.values():
        rows, places = [states[n] for n in chosen], np.array([range(parts[n].start, parts[n].stop) for n in chosen])
        numbers = [kernel for n in chosen if isinstance(kernel := kernels[n], Number)]
        levels = [kernel for n in chosen if isinstance(kernel := kernels[n], Levels)]
        found.append(NumberColumns(numbers, rows, places) if numbers else LevelColumns(levels, rows, places))
        found[-1].numbers = np.array(chosen)
    return found


def upper_blocks(rows: int, device: torch.device, columns: int = 1) -> list[tuple[slice, slice]]:
    """A symmetric matrix as blocks of rows, each from its diagonal on: a block's first columns are its own rows.

    Of ``columns`` of the table there is a factor each at a time.

    >>> upper_blocks(100, torch.device("cpu"))
    [(slice(0, 64, None), slice(0, 100, None)), (slice(64, 100, None), slice(64, 100, None))]
    """
    step = _ROWS_AT_ONCE
    if device.type != "cpu":  # what a processor multiplies is to stay near it; a GPU rather does all that fits at once
        step = max(step, _FACTORS_AT_ONCE // max(1, rows * columns))
    return [(slice(start, min(start + step, rows)), slice(start, rows)) for start in range(0, rows, step)]
