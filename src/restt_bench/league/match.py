"""One model on one split: fitted to its rows, scored on the others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, log_loss, r2_score, root_mean_squared_error
from sklearn.model_selection import train_test_split

from restt_bench.league.fixtures import Fixture
from restt_bench.league.models import OURS, Maker, players

COVERAGE = 0.9
# A model that says "never" of what happens has an infinite log-loss; this is the least probability it is charged with.
LEAST_PROBABILITY = 1e-9

Score = dict[str, Any]
Field = Callable[[Fixture, int], dict[str, Maker]]  # from a table and a seed to who plays


def play(fixture: Fixture, name: str, split: int, seed: int, field: Field = players) -> Score:
    """The scores of one model, or why it has none."""
    labels = fixture.y if fixture.task == "classification" else None
    rows = np.arange(len(fixture.x))
    fit, test = train_test_split(rows, train_size=fixture.train, random_state=split, stratify=labels)
    record: Score = {"table": fixture.name, "model": name, "split": split}
    model = field(fixture, seed)[name]()
    try:
        with warnings.catch_warnings():
            # What is at its defaults may stop early, and says so at every fit.
            for category in (ConvergenceWarning, FutureWarning, UserWarning, RuntimeWarning):
                warnings.simplefilter("ignore", category)
            began = time.perf_counter()
            model.fit(fixture.x[fit], fixture.y[fit])
            fitted = time.perf_counter()
            judge = _judge_values if fixture.task == "regression" else _judge_classes
            scores = judge(model, fixture.x[test], fixture.y[test], name)
            ended = time.perf_counter()
    except (ValueError, np.linalg.LinAlgError, MemoryError, RuntimeError) as error:
        return {**record, "failed": f"{type(error).__name__}: {error}"[:300]}
    return {**record, **scores, "seconds": fitted - began, "predict_seconds": ended - fitted}


def _judge_values(model: Any, x: np.ndarray, y: np.ndarray, name: str) -> Score:
    predicted = model.predict(x)
    found: Score = {"r2": float(r2_score(y, predicted)), "rmse": float(root_mean_squared_error(y, predicted))}
    if name == OURS:
        low, high = model.predict_interval(x, COVERAGE).T
        spread = model.predict(x, return_std=True)[1]
    elif isinstance(model, TransformedTargetRegressor) and name == "Gaussian process":
        inner = model.regressor_
        mean, std = inner[-1].predict(inner[:-1].transform(x), return_std=True)
        scale = model.transformer_.scale_[0]
        centre, spread = mean * scale + model.transformer_.mean_[0], std * scale
        half = norm.ppf(0.5 + COVERAGE / 2) * spread
        low, high = centre - half, centre + half
    else:
        return found
    inside = (y >= low) & (y <= high)
    return {
        **found,
        "coverage": float(inside.mean()),
        "interval_width": float(np.mean(high - low)),
        "nll": float(-norm.logpdf(y, predicted, spread).mean()),
    }


def _judge_classes(model: Any, x: np.ndarray, y: np.ndarray, name: str) -> Score:
    probabilities = np.clip(model.predict_proba(x), LEAST_PROBABILITY, None)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    chosen = model.classes_[probabilities.argmax(axis=1)]
    return {
        "accuracy": float(accuracy_score(y, chosen)),
        "log_loss": float(log_loss(y, probabilities, labels=model.classes_)),
    }
