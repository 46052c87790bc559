"""The rows that a model is conditioned on, with their noise: what conditioning it on more rows needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt.prior.kernel import Kernel
from restt.prior.objective import Data
from restt.prior.pairs import Rows

# 1/ν below which Student's noise is normal.
NORMAL_TAIL = 1e-3
_ARRAYS = ("numbers", "targets", "weights", "precision", "level")


@dataclass(frozen=True, eq=False)
class FitRows:
    """Rows in the order of the fit, and their noise."""

    numbers: np.ndarray  # (B, C)
    targets: np.ndarray  # (B, O): y as the fit was given it
    weights: np.ndarray  # (B,)
    precision: np.ndarray  # (B,): of the noise, relative to that of a row of weight 1
    level: np.ndarray  # (B,): predictions on which the noise may depend
    tail: float  # 1/ν of the noise
    variance: float  # of the first fit's leave-one-out residuals
    seed: int  # of the order of rows
    inducing: np.ndarray  # (M, C): rows of the first fit through which levels of new rows are found …
    means: np.ndarray  # (S, M, O): … with these weights of each member

    @classmethod
    def of(
        cls, numbers: np.ndarray, targets: np.ndarray, weights: np.ndarray, data: Data, tail: float, seed: int
    ) -> FitRows:
        """The rows of a first fit, whose inducing rows are not known yet."""
        noise = data.precision.cpu().numpy(), data.level.cpu().numpy()
        return cls(numbers, targets, weights, *noise, tail, 1.0, seed, numbers[:0], np.zeros((0, 0, 0)))

    def __len__(self) -> int:
        return len(self.weights)

    def take(self, rows: np.ndarray) -> FitRows:
        """Some of the rows."""
        parts: dict[str, Any] = {name: getattr(self, name)[rows] for name in _ARRAYS}
        return replace(self, **parts)

    def beside(self, others: FitRows) -> FitRows:
        """These rows and then the others."""
        parts: dict[str, Any] = {
            name: np.concatenate([getattr(one, name) for one in (self, others)]) for name in _ARRAYS
        }
        return replace(self, **parts)

    def to_config(self) -> dict[str, Any]:
        """Plain values; the arrays are in :meth:`tensors`."""
        return {"tail": self.tail, "variance": self.variance, "seed": self.seed}

    def tensors(self) -> dict[str, Tensor]:
        """The arrays, for a file."""
        names = (*_ARRAYS, "inducing", "means")
        return {name: torch.from_numpy(np.ascontiguousarray(getattr(self, name))) for name in names}

    @classmethod
    def from_config(cls, config: dict[str, Any], tensors: dict[str, Tensor], members: int) -> FitRows:
        """The rows that :meth:`to_config` and :meth:`tensors` described; ValueError where they do not fit."""
        arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
        found = cls(**arrays, **config)
        rows, columns, outputs = len(found.weights), found.numbers.shape[1], found.targets.shape[1]
        inducing = len(found.inducing)
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("weights", "precision", "level"), (rows,))
        shapes |= {"numbers": (rows, columns), "targets": (rows, outputs), "inducing": (inducing, columns)}
        shapes["means"] = (members, inducing, outputs)
        for name, shape in shapes.items():
            array = getattr(found, name)
            if array.shape != shape:
                raise ValueError(f"{name} of the rows must have shape {shape}, got {array.shape}")
            if not np.isfinite(np.nan_to_num(array) if name in ("numbers", "inducing") else array).all():
                raise ValueError(f"{name} of the rows must be finite")
        if not rows or not inducing or not (found.weights > 0).all() or not (found.precision > 0).all():
            raise ValueError("there must be rows, their weights and precisions above 0")
        if not 0 <= float(found.tail) < 0.5 or not float(found.variance) > 0 or int(found.seed) != found.seed:
            raise ValueError(f"the noise of the rows cannot be that of {config}")
        return found


def tail_precision(squares: Tensor, tail: float) -> Tensor:  # (B,) -> (B,)
    """Expected precision of the noise of rows of these standardised squared residuals, under 1/tail degrees."""
    return (1 / tail + 1) / (1 / tail - 2 + squares)


def dense_states(kernel: Kernel, rows: Rows) -> list[Tensor]:  # N of (B, I_n)
    """Site vectors of rows; a value that no state holds is the mean of the column, or the average state."""
    found = []
    for n, site in enumerate(kernel.sites):
        vectors, mean = rows.vectors(n, site.seen + 1), kernel.means[n]
        if not site.average:
            vectors = vectors[:, :-1] + vectors[:, -1:] * mean
        found.append(vectors)
    return found


def side_by_side(states: Sequence[Tensor]) -> Tensor:  # N of (B, I_n) -> (B, N, I)
    """Site vectors padded to the widest."""
    found = states[0].new_zeros(len(states[0]), len(states), max(state.shape[1] for state in states))
    for n, state in enumerate(states):
        found[:, n, : state.shape[1]] = state
    return found
