"""What the footer and the pages of a Parquet file claim, checked before pyarrow believes it.

A column of a row group is a chain of pages, each behind a header that says how many bytes it takes in the file, how
many once decompressed, and how many values it holds. pyarrow allocates what the header says; a file of 2 kB can so ask
for gigabytes. Only the headers are read here: small structures in Thrift's compact protocol, of which a few numbers
matter.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import IO, Any

# What a page may become in memory: this, or this many times its bytes in the file, whichever is more. Writers aim at
# pages of 1 MiB; those that put a whole column into one page do so with numbers, which do not shrink a hundredfold.
PAGE_BYTES = 2**26
MOST_GROWTH = 100
# Text whose lengths are themselves packed: how many there are is said inside the compressed page.
UNCHECKED = {6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY"}
# Bytes of a header: a first try, and the most that pyarrow reads of one.
HEADER_BYTES, MOST_HEADER_BYTES = 256, 2**24
# A header has structures in structures in structures; more is no header.
MOST_DEPTH = 8
# Numbers of fields, from parquet.thrift: of a page header; of the structures in it, which all begin with the values.
_TYPE, _UNCOMPRESSED, _COMPRESSED = 1, 2, 3
_DATA, _DICTIONARY, _DATA_V2 = 5, 7, 8
_VALUES, _ENCODING, _ENCODING_V2 = 1, 2, 4
# Of the footer, of a row group, of a column chunk and of what is said about it.
_GROUPS, _CHUNKS, _ROWS, _ABOUT = 4, 1, 3, 3
_CHUNK_VALUES, _CHUNK_BYTES, _FIRST_DATA, _FIRST_DICTIONARY = 5, 7, 9, 11
# Type of page -> the structure that counts its values; other pages are stepped over.
_COUNTED = {0: _DATA, 3: _DATA_V2}
# Kinds of fields in the compact protocol.
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(14)


class _Unreadable(Exception):
    """The bytes end before the header does, or are none."""


@dataclass
class _Fields:
    """What is kept of a structure, by the numbers of its fields: numbers of 32 and of 64 bits, structures, lists of
    these."""

    numbers: dict[int, int] = field(default_factory=dict)
    longs: dict[int, int] = field(default_factory=dict)
    lists: dict[int, list[_Fields]] = field(default_factory=dict)
    structs: dict[int, _Fields] = field(default_factory=dict)

    def of(self, struct: int, number: int) -> int:
        """A number of a structure in this one; 0 where it is not there, as pyarrow takes it."""
        return self.structs[struct].numbers.get(number, 0) if struct in self.structs else 0


def open_parquet(file: IO[bytes]) -> Any:
    """pyarrow's ``ParquetFile`` of a binary file, with no list or text in its footer longer than the footer itself.

    pyarrow makes room for as many entries as a list claims, up to a million, before it reads the first.
    """
    import pyarrow.parquet as pq

    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    most = max(1, min(int.from_bytes(file.read(4), "little"), size, 2**31 - 1))
    file.seek(0)
    return pq.ParquetFile(file, thrift_string_size_limit=most, thrift_container_size_limit=most)


def footer_bytes(file: IO[bytes]) -> bytes:
    """The footer as it lies in a file that pyarrow could open; its position is changed.

    For all that pyarrow's ``RowGroupMetaData.column`` would tell: that ends the process where the statistics of a
    column are damaged.
    """
    size = file.seek(0, 2)
    file.seek(size - 8)
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(0, size - 8 - length))
    return file.read(length)


def check_pages(file: IO[bytes], footer: Any, columns: Collection[str], label: str) -> None:
    """ValueError where a page claims what its bytes cannot hold.

    Parameters
    ----------
    file : binary file
        The whole Parquet file; its position is changed.
    footer : pyarrow.parquet.FileMetaData
    columns : names
        The columns that will be read.
    label : str
        The file as messages name it.
    """
    try:
        groups = _Compact(footer_bytes(file)).struct().lists.get(_GROUPS, [])
    except _Unreadable:
        raise ValueError(f"{label} is damaged: its footer cannot be read") from None
    size = file.seek(0, 2)
    leaves = [footer.schema.column(place) for place in range(len(footer.schema))]
    for number, group in enumerate(groups):
        for leaf, chunk in zip(leaves, group.lists.get(_CHUNKS, []), strict=False):
            if leaf.path in columns or any(leaf.path.startswith(f"{name}.") for name in columns):
                about = chunk.structs.get(_ABOUT, _Fields()).longs
                problem = _chunk_problem(file, size, about, group.longs.get(_ROWS, 0), leaf.max_repetition_level > 0)
                if problem:
                    raise ValueError(
                        f"{label} is damaged or crafted: column {leaf.path!r} of row group {number} {problem}"
                    )


def _chunk_problem(file: IO[bytes], size: int, about: dict[int, int], rows: int, repeated: bool) -> str:
    """What is wrong with the pages of a column chunk, walked as pyarrow walks them; nothing where they are sound."""
    start, dictionary, expected = (
        about.get(_FIRST_DATA, -1),
        about.get(_FIRST_DICTIONARY, 0),
        about.get(_CHUNK_VALUES, -1),
    )
    if 0 < dictionary < start:
        start = dictionary
    end = start + about.get(_CHUNK_BYTES, -1)
    if not 0 <= start <= end <= size:
        return f"is said to lie at bytes {start} to {end} of a file of {size}"
    if not repeated and expected != rows:
        return f"is said to hold {expected} values in {rows} rows"
    values = 0
    while values < expected:
        try:
            header, start = _header(file, start, end)
        except _Unreadable:
            return f"ends after {values} of {expected} values"
        problem = _page_problem(header, end - start, repeated)
        if problem:
            return f"has a page that {problem}"
        kind = _COUNTED.get(header.numbers.get(_TYPE, -1))
        values += header.of(kind, _VALUES) if kind else 0
        start += header.numbers[_COMPRESSED]
    return ""


def _page_problem(header: _Fields, left: int, repeated: bool) -> str:
    compressed, uncompressed = header.numbers.get(_COMPRESSED, -1), header.numbers.get(_UNCOMPRESSED, -1)
    if not 0 <= compressed <= left or uncompressed < 0:
        return f"claims {compressed} bytes, of which {left} are there, that become {uncompressed}"
    most = max(PAGE_BYTES, MOST_GROWTH * compressed)
    if uncompressed > most:
        return f"claims to become {uncompressed} bytes of {compressed}: at most {most} are taken"
    # Of a dictionary every value has a byte at least; pyarrow makes room for all of them at once.
    entries = header.of(_DICTIONARY, _VALUES)
    if not 0 <= entries <= uncompressed:
        return f"claims {entries} dictionary entries in {uncompressed} bytes"
    for kind, encoding in ((_DATA, _ENCODING), (_DATA_V2, _ENCODING_V2)):
        values = header.of(kind, _VALUES)
        if values < 0 or (repeated and values > most):
            return f"claims {values} values in {compressed} bytes"
        if header.of(kind, encoding) in UNCHECKED:
            name = UNCHECKED[header.of(kind, encoding)]
            return f"is written as {name}, whose sizes cannot be checked beforehand: write it with another encoding"
    return ""


def _header(file: IO[bytes], start: int, end: int) -> tuple[_Fields, int]:
    """The fields of the header at ``start``, and where it ends."""
    wanted = HEADER_BYTES
    while True:
        file.seek(start)
        reader = _Compact(file.read(min(wanted, end - start)))
        try:
            return reader.struct(), start + reader.at
        except _Unreadable:
            if wanted >= min(end - start, MOST_HEADER_BYTES):
                raise
            wanted *= 16


class _Compact:
    """A reader of Thrift's compact protocol that steps over what :class:`_Fields` does not keep.

    Where the bytes are strange it does as pyarrow's reader: high bits are dropped, the last of two fields with one
    number counts, the fields of two structures with one number come together.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def struct(self, into: _Fields | None = None, depth: int = 0) -> _Fields:
        if depth > MOST_DEPTH:
            raise _Unreadable
        fields = _Fields() if into is None else into
        number = 0
        while (head := self._byte()) & 15:
            # The high bits are the step from the last field's number, or none where it is written out.
            number = _int16(number + (head >> 4) if head >> 4 else self._zigzag())
            kind = head & 15
            if kind == _I32:
                fields.numbers[number] = self._zigzag()
            elif kind == _I64:
                fields.longs[number] = self._zigzag(64)
            elif kind == _LIST:
                fields.lists[number] = self._structs(depth + 1)
            elif kind == _STRUCT:
                fields.structs[number] = self.struct(fields.structs.get(number), depth + 1)
            elif kind not in (_TRUE, _FALSE):
                self._skip(kind, depth + 1)
        return fields

    def _structs(self, depth: int) -> list[_Fields]:
        """The structures of a list; none where it holds something else, which is stepped over."""
        head = self._byte()
        count = self._varint() if head >> 4 == 15 else head >> 4
        if head & 15 == _STRUCT:
            return [self.struct(depth=depth) for _ in range(count)]
        self._skip_all(count, (head & 15,), depth)
        return []

    def _skip(self, kind: int, depth: int) -> None:
        """Past a value; a truth value that is no field of its own takes a byte."""
        if kind in (_TRUE, _FALSE, _BYTE):
            self._past(1)
        elif kind in (_I16, _I32, _I64):
            self._varint()
        elif kind in (_DOUBLE, _UUID):
            self._past(8 if kind == _DOUBLE else 16)
        elif kind == _BINARY:
            self._past(self._varint())
        elif kind in (_LIST, _SET):
            head = self._byte()
            self._skip_all(self._varint() if head >> 4 == 15 else head >> 4, (head & 15,), depth)
        elif kind == _MAP:
            count = self._varint()
            kinds = self._byte() if count else 0
            self._skip_all(count, (kinds >> 4, kinds & 15), depth)
        elif kind == _STRUCT:
            self.struct(depth=depth)
        else:
            raise _Unreadable

    def _skip_all(self, count: int, kinds: tuple[int, ...], depth: int) -> None:
        if depth > MOST_DEPTH:
            raise _Unreadable
        for _ in range(count):
            for kind in kinds:
                self._skip(kind, depth + 1)

    def _byte(self) -> int:
        self._past(1)
        return self.content[self.at - 1]

    def _past(self, count: int) -> None:
        if self.at + count > len(self.content):
            raise _Unreadable
        self.at += count

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise _Unreadable

    def _zigzag(self, bits: int = 32) -> int:
        value = self._varint() & (2**bits - 1)
        return (value >> 1) ^ -(value & 1)


def _int16(value: int) -> int:
    return (value + 2**15) % 2**16 - 2**15
