"""Search over settings of trained estimators by cross-validation, folds and candidates as runs of one module."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV, ParameterGrid, check_cv
from sklearn.utils import Tags, get_tags, indexable
from torch import Tensor, nn

from restt import chain
from restt._common.compat_sklearn import (
    accepts_sample_weight,
    check_method_params,
    constraints_of,
    fit_context,
    safe_split,
)
from restt._common.devices import available_memory, fitting_threads
from restt._common.errors import shown
from restt.estimators.gradient import EncodedExamples, Prepared, multiplication, unless_equal
from restt.estimators.net import BaseNet
from restt.estimators.settings import NET, training_bytes
from restt.module import ResTT
from restt.train import Event, Penalty, TrainConfig, train
from restt.train.runs import per_run

# Parameters that leave the encoding of the rows as it is: candidates that differ in these share the encoded rows.
OF_TRAINING = ("epochs", "lr", "schedule", "batch_size", "penalty", "dropout", "random_state", "verbose")
OF_MODULE = ("topology", "bond_dim", "sigma2", "runs")
# Settings in which the runs of one module may differ, beside the weights of the penalty.
OF_RUNS = ("epochs", "lr", "weight_decay", "dropout", "seed")


class ResTTSearchCV(GridSearchCV):
    """Grid search with cross-validation of a trained estimator, folds and candidates side by side on the runs axis.

    Results are those of scikit-learn's ``GridSearchCV`` with the same folds and seeds, in a fraction of the time. Fits
    whose modules have the same shape (bond, topology, feature map, outputs) are trained in groups; they may differ in
    rate, penalty, dropout, epochs and seed. A candidate that cannot be fitted raises its error.

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
    return_train_score : bool, default=False
    verbose : int, default=0
        1 prints the number of fits.

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

    _parameter_constraints: ClassVar[dict[str, Any]] = constraints_of(GridSearchCV)

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        cv: Any = 5,
        scoring: Any = None,
        refit: Any = True,
        return_train_score: bool = False,
        verbose: int = 0,
    ) -> None:
        options = {"cv": cv, "scoring": scoring, "refit": refit, "verbose": verbose}
        super().__init__(estimator, param_grid, return_train_score=return_train_score, **options)

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
        fits = self._prepared(X, y, sample_weight, candidates, [kept for kept, _ in folds])
        _train_all(fits)
        weighs = sample_weight is not None and accepts_sample_weight(scorer)
        results = [self._scored(fit, X, y, sample_weight if weighs else None, folds[fit.fold], scorer) for fit in fits]
        self._choose_best(candidates, len(folds), results)
        self.scorer_ = getattr(scorer, "_scorers", scorer)
        if self.refit:
            self.best_estimator_ = self._candidate(self.best_params_)
            began = time.perf_counter()
            self.best_estimator_.fit(X, y, sample_weight)
            self.refit_time_ = time.perf_counter() - began
            if hasattr(self.best_estimator_, "feature_names_in_"):
                self.feature_names_in_ = self.best_estimator_.feature_names_in_
        return self

    def _candidate(self, parameters: dict[str, Any]) -> Any:
        estimator = clone(self.estimator).set_params(**clone(parameters, safe=False))
        if estimator.checkpoint_dir is not None:
            raise ValueError(f"checkpoint_dir must be None in a ResTTSearchCV, got {shown(estimator.checkpoint_dir)}")
        return estimator

    def _prepared(
        self, X: Any, y: Any, sample_weight: Any, candidates: Sequence[dict[str, Any]], folds: Sequence[np.ndarray]
    ) -> list[_Fit]:
        """Prepare the fits of all candidates to all folds; those that only train otherwise share their encoded rows."""
        fits = []
        shared: dict[tuple[bytes, int], Prepared] = {}
        for parameters in candidates:
            key = pickle.dumps(
                sorted((name, value) for name, value in parameters.items() if name not in OF_TRAINING + OF_MODULE)
            )
            for fold, kept in enumerate(folds):
                estimator = self._candidate(parameters)
                estimator._validate_params()
                weights = check_method_params(X, {"sample_weight": sample_weight}, kept)["sample_weight"]
                given = estimator._read_examples(*safe_split(self.estimator, X, y, kept), weights, reset=True)
                with fitting_threads(given.encoding_work):
                    shared[key, fold] = estimator._prepare(given, like=shared.get((key, fold)))
                fits.append(_Fit(fold, estimator, shared[key, fold]))
        return fits

    def _scored(
        self, fit: _Fit, X: Any, y: Any, sample_weight: Any, rows: tuple[np.ndarray, np.ndarray], scorer: Any
    ) -> dict[str, Any]:
        """Score a fit, as ``GridSearchCV`` has results."""
        # As fit does, but for the covariances that explanations need.
        fit.estimator._adopt(fit.prepared)
        fit.estimator.n_iter_ = fit.epochs
        fit.estimator._finish(fit.prepared.judged)
        fit.estimator._warn_if_failed(fit.prepared, fit.events)
        began, scores = time.perf_counter(), {}
        for name, part in zip(("train_scores", "test_scores"), rows, strict=True):
            if name == "test_scores" or self.return_train_score:
                own = {} if sample_weight is None else check_method_params(X, {"sample_weight": sample_weight}, part)
                scores[name] = scorer(fit.estimator, *safe_split(self.estimator, X, y, part), **own)
        return {"fit_time": fit.seconds, "score_time": time.perf_counter() - began, **scores}

    def _choose_best(self, candidates: Sequence[dict[str, Any]], folds: int, results: list[dict[str, Any]]) -> None:
        """Set ``cv_results_`` and the best candidate from results by candidate and fold."""
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


@dataclass(eq=False)
class _Fit:
    """A fit of a candidate to a fold, and what its training gave."""

    fold: int
    estimator: BaseNet
    prepared: Prepared
    epochs: int = 0
    events: list[Event] = field(default_factory=list)
    seconds: float = 0.0  # share of its group's time

    @property
    def kind(self) -> tuple[Any, ...]:
        """Key that is equal for fits that can be runs of one module."""
        module, config, settings = self.prepared.module, self.prepared.config, self.prepared.settings
        shared = [getattr(config, one.name) for one in fields(config) if one.name not in (*OF_RUNS, "penalty")]
        towards = (config.penalty or Penalty()).towards
        sizes = module.topology, module.feature_dim, module.bond_dim, module.outputs
        return *sizes, settings.device, settings.precision, *shared, towards


def _train_all(fits: Sequence[_Fit]) -> None:
    """Train every module, those of one shape in groups, each as it would be alone.

    A group is as large as the cache allows, on a GPU as its memory does. On a CPU as many groups are trained at the
    same time as torch has threads, each on one of them.
    """
    threads = torch.get_num_threads() if all(fit.prepared.settings.device.type == "cpu" for fit in fits) else 1
    kinds: dict[Any, list[_Fit]] = {}
    # Neighbours have the same rows, which a group reads once, and the same rate, so that Adam moves them together.
    for fit in sorted(fits, key=lambda fit: (fit.fold, fit.prepared.config.lr)):
        kinds.setdefault(fit.kind, []).append(fit)
    groups: list[list[_Fit]] = []
    for alike in kinds.values():
        most = min(_most_fits(alike[0].prepared), -(-len(alike) // threads))
        groups += [[alike[n] for n in part] for part in np.array_split(range(len(alike)), -(-len(alike) // most))]
    torch.set_num_threads(1 if len(groups) > 1 else threads)
    try:
        with ThreadPoolExecutor(threads) as pool:
            # A thread has a context of its own, without what was chosen in this one (restt.chain.backend).
            for job in [pool.submit(copy_context().run, _train_group, group) for group in groups]:
                job.result()
    finally:
        torch.set_num_threads(threads)


def _most_fits(fit: Prepared) -> int:
    """Fits of one kind in a group."""
    module, device = fit.module, fit.settings.device
    sizes = module.sites, module.feature_dim, module.bond_dim, module.outputs, fit.runs
    room = NET.cached_bytes if device.type == "cpu" else NET.gpu_share * available_memory(device)
    return max(1, int(room // training_bytes(fit.settings, *sizes, rows=len(fit.rows.vectors))))


def _train_group(group: Sequence[_Fit]) -> None:
    """Train fits of one kind as runs of one module."""
    began, fits = time.perf_counter(), [fit.prepared for fit in group]
    module, settings = _stacked([fit.module for fit in fits]), fits[0].settings
    vectors, targets, weights, subset = _joined(fits, [fit.rows for fit in fits])
    held = None if fits[0].held is None else _joined(fits, [fit.held for fit in fits if fit.held])
    stream = train(
        module,
        vectors,
        targets,
        config=_joint_config(fits),
        sample_weight=unless_equal(weights),
        subset=subset,
        validation=None if held is None else held[:3],
        validation_subset=None if held is None else held[3],
    )
    work = sum(fit.settings.step_work for fit in fits)
    with chain.precision(multiplication(settings.precision)), fitting_threads(work):
        records = list(stream)
    seconds, start = (time.perf_counter() - began) / len(group), 0
    for fit in group:
        runs, fit.seconds = range(start, start + fit.prepared.runs), seconds
        with torch.no_grad():
            for name, value in fit.prepared.module.named_parameters():
                value.copy_(module.get_parameter(name)[runs.start : runs.stop])
        fit.epochs = max(record.epoch for record in records if set(record.runs) & set(runs))
        fit.events = [event for record in records for event in record.events if event.run in runs]
        start = runs.stop


def _stacked(modules: Sequence[ResTT]) -> ResTT:
    """Stack modules into one whose runs are those of all.

    Their sites may differ in width as long as the widest agree: entries of the padding are 0, and so are those of x.
    """
    stacked = copy.copy(modules[0])
    stacked._parameters = {
        name: None if value is None else nn.Parameter(torch.cat([own.get_parameter(name).detach() for own in modules]))
        for name, value in modules[0]._parameters.items()
    }
    stacked._buffers = {"padding": None}
    stacked.runs = len(stacked.first)
    return stacked


def _joined(
    fits: Sequence[Prepared], rows: Sequence[EncodedExamples]
) -> tuple[Tensor, Tensor, np.ndarray, list[Tensor] | None]:
    """Join the rows of fits, (M, N, I), (M, …) and (M,), with the row numbers of each run; None where all are its."""
    places: dict[int, Tensor] = {}
    distinct: list[EncodedExamples] = []
    vectors: list[Tensor] = []
    for fit, given in zip(fits, rows, strict=True):
        if id(given) not in places:
            padding, start = fit.module.padding, sum(map(len, vectors))
            # In a stacked module nothing else says where the fit's sites are narrower.
            vectors.append(given.vectors if padding is None else given.vectors.masked_fill(padding, 0))
            distinct.append(given)
            places[id(given)] = torch.arange(start, start + len(given.vectors))
    subset = [places[id(given)] for fit, given in zip(fits, rows, strict=True) for _ in range(fit.runs)]
    return (
        torch.cat(vectors),
        torch.cat([given.targets for given in distinct]),
        np.concatenate([given.loss_weights for given in distinct]),
        subset if len(distinct) > 1 else None,
    )


def _joint_config(fits: Sequence[Prepared]) -> TrainConfig:
    """Join the fits' settings, with a value for each run where they may differ."""
    runs = [fit.runs for fit in fits]

    def of_runs(name: str, holders: Sequence[Any]) -> list[Any]:
        pairs = zip(holders, runs, strict=True)
        return [value for holder, count in pairs for value in per_run(name, getattr(holder, name), count)]

    configs = [fit.config for fit in fits]
    penalties = [config.penalty or Penalty() for config in configs]
    changes: dict[str, Any] = {name: of_runs(name, configs) for name in OF_RUNS}
    grades: dict[str, Any] = {name: of_runs(name, penalties) for name in ("chain", "linear", "head")}
    run_ids = [run for count in runs for run in range(count)]
    return replace(configs[0], **changes, penalty=replace(penalties[0], **grades), run_ids=run_ids)
