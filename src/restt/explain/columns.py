"""Columns on their own scale: grids of values with their site vectors, and values as a reader knows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import shown

# Points of a grid between the ends of a column of numbers; its knots are added, where the slope changes.
POINTS = 65
OTHER = "other"


def grid_values(given: Any, levels: list[Any] | None, label: str = "this column") -> tuple[np.ndarray, np.ndarray]:
    """Values as they were given, and as numbers (G,): levels by their place, NaN where missing."""
    listed = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    if levels is None:
        try:
            values = np.array(listed, dtype=np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"grid must be numbers for {label}, got {shown(listed)}") from None
        return values, values
    codes = []
    for value in listed:
        missing = value is None or value != value
        if not missing and value not in levels:
            raise ValueError(f"grid has {shown(value)}, which is not one of the levels {shown(levels)}")
        codes.append(np.nan if missing else levels.index(value))
    return np.array(listed, dtype=object), np.array(codes, dtype=np.float64)


def estimator_grid(estimator: Any, site: int, given: Any) -> tuple[np.ndarray, Tensor]:  # (G,), (G, I)
    """The values of a site's column, those given or all of interest, and their site vectors.

    A column of numbers has evenly spaced ones and its knots, a column of categories its levels, each then the missing
    value (NaN) where the fit saw some.
    """
    encoding = estimator.encoding_
    column, levels = encoding.sites[site], _levels(encoding.sites[site])
    if given is None:
        given = [*(_numbers(encoding, site) if levels is None else levels), *([np.nan] if column.missing else [])]
    values, codes = grid_values(given, levels, column.label)
    if np.isnan(codes).any() and not column.missing:
        raise ValueError(f"grid has a missing value, but {column.label} had none missing in the fit")
    numbers = torch.zeros(len(values), len(encoding.columns), dtype=torch.float64)
    numbers[:, list(encoding.order)] = encoding.fill.to(torch.float64)  # any value that the other columns can have
    numbers[:, encoding.order[site]] = torch.from_numpy(codes)
    return values, encoding.vectors(numbers)[:, site]


def module_grid(module: Any, site: int, given: Any, rows: Tensor) -> tuple[np.ndarray, Tensor]:
    """Site vectors (G, I), by default those of the rows, and their number, or for width 1 themselves."""
    width, vectors = module.feature_dims[site], torch.unique(rows[:, site], dim=0)
    if given is not None:
        vectors = torch.as_tensor(given).to(module.device, torch.float64)
        vectors = vectors[:, None] if vectors.dim() == 1 and width == 1 else vectors
        if vectors.dim() != 2 or vectors.shape[1] not in (width, module.feature_dim):
            raise ValueError(f"grid must be vectors of shape (G, {width}) of site {site}, got {shown(given)}")
        vectors = torch.nn.functional.pad(vectors[:, :width], (0, module.feature_dim - width))
    return (vectors[:, 0].cpu().numpy() if width == 1 else np.arange(len(vectors))), vectors


def estimator_labels(estimator: Any, x: Any) -> np.ndarray:  # (B, C) object
    """A table's values as a reader knows them: numbers, levels, NaN where missing."""
    numbers = np.asarray(estimator.numbers(x), dtype=np.float64)
    labels = numbers.astype(object)
    for index, column in enumerate(estimator.encoding_.columns):
        if column.levels is not None:
            known = [*(_levels(column) or []), OTHER]  # the code -1 is a category that was averaged
            labels[:, index] = [np.nan if np.isnan(code) else known[int(code)] for code in numbers[:, index]]
    return labels


def _numbers(encoding: Any, site: int) -> np.ndarray:
    fitted = encoding.feature_map.to_config()["fitted"]
    shift, scale = float(encoding.shift[site]), float(encoding.scale[site])
    knots = (fitted.get("knots") or {site: ()})[site]
    low, high = fitted["low"][site], fitted["high"][site]
    points = np.array([low, high, *(knot for knot in knots if low < knot < high)]) * scale + shift
    return np.unique(np.concatenate([np.linspace(points[0], points[1], POINTS), points]))


def _levels(column: Any) -> list[Any] | None:
    return None if column.levels is None else [*column.levels, *([OTHER] if column.other else [])]
