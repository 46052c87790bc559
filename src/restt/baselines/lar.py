"""Lasso regression: the paper's LaR (Table VI).

R. Tibshirani, "Regression shrinkage and selection via the lasso" (1996), on standardised columns:

    ‖y - b - x w‖² / 2B  +  alpha · ‖w‖₁

The paper does not give alpha; the default is the one that gives its row for Boston. Since alpha has the unit of the
target, other targets need another: at 1, nothing is left of the ALE table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.linear_model import Lasso

from restt.baselines.scaled import ScaledRegressor

TASKS = ("regression",)

# Sweeps of coordinate descent at most; scikit-learn's 1000 are too few for many products and a small alpha.
MAX_SWEEPS = 100_000


@dataclass(kw_only=True, eq=False, repr=False)
class LassoRegression(ScaledRegressor):
    """``alpha`` weighs the absolute weights; see :class:`ScaledRegressor`."""

    alpha: float = 1.0

    def steps(self, columns: int) -> list[Any]:
        return [lasso(self.alpha)]


def lasso(alpha: float) -> Lasso:
    """scikit-learn's lasso, given the time it needs.

    >>> lasso(0.5).alpha
    0.5
    """
    return Lasso(alpha, max_iter=MAX_SWEEPS)


def make(task: str, **params: Any) -> LassoRegression:
    """The estimator.

    >>> make("regression", alpha=0.25).fit([[-1.0], [1.0]], [-1.0, 1.0]).predict([[1.0]])
    array([0.75])
    """
    return LassoRegression(**params)
