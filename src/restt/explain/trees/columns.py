"""Tables as a tree library reads them: columns by name where the model knows names, numbers as splits compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from restt._common.errors import shown


def columns_of(X: Any, names: Sequence[str], named: bool) -> list[Any]:
    """The columns in the model's order; a frame's by name where ``named`` says that the model knows them."""
    held = getattr(X, "columns", None)
    if held is not None:
        if named:
            absent = [name for name in names if name not in list(held)]
            if absent:
                raise ValueError(f"X must have the columns of the fit, got a table without {shown(absent)}")
            return [X[name] for name in names]
        if len(held) == len(names):
            return [X[name] for name in held]
    else:
        found = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        if found.ndim == 2 and found.shape[1] == len(names):
            return list(found.T)
    raise ValueError(f"X must be a table of {len(names)} columns, got {shown(X)}")


def numbers_of(
    X: Any,
    names: Sequence[str],
    named: bool,
    *,
    single: bool = False,
    missing: bool = True,
    levels: Mapping[int, list[Any]] | None = None,
) -> np.ndarray:  # (B, C) float64
    """A table in float64, rounded to float32 first where ``single``; a level becomes its place, NaN where unknown."""
    parts = []
    for index, column in enumerate(columns_of(X, names, named)):
        known = (levels or {}).get(index)
        if known is not None and not _is_numeric(column):
            places = {level: place for place, level in enumerate(known)}
            parts.append(np.array([places.get(value, np.nan) for value in list(column)], dtype=np.float64))
            continue
        try:
            parts.append(np.asarray(column, dtype=np.float64))
        except (TypeError, ValueError):
            raise TypeError(f"X must hold numbers in column {names[index]!r}, got {shown(column)}") from None
    numbers = np.stack(parts, 1)
    if single:
        with np.errstate(over="ignore"):
            numbers = numbers.astype(np.float32).astype(np.float64)
    if not missing and np.isnan(numbers).any():
        index = int(np.flatnonzero(np.isnan(numbers).any(0))[0])
        raise ValueError(f"X has a missing value in column {names[index]!r}, which the model does not take")
    return numbers


def _is_numeric(column: Any) -> bool:
    dtype = getattr(column, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "fiub"


def frame_names(given: Any, count: int) -> tuple[tuple[str, ...], bool]:
    """Names of the columns, and whether they are the model's own."""
    if given is not None:
        return tuple(map(str, given)), True
    return tuple(f"x{index}" for index in range(count)), False
