"""Powers of the value."""

from __future__ import annotations

import torch
from torch import Tensor

from restt._common.errors import check_int, shown
from restt.features.numeric import NumericMap


class Polynomial(NumericMap):
    """φ(x) = [1, x, …, x^degree]: (B, N) -> (B, N, degree + 1), or without the 1 when ``include_bias=False``.

    Powers grow fast: scale columns to [-1, 1] first. Beyond the fitted range the formula goes on
    (``outside="extrapolate"``). Works without ``fit``.

    >>> from restt.features import Polynomial
    >>> Polynomial(degree=3, include_bias=False)([[2.0]]).tolist()
    [[[2.0, 4.0, 8.0]]]
    """

    name = "polynomial"
    parameters = ("degree", "include_bias", "outside")

    def __init__(self, degree: int = 2, include_bias: bool = True, outside: str = "extrapolate") -> None:
        super().__init__(outside)
        self.degree = check_int("degree", degree, minimum=1)
        if not isinstance(include_bias, bool):
            raise TypeError(f"include_bias must be True or False, got {shown(include_bias)}")
        self.include_bias = include_bias

    @property
    def width(self) -> int:
        """``degree``, plus 1 for the constant."""
        return self.degree + self.include_bias

    def _map(self, values: Tensor) -> Tensor:
        first = 0 if self.include_bias else 1
        return torch.stack([values**power for power in range(first, self.degree + 1)], dim=-1)
