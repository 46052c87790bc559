"""The search on made-up tables: it must not peek, and it must judge what the estimator then does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.model_selection import KFold, cross_val_predict

from restt_paper.tabular import search
from restt_paper.tabular.search import COMMON, Candidate, best_average, best_candidate, candidates
from restt_paper.tabular.splits import score

MILD, HARD = Candidate("hat-uniform-4", False, 0.003, 0.003), Candidate("hat-uniform-4", False, 3.0, 3.0)
LOG = Candidate("trigonometric", True, 0.003, 0.003)


def cross_validate(x, y, grid, *, epochs, **settings):
    return search.cross_validate(x, y, grid, common={**COMMON, "epochs": epochs}, folds=5, **settings)


@pytest.fixture(scope="module")
def table():
    """A product of two columns, and a column that does nothing."""
    x = np.random.default_rng(0).random((80, 3))
    return x, np.exp(x[:, 0] * x[:, 1] * 2)


@pytest.fixture(scope="module")
def predictions(table):
    return cross_validate(*table, [MILD, HARD, LOG], seed=0, epochs=100)


def test_a_mild_penalty_finds_the_product_and_a_hard_one_does_not(table, predictions):
    r2 = {candidate: score(table[1], predicted)[0] for candidate, predicted in predictions.items()}
    assert r2[MILD] > 0.9
    assert r2[LOG] > 0.9
    assert r2[HARD] < 0.5


def test_noise_cannot_be_predicted():
    generator = np.random.default_rng(1)
    x, y = generator.random((60, 3)), 1 + generator.random(60)
    predicted = cross_validate(x, y, [MILD], seed=0, epochs=100)[MILD]
    assert score(y, predicted)[0] < 0.1
    fitted = MILD.estimator({**COMMON, "epochs": 100}, runs=1, seed=0, device="cpu").fit(x, y)
    assert score(y, fitted.predict(x))[0] > 0.3


@pytest.mark.parametrize("candidate", [MILD, LOG], ids=["y", "log y"])
def test_the_estimator_does_what_was_judged(table, candidate):
    x, y = table
    folds = KFold(5, shuffle=True, random_state=0)
    again = cross_val_predict(
        candidate.estimator({**COMMON, "epochs": 100}, runs=1, seed=0, device="cpu"), x, y, cv=folds
    )
    judged = cross_validate(x, y, [candidate], seed=0, epochs=100)[candidate]
    assert score(y, again)[0] == pytest.approx(score(y, judged)[0], abs=0.03)


def test_candidates_do_not_disturb_each_other(table, predictions):
    alone = cross_validate(*table, [LOG], seed=0, epochs=100)[LOG]
    np.testing.assert_allclose(alone, predictions[LOG], rtol=1e-3)


def test_repeats_are_averaged(table):
    once, twice = (cross_validate(*table, [MILD], seed=0, repeats=count, epochs=20)[MILD] for count in (1, 2))
    assert not np.allclose(once, twice)
    assert score(table[1], twice)[0] > 0.3


def test_a_failed_candidate_is_never_chosen():
    y = np.array([1.0, 2.0, 3.0])
    predictions = {MILD: np.full(3, math.nan), HARD: np.zeros(3)}
    assert best_candidate(predictions, y) == HARD
    assert best_average(predictions, y, size=2) == {HARD: 2}


def test_an_average_is_at_least_as_good_as_its_first_member(table, predictions):
    y = table[1]
    counts = best_average(predictions, y, size=4)
    mixed = sum(weight * predictions[member] for member, weight in counts.items()) / 4
    assert sum(counts.values()) == 4
    assert score(y, mixed)[0] >= score(y, predictions[best_candidate(predictions, y)])[0] - 1e-9


def test_candidates_survive_json():
    for candidate in candidates():
        assert Candidate.from_dict(candidate.to_dict()) == candidate
