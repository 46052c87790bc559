"""Fits to rows beyond memory: a sample that stands for all of them, then their encoded blocks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import is_classifier
from torch import Tensor

from restt._common.errors import shown
from restt.data import Stream
from restt.estimators.columns import MOST_REMEMBERED, chosen_columns
from restt.estimators.encoding import Encoding
from restt.estimators.tables import Table, frame_table

if TYPE_CHECKING:
    from restt.estimators.net import BaseNet

# Rows of a sample; fewer where with all columns they would be more than SAMPLE_NUMBERS, but at least FEWEST_SAMPLED.
SAMPLE_ROWS, SAMPLE_NUMBERS, FEWEST_SAMPLED = 50_000, 2**22, 10_000
# Rows encoded at once: the encoding needs a dozen numbers for each of theirs.
ENCODED_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Sample:
    """Places of sampled rows in a stream."""

    stream: Stream
    numbers: np.ndarray  # (B,)

    def take(self, rows: np.ndarray) -> Sample:
        """Keep some of the rows."""
        return Sample(self.stream, self.numbers[rows])


def read_stream(
    parameters: BaseNet, X: Stream, y: Any, sample_weight: Any
) -> tuple[Any, np.ndarray, np.ndarray, Sample | None]:
    """Return columns, y and weights of a stream's sample and its place, None where it is the whole stream."""
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            raise ValueError(f"{name} must be None where X is a stream, which names its target, got {shown(value)}")
    named = Table(np.empty((0, len(X.columns))), list(X.columns))
    chosen = set(chosen_columns("categorical_features", parameters.categorical_features, named))
    every = isinstance(parameters.feature_map, str) and parameters.feature_map == "onehot"
    names = {name for column, name in enumerate(X.columns) if every or column in chosen}
    return survey(X, names, is_classifier(parameters), parameters.handle_unknown == "error")


def survey(
    stream: Stream, categorical: set[str], classes: bool, all_levels: bool
) -> tuple[Any, np.ndarray, np.ndarray, Sample | None]:
    """Read a stream once, check its values and draw a sample of its rows by its seed.

    Returns columns (a pandas data frame), y (B,) or (B, O), weights (B,) and the sample's place, None where it is the
    whole stream. A row that was not drawn at random counts for itself alone.

    The sample also has the smallest, the largest and a missing value of every column of numbers and a row of every
    level of text and ``categorical`` columns and, with ``classes``, the target, so that no block holds a value new to
    what is learned from it. Up to 10,000 levels of a column are kept unless ``all_levels`` are wanted.
    """
    import pandas as pd
    import pyarrow as pa

    categorical = categorical | {name for name in stream.schema.names if stream.is_text(name)}
    if classes:
        categorical |= set(stream.target)
    count = min(SAMPLE_ROWS, max(FEWEST_SAMPLED, SAMPLE_NUMBERS // len(stream.columns)))
    whole = stream.rows <= count
    drawn = np.arange(stream.rows)
    if not whole:
        drawn = np.sort(np.random.default_rng(stream.seed).choice(stream.rows, count, replace=False, shuffle=False))
    most = None if all_levels else MOST_REMEMBERED + 1
    at_random, rare = [], pd.DataFrame()
    with stream.ranks.agreed("read the rows"):
        for numbers, table in stream.tables():
            _check_values(stream, table, numbers[0], categorical)
            frame = table.to_pandas().set_index(numbers)
            at_random.append(
                frame.loc[drawn[np.searchsorted(drawn, numbers[0]) : np.searchsorted(drawn, numbers[-1], "right")]]
            )
            if not whole:
                rare = _rare_rows(pd.concat([rare, _rare_rows(frame, categorical, most)]), categorical, most)
    pa.default_memory_pool().release_unused()
    rows = pd.concat(at_random)
    added = rare.drop(index=rows.index, errors="ignore")
    rows = pd.concat([rows, added]).sort_index() if len(added) else rows
    weights = np.where(rows.index.isin(added.index), count / stream.rows, 1.0)
    sample = None if whole else Sample(stream, rows.index.to_numpy())
    y = rows[list(stream.target)].to_numpy()
    return rows[list(stream.columns)].reset_index(drop=True), y[:, 0] if stream.flat else y, weights, sample


def _check_values(stream: Stream, table: Any, start: int, categorical: set[str]) -> None:
    """Raise ValueError for infinite values, and for missing ones in the target."""
    for name in table.column_names:
        missing = table.column(name).null_count > 0
        if name not in categorical:
            values = stream.floats(table, name)
            if np.isinf(values).any():
                row = start + int(np.isinf(values).argmax())
                raise ValueError(f"column {name!r} must be finite, got an infinite value in row {row}")
            missing = bool(np.isnan(values).any())
        if missing and name in stream.target:
            raise ValueError(f"target {name!r} must be there in every row, got missing values from row {start} on")


def _rare_rows(frame: Any, categorical: set[str], most: int | None) -> Any:
    """Rows of a data frame with a smallest, largest or missing number, and the first row of each level."""
    labels: set[int] = set()
    for name, column in frame.items():
        if name in categorical:
            labels.update(column.index[~column.duplicated()][:most])
            continue
        labels.update(column.index[column.isna()][:1])
        present = column.dropna().astype(float)
        if len(present):
            labels.update((present.idxmin(), present.idxmax()))
    return frame.loc[sorted(labels)]


def target_of(stream: Stream, table: Any) -> np.ndarray:  # (b,) or (b, O)
    """The target columns of a pyarrow table."""
    y = table.select(list(stream.target)).to_pandas().to_numpy()
    return y[:, 0] if stream.flat else y


@dataclass(frozen=True, eq=False)
class EncodedStream:
    """The encoded rows of a stream, a source of :func:`restt.train.train`."""

    stream: Stream
    encoding: Encoding
    vectors: Callable[[Table], Iterator[Tensor]]  # site vectors of a table's rows, piece by piece
    targets: Callable[[np.ndarray], tuple[Tensor, np.ndarray]]  # of y: targets and weights of the rows
    left_out: np.ndarray  # sorted numbers of held-out rows
    mean_weight: float  # of the others

    def __len__(self) -> int:
        return self.rows - len(self.left_out)

    @property
    def rows(self) -> int:
        """Rows of the stream, held-out ones too."""
        return self.stream.rows

    def head(self) -> tuple[Tensor, ...]:
        """Return the first rows in the form of :meth:`blocks`."""
        return next(self._encoded(*next(self.stream.tables())))

    def blocks(self, epoch: int, own: Callable[[np.ndarray], np.ndarray]) -> Iterator[tuple[Tensor, ...]]:
        """Yield site vectors, targets and weights of an epoch's rows."""
        for numbers, table in self.stream.own_tables(epoch, own):
            yield from self._encoded(numbers, table)

    def to_config(self) -> Any:
        """Plain values that differ where the rows, their order or their encoding do."""
        learned = hashlib.sha256(json.dumps(self.encoding.to_config(), sort_keys=True).encode())
        learned.update(self.left_out.tobytes())
        return {**self.stream.to_config(), "encoding and held-out rows": learned.hexdigest()[:16]}

    def _encoded(self, numbers: np.ndarray, table: Any) -> Iterator[tuple[Tensor, ...]]:
        for begin in range(0, len(numbers), ENCODED_ROWS):
            part = table.slice(begin, ENCODED_ROWS)
            targets, weights = self.targets(target_of(self.stream, part))
            weights = weights * (self.rows / (self.mean_weight * len(self)))
            weights[np.isin(numbers[begin : begin + ENCODED_ROWS], self.left_out, assume_unique=True)] = 0.0
            row = 0
            for vectors in self.vectors(frame_table(part.select(list(self.stream.columns)))):
                rows = slice(row, row + len(vectors))
                yield vectors, targets[rows], torch.from_numpy(weights[rows])
                row += len(vectors)
