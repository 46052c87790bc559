"""Black boxes fitted by a train, with the error on fresh points."""

import io
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from restt import explain
from tests.explain import brute
from tests.explain.trees.rows import marginal_game


@pytest.fixture(scope="module")
def smooth():
    """A function of three columns out of four, as two outputs, its train and its rows."""

    def predict(rows):
        return np.stack([rows[:, 0] * rows[:, 1] + rows[:, 2], 3 + rows[:, 2] ** 2], 1)

    x = np.random.default_rng(0).random((120, 4))
    return predict, explain.distil(predict, x, rows=400, effort="quick"), x


def test_the_error_is_that_of_other_points(smooth):
    predict, found, x = smooth
    assert found.error.shape == (2,)
    assert bool((found.error < 0.05).all())
    rng = np.random.default_rng(5)
    others = np.take_along_axis(x, rng.integers(0, len(x), (500, 4)), 0)
    off = predict(others) - found.model.predict(others)
    measured = np.sqrt((off**2).mean(0)) / predict(others).std(0)
    np.testing.assert_allclose(found.error, measured, rtol=1.0)
    assert f"{float(found.error[0]):.2g}" in repr(found)


def test_the_box_is_asked_for_the_points_of_the_fit_and_for_others():
    x, asked = np.random.default_rng(0).random((30, 3)), []

    def predict(rows):
        asked.append(rows)
        return np.stack([3 + rows[:, 0] * rows[:, 1], np.full(len(rows), 2.0)], 1)

    found = explain.distil(predict, x, rows=40, fresh=10, effort="quick")
    fitted, fresh = asked
    assert (found.rows, found.fresh) == (len(fitted), len(fresh))
    own = sum(any(np.array_equal(point, row) for row in x) for point in fitted)
    assert 20 <= own < len(fitted) <= 40  # half are rows, and few of the points between are
    assert not any(np.array_equal(*pair) for pair in combinations(fitted, 2))
    wanted, given = predict(fresh)[:, 0], found.model.predict(fresh)[:, 0]
    assert float(found.error[0]) == pytest.approx(np.sqrt(((wanted - given) ** 2).mean()) / wanted.std())
    assert float(found.error[1]) == pytest.approx(0.0, abs=1e-9)  # what does not vary is not divided by nothing
    with pytest.raises(ValueError, match="rows must be at least 10, got 9"):
        explain.distil(predict, x, rows=9)
    with pytest.raises(ValueError, match="X must be a table of at least 2 rows"):
        explain.distil(predict, x[:1])


def test_where_fresh_points_are_all_predicted_alike_the_error_is_in_its_own_units():
    x, asked = np.random.default_rng(0).random((30, 2)), []

    def predict(rows):
        asked.append(rows)
        return rows[:, 0] if len(asked) == 1 else np.zeros(len(rows))

    found = explain.distil(predict, x, rows=40, fresh=10, effort="quick")
    assert float(found.error) == pytest.approx(np.sqrt((found.model.predict(asked[1]) ** 2).mean()))


def test_explanations_are_those_of_the_black_box(smooth):
    predict, found, x = smooth
    values = explain.shapley_values(found, x[:1], x[10:14])[0, :, 1]
    wanted = brute.shapley(marginal_game(predict, x[0], x[10:14]))[:, 1]
    assert float(values[:2].abs().max()) < 0.05
    assert float((values - wanted).abs().max()) < 0.1
    local = found.explain_local(x[:2])
    assert torch.equal(local.error, found.error)
    whole = found.explain_global(x)
    assert torch.equal(whole.error, found.error)
    console = Console(width=120, file=io.StringIO())
    console.print(local, whole)
    assert console.file.getvalue().count("distilled: off by") == 2


def test_frames_keep_their_columns():
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"size": rng.random(80), "kind": pd.Categorical(rng.choice(list("abc"), 80))})

    def predict(rows):
        assert list(rows.columns) == ["size", "kind"]
        assert str(rows["kind"].dtype) == "category"
        return rows["size"] * (rows["kind"] == "a")

    found = explain.distil(predict, x, rows=300, effort="quick", max_error=0.2)
    assert explain.top_interactions(found, x, k=3)[0].names in (("size",), ("kind",))


def test_arrays_of_objects_keep_their_entries():
    rng = np.random.default_rng(0)
    kinds = rng.choice(["a", "b"], 60).tolist()
    x = np.array([[float(number), kind] for number, kind in zip(rng.random(60), kinds, strict=True)], dtype=object)

    def predict(rows):
        assert {type(number) for number in rows[:, 0]} == {float}
        return rows[:, 0].astype(float) * (rows[:, 1] == "a")

    found = explain.distil(predict, x, rows=200, effort="quick", max_error=0.2, categorical_features=[1])
    assert found.rows > len(x)  # points between rows are among them


def test_an_error_beyond_what_is_asked_is_refused():
    x = np.random.default_rng(0).random((60, 3))
    with pytest.raises(ValueError, match=r"max_error is 0\.01, but the train is off by"):
        explain.distil(lambda rows: np.sin(1e4 * rows[:, 0]), x, rows=100, effort="quick", max_error=0.01)


@pytest.mark.parametrize(
    ("predict", "error", "message"),
    [
        (lambda rows: np.full(len(rows), np.nan), ValueError, "predict must return finite numbers, got [0-9]+ NaN"),
        (lambda rows: np.zeros(3), ValueError, "predict must return [0-9]+ numbers"),
        (lambda rows: np.zeros((len(rows), 2, 2)), ValueError, "predict must return [0-9]+ numbers"),
        (lambda rows: np.full(len(rows), "yes"), TypeError, "predict_proba"),
        (3, TypeError, "predict must be a function"),
    ],
)
def test_what_is_no_prediction_is_named(predict, error, message):
    with pytest.raises(error, match=message):
        explain.distil(predict, np.random.default_rng(0).random((20, 2)), rows=40)


def test_tables_that_are_none_are_named():
    with pytest.raises(ValueError, match="X must be a table of at least 2 rows"):
        explain.distil(lambda rows: rows, np.zeros(4))
