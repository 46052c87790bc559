"""Explainable boosting machine, not in the paper: single columns and pairs, each a curve or a map one can look at.

Y. Lou, R. Caruana, J. Gehrke, G. Hooker, "Accurate intelligible models with pairwise interactions" (2013), in the
implementation of the package interpret and with its settings. It is the natural rival of a model that says which
interactions it used, up to order 2.
"""

from __future__ import annotations

from typing import Any

TASKS = ("classification", "regression")
REQUIRES = "interpret"


def make(task: str, **params: Any) -> Any:
    """The estimator of the task.

    >>> make("regression", interactions=3).get_params()["interactions"]
    3
    """
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    return (
        ExplainableBoostingClassifier(**params) if task == "classification" else ExplainableBoostingRegressor(**params)
    )
