"""Categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int, shown
from restt.features.base import FeatureMap, rows_of
from restt.features.inputs import position, read_weights
from restt.features.levels import Level, code_column, distinct_levels, read_level, read_table

UNKNOWN = ("error", "zero")
ABSENT = -1


class OneHot(FeatureMap):
    """φ_i(x) = 1 if x is level i, else 0: (B, N) -> (B, N, levels).

    Parameters
    ----------
    levels : ``None`` learns the distinct values of each column in ``fit``, in sorted order; an int K stands for the
        levels 0 … K-1; a list gives the levels of all columns, a list of lists those of each. With levels given,
        ``transform`` works without ``fit``.
    unknown : what becomes of a value that is no level (the "outside" of this map): ``"error"`` raises
        ``ValueError``, ``"zero"`` gives a zero vector, which a residual chain passes by as an identity step.
    missing : the same for NaN and ``None``.

    Columns may hold numbers or, in an array of strings or objects, text. Numbers are compared in the precision of
    the ``x`` given to ``transform``. Columns with fewer levels than the widest are padded with 0; ``widths`` tells.

    >>> from restt.features import OneHot
    >>> OneHot().fit_transform([[3, 0], [7, 0]]).tolist()
    [[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]
    """

    name = "onehot"
    parameter_names = ("levels", "unknown", "missing")

    def __init__(self, levels: Any = None, unknown: str = "error", missing: str = "error") -> None:
        super().__init__()
        self.levels = _read_levels(levels)
        self.unknown = check_choice("unknown", unknown, UNKNOWN)
        self.missing = check_choice("missing", missing, UNKNOWN)

    @property
    def _moment(self) -> Tensor | None:  # (N,)
        return None if self._fitted is None else self._learned_tensor("second_moment")

    @property
    def site_levels(self) -> tuple[tuple[Level, ...], ...]:
        """The levels of each site; a single entry when the same levels were given for all sites."""
        if self.levels is None:
            if self._fitted is None:
                raise self._not_fitted("site_levels")
            return tuple(tuple(row) for row in self._fitted["levels"])
        if isinstance(self.levels, int):
            return (tuple(range(self.levels)),)
        return self.levels

    @property
    def width(self) -> int:
        """The number of levels of the site with most."""
        return max(self._counts())

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of levels of each site."""
        counts = self._counts()
        if len(counts) > 1:
            return counts
        if self._fitted is None:
            raise self._not_fitted("widths")
        return counts * len(self._fitted["second_moment"])

    def _counts(self) -> tuple[int, ...]:
        """The number of levels of each site; a number that was given is not counted out, however large it is."""
        if isinstance(self.levels, int):
            return (self.levels,)
        return tuple(len(row) for row in self.site_levels)

    @property
    def second_moment(self) -> float | Tensor:
        """1 exactly; with ``"zero"`` for unknown or missing values, the share (N,) of rows that had a level."""
        if self.unknown == self.missing == "error":
            return 1.0
        return self._learned_tensor("second_moment")

    def fit(self, x: Any, sample_weight: Any = None) -> Self:
        """Learn the levels of each column of ``x`` (B, N), or check ``x`` against those given; returns the map."""
        values = read_table(x).values
        weights = read_weights(sample_weight, len(values))
        values = values[(weights > 0).numpy()]
        learned = None
        if self.levels is None:
            learned = tuple(distinct_levels(column) for column in values.T)
            empty = [site for site, row in enumerate(learned) if not row]
            if empty:
                raise ValueError(f"x must have a value in every column, got only missing values at site {empty[0]}")
        codes = self._codes(values, learned or self._levels_of(values.shape[1]))
        used = weights[weights > 0]
        moment = used @ (codes != ABSENT).double() / used.sum()
        levels = None if learned is None else [list(row) for row in learned]
        self._fitted = {"levels": levels, "second_moment": moment.tolist()}
        return self

    def transform(self, x: Any) -> Tensor:
        """Site vectors (B, N, I) of ``x`` (B, N), in the float dtype and on the device of ``x``."""
        table = read_table(x)
        sites = table.values.shape[1]
        if self._fitted is not None and sites != (fitted := len(self._fitted["second_moment"])):
            raise ValueError(f"x must have {fitted} sites as OneHot was fitted with, got {sites}")
        codes = self._codes(table.values, self._levels_of(sites)).to(table.device)
        vectors = torch.zeros(*codes.shape, self.width, dtype=table.dtype, device=table.device)
        present = (codes != ABSENT).to(table.dtype).unsqueeze(-1)
        return vectors.scatter(-1, codes.clamp(min=0).unsqueeze(-1), present)

    def _levels_of(self, sites: int) -> tuple[tuple[Level, ...], ...]:
        rows = self.site_levels
        if len(rows) not in (1, sites):
            raise ValueError(f"x must have {len(rows)} sites, one per list of levels, got {sites}")
        return rows if len(rows) == sites else rows * sites

    def _codes(self, values: np.ndarray, levels: Sequence[tuple[Level, ...]]) -> Tensor:
        """The index of each value among its site's levels, (B, N); ``ABSENT`` where a zero vector is due."""
        columns = []
        for site, (column, row) in enumerate(zip(values.T, levels, strict=True)):
            codes, missing = code_column(column, row, ABSENT)
            unknown = (codes == ABSENT) & ~missing
            allowed = "gives such values a zero vector"
            if self.missing == "error" and bool(missing.any()):
                first = position((int(missing.nonzero()[0]), site))
                raise ValueError(
                    f"x has {int(missing.sum())} missing value(s) (NaN or None) at site {site}, first at {first}; "
                    f'missing="zero" {allowed}'
                )
            if self.unknown == "error" and bool(unknown.any()):
                place = int(unknown.nonzero()[0])
                raise ValueError(
                    f"x must be one of the levels {shown(row)} at site {site}, got {shown(read_level(column[place]))} "
                    f'at {position((place, site))}; unknown="zero" {allowed}'
                )
            columns.append(codes)
        return torch.stack(columns, dim=1)


def _read_levels(levels: Any) -> int | tuple[tuple[Level, ...], ...] | None:
    if levels is None:
        return None
    given = levels.tolist() if isinstance(levels, (np.ndarray, Tensor)) else levels
    if not isinstance(given, (list, tuple)):
        return check_int("levels", given, minimum=1)
    return tuple(_read_row(row) for row in rows_of(given))


def _read_row(row: Any) -> tuple[Level, ...]:
    read = [read_level(level) for level in row]
    levels = tuple(level for level in read if level is not None)
    if not levels or len(set(read)) != len(levels):
        raise ValueError(f"levels must be distinct values, at least one per site and none missing, got {shown(row)}")
    return levels
