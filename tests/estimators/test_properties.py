"""What must hold for any table."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restt.estimators import ResTTNetClassifier, ResTTNetRegressor
from tests.estimators.conftest import short_fits

pytestmark = short_fits

TINY = {"bond_dim": 2, "epochs": 3, "random_state": 0}
DTYPES = ["float16", "float32", "float64", "int8", "int64", "uint16", "bool", "object"]


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 4),
    outputs=st.sampled_from([None, 1, 3]),
    dtype=st.sampled_from(DTYPES),
    runs=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_regression_of_any_shape_and_dtype(rows, columns, outputs, dtype, runs, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 5, size=(rows, columns)).astype(dtype)
    shape = (rows,) if outputs is None else (rows, outputs)
    y = rng.normal(size=shape)
    model = ResTTNetRegressor(**TINY, runs=runs).fit(x, y)
    found = model.predict(x)
    assert found.shape == shape
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, model.predict(x.astype(np.float64)))
    np.testing.assert_allclose(model.predict(x[::-1])[::-1], found, rtol=1e-9, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    labels=st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=10),
    columns=st.integers(1, 3),
    loss=st.sampled_from(["cross-entropy", "mse"]),
)
def test_probabilities_of_any_labels(labels, columns, loss):
    x = np.random.default_rng(len(labels)).normal(size=(len(labels), columns))
    model = ResTTNetClassifier(**TINY, loss=loss).fit(x, labels)
    probabilities = model.predict_proba(x)
    assert model.classes_.tolist() == sorted(set(labels))
    assert probabilities.shape == (len(labels), len(set(labels)))
    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    assert set(model.predict(x)) <= set(labels)


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(["a", "b", "c", "d"]))
def test_order_of_columns_in_a_frame(order):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=8), "b": ["x", "y"] * 4, "c": rng.integers(0, 3, 8), "d": np.nan})
    y = frame["a"].to_numpy()
    sites = ["a", "b", "c", "d"]
    model = ResTTNetRegressor(**TINY, site_order=sites).fit(frame[order], y)
    # Sites follow site_order, so the order of the table changes nothing, but it must stay what it was in the fit.
    want = ResTTNetRegressor(**TINY, site_order=sites).fit(frame, y).predict(frame)
    np.testing.assert_array_equal(model.predict(frame[order]), want)
    if order != sites:
        with pytest.raises(ValueError, match="Feature names must be in the same order"):
            model.predict(frame)


@settings(max_examples=20, deadline=None)
@given(weights=st.lists(st.integers(0, 3), min_size=6, max_size=6).filter(any))
def test_integer_weights_are_repetitions(weights):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    weighted = ResTTNetRegressor(**TINY).fit(x, y, sample_weight=weights).predict(x)
    repeated = ResTTNetRegressor(**TINY).fit(x.repeat(weights, axis=0), y.repeat(weights)).predict(x)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-8, atol=1e-10)
