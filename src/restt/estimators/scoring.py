"""Scores of fits whose outputs are known, by the metrics that searches mostly use.

What scikit-learn's function that fits and scores would find, to the last digits. For every fit it splits the same rows
and checks the same targets anew, which takes longer than all fits of a small table together: here they are looked at
once for all candidates of a fold. Whatever is not known for certain is left to scikit-learn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score

from restt._common.compat_sklearn import is_passthrough, plain_metric
from restt.estimators.together import Job

Metric = Callable[[np.ndarray, np.ndarray], float | None]  # of targets and predictions (B,) each; None where unsure

# What GridSearchCV says to the function that fits and scores, beside estimator, X and y; all else is not known here.
SAID = {
    *("train", "test", "parameters", "split_progress", "candidate_progress", "scorer", "fit_params", "score_params"),
    *("error_score", "verbose", "caller", "callback_ctx"),
}
WANTED = {
    "return_train_score": False,
    "return_n_test_samples": True,
    "return_times": True,
    "return_parameters": False,
}
_DEFAULT_SCORERS = {RegressorMixin.score: r2_score, ClassifierMixin.score: accuracy_score}


def known_result(job: Job, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result for a job that was carried out, without the time of its fit; None where scikit-learn is to be asked.

    ``given`` is what scikit-learn's function would be called with.
    """
    began = time.perf_counter()
    if job.error is not None or job.told or job.answers is None or job.truth is None or not _is_plain(given):
        return None
    metric = known_metric(given["scorer"], job.estimator)
    score = None if metric is None else metric(job.truth, job.estimator.predict(job.asked))
    if score is None:
        return None
    return {
        "fit_error": None,
        "test_scores": score,
        "n_test_samples": len(job.truth),
        "score_time": time.perf_counter() - began,
    }


def _is_plain(given: Mapping[str, Any]) -> bool:
    """Whether nothing is asked for but the scores of the test rows, each of which counts the same."""
    if set(given) - SAID - set(WANTED) or any(given[name] is not value for name, value in WANTED.items()):
        return False
    context = given.get("callback_ctx")
    watched = context is not None and getattr(context, "_callbacks", True)
    return not watched and given["verbose"] <= 1 and not given["score_params"]


def known_metric(scorer: Any, estimator: Any) -> Metric | None:
    """What a scorer computes of targets and predictions, where that is known here.

    >>> from sklearn.metrics import get_scorer
    >>> from restt import ResTTRegressor
    >>> known_metric(get_scorer("r2"), ResTTRegressor()) is r_squared
    True
    >>> known_metric(get_scorer("neg_mean_squared_error"), ResTTRegressor()) is None
    True
    """
    function: Any = plain_metric(scorer)
    if is_passthrough(scorer) and "score" not in vars(estimator):
        function = _DEFAULT_SCORERS.get(type(estimator).score)
    return _METRICS.get(function)


def r_squared(targets: np.ndarray, predictions: np.ndarray) -> float | None:  # (B,) each
    """
    >>> r_squared(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 2.0]))
    0.5
    """
    if targets.dtype != np.float64 or predictions.shape != targets.shape or len(targets) < 2:
        return None
    residual = float(((targets - predictions) ** 2).sum())
    total = float(((targets - targets.mean()) ** 2).sum())
    # A total of 0 is a case of its own, and what is not finite an error or a warning.
    return 1.0 - residual / total if np.isfinite(residual) and 0 < total < np.inf else None


def accuracy(targets: np.ndarray, predictions: np.ndarray) -> float | None:  # (B,) each
    """
    >>> accuracy(np.array(["a", "b", "b", "a"]), np.array(["a", "b", "a", "a"]))
    0.75
    """
    same_kind = targets.dtype.kind == predictions.dtype.kind and targets.dtype.kind in "biuU"
    if not same_kind or predictions.shape != targets.shape or not len(targets):
        return None
    return float((targets == predictions).mean())


_METRICS: dict[Any, Metric] = {r2_score: r_squared, accuracy_score: accuracy}
