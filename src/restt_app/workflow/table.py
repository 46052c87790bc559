"""A whole table in memory, its columns typed: read from a file or taken from a data frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from restt._common.errors import shown
from restt_app.workflow.columns import Column, described, exact
from restt_app.workflow.layouts import TEXT, Layout, given_layouts, joined, split
from restt_app.workflow.reading import ColumnReader, read_columns, saved_layouts
from restt_app.workflow.source import MISSING, Source, without_words


@dataclass(frozen=True, eq=False)
class Table:
    """A typed table.

    ``columns`` are all columns by name, described; ``values`` are theirs, but for dropped ones: floats (B,), NaN for
    missing, days for dates, or a pandas Categorical of texts. ``labels`` are the values as the table spells them, a
    Categorical, of columns with few different ones. ``source`` says where it came from, as the card does.
    """

    rows: int
    columns: dict[str, Column]
    values: dict[str, Any]
    source: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    labels: dict[str, Any] = field(default_factory=dict)

    def frame(self, rows: Any = None, *, without: str | None = None) -> Any:
        """The columns worth using as a model takes them, as a pandas data frame; of some ``rows`` (B,) or all."""
        found: dict[str, Any] = {}
        for name, column in self.columns.items():
            if column.used and name != without:
                held = self.values[name]
                found.update(column.expanded(held if rows is None else held[rows]))
        return pd.DataFrame(found, copy=False)


def read_table(
    data: Any,
    *,
    delimiter: str = "auto",
    encoding: str = "auto",
    missing: Sequence[str] = (),
    category: Sequence[str] = (),
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    layout: Layout = (),
) -> Table:
    """Read a table and find out what its columns hold.

    Parameters
    ----------
    data : path, "-" or data frame
        Delimited text or Parquet, as it is or compressed; ``"-"`` is standard input. Of a data frame, pandas' or one
        with ``to_pandas``, the types are taken as they are, and text is looked at as in a file.
    delimiter, encoding : "auto" or what they are
    missing : sequence of str
        Texts that mean a missing value, beside the empty one, dashes, NA, n/a, NaN, null, None, k.A., ? and a point.
    category, drop, keep : sequences of column names
        To be taken as categories whatever they look like; left out, not even looked at; not left out even though their
        values all differ.
    layout : str, sequence of str, or mapping of columns
        How numbers and dates are written where they could be read in two ways: ``"1,234.5"`` (the comma separates
        thousands), ``"1234,5"``, ``"d/m/Y"``, ``"m/d/Y"``; ``"price=1,234.5"`` is for one column.

    Returns
    -------
    Table

    Examples
    --------
    >>> path = getfixture("tmp_path") / "trees.csv"
    >>> _ = path.write_text("kind;height;felled\\noak;1,5;2020-02-01\\nfir;NA;2021-03-02\\n")
    >>> table = read_table(path)
    >>> [(column.name, column.kind, column.missing) for column in table.columns.values()]
    [('kind', 'category', 0), ('height', 'number', 1), ('felled', 'date', 0)]
    """
    with opened(data, delimiter=delimiter, encoding=encoding, missing=missing) as source:
        for argument, names in (("category", category), ("drop", drop), ("keep", keep)):
            for name in names:
                check_column(argument, name, source.columns)
        given = given_layouts(layout)
        for name in given.columns:
            check_column("layout", name, source.columns)
        readers, rows = read_columns(source, given, category, drop)
        if rows == 0:
            raise ValueError(f"{source.label} has column names but no rows")
        layouts = saved_layouts(readers, given.table)
        columns = {name: Column.unread(name, "left out: as asked") for name in source.columns}
        values: dict[str, Any] = {}
        labels: dict[str, Any] = {}
        notes = list(source.notes)
        while readers:
            name, reader = next(iter(readers.items()))
            reader.refuse_mixed()
            kind, written, values[name] = _told_apart(reader)
            if reader.labels is not None:
                labels[name] = reader.labels
            column = described(name, kind, written, values[name], keep=name in (*keep, *category))
            columns[name] = replace(column, layout=layouts[name] if kind == reader.kind else written)
            if reader.decision:
                # Notes are stored with the model, which has no value of a column that is left out.
                such = f", such as {shown(reader.sign[1])}," if column.used and reader.sign else ""
                notes.append(f"column {name!r}{such} is read as {reader.decision}")
            del readers[name]  # its chunks are not needed any more
        _refuse_same_inputs(columns)
        about = {
            "file": source.name,
            "sha256": source.sha256,
            "rows": rows,
            "columns": len(columns),
            "delimiter": source.delimiter,
            "encoding": source.encoding,
        }
        return Table(rows, columns, values, about, notes, labels)


class FrameSource:
    """A data frame in memory, as :class:`Source` gives a file."""

    name, label, sha256, delimiter, encoding = None, "the data frame", None, None, None

    def __init__(self, frame: Any, missing: Sequence[str] = ()) -> None:
        self.notes: list[str] = []
        self._frame, self._missing = frame, [*MISSING, *missing]
        self.columns = [str(name) for name in frame.columns]
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("the data frame has columns of the same name: give each a name of its own")

    def chunks(self, *, carry: Sequence[str] | None = None) -> Iterator[Any]:
        made = self._frame.copy(deep=False)
        made.columns = self.columns
        carried = made[list(carry or ())]  # before texts that mean a missing value are taken out
        made = without_words(made, self._missing)
        yield made if carry is None else (made, carried)


@contextmanager
def opened(data: Any, **options: Any) -> Iterator[Source | FrameSource]:
    """A file, standard input or a data frame as a source of chunks; ``options`` are those of :class:`Source`."""
    if isinstance(data, (str, PathLike)):
        with Source(data, **options) as source:
            yield source
        return
    frame = data if isinstance(data, pd.DataFrame) else getattr(data, "to_pandas", lambda: None)()
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f'data must be a path, "-" or a data frame, got {shown(data)} of type {type(data).__name__}')
    yield FrameSource(frame, options.get("missing", ()))


def check_column(argument: str, name: str, columns: Sequence[str]) -> None:
    """ValueError where the table has no such column."""
    if name not in columns:
        close = [column for column in columns if column.lower() == name.lower()]
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(
            f"{argument} names the column {name!r}, which is not there{hint}; there are {_listed(columns)}"
        )


def model_frame(columns: Sequence[Column], chunk: Any, first_row: int = 1) -> Any:
    """The inputs of a model from rows of a new table, by the columns of its card; further columns are not looked at."""
    used = [column for column in columns if column.used]
    absent = [column.name for column in used if column.name not in chunk.columns]
    if absent:
        raise ValueError(f"the table lacks the column(s) {_listed(absent)}, which the model was fitted with")
    found: dict[str, Any] = {}
    for column in used:
        found.update(column.expanded(column.values(chunk[column.name], first_row)))
    return pd.DataFrame(found, copy=False)


def relaid(columns: Sequence[Column], layout: Layout) -> list[Column]:
    """The columns of a card for a table whose numbers or dates are written in another layout than the fit's."""
    given = given_layouts(layout)
    for name in given.columns:
        check_column("layout", name, [column.name for column in columns])
    found = []
    for column in columns:
        if not column.used:
            found.append(column)  # it is not read
            continue
        kind, written = given.columns.get(column.name, (column.kind, given.table.get(column.kind, column.layout)))
        if kind != column.kind:
            raise ValueError(f"layout says that column {column.name!r} holds {kind}s, the model has a {column.kind}")
        if kind == "number" and column.name not in given.columns:
            before, _, behind = split(column.layout)
            written = joined(before, split(written)[1], behind)
        found.append(replace(column, layout=written))
    return found


def _told_apart(reader: ColumnReader) -> tuple[str, str, Any]:
    """Kind, layout and values of a column; numbers that floats cannot tell apart are categories."""
    values, labels = reader.values, reader.labels
    if reader.kind == "number" and labels is not None and (np.abs(values) >= 2**53).any():
        texts = [str(label) for label in labels.categories]
        there = np.isin(np.arange(len(texts)), labels.codes[~np.isnan(values)])
        if len(set(exact("number", reader.layout, labels.categories[there]))) > len(
            np.unique(values[~np.isnan(values)])
        ):
            return *TEXT, pd.Categorical.from_codes(labels.codes, texts)
    return reader.kind, reader.layout, values


def _refuse_same_inputs(columns: dict[str, Column]) -> None:
    for column in columns.values():
        if same := [name for name in column.inputs if name != column.name and name in columns]:
            raise ValueError(f"column {same[0]!r} has the name that a part of the date {column.name!r} gets: rename it")


def _listed(names: Sequence[str] | Mapping[str, Any]) -> str:
    some = ", ".join(repr(name) for name in list(names)[:12])
    return some + (f" and {len(names) - 12} more" if len(names) > 12 else "")
