"""Search over settings of trained estimators by cross-validation, folds and candidates as runs of one module."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, ClassVar, NamedTuple, Self

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

# Parameters that only concern how encoded rows are trained on: candidates that differ in these share the rows.
ONLY_TRAINING = ("epochs", "lr", "schedule", "batch_size", "penalty", "dropout", "random_state", "verbose")
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
        results: dict[tuple[int, int], dict[str, Any]] = {}
        for group in _with_shared_rows(candidates):
            results |= self._results(X, y, sample_weight, group, folds, scorer)
        self._choose_best(candidates, len(folds), [results[place] for place in sorted(results)])
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

    def _results(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        candidates: dict[int, dict[str, Any]],
        folds: Sequence[tuple[np.ndarray, np.ndarray]],
        scorer: Any,
    ) -> dict[tuple[int, int], dict[str, Any]]:
        """Fit and score candidates that share encoded rows; scores by candidate and fold, as GridSearchCV has them."""
        ready: list[tuple[int, int, BaseNet, Prepared]] = []
        for fold, (kept, _) in enumerate(folds):
            own_x, own_y = safe_split(self.estimator, X, y, kept)
            weights = check_method_params(X, {"sample_weight": sample_weight}, kept)["sample_weight"]
            like: Prepared | None = None
            for number, parameters in candidates.items():
                estimator = self._candidate(parameters)
                estimator._validate_params()
                given = estimator._read_examples(own_x, own_y, weights, reset=True)
                with fitting_threads(given.encoding_work):
                    like = estimator._prepare(given, like=like)
                ready.append((number, fold, estimator, like))
        # Neighbours have the same rows, which a group reads once, and the same rate, so that Adam moves them together.
        ready.sort(key=lambda item: (item[1], item[3].config.lr))
        weighs = sample_weight is not None and accepts_sample_weight(scorer)
        results = {}
        for (number, fold, estimator, prepared), trained in zip(ready, _trained([p for *_, p in ready]), strict=True):
            # As fit does, but for the covariances that explanations need.
            estimator._adopt(prepared)
            estimator.module_, estimator.n_iter_ = trained.module, trained.epochs
            estimator._finish(prepared.judged)
            estimator._warn_if_failed(prepared, trained.events)
            began, scores = time.perf_counter(), {}
            for name, rows in zip(("train_scores", "test_scores"), folds[fold], strict=True):
                if name == "test_scores" or self.return_train_score:
                    own = check_method_params(X, {"sample_weight": sample_weight} if weighs else {}, rows)
                    scores[name] = scorer(estimator, *safe_split(self.estimator, X, y, rows), **own)
            times = {"fit_time": trained.seconds, "score_time": time.perf_counter() - began}
            results[number, fold] = {**times, **scores}
        return results

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


def _with_shared_rows(candidates: Sequence[dict[str, Any]]) -> list[dict[int, dict[str, Any]]]:
    """Candidates by their number, those together that differ in nothing but how encoded rows are trained on."""
    groups: dict[bytes, dict[int, dict[str, Any]]] = {}
    for number, parameters in enumerate(candidates):
        key = sorted((name, value) for name, value in parameters.items() if name not in ONLY_TRAINING)
        groups.setdefault(pickle.dumps(key), {})[number] = parameters
    return list(groups.values())


class _Trained(NamedTuple):
    module: ResTT
    epochs: int
    events: list[Event]
    seconds: float  # share of the group's time


def _trained(fits: Sequence[Prepared]) -> list[_Trained]:
    """Train a copy of every module, those of one shape in groups, each as it would be alone.

    A group is as large as the cache allows, on a GPU as its memory does. On a CPU as many groups are trained at the
    same time as torch has threads, each on one of them.
    """
    threads = torch.get_num_threads() if all(fit.settings.device.type == "cpu" for fit in fits) else 1
    kinds: dict[Any, list[int]] = {}
    for place, fit in enumerate(fits):
        kinds.setdefault(_kind(fit), []).append(place)
    groups: list[list[int]] = []
    for places in kinds.values():
        most = min(_most_fits(fits[places[0]]), -(-len(places) // threads))
        groups += [piece.tolist() for piece in np.array_split(places, -(-len(places) // most))]

    def train_group(group: list[int]) -> Iterator[tuple[int, _Trained]]:
        return zip(group, _train_group([fits[place] for place in group]), strict=True)

    torch.set_num_threads(1 if len(groups) > 1 else threads)
    try:
        with ThreadPoolExecutor(threads) as pool:
            # A thread has a context of its own, without what was chosen in this one (restt.chain.backend).
            jobs = [pool.submit(copy_context().run, train_group, group) for group in groups]
            by_place = dict(pair for job in jobs for pair in job.result())
    finally:
        torch.set_num_threads(threads)
    return [by_place[place] for place in range(len(fits))]


def _kind(fit: Prepared) -> tuple[Any, ...]:
    """Key that is equal for fits that can be runs of one module."""
    shared = replace(fit.config, epochs=1, lr=1.0, weight_decay=0.0, dropout=0.0, seed=None, penalty=None)
    towards = (fit.config.penalty or Penalty()).towards
    return fit.module.feature_dim, fit.module.outputs, fit.settings.device, fit.settings.precision, shared, towards


def _most_fits(fit: Prepared) -> int:
    """Fits of one kind in a group."""
    module, device = fit.module, fit.settings.device
    sizes = module.sites, module.feature_dim, module.bond_dim, module.outputs, module.runs or 1
    room = NET.cached_bytes if device.type == "cpu" else NET.gpu_share * available_memory(device)
    return max(1, int(room // training_bytes(fit.settings, *sizes, rows=len(fit.rows.vectors))))


def _train_group(fits: Sequence[Prepared]) -> list[_Trained]:
    """Train fits of one kind as runs of one module."""
    began, settings = time.perf_counter(), fits[0].settings
    module = _stacked([fit.module for fit in fits])
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
    ends = list(accumulate((fit.module.runs or 1 for fit in fits), initial=0))
    seconds = (time.perf_counter() - began) / len(fits)
    trained = []
    for fit, (start, stop) in zip(fits, pairwise(ends), strict=True):
        own = {name: value.detach()[start:stop].clone() for name, value in module.named_parameters()}
        epochs = max(record.epoch for record in records if set(record.runs) & set(range(start, stop)))
        events = [event for record in records for event in record.events if event.run in range(start, stop)]
        trained.append(_Trained(_with_weights(fit.module, own), epochs, events, seconds))
    return trained


@torch.no_grad()
def _stacked(modules: Sequence[ResTT]) -> ResTT:
    """Stack modules into one whose runs are those of all.

    Their sites may differ in width as long as the widest agree: entries of the padding are 0, and so are those of x.
    """
    names = [name for name, _ in modules[0].named_parameters()]
    weights = {name: torch.cat([module.get_parameter(name) for module in modules]) for name in names}
    stacked = _with_weights(modules[0], weights)
    stacked._buffers = {"padding": None}
    stacked.runs = len(stacked.first)
    return stacked


def _with_weights(module: ResTT, weights: dict[str, Tensor]) -> ResTT:
    """Copy a module with other weights."""
    changed = copy.copy(module)
    changed._parameters = {
        name: nn.Parameter(weights[name]) if name in weights else None for name in module._parameters
    }
    return changed


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
    subset = [places[id(given)] for fit, given in zip(fits, rows, strict=True) for _ in range(fit.module.runs or 1)]
    return (
        torch.cat(vectors),
        torch.cat([given.targets for given in distinct]),
        np.concatenate([given.loss_weights for given in distinct]),
        subset if len(distinct) > 1 else None,
    )


def _joint_config(fits: Sequence[Prepared]) -> TrainConfig:
    """Join the fits' settings, with a value for each run where they may differ."""

    def of_runs(name: str, holders: Sequence[Any]) -> list[Any]:
        pairs = zip(holders, fits, strict=True)
        return [value for holder, fit in pairs for value in per_run(name, getattr(holder, name), fit.module.runs or 1)]

    configs = [fit.config for fit in fits]
    penalties = [config.penalty or Penalty() for config in configs]
    changes: dict[str, Any] = {name: of_runs(name, configs) for name in OF_RUNS}
    grades: dict[str, Any] = {name: of_runs(name, penalties) for name in ("chain", "linear", "head")}
    changes["penalty"] = replace(penalties[0], **grades)
    changes["run_ids"] = [run for fit in fits for run in range(fit.module.runs or 1)]
    return replace(configs[0], **changes)
