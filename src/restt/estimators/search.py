"""Search over settings of trained estimators by cross-validation, folds and candidates side by side."""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from scipy.stats import rankdata
from sklearn.base import clone, is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV, ParameterGrid, check_cv
from sklearn.utils import Tags, get_tags, indexable

from restt._common.compat_sklearn import (
    Interval,
    StrOptions,
    accepts_sample_weight,
    check_method_params,
    constraints_of,
    fit_context,
    safe_split,
)
from restt._common.devices import fitting_threads
from restt._common.errors import shown
from restt.estimators.forks import refuse_lost_threads
from restt.estimators.gradient import Prepared, own_outputs
from restt.estimators.net import BaseNet
from restt.estimators.side_by_side import Trained, train_side_by_side

# Parameters that only concern how encoded rows are trained on: candidates that differ in these share the rows.
ONLY_TRAINING = ("epochs", "lr", "schedule", "batch_size", "penalty", "dropout", "random_state", "verbose")


@dataclass(eq=False)
class Job:
    """One candidate on one fold, and what became of it."""

    candidate: int
    fold: int
    estimator: BaseNet
    prepared: Prepared | None = None
    error: Exception | None = None
    fit_seconds: float = 0.0
    score_seconds: float = 0.0
    scores: dict[str, dict[str, float]] = field(default_factory=dict)  # by "test" and "train", by metric


class ResTTSearchCV(GridSearchCV):
    """Grid search with cross-validation of a trained estimator, folds and candidates side by side on the runs axis.

    What scikit-learn's ``GridSearchCV`` finds with the same folds and seeds, in a fraction of the time. Fits whose
    modules have the same shape (bond, topology, feature map, outputs) are trained in groups; they may differ in rate,
    penalty, dropout, epochs and seed.

    Parameters
    ----------
    estimator : ResTTNetRegressor or ResTTNetClassifier
        Others are for ``GridSearchCV``.
    param_grid : dict or list of dict
        Names of parameters and the values to try.
    cv : int, splitter or iterable, default=5
        Folds; of a classifier a number keeps the shares of the classes.
    scoring : str, callable, list, tuple or dict, optional
        One metric or several; by default the estimator's ``score``.
    refit : bool, str or callable, default=True
        Fit the best candidate on all rows; with several metrics the name of the one that decides.
    error_score : "raise" or number, default=nan
        Score of a fit that was refused, with a warning, or raise its error.
    return_train_score : bool, default=False
    runs_at_once : "auto" or int
        Runs in a group; ``"auto"`` is as many as stay in the cache of a CPU, or in the memory of a GPU.
    verbose : int, default=0
        1 says how many fits there are, and when a group of candidates is done.

    Attributes
    ----------
    cv_results_, best_index_, best_params_, best_score_, best_estimator_, scorer_, n_splits_, refit_time_, multimetric_
        As in ``GridSearchCV``. A fit's time is its share of its group's.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from restt import ResTTNetRegressor, ResTTSearchCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ResTTNetRegressor(bond_dim=3, epochs=30, random_state=0)
    >>> search = ResTTSearchCV(model, {"penalty": [0.01, 0.1], "lr": [0.02, 0.05]}, cv=3).fit(X[:150], y[:150])
    >>> search.cv_results_["mean_test_score"].shape, search.predict(X[150:]).shape
    ((4,), (292,))
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **constraints_of(GridSearchCV),
        "runs_at_once": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        cv: Any = 5,
        scoring: Any = None,
        refit: Any = True,
        error_score: Any = np.nan,
        return_train_score: bool = False,
        runs_at_once: str | int = "auto",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            estimator,
            param_grid,
            cv=cv,
            scoring=scoring,
            refit=refit,
            error_score=error_score,
            return_train_score=return_train_score,
            verbose=verbose,
        )
        self.runs_at_once = runs_at_once

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit and score all candidates on all folds, and the best one on all rows.

        ``sample_weight`` goes to ``fit`` of the estimator and, as in ``GridSearchCV``, to scorers that take it;
        ``groups`` goes to the splitter.
        """
        if not isinstance(self.estimator, BaseNet) or type(self.estimator).fit is not BaseNet.fit:
            raise TypeError(
                f"estimator must be a ResTTNetRegressor or ResTTNetClassifier, got {type(self.estimator).__name__}: "
                "use scikit-learn's GridSearchCV for others"
            )
        refuse_lost_threads("fit")
        X, y = indexable(X, y)
        scorer = check_scoring(self.estimator, self.scoring)
        candidates = list(ParameterGrid(self.param_grid))
        folds = list(check_cv(self.cv, y, classifier=is_classifier(self.estimator)).split(X, y, groups))
        if self.verbose:
            print(f"{len(folds)} folds of {len(candidates)} candidates, {len(folds) * len(candidates)} fits")
        jobs: list[Job] = []
        for alike in _alike(candidates):
            jobs += self._fitted(X, y, sample_weight, alike, folds, scorer)
            if self.verbose:
                print(f"{len(jobs)} fits done", flush=True)
        self._take_results(candidates, len(folds), sorted(jobs, key=lambda job: (job.candidate, job.fold)))
        self.scorer_ = getattr(scorer, "_scorers", scorer)
        if self.refit:
            self.best_estimator_ = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
            began = time.perf_counter()
            self.best_estimator_.fit(X, y, **({} if sample_weight is None else {"sample_weight": sample_weight}))
            self.refit_time_ = time.perf_counter() - began
            if hasattr(self.best_estimator_, "feature_names_in_"):
                self.feature_names_in_ = self.best_estimator_.feature_names_in_
        return self

    def _fitted(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        candidates: dict[int, dict[str, Any]],
        folds: Sequence[tuple[np.ndarray, np.ndarray]],
        scorer: Any,
    ) -> list[Job]:
        """Candidates that share encoded rows, on every fold."""
        jobs = []
        for fold, (kept, _) in enumerate(folds):
            own_x, own_y = safe_split(self.estimator, X, y, kept)
            weights = check_method_params(X, {"sample_weight": sample_weight}, kept)["sample_weight"]
            like: Prepared | None = None
            for number, parameters in candidates.items():
                job = Job(number, fold, clone(self.estimator).set_params(**clone(parameters, safe=False)))
                jobs.append(job)
                try:
                    like = job.prepared = _prepared(job.estimator, own_x, own_y, weights, like)
                except Exception as error:
                    if self.error_score == "raise":
                        raise
                    job.error = error
        ready = [(job, job.prepared) for job in jobs if job.prepared is not None]
        at_once = None if self.runs_at_once == "auto" else int(self.runs_at_once)
        trained = train_side_by_side([prepared.fit for _, prepared in ready], at_once)
        weighs = sample_weight is not None and accepts_sample_weight(scorer)
        for (job, prepared), found in zip(ready, trained, strict=True):
            _end(job, prepared, found)
            began = time.perf_counter()
            parts = {"test": folds[job.fold][1]}
            if self.return_train_score:
                parts["train"] = folds[job.fold][0]
            for name, rows in parts.items():
                weighted = check_method_params(X, {"sample_weight": sample_weight} if weighs else {}, rows)
                score = scorer(job.estimator, *safe_split(self.estimator, X, y, rows), **weighted)
                job.scores[name] = score if isinstance(score, dict) else {"score": score}
            job.score_seconds = time.perf_counter() - began
            job.prepared = None
        return jobs

    def _take_results(self, candidates: Sequence[dict[str, Any]], folds: int, jobs: Sequence[Job]) -> None:
        """``cv_results_`` and the best candidate, from jobs by candidate and fold."""
        failed = [job for job in jobs if job.error is not None]
        if len(failed) == len(jobs):
            raise ValueError(f"All {len(jobs)} fits failed, the first with: {failed[0].error}") from failed[0].error
        if failed:
            warnings.warn(
                f"{len(failed)} of {len(jobs)} fits failed and have the score {self.error_score}, the first with: "
                f"{type(failed[0].error).__name__}: {failed[0].error}",
                FitFailedWarning,
                stacklevel=4,
            )
        metrics = list(next(job.scores["test"] for job in jobs if job.scores))
        self.multimetric_, self.n_splits_ = metrics != ["score"], folds
        results: dict[str, Any] = {}
        for name in ("fit", "score"):
            seconds = np.reshape([getattr(job, f"{name}_seconds") for job in jobs], (-1, folds))
            results[f"mean_{name}_time"], results[f"std_{name}_time"] = seconds.mean(axis=1), seconds.std(axis=1)
        for name in dict.fromkeys(name for parameters in candidates for name in parameters):
            values = np.ma.MaskedArray(np.empty(len(candidates)), mask=True, dtype=object)
            for place, parameters in enumerate(candidates):
                if name in parameters:
                    values[place] = parameters[name]
            results[f"param_{name}"] = values
        results["params"] = list(candidates)
        for metric in metrics:
            for part in ("test", "train") if self.return_train_score else ("test",):
                found = [job.scores[part][metric] if job.scores else float(self.error_score) for job in jobs]
                results |= _summary(np.reshape(found, (-1, folds)), f"{part}_{metric}", ranked=part == "test")
        self.cv_results_ = results
        if not self.refit and self.multimetric_:
            return
        if callable(self.refit):
            self.best_index_ = self.refit(results)
        else:
            decides = self.refit if self.multimetric_ else "score"
            if decides not in metrics:
                raise ValueError(f"refit must name one of the metrics {metrics}, got {shown(self.refit)}")
            self.best_index_ = int(results[f"rank_test_{decides}"].argmin())
            self.best_score_ = results[f"mean_test_{decides}"][self.best_index_]
        self.best_params_ = candidates[self.best_index_]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        # scikit-learn's own leave out that the estimator takes missing values and several outputs.
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        return tags


def _alike(candidates: Sequence[dict[str, Any]]) -> list[dict[int, dict[str, Any]]]:
    """Candidates by their number, those together that differ in nothing but how encoded rows are trained on."""
    groups: dict[bytes, dict[int, dict[str, Any]]] = {}
    for number, parameters in enumerate(candidates):
        key = sorted((name, value) for name, value in parameters.items() if name not in ONLY_TRAINING)
        groups.setdefault(pickle.dumps(key), {})[number] = parameters
    return list(groups.values())


def _prepared(estimator: BaseNet, X: Any, y: Any, sample_weight: Any, like: Prepared | None) -> Prepared:
    """What ``fit`` does before it trains; encoded rows are those of ``like`` where it is given."""
    estimator._validate_params()
    if estimator.checkpoint_dir is not None:
        raise ValueError(
            f"checkpoint_dir must be None in a ResTTSearchCV, got {shown(estimator.checkpoint_dir)}: GridSearchCV "
            "keeps each training in a folder"
        )
    given = estimator._read_examples(X, y, sample_weight, reset=True)
    with fitting_threads(given.encoding_work):
        return estimator._prepare(given, like=like)


def _end(job: Job, prepared: Prepared, found: Trained) -> None:
    """What ``fit`` does once it has trained, but for the covariances that explanations need."""
    estimator, rows = job.estimator, prepared.fit.rows
    estimator._adopt(prepared)
    estimator.module_, estimator.history_ = found.module, found.history
    estimator.n_iter_ = found.history[-1].epoch
    estimator._finish(prepared.judged)
    events = [event for record in found.history for event in record.events]
    estimator._warn_if_failed(own_outputs(found.module, rows, estimator.precision_), rows, events)
    job.fit_seconds = found.seconds


def _summary(scores: np.ndarray, name: str, *, ranked: bool) -> dict[str, np.ndarray]:  # (candidates, folds)
    """Columns of ``cv_results_`` for one metric; candidates without a score are last."""
    found = {f"split{fold}_{name}": column for fold, column in enumerate(scores.T)}
    found |= {f"mean_{name}": scores.mean(axis=1), f"std_{name}": scores.std(axis=1)}
    if ranked:
        mean = found[f"mean_{name}"]
        least = np.nanmin(mean) - 1 if not np.isnan(mean).all() else 0.0
        found[f"rank_{name}"] = rankdata(-np.nan_to_num(mean, nan=least), method="min").astype(np.int32)
    return found
