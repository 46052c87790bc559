"""Parquet files larger than memory, read again for every epoch in shuffled blocks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_int, shown
from restt._common.ranks import Ranks, read_group

# Default block: 2**19 numbers (4 MiB in float64) in at most 2**16 rows; encoding needs about six times its memory.
BLOCK_NUMBERS, MOST_BLOCK_ROWS = 2**19, 2**16
# Bytes of a column read at once: a row group may be larger than memory.
READ_BYTES = 2**17

Own = Callable[[np.ndarray], np.ndarray]  # positions (b,) in an epoch -> mask (b,) of those this process trains on


def stream(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    shuffle_block: Any = "auto",
    seed: int = 0,
    group: Any = "auto",
) -> Stream:
    """Open Parquet files as rows to train on that need not fit into memory.

    The result is ``X`` of an estimator's ``fit`` or ``x`` of :func:`restt.train.train`, each without y. The footers of
    all files are read at once: a file that is damaged or has other columns than the first is refused here, by name.

    Parameters
    ----------
    files : path or sequence of paths
        Parquet files, or folders whose ``*.parquet`` files are taken in the order of their names.
    target : str or sequence of str
        The column to predict; several are several outputs.
    columns : sequence of str, optional
        The columns to predict from; all others by default, which must then be the same in all files.
    shuffle_block : "auto" or int
        Rows that are held at once and shuffled. Row groups come in another random order in every epoch, so a table
        sorted by its target should have row groups smaller than a block. ``"auto"`` is as many rows as have half a
        million numbers, at most 65,536.
    seed : int
        Of the order of rows, which differs from epoch to epoch.
    group : "auto", torch.distributed.ProcessGroup or None
        Processes that make the stream together, as in :func:`restt.train.train`: what one of them refuses is refused by
        all. None is for a process that makes it alone.

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
    ranks = read_group(group)
    with ranks.agreed("read its files"):
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as missing:
            raise ImportError("streaming Parquet files needs pyarrow: pip install 'restt[app]'") from missing
        return Stream(_paths(files), target, columns, shuffle_block, seed, ranks)


class Stream:
    """Rows of Parquet files; :func:`stream` makes it."""

    def __init__(
        self,
        files: Sequence[Path],
        target: str | Sequence[str],
        columns: Sequence[str] | None,
        shuffle_block: Any,
        seed: int,
        ranks: Ranks,
    ) -> None:
        import pyarrow as pa

        self.files, self.ranks = tuple(files), ranks
        self.flat = isinstance(target, str)
        self.target: tuple[str, ...] = (target,) if isinstance(target, str) else tuple(target)
        footers = [_read_footer(path) for path in self.files]
        schemas = [_plain_text(footer.schema.to_arrow_schema()) for footer in footers]
        names = schemas[0].names
        self.columns = tuple(name for name in names if name not in self.target) if columns is None else tuple(columns)
        _check_names(self.target, self.columns, names, self.files[0])
        wanted = [*self.columns, *self.target]
        self.schema = pa.schema([schemas[0].field(name) for name in wanted])
        for path, schema in zip(self.files, schemas, strict=True):
            problems = [f"{name!r} is missing" for name in wanted if name not in schema.names]
            problems += [f"{name!r} is added" for name in schema.names if columns is None and name not in wanted]
            try:
                own = pa.schema([field for field in schema if field.name in wanted])
                self.schema = pa.unify_schemas([self.schema, own], promote_options="permissive")
            except pa.ArrowException as error:
                problems.append(_one_line(error))
            if problems:
                raise ValueError(f"{path} has other columns than {self.files[0]}: {', '.join(problems)}")
        self._groups = [  # file, row group, rows
            (path, group, footer.row_group(group).num_rows)
            for path, footer in zip(self.files, footers, strict=True)
            for group in range(footer.num_row_groups)
        ]
        self.rows = sum(rows for *_, rows in self._groups)
        if self.rows == 0:
            raise ValueError(f"files must hold at least one row, got none in {len(self.files)} file(s)")
        most = min(MOST_BLOCK_ROWS, max(1, BLOCK_NUMBERS // len(wanted)))
        self.shuffle_block = most if shuffle_block == "auto" else check_int("shuffle_block", shuffle_block, minimum=1)
        self.seed = check_int("seed", seed, minimum=0)

    def tables(self, epoch: int | None = None) -> Iterator[tuple[np.ndarray, Any]]:
        """Yield the rows of an epoch as row numbers (b,) in the files and a pyarrow table of columns and target.

        Row groups come in random order and the rows of a block are shuffled; without an epoch all come in the order of
        the files.
        """
        import pyarrow as pa

        starts = np.cumsum([0, *(rows for *_, rows in self._groups)])
        rng = None if epoch is None else np.random.default_rng([self.seed, epoch])
        order = range(len(self._groups)) if rng is None else rng.permutation(len(self._groups)).tolist()
        numbers: list[np.ndarray] = []
        pieces: list[Any] = []
        for group in order:
            row = starts[group]
            for piece in self._read(*self._groups[group][:2]):
                numbers.append(np.arange(row, row + len(piece)))
                pieces.append(piece)
                row += len(piece)
                if sum(map(len, pieces)) >= self.shuffle_block:
                    yield _joined(numbers, pieces, rng)
                    numbers, pieces = [], []
            # Pages of other sizes come with the next row group and would be held beside these.
            pa.default_memory_pool().release_unused()
        if pieces:
            yield _joined(numbers, pieces, rng)

    def own_tables(self, epoch: int, own: Own) -> Iterator[tuple[np.ndarray, Any]]:
        """Yield the blocks of :meth:`tables` without the rows that are another process's part of their batch."""
        import pyarrow as pa

        start = 0
        for numbers, table in self.tables(epoch):
            mask = own(np.arange(start, start + len(numbers)))
            start += len(numbers)
            yield (numbers, table) if mask.all() else (numbers[mask], table.filter(pa.array(mask)))

    def blocks(self, epoch: int, own: Own) -> Iterator[tuple[Tensor, ...]]:
        """Yield x (b, C) and y (b,) or (b, O) of an epoch; a single target of integers or booleans is classes."""
        for _, table in self.own_tables(epoch, own):
            yield self._numbers(table)

    def head(self) -> tuple[Tensor, ...]:
        """Return the first block in the form of :meth:`blocks`."""
        return self._numbers(next(self.tables())[1])

    def is_text(self, name: str) -> bool:
        """Whether a column holds text."""
        from pyarrow import types

        return bool(types.is_string(self.schema.field(name).type))

    def floats(self, table: Any, name: str) -> np.ndarray:
        """Return a column of numbers in float64, NaN where a value is missing; ValueError for dates and the like."""
        from pyarrow import types

        kind = self.schema.field(name).type
        if not any(check(kind) for check in (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)):
            raise ValueError(f"column {name!r} must hold numbers, got {kind}: only an estimator takes text")
        return float_values(table.column(name))

    def to_config(self) -> dict[str, Any]:
        """Plain values that are equal for equal streams; files count by their names and footers, not their folder."""
        names = {"columns": list(self.columns), "target": list(self.target)}
        files = [_footer_entry(path) for path in self.files]
        return {"files": files, **names, "shuffle_block": self.shuffle_block, "seed": self.seed}

    def _numbers(self, table: Any) -> tuple[Tensor, Tensor]:
        values = {name: self.floats(table, name) for name in (*self.columns, *self.target)}
        for name, column in values.items():
            if not np.isfinite(column).all():
                raise ValueError(f"column {name!r} must be finite, got missing, NaN or infinite values")
        x = np.stack([values[name] for name in self.columns], axis=1)
        y = np.stack([values[name] for name in self.target], axis=1)
        kind = str(self.schema.field(self.target[0]).type)
        classes = self.flat and kind.startswith(("int", "uint", "bool"))
        y = (y[:, 0] if self.flat else y).astype(np.int64 if classes else np.float64)
        return torch.from_numpy(x), torch.from_numpy(y)

    def _read(self, path: Path, group: int) -> Iterator[Any]:
        import pyarrow as pa

        names = self.schema.names
        try:
            with open(path, "rb") as file:
                parquet = open_parquet(file, buffer_size=READ_BYTES, pre_buffer=False)
                for piece in parquet.iter_batches(self.shuffle_block, [group], names, use_threads=False):
                    yield pa.Table.from_batches([piece]).select(names).cast(self.schema)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path} is damaged: {_one_line(error)}") from error


def open_parquet(file: IO[bytes], **options: Any) -> Any:
    """Open a binary file as pyarrow's ``ParquetFile``, with no list or text in its footer longer than the footer.

    pyarrow allocates as many entries as a list claims, up to a million, before it reads the first.
    """
    import pyarrow.parquet as pq

    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    most = max(1, min(int.from_bytes(file.read(4), "little"), size, 2**31 - 1))
    file.seek(0)
    return pq.ParquetFile(file, thrift_string_size_limit=most, thrift_container_size_limit=most, **options)


def float_values(column: Any) -> np.ndarray:
    """Return a pyarrow column in float64, NaN where a value is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = pc.cast(column, pa.float64(), safe=False)
    if values.null_count:
        values = pc.fill_null(values, float("nan"))
    return np.asarray(values.to_numpy())


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


def _read_footer(path: Path) -> Any:
    import pyarrow as pa

    try:
        with open(path, "rb") as file:
            return open_parquet(file).metadata
    except FileNotFoundError:
        raise FileNotFoundError(f"files names {path}, which does not exist") from None
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged or no Parquet file: {_one_line(error)}") from error


def _footer_entry(path: Path) -> str:
    footer = _read_footer(path)
    with open(path, "rb") as file:
        file.seek(-8 - footer.serialized_size, os.SEEK_END)
        digest = hashlib.sha256(file.read()[:-8]).hexdigest()[:16]
    return f"{path.name} {footer.num_rows} rows #{digest}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _plain_text(schema: Any) -> Any:
    """Return the schema with every kind of text column as a plain one."""
    import pyarrow as pa
    from pyarrow import types

    def plain(kind: Any) -> Any:
        values = kind.value_type if types.is_dictionary(kind) else kind
        return pa.string() if types.is_string(values) or types.is_large_string(values) else kind

    return pa.schema([pa.field(field.name, plain(field.type)) for field in schema])


def _check_names(target: tuple[str, ...], columns: tuple[str, ...], known: list[str], path: Path) -> None:
    for name, given in (("target", target), ("columns", columns)):
        unknown = [column for column in given if column not in known]
        if unknown:
            raise ValueError(f"{name} names {unknown[0]!r}, which is no column of {path}; it has {shown(known)}")
        if len(set(given)) < len(given) or not given:
            raise ValueError(f"{name} must name at least one column, each once, got {shown(list(given))}")
    both = [name for name in columns if name in target]
    if both:
        raise ValueError(f"columns and target both name {both[0]!r}: what is predicted cannot be predicted from")


def _joined(numbers: list[np.ndarray], pieces: list[Any], rng: np.random.Generator | None) -> tuple[np.ndarray, Any]:
    import pyarrow as pa

    places, table = np.concatenate(numbers), pa.concat_tables(pieces)
    if rng is None:
        return places, table
    order = rng.permutation(len(places))
    return places[order], table.combine_chunks().take(pa.array(order))
