"""Parquet files larger than memory, read again for every epoch in shuffled blocks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_int, shown

# Default block: 2**19 numbers (4 MiB in float64) in at most 2**16 rows.
BLOCK_NUMBERS, MOST_BLOCK_ROWS = 2**19, 2**16
# pyarrow allocates as many entries as a list of the footer claims, by default up to a million of some 700 bytes.
FOOTER_LIMITS = {"thrift_string_size_limit": 2**24, "thrift_container_size_limit": 2**16}


class Stream:
    """Rows of Parquet files to train on that need not fit into memory.

    ``restt.data.stream`` is the same class. It is ``X`` of an estimator's ``fit`` or ``x`` of
    :func:`restt.train.train`, each without y. The footers of all files are read at once: a file that is damaged or has
    other columns than the first is refused here, by name.

    Parameters
    ----------
    files : path or sequence of paths
        Parquet files, or folders whose ``*.parquet`` files are taken in the order of their names.
    target : str or sequence of str
        The column to predict; several are several outputs.
    columns : sequence of str, optional
        The columns to predict from; all others by default, which must then be the same in all files.
    shuffle_block : "auto" or int
        Rows that are in memory at once and shuffled. Row groups come in another random order in every epoch, so a table
        sorted by its target should have row groups smaller than a block. ``"auto"`` is as many rows as have half a
        million numbers, at most 65,536.
    seed : int
        Seed of the order of rows, which differs from epoch to epoch.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for part in range(2):
    ...     x = np.random.default_rng(part).random(100)
    ...     pq.write_table(pa.table({"a": x, "b": x**2, "y": 2 * x}), folder / f"{part}.parquet")
    >>> rows = stream(folder, target="y")
    >>> rows.rows, rows.columns
    (200, ('a', 'b'))
    """

    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        target: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        shuffle_block: Any = "auto",
        seed: int = 0,
    ) -> None:
        self.files, self.flat = tuple(_paths(files)), isinstance(target, str)
        self.target: tuple[str, ...] = (target,) if isinstance(target, str) else tuple(target)
        schemas: list[Any] = []
        self._groups: list[tuple[Path, int, int]] = []  # file, row group, rows
        for path in self.files:
            with _opened(path) as file:
                schemas.append(file.schema_arrow)
                groups = range(file.num_row_groups)
                self._groups += [(path, group, file.metadata.row_group(group).num_rows) for group in groups]
        names = schemas[0].names
        self.columns = tuple(name for name in names if name not in self.target) if columns is None else tuple(columns)
        _check_names(self.target, self.columns, names, self.files[0])
        self.schema = self._shared_schema(schemas, columns is None)
        self.rows = sum(rows for *_, rows in self._groups)
        if self.rows == 0:
            raise ValueError(f"files must hold at least one row, got none in {len(self.files)} file(s)")
        most = min(MOST_BLOCK_ROWS, max(1, BLOCK_NUMBERS // len(self.schema)))
        self.shuffle_block = most if shuffle_block == "auto" else check_int("shuffle_block", shuffle_block, minimum=1)
        self.seed = check_int("seed", seed, minimum=0)

    def _shared_schema(self, schemas: Sequence[Any], all_columns: bool) -> Any:
        """Return columns and target with types that all files can be cast to."""
        pa, names = _pyarrow(), [*self.columns, *self.target]
        shared = pa.schema([])
        for path, schema in zip(self.files, schemas, strict=True):
            problems = [f"{name!r} is missing" for name in names if name not in schema.names]
            problems += [f"{name!r} is added" for name in schema.names if all_columns and name not in names]
            own = [pa.field(name, _plain(schema.field(name))) for name in names if name in schema.names]
            try:
                shared = pa.unify_schemas([shared, pa.schema(own)], promote_options="permissive")
            except pa.ArrowException as error:
                problems.append(_one_line(error))
            if problems:
                raise ValueError(f"{path} has other columns than {self.files[0]}: {', '.join(problems)}")
        return shared

    def frames(self, epoch: int | None = None) -> Iterator[Any]:
        """Yield the rows of an epoch as data frames of columns and target, indexed by the row's number in the files.

        Row groups come in random order and the rows of a block are shuffled; without an epoch all come in the order of
        the files.
        """
        starts = np.cumsum([0, *(rows for *_, rows in self._groups)])
        rng = None if epoch is None else np.random.default_rng([self.seed, epoch])
        order = range(len(self._groups)) if rng is None else rng.permutation(len(self._groups)).tolist()
        numbers: list[np.ndarray] = []
        tables: list[Any] = []
        for group in order:
            row = starts[group]
            for table in self._read(*self._groups[group][:2]):
                numbers.append(np.arange(row, row := row + len(table)))
                tables.append(table)
                if sum(map(len, tables)) >= self.shuffle_block:
                    yield _joined(numbers, tables, rng)
                    numbers, tables = [], []
            # Pages of other sizes come with the next row group and would be in memory beside these.
            _pyarrow().default_memory_pool().release_unused()
        if tables:
            yield _joined(numbers, tables, rng)

    def blocks(self, epoch: int) -> Iterator[tuple[Tensor, ...]]:
        """Yield x (b, C) and y (b,) or (b, O) of an epoch; a single target of integers or booleans is classes."""
        for field in self.schema:
            if str(field.type) == "string":
                raise ValueError(f"column {field.name!r} must hold numbers, got text, which only an estimator takes")
        classes = self.flat and str(self.schema.field(self.target[0]).type).startswith(("int", "uint", "bool"))
        for frame in self.frames(epoch):
            values = frame.to_numpy(np.float64, na_value=np.nan)
            bad = ~np.isfinite(values).all(axis=0)
            if bad.any():
                name = frame.columns[bad.argmax()]
                raise ValueError(f"column {name!r} must be finite, got missing, NaN or infinite values")
            x, y = np.split(values, [len(self.columns)], axis=1)
            y = (y[:, 0] if self.flat else y).astype(np.int64 if classes else np.float64)
            yield torch.from_numpy(x.copy()), torch.from_numpy(y)

    def features(self, x: Tensor) -> Tensor:  # (b, C)
        """Return the rows of a batch as they are: :func:`restt.train.train` has a map of its own."""
        return x

    def to_config(self) -> dict[str, Any]:
        """Plain values that are equal for equal streams; files count by their names and footers, not their folder."""
        files = [_file_entry(path) for path in self.files]
        names = {"columns": list(self.columns), "target": list(self.target)}
        return {"files": files, "rows": self.rows, **names, "shuffle_block": self.shuffle_block, "seed": self.seed}

    def _read(self, path: Path, group: int) -> Iterator[Any]:
        table, names = _pyarrow().Table, self.schema.names
        with _opened(path) as file:
            # Not through a dataset: its scanner reads a whole row group ahead.
            for batch in file.iter_batches(self.shuffle_block, [group], names, use_threads=False):
                yield table.from_batches([batch]).select(names).cast(self.schema)


stream = Stream


def _pyarrow() -> Any:
    try:
        import pandas  # noqa: F401
        import pyarrow
        import pyarrow.parquet
    except ImportError as missing:
        raise ImportError("streaming Parquet files needs pandas and pyarrow: pip install 'restt[app]'") from missing
    return pyarrow


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    pa = _pyarrow()
    try:
        # Mapped: for a read through a buffer pyarrow allocates what a page claims to hold, up to 2 GiB.
        with pa.parquet.ParquetFile(path, memory_map=True, pre_buffer=False, **FOOTER_LIMITS) as file:
            yield file
    except FileNotFoundError:
        raise FileNotFoundError(f"files names {path}, which does not exist") from None
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged or no Parquet file: {_one_line(error)}") from error


def _paths(files: Any) -> list[Path]:
    paths = []
    for path in map(Path, [files] if isinstance(files, (str, os.PathLike)) else files):
        inside = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not inside:
            raise ValueError(f"files names the folder {path}, which holds no *.parquet files")
        paths += inside
    if not paths:
        raise ValueError("files must name at least one Parquet file, got none")
    return paths


def _file_entry(path: Path) -> str:
    """Name and hash of the end of a file, where a Parquet file has its footer."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 2**16))
        return f"{path.name} {size} bytes #{hashlib.sha256(file.read()).hexdigest()[:16]}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _plain(field: Any) -> Any:
    """Return the type in which a column is read: every kind of text as a string, decimals as floats."""
    pa = _pyarrow()
    types = pa.types
    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_decimal(kind):
        return pa.float64()
    if not (types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)):
        raise ValueError(f"column {field.name!r} must hold numbers or text, got {kind}: name other columns")
    return kind


def _check_names(target: tuple[str, ...], columns: tuple[str, ...], known: list[str], path: Path) -> None:
    for name, given in (("target", target), ("columns", columns)):
        unknown = [column for column in given if column not in known]
        if unknown:
            raise ValueError(f"{name} names {unknown[0]!r}, which is no column of {path}; it has {shown(known)}")
        if len(set(given)) < len(given) or not given:
            raise ValueError(f"{name} must name at least one column, each once, got {shown(list(given))}")
    both = set(columns) & set(target)
    if both:
        raise ValueError(f"columns and target both name {min(both)!r}: what is predicted cannot be predicted from")


def _joined(numbers: list[np.ndarray], tables: list[Any], rng: np.random.Generator | None) -> Any:
    frame = _pyarrow().concat_tables(tables).to_pandas().set_axis(np.concatenate(numbers), axis=0)
    return frame if rng is None else frame.iloc[rng.permutation(len(frame))]
