"""Gradient-boosted trees."""

from __future__ import annotations

import numpy as np

from restt_baselines import make
from tests.restt_baselines.cases import diabetes, digits, score_after_fit


def test_finds_an_interaction_and_lives_with_gaps():
    x = np.random.default_rng(0).uniform(-1.0, 1.0, size=(600, 3))
    y = np.sign(x[:, 0] * x[:, 1])
    x[::7, 2] = np.nan
    fitted = make("hgb", task="regression", random_state=0).fit(x[:400], y[:400])
    assert fitted.score(x[400:], y[400:]) > 0.9


def test_splits_tables_of_a_few_rows():
    x = np.arange(16.0)[:, None]
    y = (x[:, 0] > 7).astype(float)
    assert make("hgb", task="regression").fit(x, y).score(x, y) > 0.9
    # Leaves of 20, as scikit-learn would have it, cannot split 16 rows.
    assert make("hgb", task="regression", min_samples_leaf=20).fit(x, y).score(x, y) == 0.0


def test_learns_diabetes():
    assert score_after_fit(make("hgb", task="regression", random_state=0), diabetes()) > 0.27


def test_learns_digits():
    x, x_test, y, y_test = digits()
    fitted = make("hgb", max_iter=50, random_state=0).fit(x[:300], y[:300])
    assert fitted.score(x_test, y_test) > 0.85
