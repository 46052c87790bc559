"""The short way of arrays and of few rows through predict says exactly what the ordinary way says."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from restt import features
from restt.estimators import ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor, encoding, tables
from tests.estimators.conftest import QUICK, short_fits

pytestmark = short_fits
SHORT = {**QUICK, "epochs": 2}


def table_with_missing():
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.normal(size=50), rng.integers(0, 5, 50), rng.exponential(size=50), np.full(50, 2.0)])
    y = x[:, 0] * x[:, 1] + x[:, 2]
    x[:4, 0] = np.nan
    return x, y


@pytest.fixture
def ordinary(monkeypatch):
    """Turns the short ways off."""

    def turn_off():
        monkeypatch.setattr(encoding, "QUICK_ROWS", 0)
        monkeypatch.setattr(tables, "_is_as_fitted", lambda estimator, x: False)
        monkeypatch.setattr(tables.Table, "all_numbers", lambda table: None)

    return turn_off


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "model",
    [
        ResTTRegressor(bond_dim=3, random_state=0),
        ResTTNetRegressor(**SHORT, runs=2, site_order=[2, 0, 3, 1]),
        ResTTNetRegressor(**SHORT, categorical_features=[1]),
        ResTTNetRegressor(**SHORT, feature_map="onehot"),
        ResTTNetRegressor(**SHORT, feature_map="affine"),
        ResTTNetRegressor(**SHORT, feature_map=features.Hat(knots=4, outside="extrapolate")),
        ResTTNetRegressor(**SHORT, feature_map=features.Hat(knots=[0.0, 1.0, 3.0])),
        ResTTNetClassifier(**SHORT, precision="float32"),
    ],
)
def test_every_row_alone_is_predicted_to_the_bit(model, ordinary):
    x, y = table_with_missing()
    model.fit(x, y if isinstance(model, (ResTTRegressor, ResTTNetRegressor)) else y > y.mean())
    beyond = np.vstack([x[:12], [[-1e300, 7.0, 1e300, 2.5], [1e9, 0.0, -3.0, 0.0]]])
    beyond = beyond[:12] if getattr(model, "feature_map", "") == "onehot" else beyond
    if model.categorical_features is not None:
        beyond[:, 1] = x[: len(beyond), 1]
    answer = model.predict if isinstance(model, (ResTTRegressor, ResTTNetRegressor)) else model.predict_proba
    rows = [answer(row[None]) for row in beyond]
    together = answer(beyond)
    ordinary()
    np.testing.assert_array_equal(np.concatenate(rows), np.concatenate([answer(row[None]) for row in beyond]))
    np.testing.assert_array_equal(together, answer(beyond))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8, bool])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_any_numbers(dtype, order, ordinary):
    x = np.random.default_rng(0).integers(0, 3, (60, 3))
    model = ResTTNetRegressor(**SHORT).fit(x, x.sum(axis=1))
    given = np.array(x[:5], dtype=dtype, order=order)
    given.setflags(write=False)
    numbers, found = model.numbers(given), model.predict(given)
    assert numbers.dtype == np.float64
    assert numbers.flags.c_contiguous
    assert not np.shares_memory(numbers, given)
    ordinary()
    np.testing.assert_array_equal(found, model.predict(given))


def test_what_is_refused_is_refused_in_the_same_words(fitted_regressor, ordinary):
    refused = (
        np.zeros((1, 4)),
        np.zeros(3),
        np.zeros((0, 3)),
        np.zeros((1, 3, 1)),
        np.full((1, 3), np.inf),
        np.full((1, 3), 1j),
        np.array([["a", "b", "c"]]),
    )

    def words():
        found = []
        for x in refused:
            with pytest.raises((TypeError, ValueError)) as error:
                fitted_regressor.predict(x)
            found.append((type(error.value), str(error.value)))
        return found

    short = words()
    assert "X has 4 features, but ResTTNetRegressor is expecting 3 features as input" in short[0][1]
    assert "Input X contains infinity: column 0, first in row 0" in short[4][1]
    ordinary()
    assert words() == short


def test_a_value_that_was_never_missing_still_warns(fitted_regressor, ordinary):
    x = np.array([[0.5, np.nan, 0.1]])
    with pytest.warns(UserWarning, match="column 1 misses 1 value"):
        found = fitted_regressor.predict(x)
    ordinary()
    with pytest.warns(UserWarning, match="column 1 misses 1 value"):
        np.testing.assert_array_equal(found, fitted_regressor.predict(x))


def test_an_array_for_a_model_of_named_columns_still_warns(numbers):
    x, y = numbers
    model = ResTTNetRegressor(**SHORT).fit(pd.DataFrame(x, columns=["a", "b", "c"]), y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.predict(x[:1])


def test_an_unfitted_model_says_so():
    with pytest.raises(ValueError, match="not fitted yet"):
        ResTTRegressor().predict(np.zeros((1, 3)))


def test_present_numbers_need_no_states():
    x, y = table_with_missing()
    fitted = ResTTNetRegressor(**SHORT).fit(x, y).encoding_
    present = torch.from_numpy(x[4:])
    for dtype in (torch.float32, torch.float64):
        given = present.to(dtype)
        np.testing.assert_array_equal(fitted.vectors(given), fitted._with_states(given, given.isnan()))


def test_knots_learned_anew_are_used():
    x = np.random.default_rng(0).random((30, 2))
    hat = features.Hat(knots=4).fit(x)
    before = hat.map_few(x)
    hat.fit(3 * x)
    assert not np.array_equal(hat.map_few(x), before)
    np.testing.assert_array_equal(hat.map_few(x), hat(x))


def test_a_tracer_leaves_nothing_behind():
    x = torch.rand(5, 2, dtype=torch.float64)
    hat = features.Hat(knots=[0.0, 0.5, 1.0])
    with FakeTensorMode() as mode:
        assert hat.map(mode.from_tensor(x)).shape == (5, 2, 3)
    np.testing.assert_array_equal(hat.map(x), hat.map_few(x.numpy()))
