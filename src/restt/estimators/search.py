"""Search over settings of trained estimators by cross-validation, folds and candidates side by side."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone, is_classifier
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
    insert_error_scores,
    safe_split,
    warn_or_raise_about_fit_failures,
)
from restt._common.devices import fitting_threads
from restt._common.errors import shown
from restt.estimators.gradient import Prepared, own_outputs
from restt.estimators.net import BaseNet
from restt.estimators.side_by_side import Trained, train_side_by_side

# Parameters that only concern how encoded rows are trained on: candidates that differ in these share the rows.
ONLY_TRAINING = ("epochs", "lr", "schedule", "batch_size", "penalty", "dropout", "random_state", "verbose")


class ResTTSearchCV(GridSearchCV):
    """Grid search with cross-validation of a trained estimator, folds and candidates side by side on the runs axis.

    Results are those of scikit-learn's ``GridSearchCV`` with the same folds and seeds, in a fraction of the time. Fits
    whose modules have the same shape (bond, topology, feature map, outputs) are trained in groups; they may differ in
    rate, penalty, dropout, epochs and seed.

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
        X, y = indexable(X, y)
        scorer = check_scoring(self.estimator, self.scoring)
        candidates = list(ParameterGrid(self.param_grid))
        folds = list(check_cv(self.cv, y, classifier=is_classifier(self.estimator)).split(X, y, groups))
        if self.verbose:
            print(f"{len(folds)} folds of {len(candidates)} candidates, {len(folds) * len(candidates)} fits")
        results: dict[tuple[int, int], dict[str, Any]] = {}
        for group in _with_shared_rows(candidates):
            for candidate, fold, result in self._results(X, y, sample_weight, group, folds, scorer):
                results[candidate, fold] = result
            if self.verbose:
                print(f"{len(results)} fits done", flush=True)
        self._choose_best(candidates, len(folds), [results[place] for place in sorted(results)])
        self.scorer_ = getattr(scorer, "_scorers", scorer)
        if self.refit:
            self.best_estimator_ = self._candidate(self.best_params_)
            began = time.perf_counter()
            self.best_estimator_.fit(X, y, **({} if sample_weight is None else {"sample_weight": sample_weight}))
            self.refit_time_ = time.perf_counter() - began
            if hasattr(self.best_estimator_, "feature_names_in_"):
                self.feature_names_in_ = self.best_estimator_.feature_names_in_
        return self

    def _candidate(self, parameters: dict[str, Any]) -> Any:
        return clone(self.estimator).set_params(**clone(parameters, safe=False))

    def _results(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        candidates: dict[int, dict[str, Any]],
        folds: Sequence[tuple[np.ndarray, np.ndarray]],
        scorer: Any,
    ) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Fit and score candidates that share encoded rows on every fold, in the form that GridSearchCV collects."""
        ready: list[tuple[int, int, BaseNet, Prepared]] = []
        for fold, (kept, _) in enumerate(folds):
            own_x, own_y = safe_split(self.estimator, X, y, kept)
            weights = check_method_params(X, {"sample_weight": sample_weight}, kept)["sample_weight"]
            like: Prepared | None = None
            for number, parameters in candidates.items():
                estimator = self._candidate(parameters)
                try:
                    like = _prepared(estimator, own_x, own_y, weights, like)
                except Exception as error:
                    if self.error_score == "raise":
                        raise
                    failed = dict.fromkeys(("test_scores", "train_scores"), self.error_score)
                    yield number, fold, {"fit_error": f"{error!r}", "fit_time": 0.0, "score_time": 0.0, **failed}
                    continue
                ready.append((number, fold, estimator, like))
        at_once = None if self.runs_at_once == "auto" else int(self.runs_at_once)
        trained = train_side_by_side([prepared.fit for *_, prepared in ready], at_once)
        weighted = (
            {"sample_weight": sample_weight} if sample_weight is not None and accepts_sample_weight(scorer) else {}
        )
        for (number, fold, estimator, prepared), result in zip(ready, trained, strict=True):
            _finish(estimator, prepared, result)
            began, scores = time.perf_counter(), {}
            for name, rows in zip(("train_scores", "test_scores"), folds[fold], strict=True):
                if name == "test_scores" or self.return_train_score:
                    own = check_method_params(X, weighted, rows)
                    scores[name] = scorer(estimator, *safe_split(self.estimator, X, y, rows), **own)
            times = {"fit_time": result.seconds, "score_time": time.perf_counter() - began}
            yield number, fold, {"fit_error": None, **times, **scores}

    def _choose_best(self, candidates: Sequence[dict[str, Any]], folds: int, results: list[dict[str, Any]]) -> None:
        """Set ``cv_results_`` and the best candidate from results by candidate and fold."""
        warn_or_raise_about_fit_failures(results, self.error_score)
        insert_error_scores(results, self.error_score)
        self.n_splits_, self.multimetric_ = folds, isinstance(results[0]["test_scores"], dict)
        self.cv_results_ = self._format_results(candidates, folds, results)
        metric = "score"
        if self.multimetric_:
            self._check_refit_for_multimetric(results[0]["test_scores"])
            metric = self.refit
        if self.refit or not self.multimetric_:
            self.best_index_ = self._select_best_index(self.refit, metric, self.cv_results_)
            if not callable(self.refit):
                self.best_score_ = self.cv_results_[f"mean_test_{metric}"][self.best_index_]
            self.best_params_ = candidates[self.best_index_]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        # scikit-learn's own leave out that the estimator takes missing values and several outputs.
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        return tags


def _with_shared_rows(candidates: Sequence[dict[str, Any]]) -> list[dict[int, dict[str, Any]]]:
    """Candidates by their number, those together that differ in nothing but how encoded rows are trained on."""
    groups: dict[bytes, dict[int, dict[str, Any]]] = {}
    for number, parameters in enumerate(candidates):
        key = sorted((name, value) for name, value in parameters.items() if name not in ONLY_TRAINING)
        groups.setdefault(pickle.dumps(key), {})[number] = parameters
    return list(groups.values())


def _prepared(estimator: BaseNet, X: Any, y: Any, sample_weight: Any, like: Prepared | None) -> Prepared:
    """Do what ``fit`` does before it trains; encoded rows are those of ``like`` where it is given."""
    estimator._validate_params()
    if estimator.checkpoint_dir is not None:
        raise ValueError(
            f"checkpoint_dir must be None in a ResTTSearchCV, got {shown(estimator.checkpoint_dir)}: GridSearchCV "
            "keeps each training in a folder"
        )
    given = estimator._read_examples(X, y, sample_weight, reset=True)
    with fitting_threads(given.encoding_work):
        return estimator._prepare(given, like=like)


def _finish(estimator: BaseNet, prepared: Prepared, trained: Trained) -> None:
    """Do what ``fit`` does once it has trained, but for the covariances that explanations need."""
    rows = prepared.fit.rows
    estimator._adopt(prepared)
    estimator.module_, estimator.history_ = trained.module, trained.history
    estimator.n_iter_ = trained.history[-1].epoch
    estimator._finish(prepared.judged)
    events = [event for record in trained.history for event in record.events]
    estimator._warn_if_failed(own_outputs(trained.module, rows, estimator.precision_), rows, events)
