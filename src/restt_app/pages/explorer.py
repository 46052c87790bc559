"""Rows to look into: what their predictions are made of, and what they would be at other values of each column.

Everything is computed here and embedded as plain arrays; the page only draws it.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from restt_app.pages.numbers import plain, short

# Values along a column: some evenly spaced, some at its quantiles, where the rows are.
EVEN, QUANTILES, LEVELS = 13, 13, 30
# Numbers of all curves together, which bound the size of the page; and the most columns that have one.
NUMBERS, COLUMNS = 160_000, 40
FEWEST_ROWS = 10
# Curves are whole numbers of this part of the largest change that any of them shows.
STEPS = 20_000
ORDERS = 8


@dataclass(frozen=True)
class Predictions:
    """What the model says of rows, on the scale of y or as probabilities, (B, D); intervals (B, 2) where it has them.

    A classifier of two classes has D = 1, the second's probability, as its decision has.
    """

    values: np.ndarray
    intervals: np.ndarray | None = None


def predictions(model: Any, X: Any, *, coverage: float | None = None) -> Predictions:
    """Predictions of a regressor or probabilities of a classifier, with intervals where ``coverage`` asks for some."""
    if hasattr(model, "predict_proba"):
        found = np.asarray(model.predict_proba(X), dtype=np.float64)
        return Predictions(found[:, 1:] if found.shape[1] == 2 else found)
    values = np.asarray(model.predict(X), dtype=np.float64)
    ends = None
    if coverage is not None and values.ndim == 1:
        try:
            ends = np.asarray(model.predict_interval(X, coverage=coverage), dtype=np.float64)
        except (AttributeError, ValueError):  # only some solvers know an interval, and say so like this
            ends = None
    return Predictions(values.reshape(len(values), -1), ends)


def take(X: Any, rows: np.ndarray) -> Any:
    """These rows of a table: pandas, polars or an array."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows.tolist()] if _is_polars(X) else np.asarray(X)[rows]


def replaced(X: Any, column: int, values: list[Any]) -> Any:
    """The table with other values in one column."""
    if hasattr(X, "iloc"):
        dtype = X.dtypes.iloc[column]
        changed = X.copy()
        categories = isinstance(dtype, pd.CategoricalDtype)
        new = pd.Categorical(values, dtype=dtype) if categories else values
        changed.isetitem(column, pd.Series(new, index=X.index))
        return changed
    if _is_polars(X):
        import polars as pl

        name = X.columns[column]
        kind = X.dtypes[column]
        new = pl.Series(name, values, dtype=kind if isinstance(values[0], str) else None, strict=False)
        return X.with_columns(new)
    array = np.array(X, dtype=object if isinstance(values[0], str) else None)
    array = array.astype(np.float64) if array.dtype.kind in "biu" else array
    array[:, column] = values
    return array


def explored(
    model: Any,
    X: Any,
    y: Any,
    rows: int,
    *,
    ranking: tuple[int, ...],
    numbers: np.ndarray,  # (B, C)
    outputs: tuple[str, ...],
    target: str,
    coverage: float,
) -> dict[str, Any]:
    """The explorer's data: rows evenly spread over the table, their Shapley values and orders, and curves."""
    grids = {column: _grid(model, column, numbers[:, column]) for column in ranking[:COLUMNS]}
    grids = {column: grid for column, grid in grids.items() if len(grid) > 1}
    each = max(1, sum(map(len, grids.values())) * len(outputs))
    count = min(len(numbers), rows, max(FEWEST_ROWS, NUMBERS // each))
    chosen = np.unique(np.linspace(0, len(numbers) - 1, count).round().astype(int))
    some = take(X, chosen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of values unseen in the fit: the whole table was read before
        local = model.explain_local(some).on()
        said = predictions(model, some, coverage=coverage)
        curves = {column: _curve(model, some, column, grid) for column, grid in grids.items()}
    largest = max((float(np.abs(curve - said.values[:, None]).max()) for curve in curves.values()), default=0.0)
    unit = largest / STEPS or 1.0
    scale = _scale(local.outputs[0], target, hasattr(model, "classes_"))
    return {
        "target": target,
        "outputs": list(outputs),
        "classes": hasattr(model, "classes_"),
        "scale": scale,
        "same": scale == target or hasattr(model, "classes_"),
        "method": f"{local.method}s",
        "coverage": coverage,
        "names": list(local.names),
        "base": _rounded(local.base),
        "row": (chosen + 1).tolist(),
        "observed": None if y is None else [plain(value) for value in np.asarray(y, dtype=object)[chosen].tolist()],
        "predicted": _rounded(said.values),
        "interval": None if said.intervals is None else _rounded(said.intervals),
        "decision": _rounded(local.predictions),
        "values": [[short(value) for value in row] for row in local.data.tolist()],
        "shapley": _rounded(local.values.transpose(0, 2, 1)),  # (B, D, C)
        "orders": _rounded(local.orders.transpose(0, 2, 1)),  # (B, D, orders), from 0
        "unit": float(f"{unit:.6g}"),
        "columns": [
            {
                "column": column,
                "grid": [plain(float(f"{value:.6g}")) if isinstance(value, float) else str(value) for value in grid],
                "number": isinstance(grid[0], float),
                "at": _places(local.data[:, column].tolist(), grid),
                "steps": ((curves[column] - said.values[:, None]) / float(f"{unit:.6g}"))
                .round()
                .astype(int)
                .transpose(0, 2, 1)
                .tolist(),
            }
            for column, grid in grids.items()
        ],
    }


def _scale(output: str, target: str, classes: bool) -> str:
    """What the values add up to: y's own name or a probability; of a model saved by 0.8 its transformed y."""
    return "probability" if classes else re.sub(r"\by\d*\b", lambda found: target, output)


def _grid(model: Any, column: int, numbers: np.ndarray) -> list[Any]:
    """The values along a column: levels of categories, numbers within the rows' range."""
    levels = model.encoding_.columns[column].levels
    if levels is not None:
        return list(levels)[:LEVELS]
    known = numbers[~np.isnan(numbers)]
    if not len(known):
        return []
    even = np.linspace(known.min(), known.max(), EVEN)
    return [
        float(value) for value in np.unique(np.concatenate([even, np.quantile(known, np.linspace(0, 1, QUANTILES))]))
    ]


def _curve(model: Any, X: Any, column: int, grid: list[Any]) -> np.ndarray:  # (B, G, D)
    """Predictions of all rows with the column at each value, everything else as it is."""
    count = X.shape[0]
    repeated = take(X, np.repeat(np.arange(count), len(grid)))
    found = predictions(model, replaced(repeated, column, grid * count)).values
    return found.reshape(count, len(grid), -1)


def _places(values: list[Any], grid: list[Any]) -> list[Any]:
    """Where each row lies on the grid: its number, or the place of its level; None where it is missing or unknown."""
    if isinstance(grid[0], float):
        return [None if value != value else float(f"{value:.6g}") for value in values]
    return [grid.index(value) if value in grid else None for value in values]


def _rounded(values: np.ndarray) -> list[Any]:
    """Nested lists with six digits of the largest: enough to read, and short."""
    size = float(np.abs(values).max(initial=0.0))
    decimals = 6 - math.ceil(math.log10(size)) if size > 0 else 0
    found: list[Any] = np.round(values, decimals).tolist()
    return found


def _is_polars(X: Any) -> bool:
    return type(X).__module__.split(".")[0] == "polars"
