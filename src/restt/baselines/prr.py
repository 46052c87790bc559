"""Quadratic ridge regression: the paper's PRR (Table VI).

The ridge regression of ``rr.py`` on the standardised columns, their squares and their products in pairs. The paper does
not give alpha; scikit-learn's own 1 comes within 0.001 of its R² on both of its tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.linear_model import Ridge

from restt.baselines.polynomial import PolynomialRegressor

TASKS = ("regression",)


@dataclass(kw_only=True, eq=False, repr=False)
class PolynomialRidge(PolynomialRegressor):
    """``alpha`` weighs the squared weights; see :class:`PolynomialRegressor`."""

    alpha: float = 1.0

    def linear_model(self) -> Ridge:
        return Ridge(self.alpha)


def make(task: str, **params: Any) -> PolynomialRidge:
    """The estimator.

    >>> make("regression", degree=3).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 8.0]).predict([[1.5]]).shape
    (1,)
    """
    return PolynomialRidge(**params)
