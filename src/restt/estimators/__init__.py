"""Estimators at home in scikit-learn: two in closed form, two that are trained, and a search.

>>> from restt.estimators import ResTTRegressor
>>> ResTTRegressor(bond_dim=4)
ResTTRegressor(bond_dim=4)
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from restt.estimators.classifier import ResTTClassifier
    from restt.estimators.files import load
    from restt.estimators.net_classifier import ResTTNetClassifier
    from restt.estimators.net_regressor import ResTTNetRegressor
    from restt.estimators.regressor import ResTTRegressor
    from restt.estimators.search import ResTTSearchCV

# Public name -> the module that defines it. Loaded on first use: one estimator needs a part of the files here.
_LAZY = {
    "ResTTClassifier": "classifier",
    "ResTTNetClassifier": "net_classifier",
    "ResTTNetRegressor": "net_regressor",
    "ResTTRegressor": "regressor",
    "ResTTSearchCV": "search",
    "load": "files",
}

__all__ = [
    "ResTTClassifier",
    "ResTTNetClassifier",
    "ResTTNetRegressor",
    "ResTTRegressor",
    "ResTTSearchCV",
    "load",
]


def __getattr__(name: str) -> typing.Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'restt.estimators' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"restt.estimators.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
