"""Rows that are fitted as they are given but seldom meant so: weights that say there are few, and copies."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest

from restt import ResTTClassifier, ResTTRegressor

pytestmark = pytest.mark.usefixtures("hasty")


@pytest.fixture(params=[ResTTRegressor, ResTTClassifier])
def problem(request):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((60, 3)), columns=list("abc")).round(3)
    frame["kind"] = rng.choice(["x", "y", None], 60)
    frame.loc[3, "a"] = np.nan
    y = frame["b"].to_numpy() + rng.standard_normal(60)
    return request.param(random_state=0), frame, y if request.param is ResTTRegressor else np.where(y > 0, "up", "down")


def test_weights_of_fewer_rows_than_columns(problem):
    model, x, y = problem
    weights = np.full(60, 1 / 60)
    with pytest.warns(UserWarning, match=r"sample_weight sums to 1 over 60 rows of 4 columns.*so that their mean is 1"):
        model.fit(x, y, sample_weight=weights)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(x, y, sample_weight=weights * 60)
        model.fit(x, y, sample_weight=6 / 60)
        model.fit(x[:12], y[:12])


def test_few_rows_of_weight_one_are_no_matter_of_weights():
    rng = np.random.default_rng(0)
    with warnings.catch_warnings(record=True) as said:
        ResTTRegressor(random_state=0).fit(rng.random((3, 5)), rng.random(3), sample_weight=np.ones(3))
    assert said == []


@pytest.mark.parametrize("form", ["frame", "array"])
def test_copies_of_more_than_half_of_the_rows(problem, form):
    model, x, y = problem
    if form == "array":
        x = x.astype(object).to_numpy()
        model.set_params(categorical_features=[3])
    take = np.r_[np.arange(60), np.arange(60), np.arange(20)]
    with pytest.warns(
        UserWarning, match="80 of 140 rows are exact copies, in X and y, of others; a copy counts as a row"
    ):
        model.fit(x.iloc[take] if form == "frame" else x[take], y[take])
    take = take[:115]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(x.iloc[take] if form == "frame" else x[take], y[take])


def test_rows_that_are_alike_in_x_alone_are_no_copies():
    x, y = np.repeat(np.random.default_rng(0).random((10, 2)), 6, axis=0), np.random.default_rng(1).random(60)
    with warnings.catch_warnings(record=True) as said:
        ResTTRegressor(random_state=0).fit(x, y)
    assert said == []


def test_a_table_of_few_different_rows_has_copies_by_chance():
    x = pd.DataFrame(list(product("ab", "cd")) * 20, columns=["first", "second"])
    y = np.random.default_rng(0).integers(0, 2, 80)
    with warnings.catch_warnings(record=True) as said:
        ResTTClassifier(random_state=0).fit(x, y)
        ResTTRegressor(random_state=0).fit(x, y)
    assert said == []
