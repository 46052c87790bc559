"""Maps of numbers: the shared fit, range and transform."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from restt._common.compat_torch import has_no_values
from restt._common.errors import check_choice
from restt.features.base import FeatureMap
from restt.features.inputs import position, read_values, read_weights

OUTSIDE = ("clamp", "error", "extrapolate")
# Rows mapped at once while averaging, so that fitting on images never holds a second copy of all site vectors.
ROWS_AT_ONCE = 4096


class NumericMap(FeatureMap):
    """A map of finite numbers with a fitted range.

    ``outside`` says what happens to a value beyond the range seen by ``fit``: ``"extrapolate"`` applies the formula
    as it stands, ``"clamp"`` moves the value to the nearer end, ``"error"`` raises ``ValueError``.
    """

    parameter_names: ClassVar[tuple[str, ...]] = ("outside",)
    dimensions: ClassVar[tuple[int, ...]] = (2, 3)

    def __init__(self, outside: str = "extrapolate") -> None:
        super().__init__()
        self.outside = check_choice("outside", outside, OUTSIDE)

    def fit(self, x: Any, sample_weight: Any = None) -> Self:
        """Learn range and second moment of each site from ``x`` (B, N); returns the map itself."""
        values = read_values(x, self.dimensions).detach()
        weights = read_weights(sample_weight, len(values))
        self._check_given(values)
        self._warn_of_range(values)
        if not bool((weights > 0).all()):
            values, weights = values[(weights > 0).to(values.device)], weights[weights > 0]
        # Learned where the values are, unless float64 is unknown there; what was learned is the host's.
        values = values.cpu() if values.device.type == "mps" else values
        weights = weights.to(values.device)
        # First the range and what else a map has, which its second moment depends on.
        ends = {"low": values.amin(0).double().tolist(), "high": values.amax(0).double().tolist()}
        self._fitted = {**ends, "second_moment": None, **self._learned(values, weights)}
        self._fitted["second_moment"] = self._weighted_second_moment(values, weights).tolist()
        return self

    def transform(self, x: Any) -> Tensor:
        """Site vectors (B, N, I) of ``x`` (B, N); dtype and device follow ``x``, gradients flow back to it."""
        values = read_values(x, self.dimensions)
        self._check_given(values)
        expected = self._expected_shape()
        if expected is not None and tuple(values.shape[1:]) != expected:
            raise ValueError(
                f"x must have {expected[0]} sites{_of_width(expected)} as {type(self).__name__} was fitted with, "
                f"got shape {tuple(values.shape)}"
            )
        # Otherwise nothing leaves the range that fit has seen.
        if self.outside == "extrapolate" and not has_no_values(values):
            self._warn_of_range(values)
        return self.map(values)

    def map(self, values: Tensor) -> Tensor:
        """``transform`` for values known to be finite and of the right shape: nothing waits for the device.

        For batches on a GPU whose data was checked when it entered; ``outside="error"`` still looks.
        """
        return self._map(self._inside(values))

    @property
    def width(self) -> int:
        """Width I of the site vectors of scalars, or of vectors as wide as those seen by ``fit``."""
        shape = self._expected_shape()
        given = shape[1] if shape is not None and len(shape) == 2 else 1
        return self._formula(torch.zeros(given), given).shape[-1]

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of each site, equal for all."""
        shape = self._expected_shape()
        if shape is None:
            raise self._not_fitted("widths")
        return (self.width,) * shape[0]

    @property
    def second_moment(self) -> float | Tensor:
        """E Σ_i x_{n,i}² of the rows of the fit, (N,)."""
        return self._learned_tensor("second_moment")

    def _map(self, values: Tensor) -> Tensor:
        """Site vectors of values that were checked and clamped."""
        vectors = values if values.ndim == 3 else values.unsqueeze(-1)
        return self._formula(vectors, vectors.shape[-1])

    def _formula(self, vectors: Tensor, width: int) -> Tensor:  # (…, width) -> (…, I)
        """The map of each site's values, in operations that an exported graph has too."""
        raise NotImplementedError

    def _learned(self, values: Tensor, weights: Tensor) -> dict[str, Any]:
        """Learn further values from rows of positive weight, as JSON has them."""
        return {}

    def _check_given(self, values: Tensor) -> None:
        """Refuse values that do not suit the map's parameters."""

    def _warn_of_range(self, values: Tensor) -> None:
        """Warn of different values that the formula maps to the same site vector."""

    def _expected_shape(self) -> tuple[int, ...] | None:
        return None if self._fitted is None else np.shape(self._fitted["low"])

    def _range(self) -> tuple[Tensor, Tensor]:
        if self._fitted is None:
            raise self._not_fitted(f"the range that outside={self.outside!r} needs")
        return self._learned_tensor("low"), self._learned_tensor("high")

    def _inside(self, values: Tensor) -> Tensor:
        if self.outside == "extrapolate":
            return values
        low, high = (end.to(values) for end in self._range())
        if self.outside == "clamp":
            return values.clamp(low, high)
        if has_no_values(values):
            raise ValueError(
                'outside="error" looks at every value, which torch.compile, torch.export and torch.func do not allow: '
                'use outside="clamp" or outside="extrapolate" there'
            )
        beyond = ((values < low) | (values > high)).nonzero()
        if len(beyond):
            first = tuple(beyond[0].tolist())
            raise ValueError(
                f"x must lie in the fitted range, got {len(beyond)} value(s) outside; the first, at "
                f"{position(first)}, is {values[first].item():g} and the range there is "
                f"[{low[first[1:]].item():g}, {high[first[1:]].item():g}]"
            )
        return values

    def _weighted_second_moment(self, values: Tensor, weights: Tensor) -> Tensor:
        total = weights.new_zeros(values.shape[1])
        for rows, w in zip(values.split(ROWS_AT_ONCE), weights.split(ROWS_AT_ONCE), strict=True):
            total += w @ self._map(rows.double()).square().sum(-1)
        return total / weights.sum()


def _of_width(shape: tuple[int, ...]) -> str:
    return f" of {shape[1]} values each" if len(shape) == 2 else ""
