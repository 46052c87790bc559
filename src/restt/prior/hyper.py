"""Hyper-parameters of the kernel: their names, their places in one vector, and their priors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

# Logarithms of: the noise, the three products' scales, the common relevance in the smooth product (a), the rough
# product (j), the smooth and rough sums (b, r) and the joint term (w); then the noise's growth with the prediction.
GLOBAL = ("noise", "smooth", "rough", "joint", "a", "j", "b", "r", "w", "noise_mean")
# Of a number: its relevance and what each term departs from it, lengths, the line's share, position, and noise.
NUMBER = ("relevance", "a", "j", "b", "r", "w", "length", "rough_length", "line", "position", "noise")
LEVELS = ("relevance", "a", "j", "b", "r", "w")


@dataclass(frozen=True)
class Density:
    """Student's t density of a hyper-parameter; infinite degrees of freedom are the normal one."""

    centre: float
    scale: float
    degrees: float = float("inf")
    per_log_column: float = 0.0  # by how much the centre moves with the logarithm of the number of columns


@dataclass(frozen=True)
class Layout:
    """Places of the hyper-parameters of a table's columns in one vector."""

    numbers: int
    categories: int
    outputs: int = 1
    constant: int = 0  # columns of one value among them

    @property
    def varying(self) -> int:
        """How many columns have more than one value, 1 where none has."""
        return max(1, self.numbers + self.categories - self.constant)

    @cached_property
    def names(self) -> list[str]:
        """The density that each entry of the vector has."""
        found = [*GLOBAL, *["warp"] * self.outputs]
        found += [f"number.{name}" for name in NUMBER for _ in range(self.numbers)]
        return found + [f"level.{name}" for name in LEVELS for _ in range(self.categories)]

    def split(self, theta: Tensor) -> dict[str, Tensor]:
        """Scalars of the globals, (O,) of the warp, one entry a column of the others."""
        common, warp, numbers, levels = self.blocks(theta)
        found = {**dict(zip(GLOBAL, common.unbind(), strict=True)), "warp": warp}
        found |= {f"number.{name}": part for name, part in zip(NUMBER, numbers.unbind(), strict=True)}
        return found | {f"level.{name}": part for name, part in zip(LEVELS, levels.unbind(), strict=True)}

    def blocks(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # (10,), (O,), (11, K), (6, L)
        """The globals, the warp, and those of all numbers and of all categories, a row for each name."""
        sizes = len(GLOBAL), self.outputs, len(NUMBER) * self.numbers, len(LEVELS) * self.categories
        common, warp, numbers, levels = theta.split(sizes)
        return common, warp, numbers.view(len(NUMBER), -1), levels.view(len(LEVELS), -1)

    def densities(self, named: Mapping[str, Density], like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Centres, scales and degrees of freedom of all entries."""
        columns = float(np.log(self.varying))
        rows = [named[name] for name in self.names]
        table = [[d.centre + d.per_log_column * columns, d.scale, d.degrees] for d in rows]
        centre, scale, degrees = torch.tensor(table, dtype=like.dtype, device=like.device).T.contiguous()
        return centre, scale, degrees


def log_prior(theta: Tensor, centre: Tensor, scale: Tensor, degrees: Tensor) -> Tensor:
    """Log density up to a constant."""
    away = ((theta - centre) / scale).square()
    heavy = torch.isfinite(degrees)
    finite = torch.where(heavy, degrees, 1.0)
    student = (finite + 1) / 2 * torch.log1p(away / finite)
    return -torch.where(heavy, student, away / 2).sum()
