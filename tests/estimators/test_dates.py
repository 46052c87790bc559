"""Dates, durations and types of data frames as the estimators read them: numbers, with NaN where one is missing."""

import datetime

import numpy as np
import pandas as pd
import pytest

from restt import ResTTNetRegressor
from restt.estimators.tables import Table, frame_table

MOMENTS = ["2024-01-01 00:00", "2024-01-02 12:00", None, "1969-12-31 00:00"]
DAYS = [19723.0, 19724.5, np.nan, -1.0]


def _read(frame):
    return frame_table(frame)


def pandas_frame(kind):
    series = pd.Series(pd.to_datetime(MOMENTS))
    made = {
        "naive": lambda: series,
        "zoned": lambda: series.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"),
        "arrow": lambda: series.astype("timestamp[us][pyarrow]"),
        "objects": lambda: series.astype(object).where(series.notna(), None),
    }
    return pd.DataFrame({"when": made[kind]()})


@pytest.mark.parametrize("kind", ["naive", "zoned", "arrow", "objects"])
def test_dates_of_pandas_are_days_since_1970(kind):
    np.testing.assert_allclose(_read(pandas_frame(kind)).numbers(0), DAYS)


def test_dates_of_arrays():
    np.testing.assert_allclose(Table(pd.to_datetime(MOMENTS).to_numpy()[:, None]).numbers(0), DAYS)


def test_dates_of_polars():
    pl = pytest.importorskip("polars")
    series = pd.to_datetime(MOMENTS)
    frame = pl.DataFrame(
        {"when": pl.Series([*series.to_pydatetime().tolist()[:2], None, datetime.datetime(1969, 12, 31)])}
    )
    np.testing.assert_allclose(_read(frame).numbers(0), DAYS)
    zoned = frame.with_columns(pl.col("when").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"))
    np.testing.assert_allclose(_read(zoned).numbers(0), DAYS)
    dates = pl.DataFrame({"when": [datetime.date(2024, 1, 1), None]})
    np.testing.assert_allclose(_read(dates).numbers(0), [19723.0, np.nan])
    lengths = pl.DataFrame({"d": [datetime.timedelta(days=1), datetime.timedelta(hours=36)]})
    np.testing.assert_allclose(_read(lengths).numbers(0), [1.0, 1.5])
    with pytest.raises(ValueError, match="column 'at' of X must hold numbers or dates, got datetime"):
        _read(pl.DataFrame({"at": [datetime.time(12)]})).numbers(0)


def test_durations_are_days():
    lengths = pd.to_timedelta(["1 days", "36 hours", None])
    np.testing.assert_allclose(_read(pd.DataFrame({"d": lengths})).numbers(0), [1.0, 1.5, np.nan])


@pytest.mark.parametrize("dtype", ["boolean", "bool[pyarrow]", "Int64", "int64[pyarrow]", "Float64", "double[pyarrow]"])
def test_nullable_and_arrow_types_are_numbers(dtype):
    column = pd.Series([1, 0, None], dtype=dtype)
    np.testing.assert_array_equal(_read(pd.DataFrame({"a": column})).numbers(0), [1.0, 0.0, np.nan])


def test_times_of_the_day_are_refused_in_a_line():
    frame = pd.DataFrame({"at": [datetime.time(12)] * 3})
    with pytest.raises(ValueError, match=r"column 'at' of X must hold numbers or dates, got datetime\.time"):
        _read(frame).numbers(0)


def test_a_frame_with_dates_is_fitted_named_and_shown():
    frame = pd.DataFrame(
        {"when": pd.date_range("2024-01-01", periods=40), "open": pd.array([True, None] * 20, dtype="boolean")}
    )
    y = np.arange(40.0)
    model = ResTTNetRegressor(epochs=30, random_state=0).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["when", "open"]
    late = model.predict(frame)[-10:].mean()
    assert late > model.predict(frame)[:10].mean() + 5
    np.testing.assert_array_equal(
        model.predict(frame), model.predict(frame.assign(when=frame.when.dt.tz_localize("UTC")))
    )
    assert "ResTTNetRegressor" in model._repr_html_()
