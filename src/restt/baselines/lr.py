"""Linear regression, and for classes multinomial logistic regression: the paper's LR (Sec. V, Tables V and VI).

Regression is ordinary least squares on standardised columns, the method of A.-M. Legendre, "Nouvelles méthodes pour la
détermination des orbites des comètes" (1805). Classification is in ``softmax.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.linear_model import LinearRegression

from restt.baselines.scaled import ScaledRegressor

TASKS = ("classification", "regression")


@dataclass(kw_only=True, eq=False, repr=False)
class LeastSquares(ScaledRegressor):
    """Ordinary least squares with an intercept; see :class:`ScaledRegressor`."""

    def steps(self, columns: int) -> list[Any]:
        return [LinearRegression()]


def make(task: str, **params: Any) -> Any:
    """The estimator of the task.

    >>> make("regression").fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]).predict([[4.0]])
    array([9.])
    """
    if task == "regression":
        return LeastSquares(**params)
    # Only here: least squares needs no torch network.
    from restt.baselines.softmax import make as make_softmax

    return make_softmax(task, **params)
