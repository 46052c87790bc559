import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from restt.estimators import ResTTNetClassifier, ResTTNetRegressor, tables
from restt.estimators.tables import Table, dense, frame_table
from tests.estimators.conftest import QUICK, short_fits


def same(found, expected):
    np.testing.assert_array_equal(found, np.array(expected, dtype=float))


def test_pandas_columns_by_type():
    frame = pd.DataFrame(
        {
            "float": [1.5, np.nan],
            "nullable": pd.array([1, None], dtype="Int64"),
            "flag": pd.array([True, None], dtype="boolean"),
            "object numbers": np.array([1, None], dtype=object),
            "text": ["a", None],
            "category": pd.Categorical([3, None]),
        }
    )
    table = frame_table(frame)
    for column, expected in enumerate([[1.5, np.nan], [1, np.nan], [1, np.nan], [1, np.nan]]):
        assert not table.holds_categories(column)
        same(table.numbers(column), expected)
    assert table.holds_categories(4)
    assert table.holds_categories(5)
    assert table.categories(4).tolist() == ["a", None]
    assert table.categories(5).tolist() == [3, None]


def test_pandas_columns_in_pyarrows_memory():
    """As pandas.read_csv(dtype_backend="pyarrow") makes them."""
    pa = pytest.importorskip("pyarrow")
    kinds = {
        "float": (pa.float32(), [1.5, None]),
        "flag": (pa.bool_(), [True, None]),
        "decimal": (pa.decimal128(5, 2), [Decimal("1.50"), None]),
        "empty": (pa.null(), [None, None]),
        "text": (pa.string(), ["a", None]),
        "long text": (pa.large_string(), ["a", None]),
        "category": (pa.dictionary(pa.int8(), pa.string()), ["a", None]),
    }
    frame = pd.DataFrame({name: pd.array(values, dtype=pd.ArrowDtype(kind)) for name, (kind, values) in kinds.items()})
    table = frame_table(frame)
    for column, expected in enumerate([[1.5, np.nan], [1, np.nan], [1.5, np.nan], [np.nan, np.nan]]):
        assert not table.holds_categories(column)
        same(table.numbers(column), expected)
    for column in (4, 5, 6):
        assert table.holds_categories(column)
        assert table.categories(column).tolist() == ["a", None]
        with pytest.raises(ValueError, match="must hold numbers, got text or categories, first 'a'"):
            table.numbers(column)
    days = frame_table(pd.DataFrame({"day": pd.array([datetime.date(2020, 1, 2)], dtype=pd.ArrowDtype(pa.date32()))}))
    assert days.numbers(0).tolist() == [18263.0]  # days since 1970


def test_categories_that_are_neither_numbers_nor_text_have_names():
    """Intervals are what pandas.cut makes of a column."""
    values = pd.Series([0.5, 1.5, np.nan, 0.2])
    table = frame_table(
        pd.DataFrame({"bin": pd.cut(values, [0, 1, 2]), "day": pd.Categorical(pd.to_datetime(["2020"] * 4))})
    )
    assert table.holds_categories(0)
    assert table.categories(0).tolist() == ["(0, 1]", "(1, 2]", None, "(0, 1]"]
    assert set(table.categories(1)) == {"2020-01-01 00:00:00"}


def test_polars_columns_by_type():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(
        {
            "float": [1.5, None],
            "flag": [True, None],
            "text": ["a", None],
            "category": pl.Series(["b", None], dtype=pl.Categorical),
            "enum": pl.Series(["c", None], dtype=pl.Enum(["c", "d"])),
        }
    )
    table = frame_table(frame)
    same(table.numbers(0), [1.5, np.nan])
    same(table.numbers(1), [1, np.nan])
    assert [table.holds_categories(column) for column in range(5)] == [False, False, True, True, True]
    assert [table.categories(column).tolist() for column in (2, 3, 4)] == [["a", None], ["b", None], ["c", None]]


def test_all_numbers_are_a_copy_of_plain_numbers():
    values = np.arange(6.0).reshape(3, 2)
    for table in (Table(values), frame_table(pd.DataFrame(values))):
        found = table.all_numbers()
        same(found, values)
        found[:] = 9.0
        assert values[0, 1] == 1.0
    assert Table(values.astype(object)).all_numbers() is None
    mixed = frame_table(pd.DataFrame({"a": [1, 2], "b": pd.array([1, None], dtype="Int64")}))
    same(mixed.all_numbers(), [[1, 1], [2, np.nan]])
    assert frame_table(pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})).all_numbers() is None


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_dates_are_days_since_1970(library):
    table = frame_table(
        pytest.importorskip(library).DataFrame({"when": np.array(["2020-01-01T12:00"], dtype="datetime64[ms]")})
    )
    assert not table.holds_categories(0)
    assert table.numbers(0).tolist() == [18262.5]


def test_mixed_object_column_is_refused_with_the_value():
    with pytest.raises(ValueError, match=r"column 'a' .* the text 'x' in row 1"):
        frame_table(pd.DataFrame({"a": np.array([1, "x"], dtype=object)})).numbers(0)


def test_array_of_text_is_numbers_where_it_can_be():
    table = Table(np.array([["1.5", "red"]]))
    same(table.numbers(0), [1.5])
    with pytest.raises(ValueError, match=r"column 1 .* the text .*'red'.* in row 0.*categorical_features"):
        table.numbers(1)
    assert table.categories(1).tolist() == ["red"]


@pytest.mark.parametrize(
    "table",
    [
        Table(np.arange(6.0).reshape(3, 2)),
        frame_table(pd.DataFrame({"a": [0.0, 2, 4], "b": [1.0, 3, 5]}, index=[7, 7, 9])),
    ],
)
def test_rows_are_taken_by_position(table):
    taken = table.take(np.array([2, 0]))
    assert (taken.rows, taken.width) == (2, 2)
    same(taken.numbers(1), [5, 1])


def test_other_frames_come_through_arrow():
    pl = pytest.importorskip("polars")

    class Frame:
        def __init__(self, held):
            self.held = held

        def __arrow_c_stream__(self, requested_schema=None):
            return self.held.__arrow_c_stream__(requested_schema)

    table = frame_table(Frame(pl.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})))
    assert table.names == ["a", "b"]
    assert table.holds_categories(1)


def test_sparse_is_densified_up_to_a_limit(monkeypatch):
    x = sparse.csr_array(np.eye(4))
    np.testing.assert_array_equal(dense(x), np.eye(4))
    monkeypatch.setattr(tables, "SPARSE_LIMIT", 128)  # as many bytes
    assert dense(x).shape == (4, 4)
    monkeypatch.setattr(tables, "SPARSE_LIMIT", 127)
    with pytest.raises(ValueError, match=r"GiB for shape \(4, 4\).*TruncatedSVD"):
        dense(x)


@pytest.mark.parametrize("kind", [ResTTNetRegressor, ResTTNetClassifier])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, object])
def test_masked_entries_are_missing_values(kind, dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (60, 3))
    hidden = rng.random(x.shape) < 0.2
    y = np.where(hidden[:, 0], 5, x[:, 0]) > 3
    masked = np.ma.array(x.astype(dtype), mask=hidden)
    plain = np.where(hidden, np.nan, x).astype(object if dtype is object else np.float64)
    expected = kind(**QUICK).fit(plain, y).predict(plain)
    model = kind(**QUICK).fit(masked, y)
    np.testing.assert_array_equal(model.predict(masked), expected)
    unhidden = model.predict(masked.data)
    assert (unhidden != expected).any()


@short_fits
@pytest.mark.parametrize("kind", [ResTTNetRegressor, ResTTNetClassifier])
def test_masked_text_is_a_missing_category(kind):
    x = np.array([["a"], ["b"], ["c"], ["a"]] * 10)
    masked = np.ma.array(x, mask=x == "c")
    named = {**QUICK, "categorical_features": [0]}
    model = kind(**named).fit(masked, [1, 2, 3, 1] * 10)
    as_none = np.where(x == "c", None, x.astype(object))
    np.testing.assert_array_equal(model.predict(masked), model.predict(as_none))
    assert model.encoding_.columns[0].levels == ("a", "b")
    assert model.encoding_.columns[0].missing


def test_a_mask_that_hides_nothing_changes_nothing(numbers):
    x, y = numbers
    expected = ResTTNetRegressor(**QUICK).fit(x, y).predict(x)
    model = ResTTNetRegressor(**QUICK).fit(np.ma.array(x), np.ma.array(y))
    np.testing.assert_array_equal(model.predict(np.ma.array(x)), expected)


@pytest.mark.parametrize("kind", [ResTTNetRegressor, ResTTNetClassifier])
def test_masked_values_are_refused_where_none_may_be_missing(kind, numbers):
    x, y = numbers
    masked = np.ma.array(x, mask=np.arange(60)[:, None] == [7, -1, -1])
    with pytest.raises(ValueError, match=r'Input X contains NaN: column 0 .*handle_missing="error"'):
        kind(**QUICK, handle_missing="error").fit(masked, y > 0)
