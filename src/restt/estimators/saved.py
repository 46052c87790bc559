"""Uncertainty of models that were saved by 0.8, which a file may still hold: read, never made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt.estimators.columns import AVERAGE
from restt.estimators.encoding import ROWS_AT_ONCE, Encoding
from restt.prior.learning import Prior
from restt.prior.spread import Spread
from restt.prior.target import Target

# Rare categories of fewer rows than this share have no part in the noise that is worth the name.
FEW_RARE = 0.1


def with_rare_unseen(encoding: Encoding, numbers: np.ndarray) -> np.ndarray:  # (B, C)
    """Numbers in which a rare category is one that the fit did not see, for a variance.

    Rare categories have a mean effect in common that is known, but each is as far from it as others are from theirs,
    unless they are so many that the noise holds it.
    """
    numbers = numbers.copy()
    for site, index in enumerate(encoding.order):
        column = encoding.columns[index]
        if column.other and column.levels is not None and encoding.site_means is not None:
            other = len(column.levels)
            if float(encoding.site_means[site, other]) < FEW_RARE:
                numbers[numbers[:, index] == other, index] = AVERAGE
    return numbers


class SavedSpread:
    """The spread of 0.8 with the interface of :class:`restt.prior.Predictive`."""

    def __init__(self, spread: Spread, encoding: Encoding) -> None:
        self.spread, self.encoding = spread, encoding

    @property
    def prior(self) -> Prior:
        """The prior that was learned."""
        return self.spread.prior

    def _parts(self, numbers: np.ndarray) -> Iterator[tuple[slice, list[Tensor]]]:
        for start in range(0, len(numbers), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            parts: list[list[Tensor]] = [[] for _ in self.encoding.columns]
            for vectors in self.encoding.chunks(torch.from_numpy(with_rare_unseen(self.encoding, numbers[part]))):
                for site, index in enumerate(self.encoding.order):
                    parts[index].append(vectors[:, site, : self.encoding.widths[site]].clone())
            yield part, [torch.cat(one) for one in parts]

    def held(self, outputs: np.ndarray, numbers: np.ndarray) -> np.ndarray:  # (B, O), (B, C) -> (B, O)
        """Predictions shrunk towards the range of the training targets where the posterior variance is large."""

        def states_of(rows: np.ndarray) -> Sequence[Tensor]:
            return next(iter(self._parts(numbers[rows])))[1]

        return self.spread.held(outputs, states_of)

    def std(self, outputs: np.ndarray, numbers: np.ndarray, model: Target) -> np.ndarray:  # (B, O)
        """Root mean square of y about its prediction."""
        return np.concatenate([self.spread.std(outputs[part], states, model) for part, states in self._parts(numbers)])

    def interval(self, outputs: np.ndarray, numbers: np.ndarray, model: Target, coverage: float) -> np.ndarray:
        """Between which a new y lies with probability ``coverage``, (B, 2, O)."""
        parts = self._parts(numbers)
        return np.concatenate([self.spread.interval(outputs[part], states, model, coverage) for part, states in parts])

    def term_deviations(self, points: Mapping[int, Tensor], means: Sequence[Tensor]) -> Tensor:
        """Posterior standard deviation of a centred term on a grid."""
        return self.spread.term_deviations(points, means)

    def to_config(self) -> dict[str, Any]:
        """Plain values."""
        return self.spread.to_config()

    def tensors(self) -> dict[str, Tensor]:
        """The arrays."""
        return self.spread.tensors()
