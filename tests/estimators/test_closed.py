"""What closed-form estimators refuse, how long they take, and what they report."""

import dataclasses
import inspect
import json
import warnings
from collections.abc import Collection

import numpy as np
import pytest
from sklearn.utils._param_validation import InvalidParameterError

from restt import ResTTClassifier, ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor
from restt.estimators.closed import FitReport, warn_of_odd_rows
from restt.estimators.settings import TRAINING
from restt.estimators.tables import Examples, Table
from restt.prior import Settings

PAIRS = [(ResTTRegressor, ResTTNetRegressor), (ResTTClassifier, ResTTNetClassifier)]


@pytest.mark.parametrize(("kind", "trained"), PAIRS)
def test_a_parameter_of_training_is_refused_with_the_name_of_the_trained_estimator(kind, trained):
    own = kind().get_params()
    for name in [*trained().get_params(), "solver"]:
        if name in own:
            continue
        expected = rf"{kind.__name__} .* has no parameter '{name}': {trained.__name__} is"
        with pytest.raises(TypeError, match=expected):
            kind(**{name: 1})
        with pytest.raises(TypeError, match=expected):
            kind().set_params(**{name: 1})
    assert set(TRAINING) == set(trained().get_params()) - set(own)


@pytest.mark.parametrize("kind", [ResTTRegressor, ResTTClassifier])
def test_signatures_are_those_of_the_parameters_and_of_a_prediction(kind):
    class Own(kind):
        def __init__(self, *, own=1):
            super().__init__()
            self.own = own

    assert sorted(inspect.signature(kind).parameters) == sorted(kind().get_params(deep=False))
    assert str(inspect.signature(Own)) == "(*, own=1)"
    assert list(inspect.signature(kind()).parameters) == ["X"]  # of a call


@pytest.mark.parametrize(("kind", "trained"), PAIRS)
def test_nothing_of_training_is_left(kind, trained):
    for name in ("fit_epochs", "history_", "n_iter_", "solver_"):
        assert not hasattr(kind, name)
    assert hasattr(trained, "fit_epochs")
    with pytest.raises(TypeError, match="positional"):
        kind("quick")


@pytest.mark.parametrize("kind", [ResTTRegressor, ResTTClassifier])
@pytest.mark.parametrize(
    ("option", "error", "message"),
    [
        ({"effort": "much"}, InvalidParameterError, "'effort' parameter .* must be a str among .*'best'.*'much'"),
        ({"bond_dim": 0}, InvalidParameterError, "'bond_dim' parameter .* an int in the range"),
        ({"bond_dim": 61}, ValueError, "bond_dim must be at most the number of rows, 60, got bond_dim=61"),
        ({"handle_missing": "learn"}, InvalidParameterError, "'handle_missing' parameter"),
        ({"lrr": 0.1}, TypeError, "unexpected keyword argument 'lrr'"),
    ],
)
def test_wrong_options_are_named(kind, option, error, message, numbers):
    x, y = numbers
    with pytest.raises(error, match=message):
        kind(**option).fit(x, y > 0)


def test_efforts_are_settings():
    quick, auto, best = (Settings.of_effort(effort) for effort in ("quick", "auto", "best"))
    assert auto == Settings()
    steps = {"first_iterations", "iterations", "last_iterations", "other_iterations"}
    for name in (field.name for field in dataclasses.fields(Settings)):  # twice the rows and steps of everything
        factor = 2 if name in {"first_rows", "scale_rows", *steps} else 1
        assert getattr(best, name) == (getattr(auto, name) if factor == 1 else 2 * getattr(auto, name))
    changed = {"scale_rows": 400, "iterations": 8, "last_iterations": 4, "components": auto.components[:1]}
    assert quick == dataclasses.replace(auto, **changed)
    with pytest.raises(ValueError, match="effort must be one of"):
        Settings.of_effort("much")


def test_quick_evaluates_less_and_predicts_nearly_as_well():
    x = np.random.default_rng(0).standard_normal((700, 5))
    y = x[:, 0] + x[:, 1] * x[:, 2] + 0.3 * np.random.default_rng(1).standard_normal(700)
    quick, auto = (ResTTRegressor(effort=effort, random_state=0).fit(x[:200], y[:200]) for effort in ("quick", "auto"))
    assert quick.fit_report_["evaluations"] < 0.6 * auto.fit_report_["evaluations"]
    assert 1 - quick.score(x[200:], y[200:]) < 1.2 * (1 - auto.score(x[200:], y[200:]))


@pytest.mark.usefixtures("hasty")
def test_a_report_says_what_was_done(numbers):
    x, y = numbers
    report = ResTTRegressor(random_state=0).fit(x, y).fit_report_
    assert isinstance(report, FitReport)
    assert json.loads(json.dumps(report)) == report
    assert report["rows"] == report["rows_for_scales"] == 60
    assert sum(report["members"].values()) == pytest.approx(1.0)
    assert report["seconds"] > 0
    assert report["effort"] == "auto"
    assert report["leave_one_out_r2"] <= 1
    lines = str(report).splitlines()
    assert len(lines) == len(report)
    assert repr(report) == str(report)
    assert [line.split()[0] for line in lines] == list(report)
    classes = ResTTClassifier(random_state=0).fit(x, y > 0).fit_report_
    assert classes["out_of_fold_log_loss"] < np.log(2)


@pytest.mark.parametrize(
    ("weight", "rows", "warned"), [(0.4, 10, False), (0.39, 10, True), (0.9, 4, True), (0.9, 3, False)]
)
def test_weights_of_less_rows_than_columns_are_warned_of(weight, rows, warned):
    given = Examples(Table(np.random.default_rng(0).random((rows, 3))), np.arange(float(rows)), np.full(rows, weight))
    text = f"sample_weight sums to {weight * rows:.3g} over {rows} rows of 3 columns"
    assert [message.startswith(text) for message in warnings_of(given)] == [True] * warned


@pytest.mark.parametrize(
    ("rows", "distinct", "values", "warned"),
    [(10, 5, 5, False), (10, 4, 4, True), (10, 4, 2, False), (10, 4, 3, True), (9, 3, 3, False)],
)
def test_copies_are_warned_of_where_they_are_most_rows_and_other_rows_were_possible(rows, distinct, values, warned):
    """A column and y make as many different rows as the product of their values, here 8 to 25."""
    own = np.arange(rows) % distinct
    sign = np.where(np.arange(rows) < distinct, 1.0, -1.0)  # of 0, which has none
    column = np.where(own == 1, np.nan, own * np.where(own == 0, sign, 1))[:, None]
    y = (own % values).astype(float)
    text = f"{rows - distinct} of {rows} rows are exact copies"
    for targets, categorical in ((y, ()), (y.astype(str), ()), (y.astype(str).astype(object), ()), (y, {0})):
        found = warnings_of(Examples(Table(column), targets, np.ones(rows)), categorical)
        assert [message.startswith(text) for message in found] == [True] * warned


def warnings_of(given: Examples, categorical: Collection[int] = ()) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warn_of_odd_rows(given, categorical)
    return [str(one.message) for one in seen]


def test_a_report_in_a_notebook_is_escaped():
    assert FitReport(members={"<b>": 1.0})._repr_html_() == (
        "<table><tr><th>members</th><td>&lt;b&gt; 1</td></tr></table>"
    )
    assert str(FitReport()) == ""


def test_a_bond_may_be_as_large_as_the_table_is_long(numbers):
    given = ResTTRegressor(bond_dim=60)._read_rows(*numbers, None)
    assert len(given) == 60


def test_weights_of_0_are_no_rows(numbers):
    x, y = numbers
    weights = np.arange(60.0) % 3
    given = ResTTRegressor()._read_rows(x, y, weights)
    np.testing.assert_array_equal(given.table.all_numbers(), x[weights > 0])
    assert given.y.tolist() == y[weights > 0].tolist()
    assert given.weights.tolist() == weights[weights > 0].tolist()
    assert given.encoding_work == 40 * 3 * 100.0
