"""The columns of a table, chunk by chunk: which layout fits each of them, and what can be read in two ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from restt._common.errors import shown
from restt_app.workflow.columns import (
    DASHES,
    MIXED_LEVELS,
    MIXED_SHARE,
    first_misfit,
    is_text,
    mixed,
    parsed,
    present,
    typed_kind,
)
from restt_app.workflow.layouts import (
    NUMBERS,
    TEXT,
    WHOLE,
    Given,
    candidates,
    decimal_sign,
    is_money,
    joined,
    numeric_share,
    remedy,
    rival,
    split,
    to_floats,
    without_unit,
)

_MOST_KEPT = 200  # different values up to which their spelling is kept: the column may be a target of 100 classes
_ORDERS = ("%d/%m", "%m/%d", "%d-%m", "%m-%d")
_TYPED = {"number": "1234.5", "boolean": "true/false", "date": "ISO8601"}

Place = tuple[int, str]  # a row, from 1 on, and its text


class ColumnReader:
    """A column that is read chunk by chunk by the first layout that fits all of it.

    Attributes
    ----------
    kind, layout : str
        What fits the chunks so far.
    fixed : bool
        Whether the layout was given or has been decided; a value that does not fit is then refused.
    rival : str or None
        Another layout that fits the chunks so far as well.
    sign : Place or None
        The first number that shows a decimal or thousands sign, or the first date.
    decision : str
        Of two layouts that fit, the one that was taken and why, to be noted; or "".
    stale : bool
        Whether the layout stopped fitting: the table is to be read again.
    """

    def __init__(self, name: str, given: tuple[str, str] | None = None) -> None:
        self.name = name
        self.kind, self.layout = given or ("", "")
        self.fixed = given is not None
        self.decision = ""
        self.restart()

    def restart(self) -> None:
        """Forget the values; the layout stays."""
        self.parts: list[Any] = []
        self.rows = 0
        self.stale = False
        self.text = True
        self.rival = None if self.fixed or not self.kind else rival(self.kind, self.layout)
        self.sign: Place | None = None
        self._labels: dict[Any, int] | None = {}
        self._codes: list[np.ndarray] = []

    def take(self, series: Any) -> None:
        """Add the values of the next rows."""
        if self.stale:
            return
        values = parsed(series, self.kind, self.layout) if self.kind else None
        if values is None:
            if self.fixed:
                place, value = first_misfit(series, self.kind, self.layout)
                raise ValueError(
                    f"layout says that column {self.name!r} holds {self.kind}s written as {self.layout}, "
                    f"got {shown(value)} in row {self.rows + place + 1}"
                )
            self.stale = bool(self.kind)
            values = self._fit(series)
        self.parts.append(values)
        self._look(series)
        self._keep_labels(series)
        self.rows += len(series)

    @property
    def values(self) -> Any:
        if len(self.parts) == 1:
            return self.parts[0]
        if isinstance(self.parts[0], np.ndarray):
            return np.concatenate(self.parts)
        return pd.api.types.union_categoricals(self.parts)

    @property
    def labels(self) -> Any:
        """The values as the table has them, a pandas Categorical; None where they are too many."""
        if self._labels is None:
            return None
        return pd.Categorical.from_codes(np.concatenate(self._codes), pd.Index(list(self._labels), dtype=object))

    @property
    def varies(self) -> bool:
        return self._labels is None or len(set(self._labels) - set(DASHES)) > 1

    @property
    def is_ambiguous(self) -> bool:
        return self.text and self.rival is not None and self.sign is not None and self.varies

    def decide(self, layout: str) -> None:
        """Take this layout; the table is to be read again if it is another one."""
        self.fixed, self.stale, self.rival = True, self.stale or layout != self.layout, None
        self.layout = layout

    def refuse_mixed(self) -> None:
        """ValueError for a column of text most of which are numbers, however written."""
        if (self.kind, self.layout) != TEXT or self.fixed or not self.text:
            return
        counts = self.values.value_counts().sort_values(ascending=False, kind="stable")
        counts = counts[counts.index.notna() & (counts > 0)]
        levels = counts.index.tolist()
        if len(levels) <= MIXED_LEVELS or numeric_share(levels, counts.tolist()) < MIXED_SHARE:
            return
        if not np.isnan(to_floats(pd.Series(levels, dtype=object))).any():
            return  # codes
        some = [pd.Series([level], dtype=object) for level in levels[:MIXED_LEVELS]]
        tried = [layout for one in some for kind, layout in candidates(one) if kind == "number"]
        usual = max(
            dict.fromkeys(tried), key=lambda layout: sum(parsed(one, "number", layout) is not None for one in some)
        )
        place, value = first_misfit(pd.Series(self.values.astype(object)), "number", usual)
        raise ValueError(mixed(self.name, place + 1, value))

    def _fit(self, series: Any) -> Any:
        """The values by the first layout, of those behind the present one, that fits all of them."""
        if not is_text(series):
            kind = typed_kind(series)
            self._set(kind, _TYPED.get(kind, "text"))
            return parsed(series, kind, self.layout)
        tried = candidates(series[present(series)].iloc[:1])
        if (self.kind, self.layout) in tried:
            tried = tried[tried.index((self.kind, self.layout)) + 1 :]
        elif self.kind:
            tried = [TEXT]  # of another unit
        for kind, layout in tried:
            values = parsed(series, kind, layout)
            if values is not None:
                self._set(kind, layout)
                return values
        raise AssertionError("text fits everything")

    def _set(self, kind: str, layout: str) -> None:
        self.kind, self.layout, self.rival = kind, layout, rival(kind, layout)

    def _look(self, series: Any) -> None:
        """Notice typed values, signs, and what else fits."""
        self.text = self.text and is_text(series)
        if not self.text:
            return
        if self.kind in ("number", "date") and (self.sign is None or self.rival is not None):
            shows = self._shows_sign(series)
            self.sign = self.sign or self._first(series, shows)
            if self.rival is not None and shows.any() and parsed(series, self.kind, self.rival) is None:
                self.rival = None

    def _shows_sign(self, series: Any) -> np.ndarray:  # (B,)
        there = present(series)
        if self.kind == "number":
            texts = without_unit(series[there], self.layout)
            there[there] = np.asarray(texts.str.contains(".", regex=False) | texts.str.contains(",", regex=False))
        return there

    def _first(self, series: Any, where: np.ndarray) -> Place | None:
        places = np.flatnonzero(where)
        return (self.rows + int(places[0]) + 1, str(series.iloc[places[0]])) if len(places) else None

    def _keep_labels(self, series: Any) -> None:
        if self._labels is None:
            return
        codes, found = pd.factorize(series)
        if len(found) <= _MOST_KEPT:
            texts = (value.strip() if isinstance(value, str) else value for value in found.tolist())
            known = [self._labels.setdefault(value, len(self._labels)) for value in texts]
            self._codes.append(np.array([*known, -1], dtype=np.int16)[codes])
        if max(len(found), len(self._labels)) > _MOST_KEPT:
            self._labels, self._codes = None, []


def read_columns(
    source: Any, given: Given, category: Sequence[str], drop: Sequence[str]
) -> tuple[dict[str, ColumnReader], int]:
    """The columns of a source, read, and how many rows it has; those to ``drop`` are not looked at.

    A column that stops fitting its layout is given the next that does, and the table is read again.
    """
    known = {**given.columns, **dict.fromkeys(category, TEXT)}
    readers = {name: ColumnReader(name, known.get(name)) for name in source.columns if name not in drop}
    unread = list(readers.values())
    while True:
        rows = 0
        for chunk in source.chunks():
            rows += len(chunk)
            for reader in unread:
                reader.take(chunk[reader.name])
        if not any(reader.stale for reader in unread):
            _decide(source, readers, given.table)
        unread = [reader for reader in readers.values() if reader.stale]
        if not unread:
            return readers, rows
        for reader in unread:
            reader.restart()


def _decide(source: Any, readers: Mapping[str, ColumnReader], given: Mapping[str, str]) -> None:
    """Read what has two meanings as was given or as other columns show; ValueError where nothing tells."""
    clear = [reader for reader in readers.values() if reader.text and reader.sign and reader.rival is None]
    signs = {decimal_sign(reader.layout) for reader in clear if reader.kind == "number"}
    first = {reader.layout[1] for reader in clear if reader.kind == "date" and reader.layout[:5] in _ORDERS}
    if decimal_sign(given.get("number", WHOLE)):
        signs = {decimal_sign(given["number"])}
    if given.get("date", "")[:5] in _ORDERS:
        first = {given["date"][1]}
    for name, reader in readers.items():
        if not reader.is_ambiguous or reader.sign is None:
            continue
        row, text = reader.sign
        kept, other = reader.layout, str(reader.rival)
        chosen, why = None, "" if reader.kind in given else ", as in other columns"
        if reader.kind == "date":
            if len(first) == 1:
                chosen = kept if kept[1] in first else other
        elif len(signs) == 1:
            chosen = kept if decimal_sign(kept) in signs else other
        elif is_money(kept):
            chosen, why = other, ", since money has at most two decimals"
        elif decimal_sign(kept) == "." and (signs or source.delimiter != ";"):
            # The usual decimal sign, unless the delimiter is that of countries where the comma is one.
            chosen, why = kept, ""
        if chosen is None:
            raise ValueError(
                f"column {name!r} can be read in two ways, such as {shown(text)} in row {row}: "
                f"pass {remedy(name, (kept, other))}, or either without '{name}=' for all columns"
            )
        if why and not (reader.kind == "number" and decimal_sign(kept) == "." and chosen == kept):
            reader.decision = f"{chosen}{why}"
        reader.decide(chosen)


def saved_layouts(readers: Mapping[str, ColumnReader], given: Mapping[str, str]) -> dict[str, str]:
    """The layouts by which new tables are read: numbers that show no sign of their own follow the other columns."""
    numbers = [reader for reader in readers.values() if reader.text and reader.kind == "number"]
    cores = {split(reader.layout)[1] for reader in numbers if reader.sign and reader.rival is None}
    if decimal_sign(given.get("number", WHOLE)):
        cores = {split(given["number"])[1]}
    found = {name: reader.layout for name, reader in readers.items()}
    signs = {NUMBERS[core][1] for core in cores & set(NUMBERS)}
    grouped = {core for core in cores & set(NUMBERS) if NUMBERS[core][0]}
    for reader in numbers:
        before, core, behind = split(reader.layout)
        if core == WHOLE or NUMBERS[core][0] or (reader.sign and NUMBERS[core][1] not in signs):
            continue
        usual = core if reader.sign else WHOLE
        if len(signs) == 1:
            usual = next(iter(grouped)) if len(grouped) == 1 else f"1234{next(iter(signs))}5"
        found[reader.name] = joined(before, usual, behind)
    return found
