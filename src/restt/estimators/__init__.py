"""Estimators at home in scikit-learn: two in closed form, two that are trained, and a search.

>>> from restt.estimators import ResTTRegressor
>>> ResTTRegressor(bond_dim=4)
ResTTRegressor(bond_dim=4)
"""

from __future__ import annotations

from restt.estimators.classifier import ResTTClassifier
from restt.estimators.files import load
from restt.estimators.net_classifier import ResTTNetClassifier
from restt.estimators.net_regressor import ResTTNetRegressor
from restt.estimators.regressor import ResTTRegressor
from restt.estimators.search import ResTTSearchCV

__all__ = [
    "ResTTClassifier",
    "ResTTNetClassifier",
    "ResTTNetRegressor",
    "ResTTRegressor",
    "ResTTSearchCV",
    "load",
]
