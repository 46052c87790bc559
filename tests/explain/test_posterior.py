"""A regressor in closed form is explained in its columns' names, on the scale on which it adds up."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from restt import ResTTRegressor
from restt.estimators.gradient import member_outputs
from restt.explain import (
    effect,
    interaction,
    interaction_index,
    order_spectrum,
    prune,
    shapley_values,
    sobol_indices,
    top_interactions,
)
from tests.hasty import hasty_solvers

NAMES = ["alone", "first", "second", "idle", "kind"]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((150, 4)), columns=NAMES[:4])
    frame["kind"] = rng.choice(["a", "b"], 150)
    frame.loc[2:4, "idle"] = np.nan
    return frame


def lengthened(y: pd.Series, power: float = 0.3) -> np.ndarray:
    """The inverse of Yeo and Johnson's transform, whose upper tail is long."""
    above, below = y.clip(lower=0), (-y).clip(lower=0)
    return ((1 + power * above) ** (1 / power) - (1 + (2 - power) * below) ** (1 / (2 - power))).to_numpy()


@pytest.fixture(scope="module", params=["y", "skewed y"])
def model(request: pytest.FixtureRequest, table: pd.DataFrame) -> ResTTRegressor:
    y = table["alone"] + table["first"] * table["second"] + 0.1 * np.random.default_rng(1).standard_normal(150)
    with hasty_solvers():
        found = ResTTRegressor(random_state=0).fit(table, y if request.param == "y" else lengthened(y))
    assert (found.target_.model.power < 0.9) == (request.param == "skewed y")
    return found


def decision(model: ResTTRegressor, table: pd.DataFrame) -> np.ndarray:
    """The transformed y that is predicted: median and prediction of a new y are functions of it alone."""
    target = model.target_
    outputs = member_outputs(model.module_, model.encoding_, model.numbers(table), model.precision_)[0]
    np.testing.assert_allclose(target.decode(outputs), model.predict(table), rtol=1e-12)
    return (outputs * target.scale + target.mean)[:, 0]


def test_orders_and_shapley_values_sum_to_the_decision(model, table):
    expected = decision(model, table)
    spectrum = order_spectrum(model, table)[..., 0].numpy()
    np.testing.assert_allclose(spectrum.sum(1), expected, rtol=1e-8, atol=1e-8)
    values = shapley_values(model, table)[..., 0].numpy()
    np.testing.assert_allclose(values.sum(1) + spectrum[:, 0], expected, rtol=1e-8, atol=1e-8)


def test_the_default_background_is_the_rows_of_the_fit(model, table):
    for found, expected in (
        (shapley_values(model, table[:5]), shapley_values(model, table[:5], table)),
        (sobol_indices(model).total, sobol_indices(model, table).total),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_the_pair_is_found_by_name(model, table):
    top = top_interactions(model, k=4, max_order=3)
    assert {term.names for term in top.terms[:2]} == {("alone",), ("first", "second")}
    assert sum(float(term.share) for term in top.terms[:2]) > 0.95
    assert sobol_indices(model).outputs == (model.target_.label,)
    pair = interaction(model, table, ["first", "second"])[:, 0].numpy()
    assert np.corrcoef(pair, table["first"] * table["second"])[0, 1] > 0.98
    index = interaction_index(model, table[:3]).abs().mean(0)[..., 0].fill_diagonal_(0)
    assert divmod(int(index.argmax()), 5) == (1, 2)


def test_effects_are_on_the_columns_own_scale(model, table):
    found = effect(model, "alone")
    assert found.grids[0].min() == pytest.approx(table["alone"].min())
    assert found.grids[0].max() == pytest.approx(table["alone"].max())
    inner = np.abs(found.grids[0]) < 1.5
    slope = np.polyfit(found.grids[0][inner], found.values[inner, 0].numpy(), 1)[0]
    assert slope == pytest.approx(1.0, abs=0.1)
    assert effect(model, "kind").grids[0].tolist() == ["a", "b"]
    assert np.isnan(effect(model, "idle").grids[0][-1])


def test_a_pruned_model_predicts_nearly_the_same(model, table):
    found = prune(model, 0.1, table)
    gap = decision(found.model, table) - decision(model, table)
    assert np.sqrt(np.mean(gap**2)) < 0.3 * decision(model, table).std()
    assert found.parameters <= found.parameters_before
