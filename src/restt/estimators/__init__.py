"""Estimators at home in scikit-learn.

>>> from restt.estimators import ResTTRegressor
>>> ResTTRegressor(bond_dim=4)
ResTTRegressor(bond_dim=4)
"""

from __future__ import annotations

from restt.estimators.classifier import ResTTClassifier
from restt.estimators.files import load
from restt.estimators.regressor import ResTTRegressor
from restt.estimators.search import ResTTSearchCV

__all__ = ["ResTTClassifier", "ResTTRegressor", "ResTTSearchCV", "load"]
