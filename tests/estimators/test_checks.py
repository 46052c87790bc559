"""scikit-learn's own checks, all of them: none may fail, and none may be skipped."""

from __future__ import annotations

from tests.sklearn_checks import Checked, assert_every_check_passes


def test_the_regressor_passes_every_check():
    trained = {"handle_missing": "error", "epochs": 20}
    models = [Checked("restt.estimators", "ResTTRegressor", parameters) for parameters in ({}, trained)]
    assert_every_check_passes(models, least=[60, 61])


def test_the_classifier_passes_every_check():
    trained = {"handle_missing": "error", "loss": "mse", "epochs": 25}
    models = [Checked("restt.estimators", "ResTTClassifier", parameters) for parameters in ({}, trained)]
    assert_every_check_passes(models, least=[63, 64])
