"""X as users have it, arrays, data frames and sparse matrices, checked as scikit-learn does and read by columns.

Every data frame becomes one of pandas and then one array per column, everything else one array.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from restt._common.errors import shown
from restt.features.inputs import read_weights, unmasked

if TYPE_CHECKING:
    from restt.estimators.streams import Sample

_MICROSECONDS = 86_400e6  # of a day
# Multiplications that a table's entry is worth when it is encoded.
ENTRY_WORK = 100.0
_MOMENTS = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
# A sparse table becomes dense, since every site vector is: beyond this many bytes that is refused.
SPARSE_LIMIT = 2**30


class Table:
    """Columns of numbers or categories, counted from 0: a 2-D array, or one array per column.

    ``categorical`` are the columns whose type says that they hold categories; an array has one type for all columns, so
    its categories have to be named by the user.
    """

    def __init__(
        self,
        columns: np.ndarray | Sequence[np.ndarray],
        names: Sequence[str] | None = None,
        categorical: frozenset[int] = frozenset(),
    ) -> None:
        self.columns, self.categorical = columns, categorical
        self.names = None if names is None else list(names)
        self.rows, self.width = columns.shape if isinstance(columns, np.ndarray) else (len(columns[0]), len(columns))

    def label(self, column: int) -> str:
        """Name the column for messages."""
        return f"column {column}" if self.names is None else f"column {self.names[column]!r}"

    def holds_categories(self, column: int) -> bool:
        """Whether the column's type says that it holds categories."""
        return column in self.categorical

    def numbers(self, column: int) -> np.ndarray:
        """Return the column in float64, NaN where a value is missing."""
        values = self._values(column)
        if column in self.categorical:
            first = next((value for value in values if value is not None), None)
            raise ValueError(self._not_numbers(column, f"text or categories, first {shown(first)}"))
        if values.dtype.kind in "biuf":
            return values.astype(np.float64)
        if values.dtype.kind in "Mm":
            return days(values)
        if values.dtype.kind not in "OU":
            raise TypeError(self._not_numbers(column, f"dtype {values.dtype}"))
        return self._floats(column, values)

    def all_numbers(self) -> np.ndarray | None:  # (B, C) float64
        """Copy all columns at once, in far less time than one by one; None where they are not plain numbers."""
        if isinstance(self.columns, np.ndarray):
            return np.array(self.columns, dtype=np.float64, order="C") if self.columns.dtype.kind in "biuf" else None
        plain = all(values.dtype.kind in "biuf" for values in self.columns)
        return np.stack(self.columns, axis=1, dtype=np.float64) if plain else None

    def categories(self, column: int) -> np.ndarray:
        """Return the column as Python values in an object array, None where a value is missing."""
        return _objects(self._values(column).tolist())

    def take(self, rows: np.ndarray) -> Table:
        """Return the table of these row numbers."""
        if isinstance(self.columns, np.ndarray):
            return Table(self.columns[rows], self.names)
        return Table([values[rows] for values in self.columns], self.names, self.categorical)

    def _values(self, column: int) -> np.ndarray:
        return self.columns[:, column] if isinstance(self.columns, np.ndarray) else self.columns[column]

    def _not_numbers(self, column: int, given: str) -> str:
        return (
            f"{self.label(column)} of X must hold numbers, got {given}; categories are columns of a text or category "
            "type in a data frame, or those named in categorical_features"
        )

    def _floats(self, column: int, values: np.ndarray) -> np.ndarray:
        """Convert an object or text column to numbers, or raise an error that shows the first value that is none."""
        try:
            return values.astype(np.float64)
        except (TypeError, ValueError):
            for row, value in enumerate(values):
                if isinstance(value, _MOMENTS):
                    remedy = (
                        "make a number of its times of the day first, for example the hour"
                        if isinstance(value, datetime.time)
                        else "dates and durations are columns of a data frame, or an array of dtype datetime64"
                    )
                    raise ValueError(
                        f"{self.label(column)} of X must hold numbers or dates, got {shown(value)} in row {row}: "
                        f"{remedy}"
                    ) from None
                try:
                    float(np.nan if value is None else value)
                except ValueError:
                    raise ValueError(self._not_numbers(column, f"the text {shown(value)} in row {row}")) from None
                except TypeError as error:
                    raise TypeError(self._not_numbers(column, f"{shown(value)} in row {row} ({error})")) from None
            raise


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows of positive weight in the user's form."""

    table: Table
    y: np.ndarray  # (B,) or (B, O)
    weights: np.ndarray  # (B,)
    sample: Sample | None = None  # where they are a sample of a stream's rows

    def __len__(self) -> int:
        return len(self.y)

    @property
    def rows(self) -> int:
        """Number of rows that they stand for."""
        return len(self) if self.sample is None else self.sample.stream.rows

    @property
    def encoding_work(self) -> float:
        """Multiplications that their encoding is worth."""
        return float(self.table.rows) * self.table.width * ENTRY_WORK

    def take(self, rows: np.ndarray) -> Examples:
        """Keep some of the rows."""
        sample = None if self.sample is None else self.sample.take(rows)
        return Examples(self.table.take(rows), self.y[rows], self.weights[rows], sample)


def frame_table(frame: Any) -> Table:
    """Return the table of a data frame of pandas, polars, pyarrow or another library with the Arrow interface."""
    frame = as_pandas(frame)
    parts = [_pandas_column(frame.iloc[:, column]) for column in range(frame.shape[1])]
    categorical = frozenset(column for column, (_, is_categorical) in enumerate(parts) if is_categorical)
    return Table([values for values, _ in parts], [str(name) for name in frame.columns], categorical)


def _pandas_column(series: Any) -> tuple[np.ndarray, bool]:
    """Return the values of a column, None or NaN where one is missing, and whether they are categories."""
    import pandas as pd
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":
        return series.to_numpy(), False
    if is_complex_dtype(series.dtype):
        raise ValueError(f"Complex data not supported: column {series.name!r} of X has dtype {series.dtype}")
    if is_numeric_dtype(series.dtype):
        return series.to_numpy(dtype=np.float64, na_value=np.nan), False
    if getattr(series.dtype, "kind", "O") in "Mm" and not isinstance(series.dtype, pd.ArrowDtype):
        return _pandas_days(series), False
    is_categorical = isinstance(series.dtype, (pd.CategoricalDtype, pd.StringDtype))
    if isinstance(series.dtype, pd.CategoricalDtype) and not all(
        isinstance(level, (str, Real, np.bool_)) for level in series.cat.categories
    ):
        series = series.cat.rename_categories(str)  # intervals, as of pandas.cut, and dates have their names
    values = _objects(
        [value if there else None for value, there in zip(series.astype(object), series.notna(), strict=True)]
    )
    present = [value for value in values if value is not None]
    if is_categorical or not present or isinstance(present[0], str):
        return values, is_categorical or bool(present and all(isinstance(value, str) for value in present))
    if all(isinstance(value, (datetime.date, datetime.timedelta)) for value in present):
        series = pd.Series(values)
        moments = pd.to_timedelta if isinstance(present[0], datetime.timedelta) else partial(pd.to_datetime, utc=True)
        return _pandas_days(moments(series)), False
    return values, False


def _pandas_days(series: Any) -> np.ndarray:
    return days((series if getattr(series.dtype, "tz", None) is None else series.dt.tz_convert(None)).to_numpy())


def days(moments: np.ndarray) -> np.ndarray:  # (B,) datetime64 or timedelta64
    """Return days since 1970, in UTC, or days of a duration; NaN where missing.

    >>> days(np.array(["1970-01-02T12", "NaT"], dtype="datetime64[h]"))
    array([1.5, nan])
    """
    kind = "datetime64" if moments.dtype.kind == "M" else "timedelta64"
    counted = moments.astype(f"{kind}[us]").astype(np.int64) / _MICROSECONDS
    return np.where(np.isnat(moments), np.nan, counted)


def read_x(estimator: BaseEstimator, x: Any, *, reset: bool) -> Table:
    """Return the table of X; sets the estimator's column names and number, or without ``reset`` compares with them."""
    if not reset and _is_as_fitted(estimator, x):
        return Table(x)
    _refuse_what_is_no_table(x)
    x = as_pandas(unmasked(x))
    if _is_pandas(x):
        if 0 in x.shape:
            what = "sample(s)" if len(x) == 0 else "feature(s)"
            raise ValueError(
                f"Found array with 0 {what} (shape={x.shape}) while a minimum of 1 is required by "
                f"{type(estimator).__name__}."
            )
        validate_data(estimator, x, reset=reset, skip_check_array=True)
        return frame_table(x)
    if sparse.issparse(x):
        validate_data(estimator, x, reset=reset, accept_sparse=True, ensure_all_finite=False)
        return Table(dense(x))
    values = validate_data(estimator, x, reset=reset, dtype=None, ensure_all_finite=False)
    return Table(np.asarray(values))


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
    """Return row weights in float64, one number meaning the same for all."""
    if isinstance(sample_weight, Real):
        sample_weight = np.full(rows, float(sample_weight))
    return np.asarray(read_weights(sample_weight, rows).numpy())


def read_values(y: Any, estimator: Any) -> np.ndarray:  # (B,) or (B, O)
    """Check targets of a regression."""
    y = unmasked(y)
    dtype = getattr(y, "dtype", None)
    if getattr(dtype, "kind", "O") in "Mm":
        raise ValueError(
            f"y must hold numbers, got dtype {dtype}: make a number of it, such as the days since some date"
        )
    try:
        values = check_array(y, ensure_2d=False, allow_nd=True, dtype=np.float64, input_name="y", estimator=estimator)
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        raise ValueError(f"y must hold numbers ({error}); classes are for ResTTClassifier") from None
    except TypeError as error:
        if not str(error).startswith("float() argument"):
            raise
        raise TypeError(f"y must hold numbers ({error})") from None
    if values.ndim not in (1, 2) or values.size == 0:
        raise ValueError(f"y must have shape (B,) or (B, O), got {values.shape}")
    return np.asarray(values)


def output_columns(y: np.ndarray) -> np.ndarray:  # (B,) or (B, O) -> (B, O)
    """Targets with a column for each output."""
    return y[:, None] if y.ndim == 1 else y


def as_pandas(x: Any) -> Any:
    """Convert a data frame of polars, pyarrow or another with the Arrow interface to pandas; leave the rest as is."""
    if _is_pandas(x) or not hasattr(x, "__arrow_c_stream__"):
        return x
    try:
        import pandas  # noqa: F401
        import pyarrow

        return x.to_pandas() if hasattr(x, "to_pandas") else pyarrow.table(x).to_pandas()
    except ImportError:
        raise ImportError(f"reading a {type(x).__name__} needs pandas and pyarrow: pip install 'restt[app]'") from None


def dense(x: Any) -> np.ndarray:
    """Convert a scipy sparse table to an array, where that is not too large."""
    rows, columns = x.shape
    size = rows * columns * 8
    if size > SPARSE_LIMIT:
        raise ValueError(
            f"a sparse X is made dense, which needs {size / 2**30:.1f} GiB for shape {tuple(x.shape)} and is refused "
            f"beyond {SPARSE_LIMIT / 2**30:g} GiB: reduce its columns first, for example with TruncatedSVD"
        )
    return np.asarray(x.toarray())


def _refuse_what_is_no_table(x: Any) -> None:
    library, name = type(x).__module__.split(".")[0], type(x).__name__
    if library in ("pandas", "polars") and name == "Series":
        raise ValueError(
            f"X must be a table of shape (B, C), got a {library} Series of {len(x)} values: one column is "
            "X.to_frame(), several are a data frame"
        )
    if library == "polars" and name == "LazyFrame":
        raise TypeError("X must be a table, got a polars LazyFrame, which holds no rows yet: pass X.collect()")


def _is_pandas(x: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(x, pandas.DataFrame)


def _objects(values: list[Any]) -> np.ndarray:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
