"""The explorer's data: values along columns, places of rows, digits."""

from types import SimpleNamespace

import numpy as np
import pandas as pd

from restt_app.pages.explorer import _curve, _grid, _places, _rounded, _ticks, predictions, spread_rows
from restt_app.pages.numbers import short


def test_rows_are_spread_from_the_first_to_the_last():
    assert spread_rows(7, 3).tolist() == [0, 3, 6]
    assert spread_rows(3, 7).tolist() == [0, 1, 2]
    assert spread_rows(5, 1).tolist() == [0]


def test_a_grid_has_even_values_quantiles_and_levels():
    columns = [SimpleNamespace(levels=None), SimpleNamespace(levels=[f"l{place}" for place in range(31)])]
    model = SimpleNamespace(encoding_=SimpleNamespace(columns=columns))
    numbers = np.array([0.0, np.nan, 12.0, *[1.3] * 11])
    assert _grid(model, 0, numbers) == [0, 1, 1.3, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert _grid(model, 0, np.array([np.nan])) == []
    assert _grid(model, 1, numbers) == [f"l{place}" for place in range(30)]
    assert _ticks([0.0, 2.9, 3.0], short) == [(tick / 2, short(tick / 2)) for tick in range(7)]
    assert _ticks(["u", "v"], str.upper) == [(0, "U"), (1, "V")]
    assert _places([0.12345678, np.nan], [0.0, 1.0]) == [0.123457, None]
    assert _places(["v", "w", np.nan], ["u", "v"]) == [1, None, None]


def test_numbers_are_rounded_to_six_digits_of_the_largest():
    assert _rounded(np.array([123.4567891, 0.00012345])) == [123.457, 0.0]
    assert _rounded(np.array([[12345678.9, 66.6]])) == [[12345700.0, 100.0]]
    assert _rounded(np.array([0.1234567891])) == [0.123457]
    assert _rounded(np.zeros(2)) == [0.0, 0.0]
    assert _rounded(np.zeros(0)) == []


class Model:
    """Predicts the sum of columns, and intervals one to either side."""

    def predict(self, X):
        return X.iloc[:, 0].to_numpy() + 10.0 * (X.iloc[:, 1] == "v").to_numpy()

    def predict_interval(self, X, coverage):
        return self.predict(X)[:, None] + [-coverage, coverage]


def test_a_curve_moves_one_column_and_leaves_the_rest():
    X = pd.DataFrame({"a": [1.0, 2.0], "k": pd.Categorical(["u", "v"])}, index=[7, 7])
    assert _curve(Model(), X, 0, [0.0, 5.0, 6.0])[..., 0].tolist() == [[0, 5, 6], [10, 15, 16]]
    assert _curve(Model(), X, 1, ["v", "u"])[..., 0].tolist() == [[11, 1], [12, 2]]
    values, ends = predictions(Model(), X, coverage=0.5)
    assert (values.tolist(), ends.tolist()) == ([[1], [12]], [[0.5, 1.5], [11.5, 12.5]])
    assert predictions(Model(), X)[1] is None


def test_of_two_classes_the_second_has_a_probability():
    for shares, expected in (([[0.2, 0.8]], [[0.8]]), ([[0.2, 0.5, 0.3]], [[0.2, 0.5, 0.3]])):
        model = SimpleNamespace(predict_proba=lambda X, found=shares: found)
        assert predictions(model, None, coverage=0.9)[0].tolist() == expected
