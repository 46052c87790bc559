"""Columns of categories: numbers or text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import shown
from restt.features.inputs import check_shape, unmasked

Level = int | float | str


class Table(NamedTuple):
    """The columns of x (B, N) as they come, with the dtype and device their site vectors will have."""

    values: np.ndarray  # (B, N)
    dtype: torch.dtype
    device: torch.device


def read_table(x: Any) -> Table:
    """Check ``x`` (B, N); in the default float dtype two large whole numbers may meet, so numbers stay as they are."""
    if isinstance(x, Tensor):
        dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        cpu = x.detach().cpu()
        # numpy has no bfloat16; float32 holds each of its values.
        values = (cpu.float() if cpu.dtype == torch.bfloat16 else cpu).numpy()
    else:
        values = np.asarray(unmasked(x))
        known = {np.dtype(np.float16): torch.float16, np.dtype(np.float32): torch.float32}
        default = torch.float64 if values.dtype.kind == "f" else torch.get_default_dtype()
        dtype = known.get(values.dtype, default)
    check_shape(values.shape, (2,))
    if values.dtype.kind not in "biufUO":
        raise TypeError(f"x must hold numbers or text, got {shown(x)} of dtype {values.dtype}")
    if values.dtype.kind == "f" and np.isinf(values).any():
        row, site = np.argwhere(np.isinf(values))[0]
        raise ValueError(f"x must be finite, got {values[row, site]} at row {row}, site {site}")
    return Table(values, dtype, x.device if isinstance(x, Tensor) else torch.device("cpu"))


def read_level(value: Any) -> Level | None:
    """A value as a plain number or text, ``None`` where it is missing; whole numbers as int."""
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    if isinstance(value, (int, np.bool_, np.integer)):
        return int(value)
    if not isinstance(value, Real):
        raise TypeError(f"a level must be a number or text, got {shown(value)} of type {type(value).__name__}")
    number = float(value)
    if math.isnan(number):
        return None
    return int(number) if number.is_integer() else number


def distinct_levels(column: np.ndarray) -> tuple[Level, ...]:
    """The distinct values of a column (B,) without missing ones: numbers in order, then text in order."""
    values = np.unique(column) if column.dtype.kind != "O" else column
    levels = {level for level in (read_level(value) for value in values) if level is not None}
    return sorted_levels(levels)


def sorted_levels(levels: set[Level]) -> tuple[Level, ...]:
    """Numbers in order, then text in order."""
    return tuple(sorted(levels, key=lambda level: (isinstance(level, str), level)))


def code_column(column: np.ndarray, levels: Sequence[Level], absent: int) -> tuple[Tensor, Tensor]:
    """Index of each entry of a column (B,) among ``levels``, ``absent`` where it is none; and which are missing."""
    if column.dtype.kind in "OU":
        read = [read_level(value) for value in column]
        index = {level: code for code, level in enumerate(levels)}
        codes = [absent if value is None else index.get(value, absent) for value in read]
        return torch.tensor(codes, dtype=torch.long), torch.tensor([value is None for value in read], dtype=torch.bool)
    numbers = [(level, code) for code, level in enumerate(levels) if not isinstance(level, str)]
    missing = np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), dtype=bool)
    codes_array = np.full(len(column), absent, dtype=np.int64)
    for level, code in numbers:
        codes_array[column == _as_dtype(level, column.dtype)] = code
    return torch.from_numpy(codes_array), torch.from_numpy(missing)


def _as_dtype(level: Level, dtype: np.dtype) -> Any:
    if dtype.kind != "f":
        return level
    with np.errstate(over="ignore"):
        return dtype.type(level)
