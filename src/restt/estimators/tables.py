"""X as users have it, arrays, data frames and sparse matrices, checked as scikit-learn does and read by columns."""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from restt._common.errors import shown
from restt.features.inputs import read_weights, unmasked

_MICROSECONDS = 86_400e6  # of a day
# A sparse table becomes dense, since every site vector is: beyond this many bytes that is refused.
SPARSE_LIMIT = 2**30


class Table(ABC):
    """Columns of numbers or categories, counted from 0."""

    rows: int
    width: int
    names: list[str] | None

    def label(self, column: int) -> str:
        """The column as messages name it."""
        return f"column {column}" if self.names is None else f"column {self.names[column]!r}"

    @abstractmethod
    def holds_categories(self, column: int) -> bool:
        """Whether the column's type says that it holds categories."""

    @abstractmethod
    def numbers(self, column: int) -> np.ndarray:
        """The column in float64, NaN where a value is missing."""

    def misses(self, column: int) -> bool:
        """Whether a value of a column of numbers is missing."""
        return bool(np.isnan(self.numbers(column)).any())

    def all_numbers(self) -> np.ndarray | None:  # (B, C) float64
        """All columns at once, a copy, in far less time than one by one; None where that is not how they lie."""
        return None

    @abstractmethod
    def categories(self, column: int) -> np.ndarray:
        """The column as Python values in an object array, None where a value is missing."""

    @abstractmethod
    def take(self, rows: np.ndarray) -> Table:
        """The table of these row numbers."""

    def _not_numbers(self, column: int, found: str) -> str:
        return (
            f"{self.label(column)} of X must hold numbers, got {found}; categories are columns of a text or category "
            "type in a data frame, or those named in categorical_features"
        )

    def _time(self, column: int, found: str) -> str:
        return (
            f"{self.label(column)} of X must hold numbers or dates, got {found}: make a number of its times of the day "
            "first, for example the hour"
        )

    def _floats(self, column: int, values: np.ndarray) -> np.ndarray:
        """An object or text column as numbers, or an error that shows the first value that is none."""
        try:
            return values.astype(np.float64)
        except (TypeError, ValueError):
            for row, value in enumerate(values):
                if isinstance(value, (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)):
                    raise ValueError(self._time(column, f"{shown(value)} in row {row}")) from None
                try:
                    float(np.nan if value is None else value)
                except ValueError:
                    raise ValueError(self._not_numbers(column, f"the text {shown(value)} in row {row}")) from None
                except TypeError as error:
                    raise TypeError(self._not_numbers(column, f"{shown(value)} in row {row} ({error})")) from None
            raise


class ArrayTable(Table):
    """A 2-D numpy array. It has one type for all columns, so categories have to be named by the user."""

    def __init__(self, values: np.ndarray, names: list[str] | None = None) -> None:
        self.values, self.names = values, names
        self.rows, self.width = values.shape

    def holds_categories(self, column: int) -> bool:
        """Whether the column has a type of text or categories."""
        return False

    @cached_property
    def all_finite(self) -> bool:
        """Whether all values are known to be finite numbers: a sum that is says so in one pass over the array."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.values.dtype.kind in "biuf" and bool(np.isfinite(self.values.sum(dtype=np.float64)))

    def misses(self, column: int) -> bool:
        """Whether a value of the column is missing."""
        return not self.all_finite and super().misses(column)

    def numbers(self, column: int) -> np.ndarray:
        """Values of a column of numbers, NaN where missing."""
        values = self.values[:, column]
        if values.dtype.kind in "biuf":
            return values.astype(np.float64)
        if values.dtype.kind in "Mm":
            return days(values)
        if values.dtype.kind not in "OU":
            raise TypeError(self._not_numbers(column, f"dtype {values.dtype}"))
        return self._floats(column, values)

    def all_numbers(self) -> np.ndarray | None:
        """All columns at once where they are plain numbers, else None."""
        if self.values.dtype.kind not in "biuf":
            return None
        return np.array(self.values, dtype=np.float64, order="C")

    def categories(self, column: int) -> np.ndarray:
        """Values of a column of categories as objects, None where missing."""
        return _objects(self.values[:, column].tolist())

    def take(self, rows: np.ndarray) -> Table:
        """The table of some rows."""
        return ArrayTable(self.values[rows], self.names)


class PandasTable(Table):
    """A pandas data frame."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.rows, self.width = frame.shape
        self.names = [str(name) for name in frame.columns]

    def holds_categories(self, column: int) -> bool:
        """Whether the column has a type of text or categories."""
        import pandas as pd

        series = self.frame.iloc[:, column]
        if isinstance(series.dtype, (pd.CategoricalDtype, pd.StringDtype)) or _in_arrow(series.dtype) == "text":
            return True
        if series.dtype != object:
            return False
        present = series[series.notna()]
        return len(present) > 0 and all(isinstance(value, str) for value in present)

    def numbers(self, column: int) -> np.ndarray:
        """Values of a column of numbers, NaN where missing."""
        from pandas.api.types import is_bool_dtype, is_complex_dtype, is_numeric_dtype

        series = self.frame.iloc[:, column]
        if series.dtype == object:
            if self.holds_categories(column):
                raise ValueError(self._not_numbers(column, f"text, first {shown(series[series.notna()].iloc[0])}"))
            if series.notna().any() and all(isinstance(value, datetime.date) for value in series[series.notna()]):
                return _pandas_days(series)
            return self._floats(column, self.categories(column))
        if is_complex_dtype(series.dtype):
            raise ValueError(f"Complex data not supported: {self.label(column)} of X has dtype {series.dtype}")
        if getattr(series.dtype, "kind", "O") in "Mm" or _in_arrow(series.dtype) == "dates":
            if "time" in str(series.dtype) and "timestamp" not in str(series.dtype) and _in_arrow(series.dtype):
                raise ValueError(self._time(column, f"dtype {series.dtype}"))
            return _pandas_days(series)
        if _in_arrow(series.dtype) == "nothing":
            return np.full(self.rows, np.nan)
        if not (is_numeric_dtype(series.dtype) or is_bool_dtype(series.dtype)) or self.holds_categories(column):
            raise ValueError(self._not_numbers(column, f"dtype {series.dtype}"))
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))

    def categories(self, column: int) -> np.ndarray:
        """Values of a column of categories as objects, None where missing."""
        import pandas as pd

        series = self.frame.iloc[:, column]
        if isinstance(series.dtype, pd.CategoricalDtype) and not _are_plain(series.cat.categories):
            series = series.cat.rename_categories(str)  # intervals, as of pandas.cut, and dates have their names
        pairs = zip(series.astype(object), series.notna(), strict=True)
        return _objects([value if present else None for value, present in pairs])

    def take(self, rows: np.ndarray) -> Table:
        """The table of some rows."""
        return PandasTable(self.frame.iloc[rows])


class PolarsTable(Table):
    """A polars data frame."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.rows, self.width = frame.shape
        self.names = list(frame.columns)

    def holds_categories(self, column: int) -> bool:
        """Whether the column has a type of text or categories."""
        import polars as pl

        return self.frame.dtypes[column] in (pl.Categorical, pl.Enum, pl.String)

    def numbers(self, column: int) -> np.ndarray:
        """Values of a column of numbers, NaN where missing."""
        import polars as pl

        series = self.frame.to_series(column)
        if series.dtype == pl.Time:
            raise ValueError(self._time(column, f"dtype {series.dtype}"))
        if series.dtype.is_temporal():
            moments = series.dt.total_microseconds() if series.dtype == pl.Duration else series.dt.timestamp("us")
            return np.asarray(moments.cast(pl.Float64).fill_null(float("nan")).to_numpy()) / _MICROSECONDS
        if not (series.dtype.is_numeric() or series.dtype == pl.Boolean):
            raise ValueError(self._not_numbers(column, f"dtype {series.dtype}"))
        return np.asarray(series.cast(pl.Float64).fill_null(float("nan")).to_numpy())

    def categories(self, column: int) -> np.ndarray:
        """Values of a column of categories as objects, None where missing."""
        import polars as pl

        series = self.frame.to_series(column)
        return _objects((series.cast(pl.String) if self.holds_categories(column) else series).to_list())

    def take(self, rows: np.ndarray) -> Table:
        """The table of some rows."""
        return PolarsTable(self.frame[rows])


def days(moments: np.ndarray) -> np.ndarray:  # (B,) datetime64 or timedelta64
    """Days since 1970, in UTC, or days of a duration; NaN where missing.

    >>> days(np.array(["1970-01-02T12", "NaT"], dtype="datetime64[h]"))
    array([1.5, nan])
    """
    kind = "datetime64" if moments.dtype.kind == "M" else "timedelta64"
    counted = moments.astype(f"{kind}[us]").astype(np.int64) / _MICROSECONDS
    return np.where(np.isnat(moments), np.nan, counted)


def _pandas_days(series: Any) -> np.ndarray:
    import pandas as pd

    if getattr(series.dtype, "kind", "O") == "m" or "duration" in str(series.dtype):
        return days(pd.to_timedelta(series.astype(object)).to_numpy(dtype="timedelta64[us]"))
    moments = pd.to_datetime(series.astype(object), utc=True)
    return days(moments.dt.tz_localize(None).to_numpy(dtype="datetime64[us]"))


def _in_arrow(dtype: Any) -> str:
    """What a column of pandas holds that is in pyarrow's memory: "text", "dates" or "nothing"; "" for all others."""
    import pandas as pd

    if not isinstance(dtype, pd.ArrowDtype):
        return ""
    from pyarrow import types

    kind = dtype.pyarrow_dtype
    if types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind):
        return "text"
    return "dates" if types.is_temporal(kind) else "nothing" if types.is_null(kind) else ""


def read_x(estimator: BaseEstimator, x: Any, *, reset: bool) -> Table:
    """The table of X; sets the estimator's column names and number, or without ``reset`` compares with them."""
    if not reset and _is_as_fitted(estimator, x):
        return ArrayTable(x)
    _refuse_what_is_no_table(x)
    x = as_frame(unmasked(x))
    table = read_frame(x)
    if table is not None:
        if table.rows == 0 or table.width == 0:
            what, least = ("sample(s)", table.rows) if table.rows == 0 else ("feature(s)", table.width)
            raise ValueError(
                f"Found array with {least} {what} (shape={(table.rows, table.width)}) while a minimum of 1 is required "
                f"by {type(estimator).__name__}."
            )
        validate_data(estimator, x, reset=reset, skip_check_array=True)
        return table
    if sparse.issparse(x):
        validate_data(estimator, x, reset=reset, accept_sparse=True, ensure_all_finite=False)
        return ArrayTable(dense(x))
    values = validate_data(estimator, x, reset=reset, dtype=None, ensure_all_finite=False)
    return ArrayTable(np.asarray(values))


def _is_as_fitted(estimator: BaseEstimator, x: Any) -> bool:
    """Whether scikit-learn would find nothing to change or to say in X; its checks take longer than a prediction."""
    return (
        type(x) is np.ndarray
        and x.dtype.kind in "biuf"
        and x.ndim == 2
        and len(x) > 0
        and x.shape[1] == getattr(estimator, "n_features_in_", None)
        and not hasattr(estimator, "feature_names_in_")
    )


def read_sample_weight(sample_weight: Any, rows: int) -> np.ndarray:  # (B,)
    """Row weights in float64, one number meaning the same for all."""
    if isinstance(sample_weight, Real):
        sample_weight = np.full(rows, float(sample_weight))
    if sample_weight is not None:
        given = np.asarray(unmasked(sample_weight), dtype=np.float64)
        if given.shape == (rows,) and not given.any():
            raise ValueError("sample_weight must be above zero for at least one row, got zero for all of them")
        sample_weight = given
    return np.asarray(read_weights(sample_weight, rows).numpy())


def as_frame(x: Any) -> Any:
    """A data frame of another library that offers the Arrow interface as one of polars or pandas; the rest as it is."""
    if _is_from(x, "pandas") or _is_from(x, "polars") or not hasattr(x, "__arrow_c_stream__"):
        return x
    try:
        import polars as pl

        return pl.DataFrame(x)
    except ImportError:
        pass
    try:
        import pandas as pd

        return pd.DataFrame.from_arrow(x)
    except (ImportError, AttributeError):
        raise ImportError(f"reading a {type(x).__name__} needs polars, or pandas 3: pip install polars") from None


def read_frame(x: Any) -> Table | None:
    """The table of a pandas or polars data frame; None for anything else."""
    if _is_from(x, "pandas"):
        return PandasTable(x)
    return PolarsTable(x) if _is_from(x, "polars") else None


def dense(x: Any) -> np.ndarray:
    """A scipy sparse table as an array, where that is not too large."""
    rows, columns = x.shape
    size = rows * columns * 8
    if size > SPARSE_LIMIT:
        raise ValueError(
            f"a sparse X is made dense, which needs {size / 2**30:.1f} GiB for shape {tuple(x.shape)} and is refused "
            f"beyond {SPARSE_LIMIT / 2**30:g} GiB: reduce its columns first, for example with TruncatedSVD"
        )
    return np.asarray(x.toarray())


def _refuse_what_is_no_table(x: Any) -> None:
    for library in ("pandas", "polars"):
        if _is_from(x, library, "Series"):
            raise ValueError(
                f"X must be a table of shape (B, C), got a {library} Series of {len(x)} values: one column is "
                "X.to_frame(), several are a data frame"
            )
    if _is_from(x, "polars", "LazyFrame"):
        raise TypeError("X must be a table, got a polars LazyFrame, which holds no rows yet: pass X.collect()")


def _are_plain(levels: Any) -> bool:
    """Whether these are numbers or text."""
    return all(isinstance(level, (str, Real, np.bool_)) for level in levels)


def _is_from(x: Any, library: str, name: str = "DataFrame") -> bool:
    return any(base.__module__.split(".")[0] == library and base.__name__ == name for base in type(x).__mro__)


def _objects(values: list[Any]) -> np.ndarray:
    held = np.empty(len(values), dtype=object)
    held[:] = values
    return held
