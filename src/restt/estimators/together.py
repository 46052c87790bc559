"""Estimators fitted together: each prepared as ``fit`` would, all trained side by side, each ended as ``fit`` would."""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from restt._common.compat_sklearn import validate_parameter_constraints, validates_as_usual
from restt._common.devices import fitting_threads
from restt._common.errors import shown
from restt.estimators.base import BaseResTT
from restt.estimators.forks import refuse_lost_threads
from restt.estimators.gradient import Prepared, site_vectors
from restt.estimators.parameters import PLAIN
from restt.estimators.side_by_side import Trained, train_side_by_side
from restt.estimators.tables import read_x

# Parameters that only concern how prepared rows are trained on.
ONLY_TRAINING = ("epochs", "lr", "schedule", "batch_size", "penalty", "dropout", "random_state", "verbose")
# Bytes of encoded rows that are prepared before they are trained on and let go.
HELD_BYTES = 2**30


@dataclass(eq=False)
class Job:
    """An estimator to be fitted in place, and then what became of it."""

    estimator: BaseResTT
    x: Any
    y: Any
    sample_weight: Any
    rows: Hashable  # jobs with the same name here have the same x, y, sample_weight and asked
    asked: Any = None  # a table whose outputs will be asked for
    truth: Any = None  # (B,): the targets that they will be compared with
    error: Exception | None = None  # what its fit would have raised
    told: list[warnings.WarningMessage] = field(default_factory=list)  # its warnings, which are not shown
    seconds: float = 0.0  # its share of the time
    beside: int = 0  # runs that were trained side by side, its own among them; 0 where it was refused
    answers: np.ndarray | None = None  # (S, B, O): its outputs for asked, where there is nothing more to say of that


def why_alone(estimator: Any, columns: int) -> str | None:
    """Why an unfitted estimator cannot be fitted beside others; None where it can."""
    if not isinstance(estimator, BaseResTT) or type(estimator).fit is not BaseResTT.fit:
        return f"{type(estimator).__name__} is no ResTTRegressor or ResTTClassifier"
    if estimator._is_solved(columns, stepwise=False):
        return "it is not solved by gradients"
    if estimator.checkpoint_dir is not None:
        return f"checkpoint_dir={shown(estimator.checkpoint_dir)} keeps each training in a folder"
    if estimator.verbose:
        return f"verbose={shown(estimator.verbose)} shows each training"
    if getattr(estimator, "_skl_callbacks", None):
        return "callbacks watch each training"
    return None


def fit_together(jobs: Sequence[Job], *, threads: int = 1, runs_at_once: int | None = None) -> None:
    """Fit the jobs' estimators, none of which may have a reason to be alone, to what ``fit`` would make of them.

    Nothing is raised or shown that concerns one of them only: that is in its ``error`` and ``told``.
    """
    refuse_lost_threads("fit")
    waiting: list[tuple[Job, Prepared]] = []
    known: dict[Hashable, tuple[Job, Prepared]] = {}
    accepted: set[Hashable] = set()  # values of parameters
    held: dict[int, int] = {}  # bytes of encoded rows
    for job in jobs:
        began, estimator = time.perf_counter(), job.estimator
        with _apart(job):
            parameters = estimator.get_params(deep=False)
            _check_parameters(estimator, parameters, accepted)
            of_rows = {name: value for name, value in parameters.items() if name not in ONLY_TRAINING}
            key = job.rows, _key(estimator, of_rows)
            prepared = _prepared(job, *known.get(key, (None, None)))
            known.setdefault(key, (job, prepared))
            held[id(prepared.fit.rows)] = prepared.fit.rows.vectors.nbytes
            if prepared.fit.asked is not None:
                held[id(prepared.fit.asked)] = prepared.fit.asked.nbytes
            waiting.append((job, prepared))
        job.seconds += time.perf_counter() - began
        if sum(held.values()) > HELD_BYTES:
            _train(waiting, threads, runs_at_once)
            waiting, known, held = [], {}, {}
    _train(waiting, threads, runs_at_once)


def _check_parameters(estimator: BaseResTT, parameters: dict[str, Any], accepted: set[Hashable]) -> None:
    """What ``fit`` does first, for those parameters whose values were not ``accepted`` before."""
    kind = type(estimator)
    if not validates_as_usual(kind):
        estimator._validate_params()
        return
    keys = {name: (kind, name, type(value), value) for name, value in parameters.items() if type(value) in PLAIN}
    left = {name: value for name, value in parameters.items() if keys.get(name) not in accepted}
    validate_parameter_constraints(estimator._parameter_constraints, left, caller_name=kind.__name__)
    accepted.update(keys.values())


def _key(estimator: BaseResTT, parameters: dict[str, Any]) -> Hashable:
    """Equal only where kind and parameters are; by their bytes, as some of them cannot be hashed or compared."""
    try:
        return type(estimator), pickle.dumps(parameters)
    except Exception:  # whatever an object of one's own raises: it is like no other
        return id(estimator)


def _prepared(job: Job, first: Job | None, like: Prepared | None) -> Prepared:
    """What ``fit`` does before it trains, taken from the ``first`` job with the same rows where there is one."""
    estimator = job.estimator
    if first is None or like is None:
        given = estimator._read_examples(job.x, job.y, job.sample_weight, reset=True)
        with fitting_threads(given.encoding_work):
            prepared = estimator._prepare(given)
            return replace(prepared, fit=replace(prepared.fit, asked=_encoded(job, prepared)))
    job.told += first.told
    known = vars(first.estimator)
    estimator.__dict__.update({name: known[name] for name in ("n_features_in_", "feature_names_in_") if name in known})
    prepared = estimator._prepare(like.given, like=like)
    return replace(prepared, fit=replace(prepared.fit, asked=like.fit.asked))


def _encoded(job: Job, prepared: Prepared) -> Tensor | None:  # (B, N, I)
    """The rows that will be asked for; None where there is a warning or an error to be told to who asks for them."""
    if job.asked is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return site_vectors(read_x(job.estimator, job.asked, reset=False), prepared.encoding, prepared.fit.settings)
        except Exception:
            return None


def _train(waiting: Sequence[tuple[Job, Prepared]], threads: int, runs_at_once: int | None) -> None:
    """What ``fit`` does from there on."""
    if not waiting:
        return
    fits = [prepared.fit for _, prepared in waiting]
    try:
        trained = train_side_by_side(fits, threads=threads, runs_at_once=runs_at_once)
    except Exception:
        # One of them is to blame: alone, its error is its own, and the others have none.
        for job, prepared in waiting:
            with _apart(job):
                _end(job, prepared, *train_side_by_side([prepared.fit]))
        return
    for (job, prepared), found in zip(waiting, trained, strict=True):
        with _apart(job):
            _end(job, prepared, found)


def _end(job: Job, prepared: Prepared, found: Trained) -> None:
    began, estimator = time.perf_counter(), job.estimator
    estimator._adopt(prepared)
    estimator.n_iter_ = found.epochs
    estimator._read_later(module_=found.cut_out, history_=found.history, site_covariances_=prepared.covariances)
    estimator._finish(prepared.judged)
    estimator._warn_if_failed(found.outputs, prepared.fit.rows, found.events)
    job.beside, job.answers = found.beside, found.answers
    job.seconds += found.seconds + time.perf_counter() - began


@contextmanager
def _apart(job: Job) -> Iterator[None]:
    """What goes wrong, and every warning, is kept for the job."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            yield
        except Exception as error:
            job.error = error
    job.told += told
