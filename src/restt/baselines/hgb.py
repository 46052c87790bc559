"""Gradient-boosted trees on binned columns, not in the paper: what most people try first on a table.

J. Friedman, "Greedy function approximation: a gradient boosting machine" (2001), with the histograms of G. Ke et al.,
"LightGBM" (2017), in scikit-learn's implementation and with its settings. Trees need no scaled columns, and missing
values and categories are taken as they are.
"""

from __future__ import annotations

from typing import Any

from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

TASKS = ("classification", "regression")


def make(task: str, **params: Any) -> HistGradientBoostingClassifier | HistGradientBoostingRegressor:
    """The estimator of the task.

    >>> make("regression", min_samples_leaf=1, random_state=0).fit([[0.0], [1.0]], [0.0, 1.0]).predict([[1.0]]).round(2)
    array([1.])
    """
    return (
        HistGradientBoostingClassifier(**params)
        if task == "classification"
        else HistGradientBoostingRegressor(**params)
    )
