"""A table in a file, or on standard input, as chunks of rows: what encodes, separates and compresses it is found out.

A source can be read as often as needed with one chunk in memory: what cannot be rewound, such as a pipe, is copied to a
temporary file first.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import hashlib
import io
import lzma
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

from restt._common.errors import check_file, shown
from restt.data.parquet import open_parquet

CHUNK_ROWS = 20_000
DELIMITERS = (",", ";", "\t", "|", " ")
_NOTHING = ("NA", "n/a", "n.a.", "n. a.", "k.A.", "k. A.", "NaN", "null", "#N/A", "#NA", "<NA>")
MISSING = (
    "",
    "None",
    "Null",
    "?",
    ".",
    *sorted({form for word in _NOTHING for form in (word, word.lower(), word.upper())}),
)
SAMPLE_CHARACTERS = 1 << 16  # of the text by which the delimiter is told
SAMPLE_RECORDS = 200
_BLOCK = 1 << 20
_BYTE_ORDER_MARKS = (  # the longer first: one of UTF-32 begins with one of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_COMPRESSIONS = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open))
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


class Source:
    """An opened table: where it came from, how its text is written, its column names, and its rows in chunks.

    Parameters
    ----------
    given : path or "-"
        A file of delimited text or Parquet, as it is or compressed by gzip, bzip2 or xz; ``"-"`` is standard input.
    delimiter : "auto" or a character
    encoding : "auto" or a name Python knows
    missing : sequence of str
        Texts that mean a missing value, beside :data:`MISSING`.
    """

    def __init__(
        self,
        given: str | PathLike[str],
        *,
        delimiter: str = "auto",
        encoding: str = "auto",
        missing: Sequence[str] = (),
    ) -> None:
        if delimiter != "auto" and len(delimiter) != 1:
            raise ValueError(f'delimiter must be "auto" or one character, got {delimiter!r}')
        if encoding != "auto":
            _check_encoding(encoding)
        self.name = "-" if str(given) == "-" else Path(given).name
        self.notes: list[str] = []
        self._missing = [*MISSING, *missing]
        self._raw = _rewindable(given)
        try:
            self.sha256 = hashlib.file_digest(cast(Any, self._raw), "sha256").hexdigest()
            with self._reading():
                self.is_parquet = self._bytes().read(4) == b"PAR1"
                if self.is_parquet:
                    self.encoding = self.delimiter = None
                    self.columns = [str(name) for name in self._parquet().schema_arrow.names]
                else:
                    self.encoding = self._find_encoding() if encoding == "auto" else encoding
                    self.delimiter = self._find_delimiter() if delimiter == "auto" else delimiter
                    self.columns = self._header()
            _check_names(self.columns, self.label)
        except BaseException:
            self.close()
            raise

    @property
    def label(self) -> str:
        """The source as messages name it."""
        return "standard input" if self.name == "-" else self.name

    def chunks(self, rows: int = CHUNK_ROWS, *, carry: Sequence[str] | None = None) -> Iterator[Any]:
        """Data frames of at most this many rows, from the first on: text, missing values NaN; of Parquet its types.

        With ``carry``, pairs of such a frame and one of these columns as the file has them: no text is taken as a
        missing value, and whole numbers beside missing ones stay whole numbers.
        """
        with self._reading():
            pairs = (self._parquet_chunks if self.is_parquet else self._text_chunks)(rows, list(carry or ()))
            for pair in pairs:
                yield pair[0] if carry is None else pair

    def _text_chunks(self, rows: int, carry: list[str]) -> Iterator[tuple[Any, Any]]:
        with self._text() as text, warnings.catch_warnings():
            # Rows longer than the header: pandas would cut them and only warn.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            for chunk in pd.read_csv(
                text,
                sep=self.delimiter,
                header=0,
                names=self.columns,
                index_col=False,
                dtype=str,
                keep_default_na=False,
                na_values={name: self._missing for name in self.columns if name not in carry},
                skipinitialspace=self.delimiter != " ",
                chunksize=rows,
            ):
                carried = chunk[carry]
                for name in carry:
                    chunk[name] = self._with_gaps(carried[name])
                yield chunk, carried

    def _with_gaps(self, texts: Any) -> Any:
        """A series of texts with NaN for those that mean a missing value, by the same reader as all other columns."""
        lines = io.StringIO(texts.to_csv(index=False, header=False, quoting=csv.QUOTE_ALL), newline="")
        read = pd.read_csv(
            lines, header=None, dtype=str, keep_default_na=False, na_values=self._missing, skip_blank_lines=False
        )
        return read[0].set_axis(texts.index)

    def close(self) -> None:
        self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """What goes wrong inside becomes an error that names the source and what to do."""
        try:
            yield
        except _DAMAGED as error:
            raise ValueError(f"{self.label} is damaged: {error}") from error
        except UnicodeDecodeError as error:
            found = f"byte 0x{error.object[error.start]:02x}"
            raise ValueError(
                f"{self.label} cannot be read as {error.encoding}: {found} is none of its characters; "
                'leave encoding at "auto", or name another'
            ) from error
        except UnicodeError as error:
            raise ValueError(
                f"{self.label} cannot be read as {self.encoding}: {error}; name another encoding"
            ) from error
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            what = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
            raise ValueError(
                f"{self.label} is no table of {len(self.columns)} column(s) between {self.delimiter!r}: {what}; "
                "give each row as many fields as the first line has, or name another delimiter"
            ) from error
        except csv.Error as error:
            raise ValueError(f"{self.label} is no table of delimited text: {error}") from error

    def _bytes(self) -> IO[bytes]:
        self._raw.seek(0)
        head = self._raw.read(6)
        self._raw.seek(0)
        for mark, opened in _COMPRESSIONS:
            if head.startswith(mark):
                return cast(IO[bytes], opened(self._raw, "rb"))
        return self._raw

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
        file = stream if stream is self._raw else io.BytesIO(stream.read())
        try:
            return open_parquet(file)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                f"{self.label} begins like Parquet but is damaged: {' '.join(str(error).split())}"
            ) from error

    def _parquet_chunks(self, rows: int, carry: list[str]) -> Iterator[tuple[Any, Any]]:
        try:
            for batch in self._parquet().iter_batches(batch_size=rows):
                yield self._frame(batch), self._frame(batch.select(carry), carried=True)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{self.label} is damaged: {' '.join(str(error).split())}") from error

    def _frame(self, batch: Any, *, carried: bool = False) -> Any:
        """Rows of a Parquet file as a data frame; what pandas once noted of its columns may be damaged too."""
        try:
            # Whole numbers beside missing values stay whole: as floats large ones would be the same. What pandas noted
            # could make an index of a carried column.
            frame = batch.to_pandas(integer_object_nulls=True, ignore_metadata=carried)
            return frame if carried else without_words(frame, self._missing)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.label} is damaged: its notes on its columns cannot be read ({type(error).__name__}: {error})"
            ) from error

    def _find_encoding(self) -> str:
        stream = self._bytes()
        head = stream.read(4096)
        for mark, name in _BYTE_ORDER_MARKS:
            if head.startswith(mark):
                return name
        if b"\0" in head:
            # Latin text in UTF-16 without a mark has its zeros all on one side.
            even, odd = head[0::2].count(0), head[1::2].count(0)
            if min(even, odd) > 0.1 * max(even, odd):
                raise ValueError(f"{self.label} is neither text nor Parquet: it holds zero bytes")
            return "utf-16-be" if even > odd else "utf-16-le"
        for name in ("utf-8", "cp1252"):
            if self._decodes(name):
                break
        else:
            name = "latin-1"
        if name != "utf-8":
            self.notes.append(
                f"{self.label} is not UTF-8 and was read as {name}; name its encoding if letters look wrong"
            )
        return name

    def _decodes(self, name: str) -> bool:
        decoder, stream = codecs.getincrementaldecoder(name)(), self._bytes()
        try:
            while block := stream.read(_BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
        return True

    def _find_delimiter(self) -> str:
        """The one that cuts the first records into equally many fields, and into the most."""
        with self._text() as text:
            sample = text.read(SAMPLE_CHARACTERS)
        if len(sample) == SAMPLE_CHARACTERS:
            sample = sample[: sample.rfind("\n") + 1] or sample
        best, best_score = ",", (0.0, 0)
        for delimiter in DELIMITERS:
            counts = [len(record) for record in _records(sample, delimiter)][:SAMPLE_RECORDS]
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
            record = next(iter(_records(text, self.delimiter or ",")), None)
        if record is None:
            raise ValueError(f"{self.label} is empty: expected a line of column names, and rows below it")
        names = [name.strip() for name in record]
        if all(_is_number(name) for name in names):
            raise ValueError(
                f"{self.label} begins with numbers ({shown(','.join(names))}): expected a first line of column names"
            )
        return [name or f"column {place}" for place, name in enumerate(names, start=1)]


def _rewindable(given: str | PathLike[str]) -> IO[bytes]:
    """A binary file that can be read from its beginning again and again."""
    if str(given) != "-":
        path = check_file("data", given)
        if stat.S_ISREG(path.stat().st_mode):
            return open(path, "rb")
        with open(path, "rb") as pipe:
            return _copied(pipe)
    return _copied(sys.stdin.buffer)


def _copied(pipe: IO[bytes]) -> IO[bytes]:
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the source
    try:
        shutil.copyfileobj(pipe, copy, _BLOCK)
    except BaseException:
        copy.close()
        raise
    copy.seek(0)
    return cast(IO[bytes], copy)


def without_words(frame: Any, words: Sequence[str]) -> Any:
    """A data frame whose texts that mean a missing value are missing; other types stay as they are."""
    for name in frame.select_dtypes(["object", "string"]):
        if pd.api.types.infer_dtype(frame[name], skipna=True) == "string":
            frame[name] = frame[name].mask(frame[name].str.strip().isin(words))
    return frame


def _records(text: str | IO[str], delimiter: str) -> Iterator[list[str]]:
    """Records with something in them."""
    lines = io.StringIO(text, newline="") if isinstance(text, str) else text
    for record in csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter != " "):
        if any(field.strip() for field in record):
            yield record


def _check_encoding(name: str) -> None:
    try:
        codecs.lookup(name)
    except LookupError:
        raise ValueError(f'encoding must be "auto" or one Python knows, such as latin-1, got {name!r}') from None


def _check_names(names: list[str], label: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{label} has {names.count(twice[0])} columns named {twice[0]!r}: give each a name of its own")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
