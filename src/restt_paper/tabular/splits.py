"""The small tables of the paper, split the same way for every model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from restt import data
from restt.data.dataset import PAPER_SPLIT_SEED

TEST_SHARE = 0.3
# Each seed is scikit-learn's train_test_split(test_size=0.3, random_state=seed); the paper's own is not one of these.
RANDOM_SPLITS = tuple(seed for seed in range(21) if seed != PAPER_SPLIT_SEED)


@dataclass(frozen=True, eq=False)
class Split:
    """Training and test part of one split, in float64."""

    seed: int
    x_train: np.ndarray  # (B, C)
    y_train: np.ndarray  # (B,)
    x_test: np.ndarray
    y_test: np.ndarray


# From a split's number to an unfitted estimator.
EstimatorOf = Callable[[int], Any]


def load_split(dataset: str, seed: int) -> Split:
    """Split ``seed`` of a table: 70 % to train on, 30 % to test."""
    parts = data.load(dataset).split(TEST_SHARE, random_state=seed)
    arrays = (parts.x_train, parts.y_train, parts.x_test, parts.y_test)
    return Split(seed, *(array.double().numpy() for array in arrays))


def score_splits(dataset: str, seeds: Sequence[int], estimator_of: EstimatorOf) -> dict[str, Any]:
    """R² and RMSE on the test part of each split, in the order of ``seeds``; ``estimator_of`` gives each split's."""
    scores: dict[str, Any] = {"splits": list(seeds), "r2": [], "rmse": []}
    for seed in seeds:
        split = load_split(dataset, seed)
        predicted = estimator_of(seed).fit(split.x_train, split.y_train).predict(split.x_test)
        r2, rmse = score(split.y_test, predicted)
        scores["r2"].append(r2)
        scores["rmse"].append(rmse)
    return scores


def score(y: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """R² and RMSE.

    >>> score(np.array([0.0, 2.0]), np.array([1.0, 2.0]))
    (0.5, 0.7071067811865476)
    """
    squares = float(np.square(y - predicted).mean())
    return 1.0 - squares / float(y.var()), float(np.sqrt(squares))
