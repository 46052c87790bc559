"""Search over settings by cross-validation, folds and candidates side by side."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Self

import joblib
import numpy as np
import torch
from joblib.parallel import ParallelBackendBase
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils import Tags, get_tags

from restt._common.compat_sklearn import (
    Interval,
    StrOptions,
    check_method_params,
    constraints_of,
    num_features,
    safe_split,
)
from restt.estimators.base import BaseResTT
from restt.estimators.progress import unwatched_fits
from restt.estimators.scoring import known_result
from restt.estimators.together import Job, fit_together, why_alone
from restt.module import ResTT

# Handing calls over one by one takes longer than what they say; their results are told in as many pieces.
CALLS_AT_ONCE = 64

Call = tuple[Callable[..., Any], tuple[Any, Any, Any], dict[str, Any]]  # a function and what it is called with
Split = tuple[Any, Any, Any, Any, Any]  # X, y and sample_weight of a fold's training rows, X and y of its test rows


class ResTTSearchCV(GridSearchCV):
    """Grid search with cross-validation whose fits are trained side by side on the runs axis.

    What scikit-learn's ``GridSearchCV`` finds with the same folds and seeds, in a fraction of the time. Fits whose
    modules have the same shape (bond, topology, outputs, width of the sites) are trained in groups; they may differ in
    everything else that a search tries: rate, penalty, dropout, epochs, seed. Fits that cannot be trained beside
    others (of the posterior solver, of another estimator or a pipeline, with a ``checkpoint_dir`` or ``verbose`` of
    their own) are fitted one by one as ``GridSearchCV`` does, on ``n_jobs`` processes; ``alone_`` says which.

    Parameters
    ----------
    estimator : ResTTRegressor or ResTTClassifier
        Any other estimator with ``fit`` works as in ``GridSearchCV``.
    param_grid : dict or list of dict
        Names of parameters and the values to try.
    scoring : str, callable, list, tuple or dict, optional
        One metric or several; by default the estimator's ``score``.
    n_jobs : int, optional
        Groups that are trained at the same time on a CPU, each on one thread; by default as many as torch has threads.
        On a GPU one group after the other; one on each at the same time where the estimator's ``device`` is a list.
    refit : bool, str or callable, default=True
        Fit the best candidate on all rows; with several metrics the name of the one that decides.
    cv : int, splitter or iterable, optional
        Folds; by default 5, with the shares of the classes kept.
    verbose : int, default=0
        As in ``GridSearchCV``.
    error_score : "raise" or number, default=nan
        Score of a fit that failed, or raise its error.
    return_train_score : bool, default=False
    runs_at_once : "auto" or int
        Runs in a group; ``"auto"`` is as many as stay in the cache of a CPU, or in the memory of a GPU.

    Attributes
    ----------
    cv_results_, best_index_, best_params_, best_score_, best_estimator_, scorer_, n_splits_, refit_time_, multimetric_
        As in ``GridSearchCV``. A fit's time is its share of its group's.
    beside_ : dict of int to int
        How many fits were trained in groups of how many runs.
    alone_ : dict of str to int
        Why fits were fitted one by one, and how many; empty where all were trained side by side.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from restt import ResTTRegressor, ResTTSearchCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ResTTRegressor(solver="gradient", bond_dim=3, epochs=30, random_state=0)
    >>> search = ResTTSearchCV(model, {"penalty": [0.01, 0.1], "lr": [0.02, 0.05]}, cv=3).fit(X[:150], y[:150])
    >>> search.cv_results_["mean_test_score"].shape, sum(search.beside_.values()), search.alone_
    ((4,), 12, {})
    >>> search.predict(X[150:]).shape
    (292,)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **constraints_of(GridSearchCV),
        "runs_at_once": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    }

    beside_: dict[int, int]
    alone_: dict[str, int]

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        error_score: Any = np.nan,
        return_train_score: bool = False,
        runs_at_once: str | int = "auto",
    ) -> None:
        super().__init__(
            estimator,
            param_grid,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch="all",  # a fit that is not known cannot be beside others
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.runs_at_once = runs_at_once

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Fit and score all candidates on all folds, and the best one on all rows.

        ``params`` go to ``fit`` of the estimator (``sample_weight``), to the splitter (``groups``) and to the scorers,
        as in ``GridSearchCV``.
        """
        backend = TogetherBackend(self.n_jobs, None if self.runs_at_once == "auto" else int(self.runs_at_once))
        with backend.registered(), unwatched_fits():
            super().fit(X, y, **params)
        self.beside_, self.alone_ = dict(backend.beside), dict(backend.alone)
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        # scikit-learn's own leave out that the estimator takes missing values and several outputs.
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        return tags


class TogetherBackend(ParallelBackendBase):
    """A joblib backend that takes all fits of a search before any is carried out.

    ``GridSearchCV`` hands its fits to joblib, each as a call of the function that fits and scores. Here the estimators
    are fitted together first, and then that function is called with each of them, whose ``fit`` only tells what
    happened: splitting, scoring, messages, and what an error or a warning leads to are scikit-learn's own.
    """

    def __init__(self, n_jobs: int | None, runs_at_once: int | None) -> None:
        super().__init__(nesting_level=0)
        self.n_jobs, self.runs_at_once = n_jobs, runs_at_once
        self.beside: Counter[int] = Counter()
        self.alone: Counter[str] = Counter()
        self._calls: list[Call] = []
        self._results: list[Any] = []

    def registered(self) -> Any:
        """A context in which the next ``joblib.Parallel``, and none after it, uses this backend."""
        self._registration = joblib.parallel_config(backend=self)
        return self._registration

    def configure(self, n_jobs: int = 1, parallel: Any = None, **settings: Any) -> int:
        """Called by joblib as a ``Parallel`` begins."""
        self._registration.unregister()
        return self.effective_n_jobs(n_jobs)

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Never 1, for which joblib would not ask a backend."""
        return 2

    def compute_batch_size(self) -> int:
        """Calls that are handed over at once."""
        return CALLS_AT_ONCE

    def submit(self, func: Any, callback: Any = None) -> range:
        """Take calls; where their results will be is what :meth:`retrieve_result` is given."""
        taken = range(len(self._calls), len(self._calls) + len(func.items))
        self._calls += func.items
        callback(None)
        return taken

    apply_async = submit  # its name before joblib 1.5

    def retrieve_result(self, out: range, timeout: Any = None) -> list[Any]:
        """Results of calls that were taken; the first to be asked for has all of them carried out."""
        if out.stop > len(self._results):
            self._results += self._carried_out(self._calls[len(self._results) :])
        return self._results[out.start : out.stop]

    def _carried_out(self, calls: Sequence[Call]) -> list[Any]:
        jobs: dict[int, Job] = {}
        others: list[int] = []
        splits: dict[int, Split] = {}
        for place, call in enumerate(calls):
            found = _read_call(call, splits)
            if isinstance(found, Job):
                jobs[place] = found
            else:
                self.alone[found] += 1
                others.append(place)
        threads = torch.get_num_threads() if self.n_jobs is None else joblib.effective_n_jobs(self.n_jobs)
        fit_together(list(jobs.values()), threads=threads, runs_at_once=self.runs_at_once)
        self.beside.update(job.beside for job in jobs.values() if job.beside)
        results = {place: _scored(calls[place], job) for place, job in jobs.items()}
        results |= zip(others, joblib.Parallel(n_jobs=self.n_jobs)(calls[place] for place in others), strict=True)
        return [results[place] for place in range(len(calls))]


def _read_call(call: Call, splits: dict[int, Split]) -> Job | str:
    """The fit of a call of scikit-learn's function that fits and scores, or why it is carried out as it is.

    ``splits`` keeps what was split for other candidates.
    """
    _, (estimator, x, y), given = call
    train, fit_params = given["train"], given["fit_params"] or {}
    others = sorted(set(fit_params) - {"sample_weight"})
    if others:
        return f"fit is also given {', '.join(others)}"
    try:
        estimator.set_params(**clone(given["parameters"], safe=False))
        reason = why_alone(estimator, num_features(x))
        if reason is not None:
            return reason
        if id(train) not in splits:
            weights = check_method_params(x, params=fit_params, indices=train).get("sample_weight")
            # What is asked again can be known again in an array of floats.
            asked = x[given["test"]] if type(x) is np.ndarray and x.dtype.kind == "f" else None
            truth = y[given["test"]] if asked is not None and type(y) is np.ndarray and y.ndim == 1 else None
            splits[id(train)] = (*safe_split(estimator, x, y, train), weights, asked, truth)
    except Exception as error:  # called as it is, scikit-learn's function says what is to be said
        return f"it is refused with {type(error).__name__}"
    own_x, own_y, weights, asked, truth = splits[id(train)]
    return Job(estimator, own_x, own_y, weights, id(train), asked, truth)


def _scored(call: Call, job: Job) -> dict[str, Any]:
    """The result of the call for a fit that was carried out."""
    function, (_, x, y), given = call
    own: dict[str, Any] = {"fit": partial(_tell, job)}  # found before those of its class
    if job.answers is not None:
        own["_members"] = partial(_answer, job, vars(job.estimator).get("module_"), job.estimator.n_iter_)
    job.estimator.__dict__ |= own
    try:
        result = known_result(job, given) or function(job.estimator, x, y, **given)
    finally:
        for name in own:
            job.estimator.__dict__.pop(name, None)
    result["fit_time"] = job.seconds
    return result


def _answer(job: Job, module: ResTT | None, epochs: int, X: Any) -> np.ndarray:  # (S, B, O)
    """In place of outputs for rows whose outputs are known, for as long as the weights are those of the fit.

    ``module`` is None for one that nobody has asked for yet, as it then still is.
    """
    estimator, asked, answers = job.estimator, job.asked, job.answers
    same = type(X) is np.ndarray and X.dtype == asked.dtype and np.array_equal(X, asked, equal_nan=True)
    if answers is not None and same and vars(estimator).get("module_") is module and estimator.n_iter_ == epochs:
        return answers
    return type(estimator)._members(estimator, X)


def _tell(job: Job, *data: Any, **fit_params: Any) -> BaseResTT:
    """In place of a ``fit`` that was carried out: its warnings, its error."""
    for warning in job.told:
        warnings.warn(warning.message, stacklevel=2)
    if job.error is not None:
        raise job.error
    return job.estimator
