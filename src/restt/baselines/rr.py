"""Ridge regression: the paper's RR (Table VI).

A. Hoerl, R. Kennard, "Ridge regression: biased estimation for nonorthogonal problems" (1970), on standardised columns:

    ‖y - b - x w‖²  +  alpha · ‖w‖²

The paper does not give alpha; the default is the one that gives its row for Boston.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.linear_model import Ridge

from restt.baselines.scaled import ScaledRegressor

TASKS = ("regression",)


@dataclass(kw_only=True, eq=False, repr=False)
class RidgeRegression(ScaledRegressor):
    """``alpha`` weighs the squared weights; see :class:`ScaledRegressor`."""

    alpha: float = 10.0

    def steps(self, columns: int) -> list[Any]:
        return [Ridge(self.alpha)]


def make(task: str, **params: Any) -> RidgeRegression:
    """The estimator.

    >>> make("regression", alpha=2.0).fit([[-1.0], [1.0]], [-1.0, 1.0]).predict([[1.0]])
    array([0.5])
    """
    return RidgeRegression(**params)
