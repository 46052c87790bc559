"""From a table to site vectors: one column becomes one site.

Two steps, so that the second is a formula that an exported graph can hold. :meth:`Encoding.numbers` reads the table
into float64 numbers (B, C), a category as the number of its level; :meth:`Encoding.vectors` maps those to site vectors
(B, N, I).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from restt import features
from restt.estimators.choices import chosen_columns, site_columns
from restt.estimators.columns import Column, fit_column
from restt.estimators.tables import Table
from restt.features import FeatureMap
from restt.features.base import tensor64

# Knots of a column of numbers with feature_map="auto", at its quantiles.
KNOTS = 8
# Rows whose site vectors are held at once while their mean is taken, and when predicting.
ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Encoding:
    """A fitted encoding. Sites are in the model's order, columns in the table's.

    A column of numbers is scaled and mapped; a missing value is a state of its own, beside the map's. A column of
    categories is one-hot. With ``means``, vectors are centred: their mean over the rows of the fit is subtracted.
    """

    columns: tuple[Column, ...]  # C
    order: tuple[int, ...]  # N: which column each site reads
    feature_map: FeatureMap  # of N sites; sites of categories are there, but not used
    shift: Tensor  # (N,) subtracted from numbers before the map
    scale: Tensor  # (N,) then divided by
    fill: Tensor  # (N,) a number of the fit's, which the map reads where a state stands instead
    means: Tensor | None  # (N, I)

    @cached_property
    def widths(self) -> tuple[int, ...]:  # N
        """Width of each site's vector."""
        mapped = self.feature_map.widths
        ends = [mapped[site] if column.levels is None else column.states for site, column in enumerate(self.sites)]
        return tuple(end + column.missing for end, column in zip(ends, self.sites, strict=True))

    @cached_property
    def sites(self) -> tuple[Column, ...]:  # N
        """The column that each site reads."""
        return tuple(self.columns[index] for index in self.order)

    @cached_property
    def categorical(self) -> Tensor:  # (N,) bool
        """Which sites read a column of categories."""
        return torch.tensor([column.levels is not None for column in self.sites])

    @cached_property
    def missing_states(self) -> Tensor:  # (N,)
        """Which entry of a site's vector stands for a missing value, the last one; -1 where fit saw none."""
        states = zip(self.widths, self.sites, strict=True)
        return torch.tensor([width - 1 if column.missing else -1 for width, column in states])

    def numbers(self, table: Table) -> np.ndarray:  # (B, C) float64
        """The table as numbers: NaN is missing, a category is the number of its level."""
        read = [column.read(table, index) for index, column in enumerate(self.columns)]
        return np.stack(read, axis=1)

    def vectors(self, numbers: Tensor) -> Tensor:  # (B, C) -> (B, N, I)
        """Site vectors, in the dtype and on the device of ``numbers``."""
        x = numbers[:, list(self.order)]
        missing, categorical = x.isnan(), self.categorical.to(x.device)
        state = missing | categorical
        plain = torch.where(state, self.fill.to(x), x)
        mapped = self.feature_map((plain - self.shift.to(x)) / self.scale.to(x))
        width = max(self.widths)
        vectors = mapped.new_zeros(*x.shape, max(width, mapped.shape[-1]))
        vectors[..., : mapped.shape[-1]] = mapped.masked_fill(state.unsqueeze(-1), 0.0)
        vectors = vectors[..., :width]
        index = torch.where(missing, self.missing_states.to(x.device), x.masked_fill(~categorical | missing, 0).long())
        known = state & (index >= 0)
        vectors.scatter_add_(-1, index.clamp(min=0).unsqueeze(-1), known.to(x.dtype).unsqueeze(-1))
        if self.means is not None:
            vectors -= self.means.to(x)
        return vectors.masked_fill((state & ~known).unsqueeze(-1), 0.0)

    def to_config(self) -> dict[str, Any]:
        """Plain values; floats survive the round trip through JSON exactly."""
        return {
            "columns": [column.to_config() for column in self.columns],
            "order": list(self.order),
            "feature_map": self.feature_map.to_config(),
            "shift": self.shift.tolist(),
            "scale": self.scale.tolist(),
            "fill": self.fill.tolist(),
            "means": None if self.means is None else self.means.tolist(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Encoding:
        """The encoding that :meth:`to_config` described."""
        return cls(
            tuple(Column.from_config(column) for column in config["columns"]),
            tuple(config["order"]),
            features.from_config(config["feature_map"]),
            tensor64(config["shift"]),
            tensor64(config["scale"]),
            tensor64(config["fill"]),
            None if config["means"] is None else tensor64(config["means"]),
        )


def fit_encoding(
    table: Table,
    weights: np.ndarray,  # (B,), above 0 everywhere
    *,
    feature_map: str | FeatureMap = "auto",
    site_order: Any = "auto",
    categorical_features: Any = None,
    handle_unknown: str = "error",
    handle_missing: str = "learn",
) -> Encoding:
    """Learn scales, knots, levels and means from the rows of a table, each as much as it weighs.

    ``feature_map="auto"`` is hats at the quantiles of each column, centred as the categories then are. Another map is
    used as it is, on columns scaled to what it is made for: [0, 1] for the trigonometric one, mean 0 and variance 1
    for the others, the raw values for hats. ``"onehot"`` takes every column as categories.
    """
    every = feature_map == "onehot"
    chosen = set(chosen_columns("categorical_features", categorical_features, table))
    columns = tuple(
        fit_column(
            table,
            index,
            weights,
            every or index in chosen or table.holds_categories(index),
            handle_unknown,
            handle_missing,
        )
        for index in range(table.width)
    )
    order = site_columns(site_order, table)
    numbers = np.stack([column.read(table, index) for index, column in enumerate(columns)], axis=1)
    values = numbers[:, order]
    values[:, [columns[index].levels is not None for index in order]] = 0.0
    kind = _chosen_map(feature_map)
    shift, scale = _scaling(kind, values, weights)
    fill = _first_present(values)
    fitted = _fitted_map(kind, (values - shift) / scale, weights)
    encoding = Encoding(columns, tuple(order), fitted, tensor64(shift), tensor64(scale), tensor64(fill), None)
    if feature_map != "auto":
        return encoding
    return replace(encoding, means=_mean_vectors(encoding, numbers, weights))


def _chosen_map(feature_map: str | FeatureMap) -> FeatureMap:
    if isinstance(feature_map, features.OneHot):
        raise ValueError('feature_map="onehot" takes every column as categories; a OneHot instance is not accepted')
    if isinstance(feature_map, FeatureMap):
        return features.from_config({**feature_map.to_config(), "fitted": None})
    if feature_map in ("auto", "onehot"):
        return features.Hat(knots=KNOTS, placement="quantile")
    return features.make(feature_map)


def _scaling(kind: FeatureMap, values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shift and scale (N,) of values (B, N) with NaN where missing."""
    if isinstance(kind, features.Hat):
        return np.zeros(values.shape[1]), np.ones(values.shape[1])
    present = ~np.isnan(values)
    if isinstance(kind, features.Trigonometric):
        low = np.where(present, values, np.inf).min(axis=0)
        high = np.where(present, values, -np.inf).max(axis=0)
        shift, scale = np.where(np.isfinite(low), low, 0.0), high - low
    else:
        filled, shares = np.where(present, values, 0.0), weights[:, None] * present
        total = np.maximum(shares.sum(axis=0), np.finfo(float).tiny)
        shift = (shares * filled).sum(axis=0) / total
        scale = np.sqrt((shares * (filled - shift) ** 2).sum(axis=0) / total)
    usable = np.isfinite(scale) & (scale > np.finfo(float).eps * np.abs(shift))
    return shift, np.where(usable, scale, 1.0)


def _fitted_map(kind: FeatureMap, values: np.ndarray, weights: np.ndarray) -> FeatureMap:
    """The map fitted to (B, N) values, each column on the rows where it is not missing."""
    present = ~np.isnan(values)
    learns_knots = isinstance(kind, features.Hat) and isinstance(kind.knots, int)
    if present.all() or not learns_knots:
        return kind.fit(np.where(present, values, _first_present(values)), weights)
    empty = kind.to_config()
    parts = []
    for column, known in zip(values.T, present.T, strict=True):
        part = features.from_config(empty)
        rows, used = (column[known], weights[known]) if known.any() else (np.zeros(1), np.ones(1))
        parts.append(part.fit(rows[:, None], used).to_config()["fitted"])
    merged = {name: [entry for part in parts for entry in part[name]] for name in parts[0]}
    return features.from_config({**empty, "fitted": merged})


def _first_present(values: np.ndarray) -> np.ndarray:  # (N,)
    """A value of each column of (B, N); 0 where all are missing."""
    present = ~np.isnan(values)
    chosen = values[present.argmax(axis=0), np.arange(values.shape[1])]
    return np.where(present.any(axis=0), chosen, 0.0)


def _mean_vectors(encoding: Encoding, numbers: np.ndarray, weights: np.ndarray) -> Tensor:  # (N, I)
    total: Any = 0.0
    for start in range(0, len(numbers), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        vectors = encoding.vectors(torch.from_numpy(numbers[rows]))
        total = total + torch.einsum("b,bni->ni", torch.from_numpy(weights[rows]), vectors)
    return cast(Tensor, total / float(weights.sum()))
