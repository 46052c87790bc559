"""How a time grows with a size: fitted exponents, and the paper's complexity claims (Sec. III-D) beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """How time grows along one axis: the paper's exponent, and the one that holds.

    ``holds`` counts multiplications. A measured exponent below it means that fixed costs still weigh at these sizes.
    """

    axis: str
    paper: str
    paper_exponent: float | None
    holds: str
    holds_exponent: float


# The paper counts Σ_n I_n r³ (TT) and Σ_n (I_n r³ + I_n r) (ResTT); a sample needs I_n r² per site, as no product of
# two r×r matrices is ever taken.
CLAIMS = {
    "bond_dim": Claim("r", "Σ I r³ (TT), Σ (I r³ + I r) (ResTT)", 3.0, "I r² per sample and site", 2.0),
    "sites": Claim("N", "a sum over the N sites", 1.0, "linear in N", 1.0),
    "batch": Claim("B", "not stated", None, "linear in B", 1.0),
    "runs": Claim("S", "not stated", None, "linear in S", 1.0),
}

FULL_TENSOR = "O(Π I_n): the time of one more site grows by the factor I"
MEMORY = {
    "full tensor": "O(Π I_n)",
    "TT": "O(Σ I_n r²)",
    "ResTT": "O(Σ (I_n r² + I_n r))",
}


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
