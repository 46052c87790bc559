"""Every private name of scikit-learn that is used: what a new version of it may change is found here alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.base import _fit_context as fit_context
from sklearn.utils._param_validation import Interval, StrOptions, validate_parameter_constraints
from sklearn.utils.metaestimators import _safe_split as safe_split
from sklearn.utils.validation import _check_method_params as check_method_params
from sklearn.utils.validation import _num_features as num_features

__all__ = [
    "Interval",
    "StrOptions",
    "check_method_params",
    "constraints_of",
    "fit_context",
    "is_passthrough",
    "num_features",
    "plain_metric",
    "safe_split",
    "validate_parameter_constraints",
    "validates_as_usual",
]


def constraints_of(kind: type[BaseEstimator]) -> dict[str, Any]:
    """What an estimator of scikit-learn accepts as its parameters."""
    return dict(kind._parameter_constraints)


def validates_as_usual(kind: type[BaseEstimator]) -> bool:
    """Whether an estimator checks its parameters by ``_parameter_constraints`` and nothing else."""
    return bool(kind._validate_params is BaseEstimator._validate_params)


def plain_metric(scorer: Any) -> Callable[..., float] | None:
    """The function that a scorer applies, as it is, to targets and ``predict``; None where it does something else."""
    from sklearn.metrics._scorer import _Scorer

    plain = type(scorer) is _Scorer and scorer._sign == 1 and not scorer._kwargs
    return scorer._score_func if plain and scorer._response_method == "predict" else None


def is_passthrough(scorer: Any) -> bool:
    """Whether a scorer is the estimator's own ``score``."""
    from sklearn.metrics._scorer import _PassthroughScorer

    return type(scorer) is _PassthroughScorer
