"""A whole table in memory, its columns typed: read from a file or taken from a data frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np

from restt._common.errors import shown
from restt.workflow.columns import (
    LAYOUTS,
    MIXED_LEVELS,
    MIXED_SHARE,
    TEXT,
    Column,
    described,
    first_misfit,
    mixed,
    numeric_share,
    parsed,
    typed_kind,
)
from restt.workflow.source import Source, require_pandas


@dataclass(frozen=True, eq=False)
class Table:
    """A typed table.

    ``columns`` are all columns by name, described; ``values`` are theirs, but for dropped ones: floats (B,), NaN for
    missing, days for dates, or a pandas Categorical of texts. ``source`` says where it came from, as the card does.
    """

    rows: int
    columns: dict[str, Column]
    values: dict[str, Any]
    source: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    def frame(self, rows: Any = None, *, without: str | None = None) -> Any:
        """The columns worth using as a model takes them, as a pandas data frame; of some ``rows`` (B,) or all."""
        pd = require_pandas()
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
) -> Table:
    """Read a table and find out what its columns hold.

    Parameters
    ----------
    data : path, "-" or data frame
        Delimited text or Parquet, as it is or compressed; ``"-"`` is standard input. Of a data frame, pandas' or one
        with ``to_pandas``, the types are taken as they are, and text is looked at as in a file.
    delimiter, encoding : "auto" or what they are
    missing : sequence of str
        Texts that mean a missing value, beside the empty one, NA, N/A, NaN, null, None and ?.
    category, drop, keep : sequences of column names
        To be taken as categories whatever they look like; left out, not even looked at; not left out even though their
        values all differ.

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
        layouts, parts, texts, rows = _read(source, category, drop)
        if rows == 0:
            raise ValueError(f"{source.label} has column names but no rows")
        columns = {name: Column.unread(name, "left out: as asked") for name in source.columns}
        values: dict[str, Any] = {}
        for name, (kind, layout) in layouts.items():
            values[name] = _joined(parts.pop(name))
            if (kind, layout) == TEXT and name not in category and name in texts:
                _refuse_mixed(name, values[name], *texts[name])
            columns[name] = described(name, kind, layout, values[name], keep=name in (*keep, *category))
        _refuse_same_inputs(columns)
        about = {
            "file": source.name,
            "sha256": source.sha256,
            "rows": rows,
            "columns": len(columns),
            "delimiter": source.delimiter,
            "encoding": source.encoding,
        }
        return Table(rows, columns, values, about, list(source.notes))


class FrameSource:
    """A data frame in memory, as :class:`Source` gives a file."""

    name, label, sha256, delimiter, encoding = None, "the data frame", None, None, None

    def __init__(self, frame: Any) -> None:
        self.notes: list[str] = []
        self._frame = frame
        self.columns = [str(name) for name in frame.columns]
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("the data frame has columns of the same name: give each a name of its own")

    def chunks(self, *, carry: Sequence[str] | None = None) -> Iterator[Any]:
        made = self._frame.copy(deep=False)
        made.columns = self.columns
        yield made if carry is None else (made, made[list(carry)])


@contextmanager
def opened(data: Any, **options: Any) -> Iterator[Source | FrameSource]:
    """A file, standard input or a data frame as a source of chunks; ``options`` are those of :class:`Source`."""
    if isinstance(data, (str, PathLike)):
        with Source(data, **options) as source:
            yield source
        return
    pd = require_pandas()
    frame = data if isinstance(data, pd.DataFrame) else getattr(data, "to_pandas", lambda: None)()
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f'data must be a path, "-" or a data frame, got {shown(data)} of type {type(data).__name__}')
    yield FrameSource(frame)


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
    pd = require_pandas()
    used = [column for column in columns if column.used]
    absent = [column.name for column in used if column.name not in chunk.columns]
    if absent:
        raise ValueError(f"the table lacks the column(s) {_listed(absent)}, which the model was fitted with")
    found: dict[str, Any] = {}
    for column in used:
        found.update(column.expanded(column.values(chunk[column.name], first_row)))
    return pd.DataFrame(found, copy=False)


def _read(
    source: Source | FrameSource, category: Sequence[str], drop: Sequence[str]
) -> tuple[dict[str, tuple[str, str]], dict[str, list[Any]], dict[str, tuple[int, str]], int]:
    """Kind and layout of each column, its values by chunks, the first text in columns that began as numbers, rows.

    A column is read by the first layout that fits its first chunk. One that stops fitting is given the next that does,
    and the file is read again. Columns to ``drop`` are not looked at.
    """
    names = [name for name in source.columns if name not in drop]
    layouts: dict[str, tuple[str, str]] = dict.fromkeys(category, TEXT)
    texts: dict[str, tuple[int, str]] = {}
    while True:
        parts: dict[str, list[Any]] = {name: [] for name in names}
        again: set[str] = set()
        rows = 0
        for chunk in source.chunks():
            for name in names:
                if name in again:
                    continue
                series = chunk[name]
                values = None
                if name in layouts:
                    values = parsed(series, *layouts[name])
                    if values is None:
                        again.add(name)
                        if layouts[name][0] == "number":
                            row, value = first_misfit(series, *layouts[name])
                            texts.setdefault(name, (rows + row + 1, value))
                if values is None:
                    layouts[name], values = _fitting(series, after=layouts.get(name))
                if layouts[name] == TEXT and name not in texts and name not in category:
                    _note_first_text(texts, name, series, rows)
                parts[name].append(values)
            rows += len(chunk)
        if not again:
            return {name: layouts[name] for name in names if rows}, parts, texts, rows


def _fitting(series: Any, after: tuple[str, str] | None) -> tuple[tuple[str, str], Any]:
    """The first layout, of those behind ``after``, that fits all values."""
    pd = require_pandas()
    if not (isinstance(series.dtype, pd.StringDtype) or series.dtype == object):
        kind = typed_kind(series)
        return (kind, {"number": "1234.5", "boolean": "true/false", "date": "ISO8601"}.get(kind, "text")), parsed(
            series, kind, ""
        )
    begin = 0 if after is None else LAYOUTS.index(after) + 1
    for layout in LAYOUTS[begin:]:
        values = parsed(series, *layout)
        if values is not None:
            return layout, values
    raise AssertionError("text fits everything")


def _note_first_text(texts: dict[str, tuple[int, str]], name: str, series: Any, rows: int) -> None:
    """Remember the first value of a text column that is no number, in case most others are."""
    numbers = require_pandas().to_numeric(series, errors="coerce")
    odd = np.flatnonzero((numbers.isna() & series.notna()).to_numpy())
    if len(odd):
        texts[name] = (rows + int(odd[0]) + 1, str(series.iloc[int(odd[0])]))


def _refuse_mixed(name: str, values: Any, row: int, text: str) -> None:
    counts = values.value_counts()
    counts = counts[counts.index.notna() & (counts > 0)]
    if len(counts) > MIXED_LEVELS and MIXED_SHARE <= numeric_share(counts.index, counts.tolist()) < 1.0:
        raise ValueError(mixed(name, row, text))


def _refuse_same_inputs(columns: dict[str, Column]) -> None:
    for column in columns.values():
        if same := [name for name in column.inputs if name != column.name and name in columns]:
            raise ValueError(f"column {same[0]!r} has the name that a part of the date {column.name!r} gets: rename it")


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    from pandas.api.types import union_categoricals

    return union_categoricals(parts)


def _listed(names: Sequence[str] | Mapping[str, Any]) -> str:
    some = ", ".join(repr(name) for name in list(names)[:12])
    return some + (f" and {len(names) - 12} more" if len(names) > 12 else "")
