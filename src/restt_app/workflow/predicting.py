"""Rows of further tables as a fitted model takes them, and their predictions in files that hold no formula."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from restt._common.errors import check_int, check_new_file, shown
from restt._common.files import whole_file, write_bytes_atomic
from restt_app.pages.numbers import plain
from restt_app.workflow.card import Card, FittedTable, as_fitted
from restt_app.workflow.columns import Column, check_column, listed
from restt_app.workflow.layouts import Layout, given_layouts, joined, label_text, split
from restt_app.workflow.source import FrameSource, check_texts, opened

PAGE_ROWS = 20_000  # of a table, the first that a page is made from
# Beginnings of text that spreadsheets take for a formula; OWASP's list, "CSV Injection".
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\0")
_NUMBER = re.compile(r"[+-]?(?:\d[\d.,]*|[.,]\d+)(?:[eE][+-]?\d+)?")


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
    with _opened(card, data, **options) as source:
        unused = extra_columns([name for name in source.columns if name != card.target], card)
        frame = source.read(most)
    y = _targets(card, target, frame[card.target]) if card.target in source.columns else None
    return Rows(model_frame(columns, frame), y, [*source.notes, *unused], source.sha256)


def _opened(card: Card, data: Any, missing: Sequence[str] = (), **options: Any) -> AbstractContextManager[FrameSource]:
    """Open a table in which the words that meant a missing value in the fit mean one too."""
    check_texts("missing", missing)
    return opened(data, missing=[*card.source.get("missing", []), *missing], **options)


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Put in front of an error which of several tables or models it is of."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise ValueError(f"{what}: {error}") from error


def model_frame(columns: Sequence[Column], chunk: Any, first_row: int = 1) -> Any:
    """Inputs of a model from rows of a new table, by the columns of its card; further columns are not looked at."""
    used = [column for column in columns if column.used]
    absent = [column.name for column in used if column.name not in chunk.columns]
    if absent:
        wanted = {name.lower() for name in absent}
        close = [name for name in chunk.columns if name.lower() in wanted]
        hint = f"; spelled alike: {listed(close)}" if close else ""
        raise ValueError(f"the table lacks the column(s) {listed(absent)}, which the model was fitted with{hint}")
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
    """Inputs and targets of the rows that have a target the model can be scored on; ValueError where none has.

    The index of the inputs says which rows of the table they are.
    """
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
    return rows.x[known], y


def _targets(card: Card, column: Column, series: Any) -> np.ndarray:
    """True values or labels of the target; NaN or None where they are missing."""
    values = column.values(series)
    if card.task == "regression":
        return np.asarray(values)
    known = {_comparable(column, label): label for label in card.classes}
    labels = np.full(len(values), None, dtype=object)
    for row in np.flatnonzero(~np.asarray(pd.isna(values))):
        value = values[row] if column.kind == "boolean" else series.iloc[row]
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


class Predictions:
    """Predictions of a table, one data frame for each chunk of its rows; iterate once.

    Parameters
    ----------
    model : path or FittedTable
        A folder that :meth:`FittedTable.save` wrote, or what it was written from.
    data : path, "-" or data frame
    interval : float or None
        What an interval of a regression holds, or None for none.
    carry : sequence of str
        Columns of the data to put in front of the predictions, unchanged.
    layout : str, sequence of str, or mapping of columns
        How numbers and dates of this table are written, as in :func:`read_table`; by default as in the fit.
    options
        ``delimiter``, ``encoding`` and ``missing``, as in :func:`read_table`.

    Attributes
    ----------
    notes : list of str
        What a reader should know; complete once the last chunk has been taken.
    rows : int
        Rows predicted so far.
    """

    def __init__(
        self,
        model: str | PathLike[str] | FittedTable,
        data: Any,
        *,
        interval: float | None = 0.9,
        carry: Sequence[str] = (),
        layout: Layout = (),
        **options: Any,
    ) -> None:
        if interval is not None and not 0.0 < interval < 1.0:
            raise ValueError(f"interval must lie between 0 and 1, got {shown(interval)}")
        check_texts("carry", carry)
        self.fitted = as_fitted(model)
        *self._columns, _ = relaid([*self.fitted.columns, self.fitted.target_column], layout)
        self.notes: list[str] = []
        self.rows = 0
        self._interval, self._carry = interval, list(dict.fromkeys(carry))
        self._data, self._options = data, options

    def __iter__(self) -> Iterator[Any]:
        card, columns = self.fitted.card, self._columns
        with _opened(card, self._data, **self._options) as source:
            for name in self._carry:
                check_column("carry", name, source.columns)
                if name in self._names:
                    raise ValueError(f"carry names the column {name!r}, and a result has that name: rename the column")
            self.notes += [*source.notes, *extra_columns(source.columns, card)]
            if card.task == "regression" and self._interval is not None and not self._has_intervals:
                self.notes.append("no intervals: this model was trained by gradients, which know none")
            for chunk in source.chunks():
                if len(chunk) == 0:
                    continue
                results = self._predicted(model_frame(columns, source.without_words(chunk), self.rows + 1))
                self.rows += len(chunk)
                frame = pd.DataFrame(dict(zip(self._names, results, strict=True)))
                yield pd.concat([chunk[self._carry].reset_index(drop=True), frame], axis=1)
            if self.rows == 0:
                raise ValueError(f"{source.label} has column names but no rows")

    @property
    def _has_intervals(self) -> bool:
        return hasattr(self.fitted.estimator, "predict_interval")

    @cached_property
    def _names(self) -> list[str]:
        """Names of the results, in the order of :meth:`_predicted`."""
        if self.fitted.card.task == "classification":
            return ["prediction", *(f"probability {label}" for label in self.fitted.estimator.classes_.tolist())]
        return ["prediction", "low", "high"] if self._interval is not None and self._has_intervals else ["prediction"]

    def _predicted(self, x: Any) -> list[Any]:
        model = self.fitted.estimator
        if self.fitted.card.task == "classification":
            probabilities = model.predict_proba(x)
            return [model.classes_[probabilities.argmax(axis=1)], *probabilities.T]
        ends = model.predict_interval(x, self._interval).T if len(self._names) > 1 else ()
        return [np.asarray(model.predict(x)), *ends]


def predict_table(model: str | PathLike[str] | FittedTable, data: Any, **options: Any) -> Any:
    """Predictions of a whole table as a pandas data frame.

    ``prediction``, and for regression ``low`` and ``high``, between which a new value lies with the probability
    ``interval``; for classification ``probability …`` of each class. ``options`` are those of :class:`Predictions`.

    >>> import numpy as np, pandas as pd
    >>> from restt.workflow import fit_table, predict_table
    >>> data = pd.DataFrame(np.random.default_rng(0).random((40, 2)), columns=["a", "b"])
    >>> fitted = fit_table(data.assign(y=data.a > data.b), "y", effort="quick")
    >>> predict_table(fitted, data).columns.tolist()
    ['prediction', 'probability False', 'probability True']
    """
    return pd.concat(list(Predictions(model, data, **options)), ignore_index=True)


def write_predictions(
    predictions: Predictions, output: str | PathLike[str] | None, *, lines: bool = False, force: bool = False
) -> Path | None:
    """Write predictions as CSV, or as one JSON object per line, to a new file, whole or not at all.

    Numbers are written exactly. In CSV, text that a spreadsheet would run as a formula gets an apostrophe in front.
    ``output`` None is standard output, which gets each chunk as soon as it is there.
    """
    if output is None:
        _write(predictions, sys.stdout, lines)
        sys.stdout.flush()
        return None
    target = check_new_output(output, force=force)
    with whole_file(target, text=True) as file:
        _write(predictions, file, lines)
    return target


def _write(predictions: Predictions, file: IO[str], lines: bool) -> None:
    for place, frame in enumerate(predictions):
        if lines:
            write_lines(frame, file)
        else:
            write_csv(frame, file, header=place == 0)


def cell(value: Any) -> Any:
    """A value as a cell of CSV: text that a spreadsheet would run as a formula gets an apostrophe in front.

    >>> cell("=1+2"), cell("-5"), cell("a-b"), cell([1, None])
    ("'=1+2", '-5', 'a-b', '[1, null]')
    """
    if isinstance(value, float):
        return value
    value = plain(value)
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def write_csv(frame: Any, file: IO[str], *, header: bool) -> None:
    """Write a data frame as CSV; numbers have the fewest digits that give the same number when read."""
    columns = [
        column if is_numeric_dtype(column) else pd.Series(map(cell, column), frame.index, dtype=object)
        for _, column in frame.items()
    ]
    made = pd.DataFrame(dict(enumerate(columns)))
    names = [cell(name) for name in frame.columns] if header else False
    made.to_csv(_Rows(file), index=False, header=names, lineterminator=_Rows.END)


def write_lines(frame: Any, file: IO[str]) -> None:
    """Write a data frame as one JSON object per row."""
    for record in frame.to_dict("records"):
        file.write(json.dumps(plain(record), ensure_ascii=False, allow_nan=False) + "\n")


class _Rows:
    """Rows of the csv module, ended by a line feed.

    The module quotes a carriage return inside a cell only if it is part of the line end; bare, it would begin a row.
    """

    END = "\r\n"

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, row: str) -> int:
        return self._file.write(row.removesuffix(self.END) + "\n")


def explain_table(
    model: str | PathLike[str] | FittedTable,
    data: Any,
    output: str | PathLike[str],
    *,
    rows: int = 200,
    force: bool = False,
    notes: list[str] | None = None,
    **options: Any,
) -> Path:
    """Write the page of a model: one HTML file that needs no network; up to ``rows`` rows of ``data`` can be explored.

    ``notes`` is a list to which is added what a reader should know; ``options`` are ``layout``, ``delimiter``,
    ``encoding`` and ``missing``, see :func:`read_table`.
    """
    from restt_app.pages import model_page

    check_int("rows", rows, minimum=1)
    target = check_new_output(output, force=force)
    fitted = as_fitted(model)
    table = read_rows(fitted.card, data, most=PAGE_ROWS, **options)
    if notes is not None:
        notes += table.notes
    page = model_page(fitted.estimator, table.x, table.y, card=fitted.card.to_json(), rows=rows)
    return write_bytes_atomic(target, page.encode())


def check_new_output(output: str | PathLike[str], *, force: bool) -> Path:
    """``output`` if a file may be written there: asked before the work begins."""
    target = check_new_file("output", output)
    if target.exists() and not force:
        raise FileExistsError(
            f"output {str(target)!r} is there already: name another, or replace it with force (--force)"
        )
    return target
