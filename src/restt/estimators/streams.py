"""Fits to rows beyond memory: a sample that stands for all of them, then their blocks as a training takes them.

One look at all rows comes first. It draws the sample, which also holds the ends of every column, a missing value where
there is one and a row of every category, so that nothing in a block is new to what was learned from it; and it refuses
what no fit takes, before anything is trained. Of several processes each looks at its part, and all know what each has
found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt.data import Stream
from restt.estimators.columns import MOST_REMEMBERED
from restt.estimators.encoding import Encoding
from restt.estimators.tables import ArrowTable, Table

# Rows of a sample; fewer where with all columns they would be more than SAMPLE_NUMBERS, but at least FEWEST_SAMPLED.
SAMPLE_ROWS, SAMPLE_NUMBERS, FEWEST_SAMPLED = 50_000, 2**22, 10_000
# Rows encoded at once: on the way, a dozen numbers are held for each of theirs.
ENCODED_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Sample:
    """Where rows of a stream that were drawn lie in it."""

    stream: Stream
    numbers: np.ndarray  # (B,)

    def take(self, rows: np.ndarray) -> Sample:
        return Sample(self.stream, self.numbers[rows])


@dataclass(frozen=True, eq=False)
class Survey:
    """What one look at a stream found."""

    frame: Any  # pandas data frame of the columns
    y: np.ndarray  # (B,) or (B, O)
    weights: np.ndarray  # (B,): rows that are there for what they hold, and not by chance, count for themselves alone
    sample: Sample | None  # None where these are all rows


def survey(stream: Stream, categorical: set[str], classes: bool, all_levels: bool) -> Survey:
    """A sample of the stream's rows, in their order, drawn by its seed.

    ``categorical`` columns beside those of text, and with ``classes`` the target, have a row for every level, or up to
    10,000 of them unless ``all_levels`` are wanted.
    """
    import pyarrow as pa

    count = min(SAMPLE_ROWS, max(FEWEST_SAMPLED, SAMPLE_NUMBERS // len(stream.columns)))
    whole = stream.rows <= count
    drawn = np.arange(stream.rows)
    if not whole:
        drawn = np.sort(np.random.default_rng(stream.seed).choice(stream.rows, count, replace=False, shuffle=False))
    ranks, by_chance, rare = stream.ranks, _Rows(stream.schema), _Rare(stream.schema, all_levels)
    look = _Look(stream, categorical | (set(stream.target) if classes else set()), rare, keep=not whole)
    with ranks.agreed("read its part of the rows"):
        for places, table in stream.tables_in_order(ranks.rank, ranks.size):
            inside = drawn[np.searchsorted(drawn, places[0]) : np.searchsorted(drawn, places[-1], side="right")]
            by_chance.add(inside, table.take(pa.array(inside - places[0])))
            look.at(places[0], table)
    (by_chance, rare), *later = ranks.all((by_chance, rare))
    for rows, found in later:
        by_chance.add(*rows.joined())
        rare.join(found)
    numbers, table = by_chance.joined()
    more, wanted = rare.wanted()
    added = ~np.isin(more, numbers)
    weights = np.concatenate([np.ones(len(numbers)), np.full(int(added.sum()), len(numbers) / stream.rows)])
    numbers = np.concatenate([numbers, more[added]])
    order = np.argsort(numbers)
    table = pa.concat_tables([table, wanted.filter(pa.array(added))]).take(pa.array(order))
    sample = None if whole else Sample(stream, numbers[order])
    pa.default_memory_pool().release_unused()  # pages of the files, which a fit to the sample has no need of
    return Survey(frame_of(stream, table), target_of(stream, table), weights[order], sample)


class _Rows:
    """Rows that are kept of a table: their numbers and, as a pyarrow table, what they hold."""

    def __init__(self, schema: Any) -> None:
        self._numbers, self._tables = [np.empty(0, dtype=np.int64)], [schema.empty_table()]

    def add(self, numbers: np.ndarray, table: Any) -> None:
        self._numbers.append(numbers)
        self._tables.append(table)

    def joined(self) -> tuple[np.ndarray, Any]:
        import pyarrow as pa

        return np.concatenate(self._numbers), pa.concat_tables(self._tables)


class _Rare:
    """Rows that a sample must hold: the ends of every column of numbers, a missing value, a row of each level."""

    def __init__(self, schema: Any, all_levels: bool) -> None:
        self.most = None if all_levels else MOST_REMEMBERED + 1
        self.ends: dict[tuple[str, str], tuple[float, int]] = {}  # by column and end: the least, and its row
        self.levels: dict[str, dict[Any, int]] = {}  # by column and level: the first row
        self.rows = _Rows(schema)

    def is_end(self, name: str, end: str, value: float, row: int) -> bool:
        """Whether a row, later than those before, has the least value; it is then remembered."""
        if (name, end) in self.ends and value >= self.ends[name, end][0]:
            return False
        self.ends[name, end] = value, row
        return True

    def is_new(self, name: str, level: Any) -> bool:
        """Whether a level is one that was not seen before, of which there are not enough."""
        known = self.levels.setdefault(name, {})
        return level not in known and (self.most is None or len(known) < self.most)

    def join(self, later: _Rare) -> None:
        """Add what was found in later rows."""
        for (name, end), (value, row) in later.ends.items():
            self.is_end(name, end, value, row)
        for name, levels in later.levels.items():
            for level, row in levels.items():
                if self.is_new(name, level):
                    self.levels[name][level] = row
        self.rows.add(*later.rows.joined())

    def wanted(self) -> tuple[np.ndarray, Any]:
        """Numbers and table of these rows: one that was an end only until a later row was is not among them."""
        import pyarrow as pa

        ends = [row for _, row in self.ends.values()]
        firsts = [row for levels in self.levels.values() for row in levels.values()]
        numbers, table = self.rows.joined()
        keep = np.isin(numbers, np.array([*ends, *firsts], dtype=np.int64))
        return numbers[keep], table.filter(pa.array(keep))


class _Look:
    """A look at blocks, one after the other, that refuses what no fit takes and keeps what is rare."""

    def __init__(self, stream: Stream, categorical: set[str], rare: _Rare, *, keep: bool) -> None:
        self.stream, self.rare, self.keep = stream, rare, keep
        self._categorical = {name for name in stream.schema.names if name in categorical or stream.is_text(name)}

    def at(self, start: int, table: Any) -> None:
        """A block whose first row has the number ``start``; ValueError for what no fit takes."""
        places: set[int] = set()
        for name in table.column_names:
            if name in self._categorical:
                missing = table.column(name).null_count > 0
                if self.keep:
                    places |= self._new_levels(name, start, table.column(name))
            else:
                values = self.stream.floats(table, name)
                if np.isinf(values).any():
                    row = start + int(np.isinf(values).argmax())
                    raise ValueError(f"column {name!r} must be finite, got an infinite value in row {row}")
                absent = np.isnan(values)
                missing = bool(absent.any())
                if self.keep:
                    places |= self._new_ends(name, start, values, absent)
            if missing and name in self.stream.target:
                raise ValueError(f"target {name!r} must be there in every row, got missing values from row {start} on")
        if places:
            found = np.array(sorted(places))
            self.rare.rows.add(start + found, table.take(found))

    def _new_ends(self, name: str, start: int, values: np.ndarray, absent: np.ndarray) -> set[int]:
        ends = [("missing", 0.0, int(absent.argmax()))] if absent.any() else []
        if not absent.all():
            low, high = int(np.nanargmin(values)), int(np.nanargmax(values))
            ends += [("low", float(values[low]), low), ("high", -float(values[high]), high)]
        return {place for end, value, place in ends if self.rare.is_end(name, end, value, start + place)}

    def _new_levels(self, name: str, start: int, column: Any) -> set[int]:
        import pyarrow.compute as pc

        places = set()
        for level in pc.unique(column).to_pylist():
            absent = level is None or level != level
            key = type(level), None if absent else level  # a NaN is no key: it equals none
            if not self.rare.is_new(name, key):
                continue
            found = pc.is_null(column, nan_is_null=True) if absent else pc.equal(column, level)
            place = int(np.asarray(found.fill_null(False)).argmax())
            self.rare.levels[name][key] = start + place
            places.add(place)
        return places


def frame_of(stream: Stream, table: Any) -> Any:
    """The columns of a block as a pandas data frame."""
    return table.select(list(stream.columns)).to_pandas()


def target_of(stream: Stream, table: Any) -> np.ndarray:  # (b,) or (b, O)
    """What is to be predicted in a block."""
    if stream.flat and stream.is_text(stream.target[0]):
        held = np.empty(len(table), dtype=object)
        held[:] = table.column(stream.target[0]).to_pylist()
        return held
    columns = [np.asarray(table.column(name).to_numpy()) for name in stream.target]
    return columns[0] if stream.flat else np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class EncodedStream:
    """The rows of a stream as a training takes them; what :func:`restt.train.train` is given as x."""

    stream: Stream
    encoding: Encoding
    vectors: Callable[[Table], Iterator[Tensor]]  # what becomes of a table's rows, piece by piece
    targets: Callable[[np.ndarray], tuple[Tensor, np.ndarray]]  # of y: targets, and what rows count
    left_out: np.ndarray  # sorted numbers of rows that do not count
    mean_weight: float  # of the rows that do

    def __len__(self) -> int:
        return self.stream.rows - len(self.left_out)

    @property
    def rows(self) -> int:
        return self.stream.rows

    def head(self) -> tuple[Tensor, ...]:
        numbers, table = next(self.stream.tables_in_order())
        return next(self._encoded(numbers[:ENCODED_ROWS], table.slice(0, ENCODED_ROWS)))

    def lanes(self, epoch: int) -> tuple[int, ...]:
        return self.stream.lanes(epoch)

    def blocks(self, epoch: int, lane: int) -> Iterator[tuple[Tensor, ...]]:
        for numbers, table in self.stream.tables(epoch, lane):
            for begin in range(0, len(numbers), ENCODED_ROWS):
                yield from self._encoded(numbers[begin : begin + ENCODED_ROWS], table.slice(begin, ENCODED_ROWS))

    def to_config(self) -> Any:
        learned = hashlib.sha256(json.dumps(self.encoding.to_config(), sort_keys=True).encode())
        learned.update(self.left_out.tobytes())
        return {**self.stream.to_config(), "encoding and held-out rows": learned.hexdigest()[:16]}

    def _encoded(self, numbers: np.ndarray, table: Any) -> Iterator[tuple[Tensor, ...]]:
        targets, weights = self.targets(target_of(self.stream, table))
        weights = weights * (self.rows / (self.mean_weight * len(self)))
        weights[np.isin(numbers, self.left_out, assume_unique=True)] = 0.0
        begin = 0
        for vectors in self.vectors(ArrowTable(table.select(list(self.stream.columns)))):
            part = slice(begin, begin + len(vectors))
            yield vectors, targets[part], torch.from_numpy(weights[part])
            begin += len(vectors)
