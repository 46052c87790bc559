"""Small fitted estimators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from restt import ResTTClassifier, ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor


@dataclass(frozen=True, eq=False)
class Fitted:
    """An estimator and the table it was fitted on."""

    model: ResTTRegressor | ResTTClassifier
    table: pd.DataFrame


@pytest.fixture(scope="package")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=90),
            "colour": rng.choice(["red", "green", "blue"], 90),
            "count": rng.integers(0, 4, 90),
            "new": rng.random(90) < 0.5,
        }
    )
    frame.loc[3:6, "size"] = np.nan
    frame.loc[[8, 9], "colour"] = None
    return frame


def target(frame: pd.DataFrame) -> np.ndarray:
    size = frame["size"].fillna(0.5)
    return (10 + size + 2.0 * (frame["colour"] == "red") * frame["count"] + frame["new"]).to_numpy()


@pytest.fixture(scope="package")
def regressor(table: pd.DataFrame) -> Fitted:
    order = ["new", "size", "count", "colour"]
    model = ResTTNetRegressor(bond_dim=3, epochs=60, runs=3, site_order=order, random_state=0)
    return Fitted(model.fit(table, target(table)), table)


@pytest.fixture(scope="package")
def two_outputs(table: pd.DataFrame) -> Fitted:
    y = target(table)
    return Fitted(ResTTNetRegressor(bond_dim=3, epochs=30, random_state=0).fit(table, np.stack([y, -3 * y], 1)), table)


@pytest.fixture(scope="package")
def two_classes(table: pd.DataFrame) -> Fitted:
    y = np.where(target(table) > 12, "yes", "no")
    return Fitted(ResTTNetClassifier(bond_dim=3, epochs=30, runs=2, loss="mse", random_state=0).fit(table, y), table)


@pytest.fixture(scope="package")
def three_classes(table: pd.DataFrame) -> Fitted:
    y = np.digitize(target(table), [11, 13])
    return Fitted(ResTTNetClassifier(bond_dim=3, epochs=30, random_state=0).fit(table, y), table)
