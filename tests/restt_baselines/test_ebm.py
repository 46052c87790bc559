"""The explainable boosting machine, where its package is installed."""

from __future__ import annotations

import numpy as np
import pytest

from restt_baselines import make
from tests.restt_baselines.cases import diabetes, digits, score_after_fit

pytest.importorskip("interpret", reason="pip install restt[baselines]")

# A small machine in this process: a full one takes a minute.
QUICK = {"outer_bags": 2, "max_rounds": 200, "learning_rate": 0.1, "n_jobs": 1, "random_state": 0}


def regressor(**settings):
    return make("ebm", task="regression", **QUICK, **settings)


def test_pairs_are_found_by_interactions_only():
    x = np.random.default_rng(0).uniform(-1.0, 1.0, size=(400, 3))
    y = x[:, 0] * x[:, 1]
    assert regressor(interactions=0).fit(x[:300], y[:300]).score(x[300:], y[300:]) < 0.1
    fitted = regressor(interactions=1).fit(x[:300], y[:300])
    assert fitted.term_features_ == [(0,), (1,), (2,), (0, 1)]
    assert fitted.score(x[300:], y[300:]) > 0.6


def test_the_seed_fixes_the_fit():
    x, x_test, y, _ = diabetes()
    first, second = (regressor(interactions=0).fit(x, y).predict(x_test) for _ in range(2))
    assert np.array_equal(first, second)


def test_learns_diabetes():
    assert score_after_fit(regressor(interactions=0), diabetes()) > 0.35


def test_learns_digits():
    x, x_test, y, y_test = digits()
    fitted = make("ebm", interactions=0, **QUICK).fit(x[:200], y[:200])
    assert fitted.score(x_test, y_test) > 0.85
    np.testing.assert_allclose(fitted.predict_proba(x_test).sum(axis=1), 1.0)
