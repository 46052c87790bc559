"""scikit-learn's own checks, all of them: none may fail, and none may be skipped.

How many there are at least is what scikit-learn 1.6 has, the oldest admitted; newer ones have one more.
"""

from __future__ import annotations

from packaging.version import Version

from tests.sklearn_checks import VERSION, Checked, assert_every_check_passes

# An estimator of categories that takes no missing values is given whole numbers.
BEFORE = {"check_positive_only_tag_during_fit": "the check subtracts a fraction from whole numbers in place"}
FAILING = BEFORE if Version("1.7.1") > VERSION else {}
_HOME = "restt.estimators"
_TRAINED = {"handle_missing": "error", "loss": "mse", "epochs": 25}
REGRESSORS = [
    Checked(_HOME, "ResTTRegressor"),
    Checked(_HOME, "ResTTNetRegressor", {"handle_missing": "error", "epochs": 20}, FAILING),
]
CLASSIFIERS = [
    Checked(_HOME, "ResTTClassifier", {"effort": "quick"}),
    Checked(_HOME, "ResTTNetClassifier", _TRAINED, FAILING),
]


def test_the_regressors_pass_every_check():
    assert_every_check_passes(REGRESSORS, least=[59, 60])


def test_the_classifiers_pass_every_check():
    assert_every_check_passes(CLASSIFIERS, least=[62, 63])
