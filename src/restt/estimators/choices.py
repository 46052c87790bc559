"""What the user says about columns: which hold categories, and in which order they become sites."""

from __future__ import annotations

from typing import Any

import numpy as np

from restt._common.errors import shown
from restt.estimators.tables import Table


def chosen_columns(name: str, given: Any, table: Table) -> list[int]:
    """Column numbers from names, numbers or a mask; none for None."""
    if given is None:
        return []
    values = np.asarray(given)
    if values.ndim != 1:
        raise ValueError(f"{name} must be a list of column names or numbers, or a mask, got {shown(given)}")
    if values.size == 0:
        return []
    if values.dtype == bool:
        if len(values) != table.width:
            raise ValueError(f"{name} as a mask must have {table.width} entries, one per column, got {len(values)}")
        return [int(index) for index in np.flatnonzero(values)]
    if values.dtype.kind in "iu":
        outside = [int(index) for index in values if not 0 <= index < table.width]
        if outside:
            raise ValueError(f"{name} must hold column numbers 0 … {table.width - 1}, got {outside[0]}")
        return [int(index) for index in values]
    if values.dtype.kind not in "OU" or not all(isinstance(value, str) for value in values.tolist()):
        raise TypeError(f"{name} must hold column names, numbers or a mask, got {shown(given)}")
    if table.names is None:
        raise ValueError(f"{name} names columns, but X has no column names: pass a data frame, or column numbers")
    unknown = [value for value in values.tolist() if value not in table.names]
    if unknown:
        raise ValueError(f"{name} names {unknown[0]!r}, which is no column of X; it has {shown(table.names)}")
    return [table.names.index(value) for value in values.tolist()]


def site_columns(site_order: Any, table: Table) -> list[int]:
    """Which column each site reads."""
    if isinstance(site_order, str):
        return list(range(table.width))
    order = chosen_columns("site_order", site_order, table)
    if sorted(order) != list(range(table.width)):
        raise ValueError(
            f"site_order must name each of the {table.width} columns once, got {shown(site_order)}, "
            f"which are the columns {shown(order)}"
        )
    return order
