"""From a table to site vectors: one column becomes one site.

Two steps, so that the second is a formula that an exported graph can hold. :meth:`Encoding.numbers` reads the table
into float64 numbers (B, C), a category as the number of its level; :meth:`Encoding.vectors` maps those to site vectors
(B, N, I).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt import features
from restt._common.errors import shown
from restt.estimators.columns import AVERAGE, Column, fit_columns, mean_and_spread, read_numbers, site_columns
from restt.estimators.tables import Table
from restt.features import FeatureMap
from restt.features.base import tensor64
from restt.features.hat import QUICK_ROWS

# Knots of a column of numbers with feature_map="auto", at its quantiles.
KNOTS = 8
# Rows that are encoded at once; fewer where their site vectors would be more numbers than this, which are 64 MiB.
ROWS_AT_ONCE = 4096
NUMBERS_AT_ONCE = 2**23
# Up to this many a GPU would only wait for its launches.
FEW_FOR_GPU = 2000
# Entries of the covariances of all sites that are kept for explanations, 32 MiB.
MOST_COVARIANCES = 2**22
# Rare categories of fewer rows than this share have next to no part in the noise.
FEW_RARE = 0.1
# A feature map is there for columns of categories too, unused; in a saved model it may be this wide there.
MOST_UNUSED = 1024


@dataclass(frozen=True, eq=False)
class Encoding:
    """A fitted encoding. Sites are in the model's order, columns in the table's.

    A column of numbers is scaled and mapped; a missing value is a state of its own, beside the map's. A column of
    categories is one-hot. With ``means``, vectors are centred: their mean over the rows of the fit is subtracted.
    ``site_means`` is what is left of that mean, 0 where vectors are centred: the vector of a value that the fit had not
    seen and that is taken as the average of its column's states. Models saved before it was kept have None, which is 0.
    """

    columns: tuple[Column, ...]  # C
    order: tuple[int, ...]  # N: which column each site reads
    feature_map: FeatureMap  # of N sites; sites of categories are there, but not used
    shift: Tensor  # (N,) subtracted from numbers before the map
    scale: Tensor  # (N,) then divided by
    fill: Tensor  # (N,) a number of the fit's, which the map reads where a state stands instead
    means: Tensor | None  # (N, I)
    site_means: Tensor | None = None  # (N, I)

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
        """Mask of the sites that read a column of categories."""
        return torch.tensor([column.levels is not None for column in self.sites])

    @cached_property
    def missing_states(self) -> Tensor:  # (N,)
        """Entry of a site's vector that stands for a missing value, the last one; -1 where fit saw none."""
        states = zip(self.widths, self.sites, strict=True)
        return torch.tensor([width - 1 if column.missing else -1 for width, column in states])

    @cached_property
    def in_order(self) -> bool:
        """Whether the sites read the columns in the table's order."""
        return list(self.order) == list(range(len(self.columns)))

    @cached_property
    def holds_categories(self) -> bool:
        """Whether some site reads a column of categories."""
        return bool(self.categorical.any())

    def numbers(self, table: Table) -> np.ndarray:  # (B, C) float64
        """Read a table: NaN is missing, a category is the number of its level; see :func:`read_numbers`."""
        return read_numbers(self.columns, table)

    def chunks(self, numbers: Tensor) -> Iterator[Tensor]:
        """:meth:`vectors` of the rows, one piece of bounded size after the other."""
        rows = max(1, min(ROWS_AT_ONCE, NUMBERS_AT_ONCE // (len(self.order) * max(self.widths))))
        for part in numbers.split(rows) if len(numbers) > rows else (numbers,):
            yield self.vectors(part)

    def vectors(self, numbers: Tensor) -> Tensor:  # (B, C) -> (B, N, I)
        """Site vectors, in the dtype and on the device of ``numbers``."""
        if len(numbers) <= QUICK_ROWS and self.quick_map is not None and numbers.dtype == torch.float64:
            quick = self._few_vectors(numbers.numpy(), self.quick_map) if numbers.device.type == "cpu" else None
            if quick is not None:
                return torch.from_numpy(quick)
        x = numbers if self.in_order else numbers[:, list(self.order)]
        missing = x.isnan()
        if self.holds_categories or bool(missing.any()):
            return self._with_states(x, missing)
        vectors = self._mapped(x)
        beyond = max(self.widths) - vectors.shape[-1]
        if beyond:
            vectors = torch.nn.functional.pad(vectors, (0, beyond))
        return vectors if self.means is None else vectors - self.means.to(x)

    @cached_property
    def quick_map(self) -> features.Hat | None:
        """The map, where all sites read numbers and it has a way for few rows."""
        kind = self.feature_map
        if not isinstance(kind, features.Hat) or kind.outside != "clamp" or self.holds_categories:
            return None
        return kind

    def _few_vectors(self, numbers: np.ndarray, quick_map: features.Hat) -> np.ndarray | None:  # (B, C) -> (B, N, I)
        """Encode few rows to the same bits as :meth:`vectors`, in less time; None where a number is missing."""
        if not np.isfinite(numbers).all():
            return None
        x = numbers if self.in_order else numbers.take(self.order, axis=1)
        limit = np.finfo(np.float64).max
        with np.errstate(over="ignore"):
            x = ((x - self.shift.numpy()) / self.scale.numpy()).clip(-limit, limit)
        vectors = quick_map.map_few(x)
        beyond = max(self.widths) - vectors.shape[-1]
        if beyond:
            vectors = np.pad(vectors, ((0, 0), (0, 0), (0, beyond)))
        return vectors if self.means is None else vectors - self.means.numpy()

    def _mapped(self, x: Tensor) -> Tensor:  # (B, N) -> (B, N, I of the map)
        # The quotient of a number far beyond the rows of the fit may overflow.
        limit = torch.finfo(x.dtype).max
        return self.feature_map(((x - self.shift.to(x)) / self.scale.to(x)).clamp(-limit, limit))

    def _with_states(self, x: Tensor, missing: Tensor) -> Tensor:  # (B, N) each -> (B, N, I)
        """Site vectors where a category's or a missing value's state may stand instead of a number."""
        categorical = self.categorical.to(x.device)
        state = missing | categorical
        mapped = self._mapped(torch.where(state, self.fill.to(x), x))
        width = max(self.widths)
        vectors = mapped.new_zeros(*x.shape, max(width, mapped.shape[-1]))
        vectors[..., : mapped.shape[-1]] = mapped.masked_fill(state.unsqueeze(-1), 0.0)
        vectors = vectors[..., :width]
        index = torch.where(missing, self.missing_states.to(x.device), x.masked_fill(~categorical | missing, 0).long())
        known = state & (index >= 0)
        vectors.scatter_add_(-1, index.clamp(min=0).unsqueeze(-1), known.to(x.dtype).unsqueeze(-1))
        if self.means is not None:
            vectors -= self.means.to(x)
        unseen = (state & ~known).unsqueeze(-1)
        if self.site_means is None:
            return vectors.masked_fill(unseen, 0.0)
        return torch.where(unseen, self.site_means.to(x), vectors)

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
            "site_means": None if self.site_means is None else self.site_means.tolist(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Encoding:
        """The encoding that :meth:`to_config` described; ValueError where its parts do not fit each other."""
        means = None if config["means"] is None else tensor64(config["means"])
        site_means = config.get("site_means")
        encoding = cls(
            tuple(Column.from_config(column) for column in config["columns"]),
            tuple(config["order"]),
            features.from_config(config["feature_map"]),
            tensor64(config["shift"]),
            tensor64(config["scale"]),
            tensor64(config["fill"]),
            means,
            tensor64(site_means) if site_means is not None else None if means is None else torch.zeros_like(means),
        )
        encoding._check_parts()
        return encoding

    def _check_parts(self) -> None:
        sites = len(self.columns)
        if sorted(self.order) != list(range(sites)):
            raise ValueError(f"order must hold each of the columns 0 … {sites - 1} once, got {shown(self.order)}")
        if len(self.feature_map.widths) != sites:
            raise ValueError(f"feature_map has {len(self.feature_map.widths)} sites for {sites} columns")
        states = [width for width, category in zip(self.feature_map.widths, self.categorical, strict=True) if category]
        if max(states, default=0) > max(MOST_UNUSED, *self.widths):
            raise ValueError(
                f"feature_map has the width {max(states)} at a column of categories, which has no use of it"
            )
        for name in ("shift", "scale", "fill"):
            if tuple(getattr(self, name).shape) != (sites,):
                raise ValueError(f"{name} must have one entry per column, got {shown(getattr(self, name))}")
        for name in ("means", "site_means"):
            value = getattr(self, name)
            if value is not None and tuple(value.shape) != (sites, max(self.widths)):
                raise ValueError(f"{name} must have shape {(sites, max(self.widths))}, got {shown(value)}")


def fit_encoding(
    table: Table,
    weights: np.ndarray,  # (B,), above 0 everywhere
    *,
    feature_map: str | FeatureMap = "auto",
    site_order: Any = "auto",
    categorical_features: Any = None,
    handle_unknown: str = "other",
    handle_missing: str = "average",
    device: torch.device | None = None,
) -> Encoding:
    """Learn scales, knots, levels and means from the rows of a table, each as much as it weighs; see :func:`placed`.

    ``feature_map="auto"`` is hats at the quantiles of each column, centred as the categories then are. Another map is
    used as it is, on columns scaled to what it is made for: [0, 1] for the trigonometric one, mean 0 and variance 1
    for the others, the raw values for hats. ``"onehot"`` takes every column as categories.
    """
    columns = fit_columns(
        table,
        weights,
        categorical_features,
        handle_unknown,
        handle_missing,
        every=feature_map == "onehot",
    )
    order = site_columns(site_order, table)
    numbers = read_numbers(columns, table)
    values = numbers[:, order]
    values[:, [columns[index].levels is not None for index in order]] = 0.0
    kind = _chosen_map(feature_map)
    shift, scale = _scaling(kind, values, weights)
    fill = _first_present(values)
    fitted = _fitted_map(kind, (values - shift) / scale, weights, device)
    encoding = Encoding(columns, tuple(order), fitted, tensor64(shift), tensor64(scale), tensor64(fill), None)
    encoding = with_site_means(encoding, numbers, weights, device)
    if feature_map == "auto":
        assert encoding.site_means is not None
        return replace(encoding, means=encoding.site_means, site_means=torch.zeros_like(encoding.site_means))
    return encoding


def _chosen_map(feature_map: str | FeatureMap) -> FeatureMap:
    if isinstance(feature_map, features.OneHot):
        raise ValueError('feature_map="onehot" takes every column as categories; a OneHot instance is not accepted')
    if isinstance(feature_map, FeatureMap):
        return features.from_config({**feature_map.to_config(), "fitted": None})
    if feature_map in ("auto", "onehot"):
        return features.Hat(knots=KNOTS, placement="quantile")
    return features.make(feature_map)


def _scaling(kind: FeatureMap, values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shift and scale (N,) of values (B, N) with NaN where missing; a constant column keeps the scale 1."""
    if isinstance(kind, features.Hat):
        return np.zeros(values.shape[1]), np.ones(values.shape[1])
    shift, scale = mean_and_spread(values, weights)
    constant = scale == 0
    if isinstance(kind, features.Trigonometric):
        present = ~np.isnan(values)
        low = np.min(values, axis=0, where=present, initial=np.inf)
        high = np.max(values, axis=0, where=present, initial=-np.inf)
        shift, scale = np.where(constant, shift, low), high - low
    return shift, np.where(constant, 1.0, scale)


def _fitted_map(kind: FeatureMap, values: np.ndarray, weights: np.ndarray, device: torch.device | None) -> FeatureMap:
    """The map fitted to (B, N) values, each column on the rows where it is not missing."""
    present = ~np.isnan(values)
    learns_knots = isinstance(kind, features.Hat) and isinstance(kind.knots, int)
    if present.all() or not learns_knots:
        return kind.fit(placed(np.where(present, values, _first_present(values)), device), weights)
    empty = kind.to_config()
    parts = []
    for column, known in zip(values.T, present.T, strict=True):
        part = features.from_config(empty)
        rows, used = (column[known], weights[known]) if known.any() else (np.zeros(1), np.ones(1))
        parts.append(part.fit(placed(rows[:, None], device), used).to_config()["fitted"])
    merged = {name: [entry for part in parts for entry in part[name]] for name in parts[0]}
    return features.from_config({**empty, "fitted": merged})


def _first_present(values: np.ndarray) -> np.ndarray:  # (N,)
    """A value of each column of (B, N); 0 where all are missing."""
    present = ~np.isnan(values)
    chosen = values[present.argmax(axis=0), np.arange(values.shape[1])]
    return np.where(present.any(axis=0), chosen, 0.0)


def placed(numbers: np.ndarray, device: torch.device | None) -> Tensor:
    """Numbers where they are encoded: many on a GPU that trains on them, else on the CPU, as not all have float64."""
    tensor = torch.from_numpy(numbers)
    return tensor.to(device) if device is not None and device.type == "cuda" and len(tensor) > FEW_FOR_GPU else tensor


def with_site_means(
    encoding: Encoding,
    numbers: np.ndarray,  # (B, C)
    weights: np.ndarray,  # (B,)
    device: torch.device | None = None,
) -> Encoding:
    """Return the encoding with the mean of the rows' site vectors."""
    means = _weighted_mean(encoding, numbers, weights, device, lambda share, x: torch.einsum("b,bni->ni", share, x))
    return replace(encoding, site_means=means)


def site_covariances(
    encoding: Encoding,
    numbers: np.ndarray,  # (B, C)
    weights: np.ndarray,  # (B,)
    device: torch.device | None = None,
) -> Tensor | None:  # (N, I, I)
    """Weighted covariances of the rows' site vectors; None where they would be more than is worth keeping."""
    means = encoding.site_means
    assert means is not None
    if means.numel() * means.shape[1] > MOST_COVARIANCES:
        return None

    def squares(share: Tensor, vectors: Tensor) -> Tensor:
        centred = (vectors - means.to(vectors)).transpose(0, 1)  # (N, B, I)
        return (centred * share[:, None]).transpose(1, 2) @ centred

    return _weighted_mean(encoding, numbers, weights, device, squares)


def _weighted_mean(
    encoding: Encoding,
    numbers: np.ndarray,  # (B, C)
    weights: np.ndarray,  # (B,)
    device: torch.device | None,
    weighted_sum: Callable[[Tensor, Tensor], Tensor],  # (b,) shares, (b, N, I) site vectors
) -> Tensor:
    given, shares = placed(numbers, device), placed(weights, device)
    total, row = torch.zeros((), dtype=given.dtype, device=given.device), 0
    for vectors in encoding.chunks(given):
        total = total + weighted_sum(shares[row : row + len(vectors)], vectors)
        row += len(vectors)
    return total.cpu() / float(weights.sum())


def columns_with_few_rare(encoding: Encoding) -> list[int]:
    """Columns whose rare categories have so few rows that the noise does not include their differences."""
    return [
        index
        for site, (index, column) in enumerate(zip(encoding.order, encoding.sites, strict=True))
        if column.other
        and column.levels is not None
        and encoding.site_means is not None
        and float(encoding.site_means[site, len(column.levels)]) < FEW_RARE
    ]


def with_rare_unseen(encoding: Encoding, numbers: np.ndarray) -> np.ndarray:  # (B, C)
    """Numbers in which a rare category is one that the fit did not see, for a variance.

    The mean effect that rare categories have in common is known, but not how far each of them is from it, unless they
    are so many that the noise includes it.
    """
    numbers = numbers.copy()
    for index in columns_with_few_rare(encoding):
        numbers[numbers[:, index] == len(encoding.columns[index].levels or ()), index] = AVERAGE
    return numbers
