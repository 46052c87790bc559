"""Every private name of scikit-learn that is used: a new version can break this file alone."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator
from sklearn.base import _fit_context as fit_context
from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import _safe_split as safe_split
from sklearn.utils.validation import _check_method_params as check_method_params

__all__ = [
    "Interval",
    "StrOptions",
    "accepts_sample_weight",
    "check_method_params",
    "constraints_of",
    "fit_context",
    "safe_indexing",
    "safe_split",
]


def constraints_of(kind: type[BaseEstimator]) -> dict[str, Any]:
    """Parameter constraints of an estimator of scikit-learn."""
    return dict(kind._parameter_constraints)


def accepts_sample_weight(scorer: Any) -> bool:
    """Whether this version's ``GridSearchCV`` would give a scorer the rows' weights."""
    asked = getattr(scorer, "_accept_sample_weight", None)
    return bool(asked is not None and asked())
