"""Rows of a further table as a fitted model takes them: its inputs, and the target where the table has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from restt_app.workflow.card import Card
from restt_app.workflow.columns import Column, check_column, listed
from restt_app.workflow.layouts import Layout, given_layouts, joined, label_text, split
from restt_app.workflow.source import opened


@dataclass(frozen=True, eq=False)
class Rows:
    """Inputs (B, C) as a data frame, the target's values or labels (B,) or None, and what a reader should know.

    A missing target is NaN, or None among labels; a label that the fit has not seen stays as the file spells it.
    """

    x: Any
    y: np.ndarray | None
    notes: list[str]
    sha256: str | None


def read_rows(card: Card, data: Any, *, most: int | None = None, layout: Layout = (), **options: Any) -> Rows:
    """Read a table by the columns of a card, at most the first ``most`` rows; ``options`` as in :func:`read_table`."""
    *columns, target = relaid([Column.from_json(entry) for entry in [*card.columns, card.target_column]], layout)
    with opened(data, **options) as source:
        unused = extra_columns([name for name in source.columns if name != card.target], card)
        frame = source.read(most)
    y = _targets(card, target, frame[card.target]) if card.target in source.columns else None
    return Rows(model_frame(columns, frame), y, [*source.notes, *unused], source.sha256)


def model_frame(columns: Sequence[Column], chunk: Any, first_row: int = 1) -> Any:
    """Inputs of a model from rows of a new table, by the columns of its card; further columns are not looked at."""
    used = [column for column in columns if column.used]
    absent = [column.name for column in used if column.name not in chunk.columns]
    if absent:
        raise ValueError(f"the table lacks the column(s) {listed(absent)}, which the model was fitted with")
    inputs: dict[str, Any] = {}
    for column in used:
        inputs.update(column.expanded(column.values(chunk[column.name], first_row)))
    return pd.DataFrame(inputs, copy=False)


def relaid(columns: Sequence[Column], layout: Layout) -> list[Column]:
    """The columns of a card for a table whose numbers or dates are written in another layout than the fit's."""
    given = given_layouts(layout)
    for name in given.columns:
        check_column("layout", name, [column.name for column in columns])
    changed = []
    for column in columns:
        kind, written = given.columns.get(column.name, (column.kind, given.table.get(column.kind, column.layout)))
        if not column.used:
            written = column.layout  # it is not read
        elif kind != column.kind:
            raise ValueError(f"layout says that column {column.name!r} holds {kind}s, the model has a {column.kind}")
        elif kind == "number" and column.name not in given.columns:
            before, _, behind = split(column.layout)
            written = joined(before, split(written)[1], behind)
        changed.append(replace(column, layout=written))
    return changed


def known_targets(card: Card, rows: Rows) -> tuple[Any, np.ndarray]:
    """Inputs and targets of the rows that have a target the model can be scored on; ValueError where none has."""
    if rows.y is None:
        raise ValueError(f"the table lacks the target {card.target!r}")
    if card.task == "regression":
        known = ~np.isnan(rows.y)
        y = rows.y[known]
    else:
        known = np.array([label in card.classes for label in rows.y.tolist()], dtype=bool)
        y = np.array(rows.y[known].tolist(), dtype=np.array(card.classes).dtype)
        y = y.astype(object) if y.dtype.kind == "U" else y
    if not known.any():
        raise ValueError(f"no row has a value in {card.target!r} that the model knows")
    if not known.all():
        rows.notes.append(
            f"{int((~known).sum())} rows have no {card.target!r}, or one the fit has not seen: not scored"
        )
    return rows.x[known].reset_index(drop=True), y


def _targets(card: Card, column: Column, series: Any) -> np.ndarray:
    """True values or labels of the target; NaN or None where they are missing."""
    values = column.values(series)
    if card.task == "regression":
        return np.asarray(values)
    known = {_comparable(column, label): label for label in card.classes}
    labels = np.full(len(values), None, dtype=object)
    for row in np.flatnonzero(~np.asarray(pd.isna(values))):
        value = series.iloc[row]
        labels[row] = known.get(_comparable(column, value), str(value))
    return labels


def _comparable(column: Column, value: Any) -> str:
    """A label as text, whatever its case among booleans and with or without ``.0`` among numbers."""
    text = label_text(value)
    return text.lower() if column.kind == "boolean" else text.removesuffix(".0") if column.kind == "number" else text


def extra_columns(names: Sequence[str], card: Card) -> list[str]:
    """A note on the columns that the model does not use, if there are any."""
    known = {column["name"] for column in card.columns}
    extra = [name for name in names if name not in known]
    if not extra:
        return []
    some = ", ".join(repr(name) for name in extra[:5]) + (f" and {len(extra) - 5} more" if len(extra) > 5 else "")
    return [f"not used: {some}" + (" (the target)" if extra == [card.target] else "")]
