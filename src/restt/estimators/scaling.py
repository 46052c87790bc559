"""Mean and spread of columns of any size, from 1e-300 to 1e300: what standardises targets and columns of numbers."""

from __future__ import annotations

import numpy as np

# A column whose spread is below this share of its mean is constant: what is left is the rounding of its values.
ROUNDING = 1e3 * np.finfo(np.float64).eps


def mean_and_spread(
    values: np.ndarray,  # (B, K), NaN where missing
    weights: np.ndarray,  # (B,), above 0 everywhere
) -> tuple[np.ndarray, np.ndarray]:  # (K,), (K,)
    """Weighted mean and standard deviation of each column; a constant one has its own value and the spread 0.

    Columns are divided by a power of two first, which changes no digit and keeps their squares in range.

    >>> mean_and_spread(np.array([[0.1, 1e300], [0.1, 3e300], [0.1, np.nan]]), np.ones(3))
    (array([1.e-001, 2.e+300]), array([0.e+000, 1.e+300]))
    """
    present = ~np.isnan(values)
    low = np.min(values, axis=0, where=present, initial=np.inf)
    high = np.max(values, axis=0, where=present, initial=-np.inf)
    empty = ~present.any(axis=0)
    low, high = np.where(empty, 0.0, low), np.where(empty, 0.0, high)
    exponents = binary_exponents(np.maximum(np.abs(low), np.abs(high)))
    scaled = np.where(present, np.ldexp(values, -exponents), 0.0)
    shares = weights[:, None] * present
    total = np.where(empty, 1.0, shares.sum(axis=0))
    mean = (shares * scaled).sum(axis=0) / total
    spread = np.sqrt((shares * (scaled - mean) ** 2).sum(axis=0) / total)
    constant = (low == high) | (spread <= ROUNDING * np.abs(mean))
    mean, spread = np.ldexp(mean, exponents), np.ldexp(spread, exponents)
    return np.where(low == high, low, mean), np.where(constant, 0.0, spread)


def binary_exponents(sizes: np.ndarray) -> np.ndarray:
    """Exponents e with sizes · 2^-e in [1/2, 1); 0 for 0."""
    return np.asarray(np.frexp(sizes)[1])
