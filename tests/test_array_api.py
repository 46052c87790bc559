"""scikit-learn's check of array API input, which newer versions have for every estimator: one process for them all."""

from __future__ import annotations

from packaging.version import Version

from tests.estimators.test_checks import CLASSIFIERS, REGRESSORS
from tests.restt_baselines.test_mlp import CHECKED as MLPS
from tests.sequences.test_volterra import CHECKED as VOLTERRAS
from tests.sklearn_checks import VERSION, assert_arrays_of_every_kind_pass


def test_estimators_take_arrays_of_every_kind():
    models = [*REGRESSORS, *CLASSIFIERS, *MLPS, *VOLTERRAS]
    assert_arrays_of_every_kind_pass(models, least=1 if Version("1.9") <= VERSION else 0)
