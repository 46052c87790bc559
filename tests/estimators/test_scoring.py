"""Scores that a search computes itself are scikit-learn's, and all others are left to it."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, get_scorer, make_scorer, r2_score
from sklearn.model_selection import KFold

from restt import ResTTClassifier, ResTTRegressor
from restt.estimators import scoring, search
from tests.estimators.conftest import short_fits
from tests.estimators.test_search import both

GRID = {"lr": [0.02, 0.05]}
# As many epochs as it takes for no fit to have anything to warn of.
SETTINGS = {"bond_dim": 2, "epochs": 40, "random_state": 0, "solver": "gradient"}

pytestmark = short_fits


@pytest.fixture
def known(monkeypatch):
    """For each fit whether its score was known."""
    seen = []

    def noting(*arguments):
        found = scoring.known_result(*arguments)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(search, "known_result", noting)
    return seen


@pytest.mark.parametrize("metric", [None, "r2", make_scorer(r2_score)])
def test_r_squared(numbers, known, metric):
    both(ResTTRegressor(**SETTINGS), GRID, *numbers, cv=KFold(4, shuffle=True, random_state=0), scoring=metric)
    assert known == [True] * 8


@pytest.mark.parametrize("labels", [["no", "yes", "perhaps"], [3, 1, 2], [False, True, True]])
@pytest.mark.parametrize("metric", [None, "accuracy"])
def test_accuracy(numbers, known, labels, metric):
    x, y = numbers
    classes = np.array(labels)[np.digitize(y, np.quantile(y, [0.3, 0.6]))]
    both(ResTTClassifier(**SETTINGS), GRID, x, classes, cv=3, scoring=metric, refit=False)
    assert known == [True] * 6


class OwnScore(ResTTRegressor):
    def score(self, X, y, sample_weight=None):
        return 2.0 * super().score(X, y, sample_weight)


class OwnPrediction(ResTTRegressor):
    def predict(self, X, return_std=False):
        return np.round(super().predict(X), 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"scoring": "neg_mean_absolute_error"},
        {"scoring": ["r2"], "refit": False},
        {"scoring": make_scorer(r2_score, multioutput="variance_weighted")},
        {"scoring": make_scorer(r2_score, greater_is_better=False)},
        {"return_train_score": True},
        {"verbose": 2},
    ],
)
def test_whatever_else_is_asked_for_is_left_to_scikit_learn(numbers, known, settings, capsys):
    both(ResTTRegressor(**SETTINGS), GRID, *numbers, cv=2, **settings)
    assert known == [False] * 4


def test_targets_of_other_kinds_are_left_to_scikit_learn(numbers, known):
    x, y = numbers
    tables = {
        "single precision": (x, y.astype(np.float32)),
        "two outputs": (x, np.stack([y, -y], axis=1)),
        "a list": (x, y.tolist()),
        "constant in a fold": (x, np.where(np.arange(len(y)) < 30, 1.0, y)),
    }
    for name, (rows, values) in tables.items():
        known.clear()
        both(ResTTRegressor(**SETTINGS), GRID, rows, values, cv=KFold(2), refit=False)
        assert not known[0], name


def test_a_score_or_a_prediction_of_its_own(numbers, known):
    both(OwnScore(**SETTINGS), GRID, *numbers, cv=2)
    assert known == [False] * 4
    known.clear()
    found, wanted = both(OwnPrediction(**SETTINGS), GRID, *numbers, cv=2)
    assert known == [True] * 4
    assert found.best_score_ == pytest.approx(wanted.best_score_)


def test_metrics_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    y, guess = rng.normal(size=50), rng.normal(size=50)
    # Two sums of 50 squares each, in whatever order they are added.
    assert scoring.r_squared(y, guess) == pytest.approx(r2_score(y, guess), rel=100 * np.finfo(np.float64).eps)
    assert scoring.r_squared(y, np.where(y > 0, np.nan, y)) is None
    assert scoring.r_squared(y[:1], guess[:1]) is None
    labels, other = rng.integers(0, 3, 50), rng.integers(0, 3, 50)
    assert scoring.accuracy(labels, other) == accuracy_score(labels, other)
    assert scoring.accuracy(labels, other.astype(str)) is None
    assert scoring.accuracy(labels.astype(float), other.astype(float)) is None


def test_arguments_that_are_not_known_are_left_to_scikit_learn():
    given = dict.fromkeys(scoring.SAID) | scoring.WANTED | {"verbose": 0, "scorer": get_scorer("r2")}
    assert scoring._is_plain(given)
    assert not scoring._is_plain(given | {"new_in_a_later_release": None})
    assert not scoring._is_plain(given | {"score_params": {"sample_weight": np.ones(3)}})
