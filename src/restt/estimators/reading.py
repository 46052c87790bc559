"""X and sample_weight as users pass them, checked the way scikit-learn's estimators check them."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from restt.estimators.tables import ArrayTable, Table, as_frame, dense, read_table
from restt.features.inputs import read_weights


def read_x(estimator: Any, x: Any, *, reset: bool) -> Table:
    """The table of X; sets the estimator's column names and number, or without ``reset`` compares with them."""
    x = as_frame(x)
    table = read_table(x)
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


def read_sample_weight(sample_weight: Any, rows: int) -> np.ndarray:  # (B,)
    """Row weights in float64, one number meaning the same for all."""
    if isinstance(sample_weight, Real):
        sample_weight = np.full(rows, float(sample_weight))
    if sample_weight is not None:
        given = np.asarray(sample_weight, dtype=np.float64)
        if given.shape == (rows,) and not given.any():
            raise ValueError("sample_weight must be above zero for at least one row, got zero for all of them")
        sample_weight = given
    return np.asarray(read_weights(sample_weight, rows).numpy())
