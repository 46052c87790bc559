"""Rows to look into: what their predictions are made of, and what they would be at other values of each column.

Everything is computed here and embedded as plain arrays; the page only draws it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from restt.explain import LocalExplanation
from restt_app.pages.charts import round_ticks
from restt_app.pages.numbers import plain

# Values along a column: some evenly spaced, some at its quantiles, where the rows are.
EVEN, QUANTILES, LEVELS = 13, 13, 30
# Numbers of all curves together, which bound the size of the page; and the most columns that have one.
NUMBERS, COLUMNS = 120_000, 12
FEWEST_ROWS = 10
# Curves are whole numbers of this part of the largest change that any of them shows.
STEPS = 2_000


def predictions(model: Any, X: Any, *, coverage: float | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    """Predictions or probabilities (B, D), and intervals (B, 2) where ``coverage`` asks for some and the model has any.

    A classifier of two classes has D = 1, the second's probability, as its decision has.
    """
    if hasattr(model, "predict_proba"):
        found = np.asarray(model.predict_proba(X), dtype=np.float64)
        return found[:, 1:] if found.shape[1] == 2 else found, None
    values = np.asarray(model.predict(X), dtype=np.float64)
    ends = None
    if coverage is not None and values.ndim == 1 and hasattr(model, "predict_interval"):
        ends = np.asarray(model.predict_interval(X, coverage=coverage), dtype=np.float64)
    return values.reshape(len(values), -1), ends


def explored(
    model: Any,
    X: Any,
    y: Any,
    local: LocalExplanation,
    chosen: np.ndarray,  # (b,) row numbers that ``local`` is of
    *,
    ranking: tuple[int, ...],
    numbers: np.ndarray,  # (B, C)
    outputs: tuple[str, ...],
    labels: list[str],
    target: str,
    coverage: float,
    texts: Callable[[int], Callable[[Any], str]],
) -> dict[str, Any]:
    """The explorer's data: rows evenly spread over the table, what columns add to each, and curves."""
    grids = {column: _grid(model, column, numbers[:, column]) for column in ranking[:COLUMNS]}
    grids = {column: grid for column, grid in grids.items() if len(grid) > 1}
    # A column without a curve has its value and its contribution.
    each = max(1, (sum(map(len, grids.values())) + 2 * (len(local.names) - len(grids))) * len(outputs))
    kept = spread_rows(len(chosen), max(FEWEST_ROWS, NUMBERS // each))
    some = X.iloc[chosen[kept]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of values unseen in the fit: the whole table was read before
        predicted, intervals = predictions(model, some, coverage=coverage)
        curves = {column: _curve(model, some, column, grid) for column, grid in grids.items()}
    largest = max((float(np.abs(curve - predicted[:, None]).max()) for curve in curves.values()), default=0.0)
    unit = float(f"{largest / STEPS or 1.0:.6g}")
    data, in_units = np.asarray(local.data)[kept], local.on()
    return {
        "target": target,
        "outputs": list(outputs),
        "labels": labels,
        "classes": hasattr(model, "classes_"),
        "coverage": coverage,
        "names": list(local.names),
        "base": _rounded(in_units.base),
        "row": (chosen[kept] + 1).tolist(),
        "observed": None
        if y is None
        else [plain(value) for value in np.asarray(y, dtype=object)[chosen[kept]].tolist()],
        "predicted": _rounded(predicted),
        "interval": None if intervals is None else _rounded(intervals),
        "values": [[texts(column)(value) for column, value in enumerate(row)] for row in data.tolist()],
        "added": _rounded(in_units.values[kept].transpose(0, 2, 1)),  # (B, D, C)
        "unit": unit,
        "columns": [
            {
                "column": column,
                "grid": [plain(float(f"{value:.6g}")) if isinstance(value, float) else str(value) for value in grid],
                "texts": [texts(column)(value) for value in grid],
                "number": isinstance(grid[0], float),
                "ticks": _ticks(grid, texts(column)),
                "at": _places(data[:, column].tolist(), grid),
                "steps": ((curves[column] - predicted[:, None]) / unit).round().astype(int).transpose(0, 2, 1).tolist(),
            }
            for column, grid in grids.items()
        ],
    }


def spread_rows(rows: int, most: int) -> np.ndarray:
    """At most so many row numbers, evenly spread.

    >>> spread_rows(10, 4).tolist()
    [0, 3, 6, 9]
    """
    return np.unique(np.linspace(0, rows - 1, min(rows, most)).round().astype(int))


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


def _ticks(grid: list[Any], text: Callable[[Any], str]) -> list[tuple[float, str]]:
    """Places and texts below a chart: round numbers, or every level."""
    if not isinstance(grid[0], float):
        return [(place, text(level)) for place, level in enumerate(grid)]
    return [(tick, text(tick)) for tick in round_ticks(grid[0], grid[-1], 6)]


def _curve(model: Any, X: Any, column: int, grid: list[Any]) -> np.ndarray:  # (B, G, D)
    """Predictions of all rows with the column at each value, everything else as it is."""
    moved = X.iloc[np.repeat(np.arange(len(X)), len(grid))].reset_index(drop=True)
    dtype = moved.dtypes.iloc[column]
    values = grid * len(X)
    moved.isetitem(column, pd.Categorical(values, dtype=dtype) if isinstance(dtype, pd.CategoricalDtype) else values)
    return predictions(model, moved)[0].reshape(len(X), len(grid), -1)


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
