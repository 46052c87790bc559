"""The explorer's data: values along columns, places of rows, digits."""

from types import SimpleNamespace

import numpy as np
import pandas as pd

from restt_app.pages.explorer import (
    _curve,
    _grid,
    _places,
    _rounded,
    _ticks,
    explored,
    predictions,
    spread_rows,
)
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


def test_everything_of_the_explorer_is_of_the_chosen_rows():
    X = pd.DataFrame({"a": [0.0, 12.0] * 6, "k": pd.Categorical(["u"] * 6 + ["v"] * 6), "rest": 1.0})
    numbers = np.stack([X.a, X.k.cat.codes, X.rest], axis=1)
    model = Model()
    levels = (None, ["u", "v"], None)
    model.encoding_ = SimpleNamespace(columns=[SimpleNamespace(levels=own) for own in levels])
    chosen = np.array([0, 3, 11])
    values = np.arange(9.0).reshape(3, 3, 1)
    units = SimpleNamespace(base=np.array([0.25]), values=values)
    local = SimpleNamespace(names=("a", "k", "rest"), data=X.iloc[chosen].to_numpy(object), on=lambda: units)
    given = {"ranking": (1, 0, 2), "numbers": numbers, "outputs": ("y",), "labels": [], "target": "y", "coverage": 0.5}
    found = explored(model, X, np.arange(12) / 2, local, chosen, **given, texts=lambda _: short)
    curves = found.pop("columns")
    assert found == {
        **{"target": "y", "outputs": ["y"], "labels": [], "classes": False, "coverage": 0.5},
        **{"names": ["a", "k", "rest"], "base": [0.25], "row": [1, 4, 12], "observed": [0.0, 1.5, 5.5]},
        **{"predicted": [[0.0], [12.0], [22.0]], "interval": [[-0.5, 0.5], [11.5, 12.5], [21.5, 22.5]]},
        **{"values": [["0", "u", "1"], ["12", "u", "1"], ["12", "v", "1"]]},
        **{"added": [[[0.0, 1.0, 2.0]], [[3.0, 4.0, 5.0]], [[6.0, 7.0, 8.0]]], "unit": 12 / 2000},
    }
    kinds, sizes = curves  # a column of one value has no curve
    steps = round(10 / 0.006)
    assert kinds == {
        **{"column": 1, "grid": ["u", "v"], "texts": ["u", "v"], "number": False, "ticks": [(0, "u"), (1, "v")]},
        **{"at": [0, 0, 1], "steps": [[[0, steps]], [[0, steps]], [[-steps, 0]]]},
    }
    assert (sizes["grid"], sizes["at"], sizes["number"]) == (list(range(13)), [0, 12, 12], True)
    assert sizes["ticks"] == [(tick, str(tick)) for tick in range(0, 13, 2)]
    assert sizes["steps"][0] == [[round(value / 0.006) for value in range(13)]]
    assert sizes["steps"][2] == [[round((value - 12) / 0.006) for value in range(13)]]
    without = explored(model, X, None, local, chosen, **{**given, "ranking": (2,)}, texts=lambda _: short)
    assert (without["observed"], without["unit"], without["columns"]) == (None, 1.0, [])


def test_of_two_classes_the_second_has_a_probability():
    for shares, expected in (([[0.2, 0.8]], [[0.8]]), ([[0.2, 0.5, 0.3]], [[0.2, 0.5, 0.3]])):
        model = SimpleNamespace(predict_proba=lambda X, found=shares: found)
        assert predictions(model, None, coverage=0.9)[0].tolist() == expected
