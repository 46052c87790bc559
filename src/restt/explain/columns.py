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


def estimator_grid(estimator: Any, site: int, given: Any) -> tuple[np.ndarray, Tensor]:  # (G,), (G, I)
    """The values of a site's column, those given or all of interest, and their site vectors.

    A column of numbers has evenly spaced ones and its knots, a column of categories its levels, each then the missing
    value (NaN) where the fit saw some.
    """
    encoding = estimator.encoding_
    column = encoding.sites[site]
    if given is None:
        values = _numbers(encoding, site) if column.levels is None else np.array(_labels(column))
        if column.missing:
            values = np.append(values.astype(object if column.levels is not None else float), np.nan)
    else:
        listed = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
        values = np.array(listed, dtype=None if column.levels is None else object)
    numbers = torch.zeros(len(values), len(encoding.columns), dtype=torch.float64)
    numbers[:, list(encoding.order)] = encoding.fill.to(torch.float64)  # any value that the other columns can have
    numbers[:, encoding.order[site]] = torch.from_numpy(_coded(column, values))
    return values, encoding.vectors(numbers)[:, site]


def module_grid(module: Any, site: int, given: Any, rows: Tensor | None) -> tuple[np.ndarray, Tensor]:
    """Site vectors (G, I), by default those of the background, and their number, or for width 1 themselves."""
    width, widest = module.feature_dims[site], module.feature_dim
    if given is None:
        assert rows is not None
        vectors = torch.unique(rows[:, site], dim=0)
    else:
        vectors = torch.as_tensor(given).to(module.device, torch.float64)
        vectors = vectors[:, None] if vectors.dim() == 1 and width == 1 else vectors
        if vectors.dim() != 2 or vectors.shape[1] not in (width, widest):
            raise ValueError(f"grid must be vectors of shape (G, {width}) of site {site}, got {shown(given)}")
        vectors = torch.nn.functional.pad(vectors[:, :width], (0, widest - width))
    return (vectors[:, 0].cpu().numpy() if width == 1 else np.arange(len(vectors))), vectors


def estimator_labels(estimator: Any, x: Any) -> np.ndarray:  # (B, C) object
    """A table's values as a reader knows them: numbers, levels, NaN where missing."""
    numbers = np.asarray(estimator.numbers(x), dtype=np.float64)
    labels = numbers.astype(object)
    for index, column in enumerate(estimator.encoding_.columns):
        if column.levels is not None:
            known = [*_labels(column), OTHER]  # the code -1 is a category that was averaged
            labels[:, index] = [np.nan if np.isnan(code) else known[int(code)] for code in numbers[:, index]]
    return labels


def _numbers(encoding: Any, site: int) -> np.ndarray:
    fitted = encoding.feature_map.to_config()["fitted"]
    shift, scale = float(encoding.shift[site]), float(encoding.scale[site])
    knots = (fitted.get("knots") or {site: ()})[site]
    low, high = fitted["low"][site], fitted["high"][site]
    points = np.array([low, high, *(knot for knot in knots if low < knot < high)]) * scale + shift
    return np.unique(np.concatenate([np.linspace(points[0], points[1], POINTS), points]))


def _labels(column: Any) -> list[Any]:
    return [*column.levels, *([OTHER] if column.other else [])]


def _coded(column: Any, values: np.ndarray) -> np.ndarray:  # (G,) float64
    """Values as the encoding's numbers."""
    missing = np.array([value is None or value != value for value in values.tolist()], dtype=bool)
    if missing.any() and not column.missing:
        raise ValueError(f"grid has a missing value, but {column.label} had none missing in the fit")
    if column.levels is None:
        try:
            return values.astype(np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"grid must be numbers for {column.label}, got {shown(values.tolist())}") from None
    labels = _labels(column)
    unknown = [value for value, gone in zip(values.tolist(), missing, strict=True) if not gone and value not in labels]
    if unknown:
        raise ValueError(f"grid has {shown(unknown[0])}, which is not one of the levels {shown(labels)}")
    return np.array(
        [np.nan if gone else labels.index(value) for value, gone in zip(values.tolist(), missing, strict=True)]
    )
