"""A whole table in memory: each column is read by the first layout that fits all of its values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from restt._common.errors import shown
from restt_app.workflow.columns import Column, check_column, described
from restt_app.workflow.layouts import (
    DASHES,
    NUMBERS,
    TEXT,
    WHOLE,
    Layout,
    candidates,
    day_order,
    decimal_sign,
    given_layouts,
    is_money,
    is_text,
    joined,
    mixed,
    parsed,
    remedy,
    rival,
    split,
    typed_kind,
)
from restt_app.workflow.source import check_texts, opened

_MOST_LABELS = 200  # different values up to which their spelling is kept: the column may be a target of 100 classes
# More different texts than this of which at least half are numbers: numbers with something else among them.
_MIXED_LEVELS, _MIXED_SHARE = 20, 0.5
_QUICK = 50  # values tried before all are
_CODE = r"0\d"  # 01234 is a code, such as that of a place, and no number
_WHOLE, _EXACT = r"[+-]?\d+", 2.0**53  # from here on floats leave whole numbers out
_TYPED = {"number": "1234.5", "boolean": "true/false", "date": "ISO8601"}


@dataclass(frozen=True, eq=False)
class Table:
    """A typed table.

    ``columns`` are all columns by name, described; ``values`` are theirs, but for dropped ones: floats (B,), NaN for
    missing, days for dates, or a pandas Categorical of texts. ``labels`` are the values as the table spells them, a
    Categorical, of columns with few different ones. ``source`` says where it came from, as the card does; ``reading``
    has the delimiter and the encoding as the caller named them.
    """

    rows: int
    columns: dict[str, Column]
    values: dict[str, Any]
    source: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    labels: dict[str, Any] = field(default_factory=dict)
    reading: dict[str, Any] = field(default_factory=dict)

    def frame(self, rows: Any = None, *, without: str | None = None) -> Any:
        """Inputs of a model as a pandas data frame, of some ``rows`` (B,) or all."""
        inputs: dict[str, Any] = {}
        for name, column in self.columns.items():
            if column.used and name != without:
                values = self.values[name]
                inputs.update(column.expanded(values if rows is None else values[rows]))
        return pd.DataFrame(inputs, copy=False)


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
    r"""Read a table and detect what its columns hold.

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
    >>> _ = path.write_text("kind;height;felled\noak;1,5;2020-02-01\nfir;NA;2021-03-02\n")
    >>> table = read_table(path)
    >>> [(column.name, column.kind, column.missing) for column in table.columns.values()]
    [('kind', 'category', 0), ('height', 'number', 1), ('felled', 'date', 0)]
    """
    for argument, texts in (("missing", missing), ("category", category), ("drop", drop), ("keep", keep)):
        check_texts(argument, texts)
    with opened(data, delimiter=delimiter, encoding=encoding, missing=missing) as source:
        given = given_layouts(layout)
        for argument, names in (("category", category), ("drop", drop), ("keep", keep), ("layout", given.columns)):
            for name in names:
                check_column(argument, name, source.columns)
        frame = source.read()
    fixed = {**given.columns, **dict.fromkeys(category, TEXT)}
    readings = {name: _read(frame[name], fixed.get(name)) for name in source.columns if name not in drop}
    _decide(readings, given.table, source.delimiter)
    columns = {
        name: Column(name, "unread", "text", 0, 0, used=False, note="left out: as asked") for name in source.columns
    }
    notes = list(source.notes)
    core = _table_core(readings, given.table)
    for name, reading in readings.items():
        column = described(name, reading.kind, reading.layout, reading.values, keep=name in (*keep, *category))
        columns[name] = replace(column, layout=_saved_layout(reading, core))
        if reading.decision:
            # Notes are stored with the model, which has no value of a column that is left out.
            such = f", such as {shown(reading.sign[1])}," if column.used and reading.sign else ""
            notes.append(f"column {name!r}{such} is read as {reading.decision}")
    for column in columns.values():
        if same := [name for name in column.inputs if name != column.name and name in columns]:
            raise ValueError(f"column {same[0]!r} has the name that a part of the date {column.name!r} gets: rename it")
    about = {
        "file": source.name,
        "sha256": source.sha256,
        "rows": len(frame),
        "columns": len(columns),
        "delimiter": source.delimiter,
        "encoding": source.encoding,
        "missing": list(missing),
    }
    values = {name: reading.values for name, reading in readings.items()}
    labels = {name: pd.Categorical(frame[name]) for name in readings if frame[name].nunique() <= _MOST_LABELS}
    given_reading = {"delimiter": delimiter, "encoding": encoding}
    return Table(len(frame), columns, values, about, notes, labels, given_reading)


@dataclass(eq=False)
class _Reading:
    """A column as it is read.

    ``rival`` is another layout that fits as well, ``sign`` the first number that shows a decimal or thousands sign, or
    the first date, as row (from 1 on) and text; ``decision`` says which of two layouts was taken and why.
    """

    series: Any
    kind: str
    layout: str
    values: Any
    rival: str | None = None
    sign: tuple[int, str] | None = None
    decision: str = ""


def _read(series: Any, fixed: tuple[str, str] | None) -> _Reading:
    """Read a column by a fixed kind and layout, or by the first that fits all of its values."""
    if fixed is not None:
        kind, layout = fixed
        values, wrong = parsed(series, kind, layout)
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"layout says that column {series.name!r} holds {kind}s written as {layout}, "
                f"got {shown(series.iloc[row])} in row {row + 1}"
            )
        return _Reading(series, kind, layout, values)
    if not is_text(series):
        kind = typed_kind(series)
        layout = _TYPED.get(kind, "text")
        values = parsed(series, kind, layout)[0]
        if kind == "number" and _merges(series, values):
            kind, layout = TEXT
            values = parsed(series, kind, layout)[0]
        return _Reading(series, kind, layout, values)
    present = series[series.notna() & ~series.isin(DASHES)]
    known = series[series.notna()] if present.empty else present
    for kind, layout in candidates(known.iloc[0]) if len(known) else [TEXT]:
        values = _fitting(series, known, kind, layout)
        if values is not None:
            break
    if (kind, layout) == TEXT:
        _refuse_mixed(present)
    reading = _Reading(series, kind, layout, values)
    if kind in ("number", "date") and len(present):
        if kind == "number":
            units = [unit for unit in split(layout)[::2] if unit]
            bare = present.str.replace("|".join(map(re.escape, units)), "", regex=True) if units else present
            present = present[bare.str.contains("[.,]")]
        reading.sign = (int(present.index[0]) + 1, str(present.iloc[0])) if len(present) else None
        other = rival(kind, layout)
        if other is not None and _fitting(series, known, kind, other) is not None:
            reading.rival = other
    return reading


def _fitting(series: Any, known: Any, kind: str, layout: str) -> Any:
    """Values of a column of text in a layout; None where some do not fit, or are codes in place of numbers."""
    if kind != "category" and parsed(known.iloc[:_QUICK], kind, layout)[1].any():
        return None
    values, wrong = parsed(series, kind, layout)
    if wrong.any():
        return None
    if kind == "number" and _merges(known, values) and known.str.fullmatch(_WHOLE).all():
        return None
    if kind == "number" and known.str.match(_CODE).any():
        numbers = values[~np.isnan(values)]
        return None if (numbers == np.round(numbers)).all() else values
    return values


def _merges(series: Any, values: np.ndarray) -> bool:
    """Whether floats are equal where whole numbers, of more digits than a float holds, are not: these are codes."""
    present = values[~np.isnan(values)]
    return bool(np.abs(present).max(initial=0.0) >= _EXACT) and len(np.unique(present)) < series.nunique()


def _decide(readings: Mapping[str, _Reading], given: Mapping[str, str], delimiter: str | None) -> None:
    """Read what has two meanings as was given or as other columns show; ValueError where nothing tells."""
    clear = [reading for reading in readings.values() if reading.sign and reading.rival is None]
    signs = {decimal_sign(reading.layout) for reading in clear if reading.kind == "number"}
    first = {day_order(reading.layout) for reading in clear if reading.kind == "date"} - {""}
    if decimal_sign(given.get("number", WHOLE)):
        signs = {decimal_sign(given["number"])}
    if day_order(given.get("date", "")):
        first = {day_order(given["date"])}
    for name, reading in readings.items():
        if reading.rival is None or reading.sign is None or reading.series.nunique() < 2:
            continue
        kept, other = reading.layout, reading.rival
        chosen, why = None, "" if reading.kind in given else ", as in other columns"
        if reading.kind == "date":
            if len(first) == 1:
                chosen = kept if day_order(kept) in first else other
        elif len(signs) == 1:
            chosen = kept if decimal_sign(kept) in signs else other
        elif is_money(kept):
            chosen, why = other, ", since money has at most two decimals"
        elif decimal_sign(kept) == "." and (signs or delimiter != ";"):
            # The usual decimal sign, unless the delimiter is that of countries where the comma is one.
            chosen, why = kept, ""
        if chosen is None:
            row, text = reading.sign
            raise ValueError(
                f"column {name!r} can be read in two ways, such as {shown(text)} in row {row}: "
                f"pass {remedy(name, (kept, other))}, or either without '{name}=' for all columns"
            )
        if why and not (reading.kind == "number" and decimal_sign(kept) == "." and chosen == kept):
            reading.decision = f"{chosen}{why}"
        reading.layout, reading.rival = chosen, None
        reading.values = parsed(reading.series, reading.kind, chosen)[0]


def _table_core(readings: Mapping[str, _Reading], given: Mapping[str, str]) -> str | None:
    """Layout that all numbers of a table share; None where they show no decimal sign, or two."""
    clear = [one for one in readings.values() if one.kind == "number" and one.sign and one.rival is None]
    cores = {split(reading.layout)[1] for reading in clear}
    if decimal_sign(given.get("number", WHOLE)):
        cores = {split(given["number"])[1]}
    signs = {NUMBERS[core][1] for core in cores} - {""}
    grouped = [core for core in cores if NUMBERS[core][0]]
    if len(signs) != 1:
        return None
    return grouped[0] if len(grouped) == 1 else f"1234{signs.pop()}5"


def _saved_layout(reading: _Reading, table_core: str | None) -> str:
    """The layout by which new tables are read: numbers that show no sign of their own follow the other columns."""
    if reading.kind != "number" or not is_text(reading.series):
        return reading.layout
    before, core, behind = split(reading.layout)
    thousands, sign = NUMBERS[core]
    if thousands or (reading.sign and (table_core is None or sign != NUMBERS[table_core][1])):
        return reading.layout
    return joined(before, table_core or WHOLE, behind)


def _refuse_mixed(texts: Any) -> None:
    """ValueError for a column of many texts at least half of which are numbers in one layout, and no codes."""
    levels = texts.drop_duplicates()
    if len(levels) <= _MIXED_LEVELS or levels.str.fullmatch(r"0\d+").any():
        return
    tried = {layout for text in levels[:_MIXED_LEVELS] for kind, layout in candidates(text) if kind == "number"}
    wrong = min((parsed(texts, "number", layout)[1] for layout in sorted(tried)), key=np.sum)
    if 0 < wrong.mean() <= 1 - _MIXED_SHARE:
        row = int(wrong.argmax())
        raise ValueError(mixed(str(texts.name), int(texts.index[row]) + 1, texts.iloc[row]))
