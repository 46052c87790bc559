"""Warnings name the line of the user's code that they are about."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

from restt import ResTTClassifier, ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor
from tests.hasty import hasty_solvers

X = np.random.default_rng(0).random((40, 3))
ABSURD = np.where(np.arange(40) == 3, 1e12, X[:, 0])
FRAME = pd.DataFrame({"a": X[:, 0], "kind": ["x", "y"] * 20})


@pytest.fixture(scope="module", params=[ResTTRegressor, ResTTClassifier, ResTTNetRegressor, ResTTNetClassifier])
def fitted(request):
    model = request.param(random_state=0)
    if hasattr(model, "epochs"):
        model.set_params(epochs=2, lr=1e3)
    with hasty_solvers(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(FRAME, FRAME["a"] > 0.5)


def files_of(call) -> set[str]:
    """The files that the warnings of a call name."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return {one.filename for one in seen}


@pytest.mark.usefixtures("hasty")
def test_a_warning_names_the_line_that_called(fitted):
    unseen = FRAME.assign(kind="z")
    names = ("predict", "numbers", "predict_interval", "predict_proba", "predict_distribution")
    calls = [partial(getattr(fitted, name), unseen) for name in names if hasattr(fitted, name)]
    calls += [partial(fitted.score, unseen, FRAME["a"] > 0.5), partial(fitted.fit, FRAME, FRAME["a"] > 0.5)]
    if isinstance(fitted, (ResTTRegressor, ResTTClassifier)):
        few = np.full(40, 1e-2)
        calls[-1] = partial(fitted.__class__(random_state=0).fit, X, X[:, 0] > 0.5, few)
        calls.append(partial(fitted.partial_fit, FRAME[:8], FRAME["a"][:8] < 0.5))
    if isinstance(fitted, ResTTRegressor):
        calls += [partial(fitted.partial_fit, FRAME, ABSURD), partial(ResTTRegressor(random_state=0).fit, X, ABSURD)]
        calls.append(partial(cross_val_score, ResTTRegressor(random_state=0), X, ABSURD, cv=2))
    assert [files_of(call) for call in calls] == [{__file__}] * len(calls)


def test_an_unstable_sigma2_of_an_estimator_warns_at_the_line_that_fits():
    wide = np.random.default_rng(0).random((9, 100))
    assert files_of(partial(ResTTNetRegressor(sigma2=9.0, epochs=1).fit, wide, wide[:, 0])) == {__file__}
