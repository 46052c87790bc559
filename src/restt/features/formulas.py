"""Maps that are one formula: the value itself, a constant beside it, its powers, a point on the unit sphere."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from restt._common.errors import check_int, shown, warn_caller
from restt.features.base import RangeWarning
from restt.features.numeric import NumericMap

PAPER_ANGLE = math.pi / 2
PERIOD = 4  # values this far apart have the same cosine and sine of PAPER_ANGLE times the value


def on_the_sphere(values: Tensor, angle: float = PAPER_ANGLE, width: int | None = None) -> Tensor:  # (…, I) -> (…, 2I)
    """1/√I [cos(angle·x), sin(angle·x)], all cosines first: vectors of length 1.

    >>> on_the_sphere(torch.tensor([[1.0]])).round(decimals=4).abs().tolist()
    [[0.0, 1.0]]
    """
    turned = values * angle
    return torch.cat([turned.cos(), turned.sin()], dim=-1) / math.sqrt(width or values.shape[-1])


class Identity(NumericMap):
    """φ(x) = x: (B, N) -> (B, N, 1), and (B, N, I) stays (B, N, I).

    Beyond the fitted range the value passes through (``outside="extrapolate"``). Works without ``fit``.

    >>> from restt.features import Identity
    >>> Identity()([[0.5, 2.0]]).shape
    torch.Size([1, 2, 1])
    """

    name = "identity"

    def _formula(self, vectors: Tensor, width: int) -> Tensor:
        return vectors


class Affine(NumericMap):
    """φ(x) = [1, x]: (B, N) -> (B, N, 2), and (B, N, I) -> (B, N, 1 + I).

    Beyond the fitted range the formula goes on (``outside="extrapolate"``). Works without ``fit``.

    >>> from restt.features import Affine
    >>> Affine()([[0.5]]).tolist()
    [[[1.0, 0.5]]]
    """

    name = "affine"

    def _formula(self, vectors: Tensor, width: int) -> Tensor:
        return torch.cat([vectors.narrow(-1, 0, 1) ** 0.0, vectors], dim=-1)


class Polynomial(NumericMap):
    """φ(x) = [1, x, …, x^degree]: (B, N) -> (B, N, degree + 1), or without the 1 when ``include_bias=False``.

    Powers grow fast: scale columns to [-1, 1] first. Beyond the fitted range the formula goes on
    (``outside="extrapolate"``). Works without ``fit``.

    >>> from restt.features import Polynomial
    >>> Polynomial(degree=3, include_bias=False)([[2.0]]).tolist()
    [[[2.0, 4.0, 8.0]]]
    """

    name = "polynomial"
    parameter_names = ("degree", "include_bias", "outside")
    dimensions = (2,)

    def __init__(self, degree: int = 2, include_bias: bool = True, outside: str = "extrapolate") -> None:
        super().__init__(outside)
        self.degree = check_int("degree", degree, minimum=1)
        if not isinstance(include_bias, bool):
            raise TypeError(f"include_bias must be True or False, got {shown(include_bias)}")
        self.include_bias = include_bias

    def _formula(self, vectors: Tensor, width: int) -> Tensor:
        first = 0 if self.include_bias else 1
        return torch.cat([vectors ** float(power) for power in range(first, self.degree + 1)], dim=-1)


class Trigonometric(NumericMap):
    """φ(x) = 1/√I [cos(πx/2), sin(πx/2)], the paper's map.

    A scalar site (I = 1) becomes a pair, (B, N) -> (B, N, 2); a patch (B, N, I) becomes (B, N, 2I), all cosines
    first. The site vectors have length 1 exactly, so ``second_moment`` is 1 for any data.

    Made for values in [0, 1] (or the authors' [-0.5, 0.5]); beyond, the formula goes on and repeats with period 4
    (``outside="extrapolate"``), with a :class:`RangeWarning` for values beyond ±2, such as pixels of 0 to 255.
    Works without ``fit``.

    >>> from restt.features import Trigonometric
    >>> Trigonometric()([[0.0, 1.0]]).round(decimals=4).abs().tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """

    name = "trigonometric"

    @property
    def second_moment(self) -> float | Tensor:
        """1, whatever the data."""
        return 1.0

    def _formula(self, vectors: Tensor, width: int) -> Tensor:
        return on_the_sphere(vectors, width=width)

    def _weighted_second_moment(self, values: Tensor, weights: Tensor) -> Tensor:
        return torch.ones(values.shape[1], dtype=torch.float64)

    def _warn_of_range(self, values: Tensor) -> None:
        if values.numel() == 0:
            return
        low, high = (end.item() for end in values.detach().aminmax())
        if max(-low, high) <= PERIOD / 2:
            return
        warn_caller(
            f"x has values from {low:g} to {high:g}, but Trigonometric is made for values in [0, 1] and repeats with "
            f"period {PERIOD}, so that different values become the same site vector. Scale x first, for "
            "example pixels by x / 255, or columns to their range",
            RangeWarning,
        )
