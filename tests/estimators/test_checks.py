"""scikit-learn's own checks, all of them: none may fail, and none may be skipped.

How many there are at least is what scikit-learn 1.6 has, the oldest admitted; newer ones have one more.
"""

from __future__ import annotations

from tests.sklearn_checks import Checked, assert_every_check_passes


def test_the_regressor_passes_every_check():
    trained = {"handle_missing": "error", "epochs": 20}
    models = [Checked("restt.estimators", "ResTTRegressor", parameters) for parameters in ({}, trained)]
    assert_every_check_passes(models, least=[59, 60])


def test_the_classifier_passes_every_check():
    trained = {"handle_missing": "error", "loss": "mse", "epochs": 60}
    models = [Checked("restt.estimators", "ResTTClassifier", parameters) for parameters in ({}, trained)]
    assert_every_check_passes(models, least=[62, 63])
