"""A constant beside the value."""

from __future__ import annotations

import torch
from torch import Tensor

from restt.features.numeric import NumericMap


class Affine(NumericMap):
    """φ(x) = [1, x]: (B, N) -> (B, N, 2), and (B, N, I) -> (B, N, 1 + I).

    Beyond the fitted range the formula goes on (``outside="extrapolate"``). Works without ``fit``.

    >>> from restt.features import Affine
    >>> Affine()([[0.5]]).tolist()
    [[[1.0, 0.5]]]
    """

    name = "affine"
    parameters = ("outside",)
    dimensions = (2, 3)

    def __init__(self, outside: str = "extrapolate") -> None:
        super().__init__(outside)

    @property
    def width(self) -> int:
        """2, or one more than the width of the vectors seen by ``fit``."""
        return 1 + self._input_width()

    def _map(self, values: Tensor) -> Tensor:
        vectors = values if values.ndim == 3 else values.unsqueeze(-1)
        return torch.cat([torch.ones_like(vectors[..., :1]), vectors], dim=-1)
