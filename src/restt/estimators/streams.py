"""Fits to rows beyond memory: a sample that stands for all of them, then their blocks as a training takes them.

One look at all rows comes first. It draws the sample, which also holds the ends of every column, a missing value where
there is one and a row of every category, so that nothing in a block is new to what was learned from it; and it refuses
what no fit takes, before anything is trained.
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
from restt.estimators.tables import PandasTable, Table

# Rows of a sample: so many, fewer where they would be more numbers than this, but never fewer than these.
SAMPLE_ROWS = 50_000
SAMPLE_NUMBERS = 2**22
FEWEST_SAMPLED = 10_000
# Rows encoded at once: a dozen numbers for each of theirs are there on the way.
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
    rare = _Rare(stream, categorical | (set(stream.target) if classes else set()), all_levels)
    numbers, parts = [], []
    for places, table in stream.tables():
        inside = drawn[np.searchsorted(drawn, places[0]) : np.searchsorted(drawn, places[-1], side="right")]
        numbers.append(inside)
        parts.append(table.take(pa.array(inside - places[0])))
        rare.look(places[0], table, keep=not whole)
    by_chance = np.concatenate(numbers)
    held = dict(rare.rows)
    added = np.array(sorted(set(held) - set(by_chance.tolist())), dtype=np.int64)
    table = pa.concat_tables([*parts, *(held[number] for number in added.tolist())])
    joined = np.concatenate([by_chance, added])
    weights = np.concatenate([np.ones(len(by_chance)), np.full(len(added), len(by_chance) / stream.rows)])
    order = np.argsort(joined)
    table = table.take(pa.array(order))
    sample = None if whole else Sample(stream, joined[order])
    return Survey(frame_of(stream, table), target_of(stream, table), weights[order], sample)


class _Rare:
    """Rows that a sample must hold: the ends of every column of numbers, a missing value, a row of each level."""

    def __init__(self, stream: Stream, categorical: set[str], all_levels: bool) -> None:
        self.stream, self.most = stream, None if all_levels else MOST_REMEMBERED + 1
        self._levels: dict[str, set[Any]] = {
            name: set() for name in stream.schema.names if name in categorical or stream.is_text(name)
        }
        self._ends: dict[tuple[str, str], tuple[float, int, Any]] = {}
        self._first: list[tuple[int, Any]] = []

    @property
    def rows(self) -> Iterator[tuple[int, Any]]:
        """Number and table of each row."""
        yield from self._first
        for _, number, row in self._ends.values():
            yield number, row

    def look(self, start: int, table: Any, *, keep: bool) -> None:
        """Go through a block whose first row has the number ``start``; ValueError for what no fit takes."""
        for name in table.column_names:
            if name in self._levels:
                missing = table.column(name).null_count > 0
                if keep:
                    self._note_levels(name, start, table)
            else:
                values = self.stream.floats(table, name)
                if np.isinf(values).any():
                    row = start + int(np.isinf(values).argmax())
                    raise ValueError(f"column {name!r} must be finite, got an infinite value in row {row}")
                absent = np.isnan(values)
                missing = bool(absent.any())
                if keep:
                    self._note_ends(name, start, table, values, absent)
            if missing and name in self.stream.target:
                raise ValueError(f"target {name!r} must be there in every row, got missing values from row {start} on")

    def _note_ends(self, name: str, start: int, table: Any, values: np.ndarray, absent: np.ndarray) -> None:
        if absent.any() and (name, "missing") not in self._ends:
            self._keep((name, "missing"), 0.0, start, table, int(absent.argmax()))
        if absent.all():
            return
        for end, place, sign in (("low", np.nanargmin(values), 1.0), ("high", np.nanargmax(values), -1.0)):
            value = sign * float(values[place])
            if (name, end) not in self._ends or value < self._ends[name, end][0]:
                self._keep((name, end), value, start, table, int(place))

    def _keep(self, key: tuple[str, str], value: float, start: int, table: Any, place: int) -> None:
        self._ends[key] = value, start + place, table.take([place])

    def _note_levels(self, name: str, start: int, table: Any) -> None:
        import pyarrow.compute as pc

        known, column = self._levels[name], table.column(name)
        if self.most is not None and len(known) >= self.most:
            return
        for level in pc.unique(column).to_pylist():
            if level in known or (isinstance(level, float) and np.isnan(level) and np.nan in known):
                continue
            known.add(np.nan if isinstance(level, float) and np.isnan(level) else level)
            found = pc.is_null(column, nan_is_null=True) if level is None or level != level else pc.equal(column, level)
            place = int(np.asarray(found.fill_null(False)).argmax())
            self._first.append((start + place, table.take([place])))


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
    vectors: Callable[[Table], Iterator[Tensor]]  # what becomes of a table's rows, some after the other
    targets: Callable[[np.ndarray], tuple[Tensor, np.ndarray]]  # of y: targets, and what rows count
    left_out: np.ndarray  # sorted numbers of rows that do not count
    mean_weight: float  # of the rows that do

    def __len__(self) -> int:
        return self.stream.rows - len(self.left_out)

    @property
    def rows(self) -> int:
        return self.stream.rows

    def head(self) -> tuple[Tensor, ...]:
        numbers, table = next(self.stream.tables())
        return next(self._encoded(numbers[:ENCODED_ROWS], table.slice(0, ENCODED_ROWS)))

    def blocks(self, epoch: int) -> Iterator[tuple[Tensor, ...]]:
        for numbers, table in self.stream.tables(epoch):
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
        for vectors in self.vectors(PandasTable(frame_of(self.stream, table))):
            part = slice(begin, begin + len(vectors))
            yield vectors, targets[part], torch.from_numpy(weights[part])
            begin += len(vectors)
