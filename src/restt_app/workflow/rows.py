"""Rows of a further table as a fitted model takes them: its inputs, and the target where the table has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from restt_app.workflow.card import Card
from restt_app.workflow.columns import Column, exact
from restt_app.workflow.layouts import Layout
from restt_app.workflow.table import model_frame, opened, relaid


@dataclass(frozen=True, eq=False)
class Rows:
    """Inputs (B, C) as a data frame, the target's values or labels (B,) or None, and what a reader should know.

    A missing target is NaN, or None among labels; a label that the fit has not seen stays as the file spells it.
    """

    x: Any
    y: np.ndarray | None
    notes: list[str]
    sha256: str | None


def read_rows(
    card: Card,
    data: Any,
    *,
    most: int | None = None,
    layout: Layout = (),
    delimiter: str = "auto",
    encoding: str = "auto",
    missing: Sequence[str] = (),
) -> Rows:
    """Read a table by the columns of a card, at most the first ``most`` rows."""
    *columns, answer = relaid([Column.from_json(entry) for entry in [*card.columns, card.target_column]], layout)
    frames, answers, seen, notes = [], [], 0, []
    with opened(data, delimiter=delimiter, encoding=encoding, missing=missing) as source:
        notes += [*source.notes, *extra_columns([name for name in source.columns if name != card.target], card)]
        for chunk in source.chunks():
            frames.append(model_frame(columns, chunk, seen + 1))
            if card.target in source.columns:
                answers.append(_answers(card, answer, chunk[card.target], seen + 1))
            seen += len(chunk)
            if most is not None and seen >= most:
                notes.append(f"only the first {most} rows were read")
                break
        if seen == 0:
            raise ValueError(f"{source.label} has column names but no rows")
        # As objects: chunks have categories of their own.
        x = pd.concat([frame.astype(dict.fromkeys(_texts(frame), object)) for frame in frames], ignore_index=True)
        return Rows(x[:most], np.concatenate(answers)[:most] if answers else None, notes, source.sha256)


def known_answers(card: Card, rows: Rows) -> tuple[Any, np.ndarray]:
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


def _texts(frame: Any) -> list[str]:
    return [name for name in frame.columns if frame[name].dtype == "category"]


def _answers(card: Card, column: Column, series: Any, first_row: int) -> np.ndarray:
    """The target's true values or labels; NaN or None where they are missing."""
    values = column.values(series, first_row)
    if card.task == "regression":
        return np.asarray(values)
    there = ~(np.isnan(values) if isinstance(values, np.ndarray) else values.isna())
    labels = np.full(len(values), None, dtype=object)
    codes, found = pd.factorize(series[there])
    layout = Column.from_json(card.target_column).layout
    known = dict(zip(exact(column.kind, layout, card.classes), card.classes, strict=True))
    names = [
        known.get(key, str(value)) for key, value in zip(exact(column.kind, column.layout, found), found, strict=True)
    ]
    labels[there] = np.array([*names, None], dtype=object)[codes]
    return labels


def extra_columns(names: Sequence[str], card: Card) -> list[str]:
    """A note on the columns that the model does not use, if there are any."""
    known = {column["name"] for column in card.columns}
    extra = [name for name in names if name not in known]
    if not extra:
        return []
    listed = ", ".join(repr(name) for name in extra[:5]) + (f" and {len(extra) - 5} more" if len(extra) > 5 else "")
    return [f"not used: {listed}" + (" (the target)" if extra == [card.target] else "")]
