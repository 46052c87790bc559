"""How a time grows: the exponent of a power, or the factor of an exponential."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Growth:
    """A straight line through logarithms: its slope, and the share of the variance it explains."""

    slope: float
    r_squared: float
    points: int

    @property
    def factor(self) -> float:
        """For :func:`fit_exponential`: how often the time doubles, as the factor per unit."""
        return math.exp(self.slope)


def fit_power(sizes: Sequence[float], seconds: Sequence[float]) -> Growth:
    """``slope`` is p in time ~ size^p, by least squares on both logarithms.

    >>> round(fit_power([1, 2, 4], [3.0, 12.0, 48.0]).slope, 6)
    2.0
    """
    return _line([math.log(size) for size in _checked("sizes", sizes)], seconds)


def fit_exponential(sizes: Sequence[float], seconds: Sequence[float]) -> Growth:
    """``factor`` is a in time ~ a^size.

    >>> round(fit_exponential([1, 2, 3], [2.0, 4.0, 8.0]).factor, 6)
    2.0
    """
    return _line([float(size) for size in sizes], seconds)


def _checked(name: str, values: Sequence[float]) -> Sequence[float]:
    for value in values:
        if not value > 0 or not math.isfinite(value):
            raise ValueError(f"{name} must hold finite numbers above 0, got {value}")
    return values


def _line(x: list[float], seconds: Sequence[float]) -> Growth:
    if len(x) != len(seconds) or len(set(x)) < 2:
        raise ValueError(f"expected one time per size and at least two different sizes, got {x} and {list(seconds)}")
    y = [math.log(value) for value in _checked("seconds", seconds)]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((value - mean_x) ** 2 for value in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    total = sum((value - mean_y) ** 2 for value in y)
    left = sum((b - mean_y - slope * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    return Growth(slope, 1 - left / total if total else 1.0, len(x))
