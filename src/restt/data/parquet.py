"""Tables larger than memory: Parquet files, read again for every epoch in blocks whose rows are shuffled.

The rows of a row group lie together and are often alike, so row groups are dealt at random into lanes that are read
side by side, and a batch takes its part of every lane. A lane comes in blocks whose rows are shuffled; what is held at
once is a block of each, and one that is read ahead. Of several processes that train together each reads lanes of its
own.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_int, shown
from restt._common.ranks import Ranks, read_group
from restt.data.parquet_files import digest_of, open_parquet, parquet_paths, read_footer, stamp_of

# Kinds of columns that become numbers as they are.
NUMBERS = ("numbers", "whole numbers", "booleans")
# The fewest lanes: each holds a page of every column of a row group.
LANES = 2
# Numbers of the blocks of all lanes, 4 MiB in float64, where their rows are not given; and the most of their rows. On
# the way from a file to a training a block is there about six times.
BLOCK_NUMBERS = 2**19
MOST_BLOCK_ROWS = 2**16
# Bytes of a column read at once: a row group may be larger than memory.
READ_BYTES = 2**17
# Rows of the first block, from which a training learns what to expect.
HEAD_ROWS = 1024


@dataclass(frozen=True)
class _Group:
    """A row group: where it is, and the numbers of its rows in the whole table."""

    file: int
    number: int
    start: int
    rows: int


class Stream:
    """Rows of Parquet files; :func:`stream` makes it."""

    def __init__(
        self,
        files: Sequence[Path],
        target: str | Sequence[str],
        columns: Sequence[str] | None,
        shuffle_block: Any,
        lanes: Any,
        seed: int,
        ranks: Ranks,
    ) -> None:
        self.files, self.ranks = tuple(files), ranks
        self.flat = isinstance(target, str)
        self.target: tuple[str, ...] = (target,) if isinstance(target, str) else tuple(target)
        self._footers = [read_footer(path) for path in self.files]
        self._stamps = [stamp_of(path) for path in self.files]
        schemas = [footer.schema.to_arrow_schema() for footer in self._footers]
        held = schemas[0].names
        given = [name for name in held if name not in self.target] if columns is None else list(columns)
        _check_names(self.target, given, held, self.files[0])
        self.columns = tuple(given)
        for path, schema in zip(self.files, schemas, strict=True):
            self._check_schema(path, schema, schemas[0], exact=columns is None)
        self.schema = self._common_schema(schemas)
        groups, start = [], 0
        for file, footer in enumerate(self._footers):
            for number in range(footer.num_row_groups):
                rows = footer.row_group(number).num_rows
                groups.append(_Group(file, number, start, rows))
                start += rows
        self._groups = [group for group in groups if group.rows]
        self.rows = start
        if self.rows == 0:
            raise ValueError(f"files must hold at least one row, got none in {len(self.files)} file(s)")
        width = len(self.columns) + len(self.target)
        most = min(MOST_BLOCK_ROWS, max(1, BLOCK_NUMBERS // width))
        self.shuffle_block = most if shuffle_block == "auto" else check_int("shuffle_block", shuffle_block, minimum=1)
        self.lane_count = max(LANES, ranks.size) if lanes == "auto" else check_int("lanes", lanes, minimum=1)
        self.seed = check_int("seed", seed, minimum=0)

    def lanes(self, epoch: int) -> tuple[int, ...]:
        """How many rows each lane of an epoch has."""
        return tuple(sum(group.rows for group in groups) for groups in self._dealt(epoch))

    def tables(self, epoch: int, lane: int) -> Iterator[tuple[np.ndarray, Any]]:
        """Yield the rows of a lane in shuffled blocks.

        A block is the row numbers (b,) in the whole table and a pyarrow table of columns and target.
        """
        at_once = max(1, self.shuffle_block // self.lane_count)
        return self._in_blocks(self._dealt(epoch)[lane], at_once, np.random.default_rng([self.seed, epoch, lane]))

    def tables_in_order(self, part: int = 0, parts: int = 1) -> Iterator[tuple[np.ndarray, Any]]:
        """Yield blocks as :meth:`tables` does, in the order of the files.

        ``part`` of several ``parts`` is a sequence of whole row groups.
        """
        middles = np.array([group.start + group.rows / 2 for group in self._groups])
        own = np.flatnonzero((middles * parts // self.rows).astype(int) == part)
        return self._in_blocks([self._groups[place] for place in own], self.shuffle_block, None)

    def blocks(self, epoch: int, lane: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The rows of a lane as numbers: x (b, C), and y (b,) or (b, O), classes where it holds whole numbers."""
        for _, table in self.tables(epoch, lane):
            yield self._numbers(table)

    def head(self) -> tuple[Tensor, Tensor]:
        """The first rows as :meth:`blocks` gives them."""
        for name in (*self.columns, *self.target):
            kind = _kind(self.schema.field(name).type)
            if kind not in NUMBERS:
                raise ValueError(
                    f"column {name!r} must hold numbers to be trained on as it is, got {kind}: an estimator takes it"
                )
        group = self._groups[0]
        return self._numbers(next(self._read(group, min(HEAD_ROWS, group.rows))))

    def is_text(self, name: str) -> bool:
        """Whether a column holds text."""
        return _kind(self.schema.field(name).type) == "text"

    def floats(self, table: Any, name: str) -> np.ndarray:
        """A column of numbers of a block in float64, NaN where a value is missing."""
        kind = _kind(self.schema.field(name).type)
        if kind not in NUMBERS:
            raise ValueError(f"column {name!r} must hold numbers or text, got {kind}")
        return float_values(table.column(name))

    def to_config(self) -> dict[str, Any]:
        """What makes the stream the same: plain values, the files by what is in them and not by where they lie."""
        return {
            "files": [
                f"{path.name} {footer.num_rows} rows #{digest_of(self._unchanged(number))}"
                for number, (path, footer) in enumerate(zip(self.files, self._footers, strict=True))
            ],
            "columns": list(self.columns),
            "target": list(self.target),
            "shuffle_block": self.shuffle_block,
            "lanes": self.lane_count,
            "seed": self.seed,
        }

    def _numbers(self, table: Any) -> tuple[Tensor, Tensor]:
        values = np.stack([float_values(table.column(name)) for name in self.columns], axis=1)
        finite = np.isfinite(values).all(axis=0)
        if not finite.all():
            name = self.columns[int(finite.argmin())]
            raise ValueError(f"column {name!r} must be finite, got missing, NaN or infinite values")
        targets = [float_values(table.column(name)) for name in self.target]
        y = targets[0] if self.flat else np.stack(targets, axis=1)
        if not np.isfinite(y).all():
            raise ValueError(f"target {shown(list(self.target))} must be finite, got missing, NaN or infinite values")
        classes = self.flat and _kind(self.schema.field(self.target[0]).type) != "numbers"
        return torch.from_numpy(values), torch.from_numpy(y.astype(np.int64 if classes else np.float64))

    def _dealt(self, epoch: int) -> list[list[_Group]]:
        """The row groups of each lane: in random order, each to the lane that has the fewest rows."""
        lanes: list[list[_Group]] = [[] for _ in range(self.lane_count)]
        shortest = [(0, lane) for lane in range(self.lane_count)]
        for place in np.random.default_rng([self.seed, epoch]).permutation(len(self._groups)).tolist():
            rows, lane = shortest[0]
            lanes[lane].append(self._groups[place])
            heapq.heapreplace(shortest, (rows + self._groups[place].rows, lane))
        return lanes

    def _in_blocks(
        self, groups: Sequence[_Group], at_once: int, rng: np.random.Generator | None
    ) -> Iterator[tuple[np.ndarray, Any]]:
        """The rows of groups, one after the other, in blocks of ``at_once`` rows or a little more."""
        held: list[tuple[np.ndarray, Any]] = []
        count = 0
        for group in groups:
            for numbers, piece in self._numbered(group, at_once):
                held.append((numbers, piece))
                count += len(numbers)
                if count >= at_once:
                    block, held, count = _joined(held, rng), [], 0
                    yield block
                    del block, numbers, piece  # nothing of a block is held while the next is read
        if held:
            yield _joined(held, rng)

    def _numbered(self, group: _Group, at_once: int) -> Iterator[tuple[np.ndarray, Any]]:
        row = group.start
        for piece in self._read(group, at_once):
            yield np.arange(row, row + len(piece)), piece
            row += len(piece)

    def _read(self, group: _Group, at_once: int) -> Iterator[Any]:
        import pyarrow as pa

        path, options = self.files[group.file], {"metadata": self._footers[group.file], "buffer_size": READ_BYTES}
        names = self.schema.names
        try:
            self._unchanged(group.file)
            with open(path, "rb") as file:
                parquet = open_parquet(file, pre_buffer=False, **options)
                for piece in parquet.iter_batches(at_once, [group.number], names, use_threads=False):
                    yield pa.Table.from_batches([piece]).select(names).cast(self.schema)
            # Pages of other sizes come with the next row group, which would be held beside what these have left.
            pa.default_memory_pool().release_unused()
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path} is damaged: {' '.join(str(error).split())}") from error

    def _unchanged(self, number: int) -> Path:
        path = self.files[number]
        if stamp_of(path) != self._stamps[number]:
            raise ValueError(f"{path} has changed since the stream was made of it: make the stream anew")
        return path

    def _check_schema(self, path: Path, schema: Any, first: Any, *, exact: bool) -> None:
        """ValueError where a file's columns are not those of the first."""
        wanted = (*self.columns, *self.target)
        missing = [name for name in wanted if name not in schema.names]
        more = [name for name in schema.names if exact and name not in wanted]
        others = [
            f"{name!r} holds {_kind(schema.field(name).type)} and not {_kind(first.field(name).type)}"
            for name in wanted
            if name in schema.names and not self._fits(name, schema.field(name).type, first.field(name).type)
        ]
        problems = [f"{name!r} is missing" for name in missing] + [f"{name!r} is added" for name in more] + others
        if problems:
            raise ValueError(f"{path} has other columns than {self.files[0]}: {', '.join(problems)}")

    def _common_schema(self, schemas: Sequence[Any]) -> Any:
        """One type for each column: its own where all files agree, else the widest of its kind."""
        import pyarrow as pa

        widest = {"numbers": pa.float64(), "whole numbers": pa.int64(), "text": pa.string()}
        fields = []
        for name in (*self.columns, *self.target):
            types = [schema.field(name).type for schema in schemas]
            kinds = {_kind(each) for each in types}
            kind = "numbers" if len(kinds) > 1 else kinds.pop()
            same = kind != "text" and all(each == types[0] for each in types)
            fields.append(pa.field(name, types[0] if same else widest.get(kind, types[0])))
        return pa.schema(fields)

    def _fits(self, name: str, found: Any, expected: Any) -> bool:
        kinds = {_kind(found), _kind(expected)}
        return len(kinds) == 1 or (name not in self.target and kinds <= {"numbers", "whole numbers"})


def stream(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    shuffle_block: Any = "auto",
    lanes: Any = "auto",
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
        Rows that are held at once and shuffled, over all lanes. ``"auto"`` is as many as have half a million numbers,
        at most 65,536.
    lanes : "auto" or int
        Row groups are dealt into this many lanes in every epoch, at random, evenly by rows. Lanes are read side
        by side, and a batch has its part of each: a table should not be sorted by what is predicted. Of processes that
        train together each reads lanes of its own; where there are fewer lanes than processes, several read the same.
        ``"auto"`` is one for each process of the group, and two at least. The same lanes give the same batches,
        whatever the number of processes.
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
        return Stream(parquet_paths(files), target, columns, shuffle_block, lanes, seed, ranks)


def _check_names(target: tuple[str, ...], columns: list[str], held: list[str], path: Path) -> None:
    if not target or not columns:
        raise ValueError(f"{'target' if not target else 'columns'} must name at least one column, got none")
    for name, given in (("target", target), ("columns", columns)):
        unknown = [column for column in given if column not in held]
        if unknown:
            raise ValueError(f"{name} names {unknown[0]!r}, which is no column of {path}; it has {shown(held)}")
        if len(set(given)) < len(given):
            raise ValueError(f"{name} must name each column once, got {shown(list(given))}")
    both = [name for name in columns if name in target]
    if both:
        raise ValueError(f"columns and target both name {both[0]!r}: what is predicted cannot be predicted from")


def _kind(kind: Any) -> str:
    from pyarrow import types

    if types.is_boolean(kind):
        return "booleans"
    if types.is_integer(kind):
        return "whole numbers"
    if types.is_floating(kind) or types.is_decimal(kind):
        return "numbers"
    text = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_string(text) or types.is_large_string(text):
        return "text"
    return str(kind)


def _joined(held: list[tuple[np.ndarray, Any]], rng: np.random.Generator | None) -> tuple[np.ndarray, Any]:
    import pyarrow as pa

    numbers = np.concatenate([each for each, _ in held])
    table = pa.concat_tables([piece for _, piece in held])
    if rng is None:
        return numbers, table
    order = rng.permutation(len(numbers))
    return numbers[order], table.combine_chunks().take(pa.array(order))


def float_values(column: Any) -> np.ndarray:
    """A pyarrow column in float64, NaN where a value is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = pc.cast(column, pa.float64(), safe=False)
    if values.null_count:
        values = pc.fill_null(values, float("nan"))
    return np.asarray(values.to_numpy())
