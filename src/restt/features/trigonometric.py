"""The paper's map onto the unit sphere."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from restt.features.numeric import NumericMap

PAPER_ANGLE = math.pi / 2


def on_the_sphere(values: Tensor, angle: float = PAPER_ANGLE) -> Tensor:  # (…, I) -> (…, 2I)
    """1/√I [cos(angle·x), sin(angle·x)], all cosines first: vectors of length 1.

    >>> on_the_sphere(torch.tensor([[1.0]])).round(decimals=4).abs().tolist()
    [[0.0, 1.0]]
    """
    turned = values * angle
    return torch.cat([turned.cos(), turned.sin()], dim=-1) / math.sqrt(values.shape[-1])


class Trigonometric(NumericMap):
    """φ(x) = 1/√I [cos(πx/2), sin(πx/2)] (paper, Eq. map-TT).

    A scalar site (I = 1) becomes a pair, (B, N) -> (B, N, 2); a patch (B, N, I) becomes (B, N, 2I), all cosines
    first. The site vectors have length 1 exactly, so ``second_moment`` is 1 for any data.

    Made for values in [0, 1] (or the authors' [-0.5, 0.5]); beyond, the formula goes on and repeats with period 4
    (``outside="extrapolate"``). Works without ``fit``.

    >>> from restt.features import Trigonometric
    >>> Trigonometric()([[0.0, 1.0]]).round(decimals=4).abs().tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """

    name = "trigonometric"
    parameters = ("outside",)
    dimensions = (2, 3)

    def __init__(self, outside: str = "extrapolate") -> None:
        super().__init__(outside)

    @property
    def width(self) -> int:
        """2, or twice the width of the patches seen by ``fit``."""
        return 2 * self._input_width()

    @property
    def second_moment(self) -> float | Tensor:
        """1, whatever the data."""
        return 1.0

    def _map(self, values: Tensor) -> Tensor:
        return on_the_sphere(values if values.ndim == 3 else values.unsqueeze(-1))

    def _weighted_second_moment(self, values: Tensor, weights: Tensor) -> Tensor:
        return torch.ones(values.shape[1], dtype=torch.float64)
