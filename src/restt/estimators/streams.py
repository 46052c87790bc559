"""Fits to rows beyond memory: a sample from which columns are learned, then all rows in encoded blocks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
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
from restt.estimators.targets import Target

if TYPE_CHECKING:
    from restt.estimators.net import BaseNet

# Rows of a sample; fewer where with all columns they would be more than SAMPLE_NUMBERS, but at least FEWEST_SAMPLED.
SAMPLE_ROWS, SAMPLE_NUMBERS, FEWEST_SAMPLED = 50_000, 2**22, 10_000


@dataclass(frozen=True, eq=False)
class Sample:
    """Numbers (B,) of sampled rows in a stream."""

    stream: Stream
    numbers: np.ndarray

    def take(self, rows: np.ndarray) -> Sample:
        """Keep some of the rows."""
        return Sample(self.stream, self.numbers[rows])


def read_stream(
    parameters: BaseNet, X: Stream, y: Any, sample_weight: Any
) -> tuple[Any, np.ndarray, np.ndarray, Sample | None]:
    """Read a stream once, check its values and draw a sample of its rows by its seed.

    Returns columns (a pandas data frame), y (B,) or (B, O), weights (B,) and the rows' numbers, None where the sample
    is the whole stream.

    The sample also has the smallest, the largest and a missing value of every column of numbers and a row of every
    level of text and categorical columns and of a classifier's target, so that no block holds a value new to what is
    learned from it. Such a row counts for itself alone. Up to 10,000 levels of a column are kept unless
    ``handle_unknown="error"``.
    """
    import pandas as pd

    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            raise ValueError(f"{name} must be None where X is a stream, which names its target, got {shown(value)}")
    named = Table(np.empty((0, len(X.columns))), list(X.columns))
    chosen = chosen_columns("categorical_features", parameters.categorical_features, named)
    categorical = {X.columns[column] for column in chosen} | (set(X.target) if is_classifier(parameters) else set())
    if isinstance(parameters.feature_map, str) and parameters.feature_map == "onehot":
        categorical |= set(X.columns)
    categorical |= {field.name for field in X.schema if str(field.type) == "string"}
    most = None if parameters.handle_unknown == "error" else MOST_REMEMBERED + 1
    count = min(SAMPLE_ROWS, max(FEWEST_SAMPLED, SAMPLE_NUMBERS // len(X.columns)))
    whole = X.rows <= count
    drawn = np.arange(X.rows)
    if not whole:
        drawn = np.random.default_rng(X.seed).choice(X.rows, count, replace=False, shuffle=False)
    random, special = [], pd.DataFrame()
    for frame in X.frames():
        _check_values(X, frame, categorical)
        random.append(frame[frame.index.isin(drawn)])
        if not whole:
            special = _special_rows(pd.concat([special, frame]), categorical, most)
    rows = pd.concat(random)
    added = special.drop(index=rows.index, errors="ignore")
    rows = pd.concat([rows, added]).sort_index() if len(added) else rows
    weights = np.where(rows.index.isin(added.index), count / X.rows, 1.0)
    sample = None if whole else Sample(X, rows.index.to_numpy())
    return rows[list(X.columns)].reset_index(drop=True), _target(X, rows), weights, sample


def _check_values(stream: Stream, frame: Any, categorical: set[str]) -> None:
    """Raise ValueError for infinite values, and for missing ones in the target."""
    for name, column in frame.items():
        values = None if name in categorical else column.to_numpy(np.float64, na_value=np.nan)
        if values is not None and np.isinf(values).any():
            row = frame.index[np.isinf(values).argmax()]
            raise ValueError(f"column {name!r} must be finite, got an infinite value in row {row}")
        if name in stream.target and column.isna().any():
            row = frame.index[column.isna().to_numpy().argmax()]
            raise ValueError(f"target {name!r} must be there in every row, got a missing value in row {row}")


def _special_rows(frame: Any, categorical: set[str], most: int | None) -> Any:
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


def _target(stream: Stream, frame: Any) -> np.ndarray:  # (b,) or (b, O)
    y = frame[list(stream.target)].to_numpy()
    return y[:, 0] if stream.flat else y


@dataclass(frozen=True, eq=False)
class EncodedStream:
    """The encoded rows of a stream, a source of :func:`restt.train.train`."""

    stream: Stream
    encoding: Encoding
    target: Target
    left_out: np.ndarray  # numbers of held-out rows
    mean_weight: float  # of the others

    def __len__(self) -> int:
        return self.rows - len(self.left_out)

    @property
    def rows(self) -> int:
        """Rows of the stream, held-out ones too, which have weight 0."""
        return self.stream.rows

    def blocks(self, epoch: int) -> Iterator[tuple[Tensor, ...]]:
        """Yield numbers (b, C), targets and weights of an epoch's rows."""
        scale = self.rows / (self.mean_weight * len(self))
        for frame in self.stream.frames(epoch):
            y = _target(self.stream, frame)
            weights = scale * self.target.row_weights(y, np.ones(len(y)))
            weights[frame.index.isin(self.left_out)] = 0.0
            numbers = self.encoding.numbers(frame_table(frame[list(self.stream.columns)]))
            yield torch.from_numpy(np.ascontiguousarray(numbers)), self.target.encode(y), torch.from_numpy(weights)

    def features(self, x: Tensor) -> Tensor:  # (b, C) -> (b, N, I)
        """Encode the rows of a batch."""
        return self.encoding.vectors(x)

    def to_config(self) -> Any:
        """Plain values that differ where the rows, their order or their encoding do."""
        learned = hashlib.sha256(json.dumps(self.encoding.to_config(), sort_keys=True).encode())
        learned.update(self.left_out.tobytes())
        return {**self.stream.to_config(), "encoding and held-out rows": learned.hexdigest()[:16]}
