"""A table in a file, on standard input or in memory as chunks of rows; encoding and delimiter are detected.

A file can be read as often as needed with one chunk in memory: a pipe is copied to a temporary file first.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import hashlib
import io
import lzma
import re
import shutil
import stat
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any, Self, cast

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from restt._common.errors import check_file, shown
from restt.data.parquet import FOOTER_LIMITS

CHUNK_ROWS = 20_000
DELIMITERS = (",", ";", "\t", "|", " ")
_WORDS = ("NA", "n/a", "n.a.", "n. a.", "k.A.", "k. A.", "NaN", "null", "#N/A", "#NA", "<NA>")
MISSING = frozenset(
    {"", "None", "Null", "?", "."} | {form for word in _WORDS for form in (word, word.lower(), word.upper())}
)
_SAMPLE_CHARACTERS, _SAMPLE_RECORDS = 1 << 16, 200  # by which the delimiter is detected
_BLOCK = 1 << 20
_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_COMPRESSIONS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
# How files begin that people take for tables, and what they are.
_OTHERS = {
    rb"PK\x03\x04": "an Excel workbook or a zip archive",
    rb"\xd0\xcf\x11\xe0": "an Excel workbook",
    rb"\s*(\{\s*\"|\[\s*[\[{])": "JSON",
    rb"(?i)\s*<(!doctype|html|\?xml)": "HTML or XML",
}
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


class FrameSource:
    """A data frame in memory.

    Attributes
    ----------
    name, label : str
        File name (None in memory), and the source as messages name it.
    columns, notes : list of str
    sha256, delimiter, encoding : str or None
    """

    name: str | None = None
    label = "the data frame"
    sha256: str | None = None
    delimiter: str | None = None
    encoding: str | None = None

    def __init__(self, frame: Any, *, missing: Sequence[str] = ()) -> None:
        self.notes: list[str] = []
        self._frame, self._missing = frame, MISSING.union(missing)
        self.columns = [str(name) for name in frame.columns]
        _check_names(self.columns, self.label)

    def chunks(self) -> Iterator[Any]:
        """Data frames of rows from the first on, as the source has them."""
        yield self._frame.set_axis(self.columns, axis=1)

    def without_words(self, frame: Any) -> Any:
        """The frame with texts stripped, and NaN for those that mean a missing value."""
        return strip_texts(frame, self._missing)

    def read(self, most: int | None = None) -> Any:
        """The first ``most`` rows, or all, without words for missing values; ValueError where there is none."""
        parts, rows = [], 0
        for chunk in self.chunks():
            if len(chunk):
                parts.append(self.without_words(chunk))
                rows += len(chunk)
            if most is not None and rows > most:
                self.notes.append(f"only the first {most} rows were read")
                break
        if not parts:
            raise ValueError(f"{self.label} has column names but no rows")
        return pd.concat(parts, ignore_index=True)[:most]


class Source(FrameSource):
    """A file of delimited text or Parquet, as it is or compressed by gzip, bzip2 or xz.

    Parameters
    ----------
    path : path or "-"
        ``"-"`` is standard input.
    delimiter : "auto" or a character
    encoding : "auto" or a name Python knows
    missing : sequence of str
        Texts that mean a missing value, beside :data:`MISSING`.
    """

    def __init__(
        self, path: str | PathLike[str], *, delimiter: str = "auto", encoding: str = "auto", missing: Sequence[str] = ()
    ) -> None:
        if delimiter != "auto" and len(delimiter) != 1:
            raise ValueError(f'delimiter must be "auto" or one character, got {delimiter!r}')
        try:
            codecs.lookup("utf-8" if encoding == "auto" else encoding)
        except LookupError:
            raise ValueError(
                f'encoding must be "auto" or one Python knows, such as latin-1, got {encoding!r}'
            ) from None
        self.name = "-" if str(path) == "-" else Path(path).name
        self.label = "standard input" if self.name == "-" else self.name
        self.notes, self._missing = [], MISSING.union(missing)
        self._raw = _rewindable(path)
        try:
            self.sha256 = hashlib.file_digest(cast(Any, self._raw), "sha256").hexdigest()
            with self._reading():
                self.is_parquet = self._bytes().read(4) == b"PAR1"
                if self.is_parquet:
                    self.columns = [str(name) for name in self._parquet().schema_arrow.names]
                else:
                    self.encoding = self._detect_encoding() if encoding == "auto" else encoding
                    self.delimiter = self._detect_delimiter() if delimiter == "auto" else delimiter
                    self.columns = self._header()
            _check_names(self.columns, self.label)
        except BaseException:
            self._raw.close()
            raise

    def chunks(self) -> Iterator[Any]:
        """Data frames of at most :data:`CHUNK_ROWS` rows: all text, or of Parquet its types."""
        with self._reading():
            if self.is_parquet:
                for batch in self._parquet().iter_batches(batch_size=CHUNK_ROWS):
                    # Whole numbers beside missing values stay whole: as floats large ones would be the same. What
                    # pandas noted of the columns may be damaged, and could make an index of one.
                    yield batch.to_pandas(integer_object_nulls=True, ignore_metadata=True)
                return
            with self._text() as text, warnings.catch_warnings():
                # Rows longer than the header: pandas would cut them and only warn.
                warnings.simplefilter("error", pd.errors.ParserWarning)
                yield from pd.read_csv(
                    text,
                    sep=self.delimiter,
                    header=0,
                    names=self.columns,
                    index_col=False,
                    dtype=str,
                    keep_default_na=False,
                    skipinitialspace=self.delimiter != " ",
                    chunksize=CHUNK_ROWS,
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn what goes wrong inside into an error that names the source and what to do."""
        try:
            yield
        except UnicodeError as error:
            raise ValueError(
                f'{self.label} cannot be read as {self.encoding}: {error}; leave encoding at "auto", or name another'
            ) from error
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            what = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
            raise ValueError(
                f"{self.label} is no table of {len(self.columns)} column(s) between {self.delimiter!r}: {what}; "
                "give each row as many fields as the first line has, or name another delimiter"
            ) from error
        except csv.Error as error:
            raise ValueError(f"{self.label} is no table of delimited text: {error}") from error
        except (*_DAMAGED, pa.ArrowException, OSError) as error:
            raise ValueError(f"{self.label} is damaged: {' '.join(str(error).split())}") from error

    def _bytes(self) -> IO[bytes]:
        """The file from its beginning, decompressed where it is compressed."""
        self._raw.seek(0)
        head = self._raw.read(6)
        self._raw.seek(0)
        opener: Any = next((opener for mark, opener in _COMPRESSIONS.items() if head.startswith(mark)), None)
        return self._raw if opener is None else cast(IO[bytes], opener(self._raw, "rb"))

    @contextmanager
    def _text(self) -> Iterator[IO[str]]:
        text = io.TextIOWrapper(cast(Any, self._bytes()), encoding=self.encoding, newline="")
        try:
            yield text
        finally:
            text.detach()  # closing it would close the file

    def _parquet(self) -> Any:
        """Reader of a Parquet file, decompressed where another program had compressed it."""
        stream = self._bytes()
        return pq.ParquetFile(stream if stream is self._raw else io.BytesIO(stream.read()), **FOOTER_LIMITS)

    def _detect_encoding(self) -> str:
        """UTF-16 where its mark says so, else UTF-8, or Windows-1252 where the bytes are not UTF-8."""
        head = self._bytes().read(4096)
        for mark, name in _BYTE_ORDER_MARKS.items():
            if head.startswith(mark):
                return name
        for beginning, kind in _OTHERS.items():
            if re.match(beginning, head):
                raise ValueError(f"{self.label} is {kind}: expected delimited text or Parquet, so save it as CSV first")
        if b"\0" in head:
            raise ValueError(
                f"{self.label} is neither text nor Parquet: it holds zero bytes; name its encoding if it is"
            )
        decoder, stream = codecs.getincrementaldecoder("utf-8")(), self._bytes()
        try:
            while block := stream.read(_BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            self.notes.append(
                f"{self.label} is not UTF-8 and was read as cp1252; name its encoding if letters look wrong"
            )
            return "cp1252"
        return "utf-8"

    def _detect_delimiter(self) -> str:
        """The delimiter that cuts the first records into equally many fields, and into the most."""
        with self._text() as text:
            sample = text.read(_SAMPLE_CHARACTERS)
        if len(sample) == _SAMPLE_CHARACTERS:
            sample = sample[: sample.rfind("\n") + 1] or sample
        best, best_score = ",", (0.0, 0)
        for delimiter in DELIMITERS:
            records = _records(io.StringIO(sample, newline=""), delimiter)
            counts = [len(record) for record in records][:_SAMPLE_RECORDS]
            if not counts or counts[0] < 2:
                continue
            usual, times = Counter(counts).most_common(1)[0]
            # The header is one of them: text before it, or commas of decimals below it, speak against.
            score = (times / len(counts) if usual == counts[0] else 0.0, usual)
            if score > best_score:
                best, best_score = delimiter, score
        return best

    def _header(self) -> list[str]:
        with self._text() as text:
            record = next(_records(text, self.delimiter or ","), None)
        if record is None:
            raise ValueError(f"{self.label} is empty: expected a line of column names, and rows below it")
        names = [name.strip() for name in record]
        if pd.to_numeric(pd.Series(names), errors="coerce").notna().all():
            raise ValueError(
                f"{self.label} begins with numbers ({shown(','.join(names))}): expected a first line of column names"
            )
        return [name or f"column {place}" for place, name in enumerate(names, start=1)]


@contextmanager
def opened(data: Any, *, missing: Sequence[str] = (), **options: Any) -> Iterator[FrameSource]:
    """Open a file, standard input or a data frame; ``options`` are those of :class:`Source`."""
    if isinstance(data, (str, PathLike)):
        with Source(data, missing=missing, **options) as source:
            yield source
        return
    frame = data if isinstance(data, pd.DataFrame) else getattr(data, "to_pandas", lambda: None)()
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f'data must be a path, "-" or a data frame, got {shown(data)} of type {type(data).__name__}')
    yield FrameSource(frame, missing=missing)


def check_texts(argument: str, texts: Sequence[str]) -> None:
    """TypeError for one text in place of several, whose letters would be taken for texts."""
    if isinstance(texts, str):
        raise TypeError(f"{argument} must be a list of texts, got the text {texts!r}: pass [{texts!r}]")


def strip_texts(frame: Any, words: frozenset[str]) -> Any:
    """A data frame whose texts are stripped, and missing where they are one of ``words``; other types stay.

    >>> strip_texts(pd.DataFrame({"x": ["a ", " NA"]}), MISSING)["x"].tolist()
    ['a', nan]
    """
    frame = frame.copy(deep=False)
    for name, dtype in frame.dtypes.items():
        if isinstance(dtype, pd.ArrowDtype) and dtype.kind in "UO":
            frame[name] = frame[name].astype(object)
        elif dtype == "float16":  # pandas has no categories of it
            frame[name] = frame[name].astype("float32")
    for name in frame.select_dtypes(["object", "string"]):
        if pd.api.types.infer_dtype(frame[name], skipna=True) == "string":
            texts = frame[name].str.strip()
            frame[name] = texts.mask(texts.isin(words))
    return frame


def _rewindable(path: str | PathLike[str]) -> IO[bytes]:
    """A binary file that can be read from its beginning again and again; what cannot is copied."""
    if str(path) == "-":
        return _copied(sys.stdin.buffer)
    file = check_file("data", path)
    if stat.S_ISREG(file.stat().st_mode):
        return open(file, "rb")
    with open(file, "rb") as pipe:
        return _copied(pipe)


def _copied(pipe: IO[bytes]) -> IO[bytes]:
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the source
    shutil.copyfileobj(pipe, copy, _BLOCK)
    copy.seek(0)
    return cast(IO[bytes], copy)


def _records(lines: IO[str], delimiter: str) -> Iterator[list[str]]:
    """Records with something in them."""
    for record in csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter != " "):
        if any(field.strip() for field in record):
            yield record


def _check_names(names: list[str], label: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{label} has {names.count(twice[0])} columns named {twice[0]!r}: give each a name of its own")
