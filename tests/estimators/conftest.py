"""Small problems for the estimators' tests."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from restt.estimators import ResTTClassifier, ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor

# Enough to see that something was learned; every test that needs more says so.
QUICK = {"bond_dim": 3, "epochs": 30, "random_state": 0}
# For fits of a few epochs, which may well end worse than a constant.
short_fits = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def numbers() -> tuple[np.ndarray, np.ndarray]:
    """60 rows, 3 columns of numbers, a target with an interaction."""
    x = np.random.default_rng(0).normal(size=(60, 3))
    return x, x[:, 0] + x[:, 1] * x[:, 2]


@pytest.fixture
def mixed() -> tuple[pd.DataFrame, np.ndarray]:
    """80 rows with numbers, text, whole numbers and a boolean; some numbers and texts are missing."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=80),
            "colour": rng.choice(["red", "green", "blue"], 80),
            "count": rng.integers(0, 4, 80),
            "new": rng.random(80) < 0.5,
        }
    )
    y = frame["size"] + 2.0 * (frame["colour"] == "red") * frame["count"] + frame["new"]
    frame.loc[3:6, "size"] = np.nan
    frame.loc[[8, 9], "colour"] = None
    return frame, y.to_numpy()


@pytest.fixture(scope="module")
def fitted_regressor() -> ResTTRegressor:
    x = np.random.default_rng(0).normal(size=(60, 3))
    return ResTTNetRegressor(**QUICK, runs=2).fit(x, x[:, 0] + x[:, 1] * x[:, 2])


@pytest.fixture(scope="module")
def fitted_classifier() -> ResTTClassifier:
    x = np.random.default_rng(0).normal(size=(60, 3))
    return ResTTNetClassifier(**QUICK, runs=2).fit(
        x, np.where(x[:, 0] > 0.5, "high", np.where(x[:, 0] < -0.5, "low", "mid"))
    )
