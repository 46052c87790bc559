"""Quadratic polynomial regression: the paper's PR (Table VI).

Ordinary least squares on the standardised columns, their squares and their products in pairs. The paper says
"quadratic" and nothing else; this order of scaling and multiplying gives its rows to the third digit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.linear_model import LinearRegression

from restt.baselines.polynomial import PolynomialRegressor

TASKS = ("regression",)


@dataclass(kw_only=True, eq=False, repr=False)
class PolynomialLeastSquares(PolynomialRegressor):
    """Ordinary least squares on products; see :class:`PolynomialRegressor`."""

    def linear_model(self) -> LinearRegression:
        return LinearRegression()


def make(task: str, **params: Any) -> PolynomialLeastSquares:
    """The estimator.

    >>> model = make("regression").fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
    >>> model.predict([[3.0]]).round(6)
    array([9.])
    """
    return PolynomialLeastSquares(**params)
