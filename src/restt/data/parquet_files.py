"""Paths, footers and digests of Parquet files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO, Any


def open_parquet(file: IO[bytes], **options: Any) -> Any:
    """Open a binary file as pyarrow's ``ParquetFile``, with no list or text in its footer longer than the footer.

    pyarrow allocates as many entries as a list claims, up to a million, before it reads the first.
    """
    import pyarrow.parquet as pq

    most = max(1, min(_footer_length(file), 2**31 - 1))
    file.seek(0)
    return pq.ParquetFile(file, thrift_string_size_limit=most, thrift_container_size_limit=most, **options)


def parquet_paths(files: Any) -> list[Path]:
    """Paths of one file, several, or the ``*.parquet`` files of a folder in the order of their names."""
    given = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    found: list[Path] = []
    for entry in given:
        path = Path(entry)
        inside = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not inside:
            raise ValueError(f"files names the folder {path}, which holds no *.parquet files")
        found += inside
    if not found:
        raise ValueError("files must name at least one Parquet file, got none")
    return found


def read_footer(path: Path) -> Any:
    """Read pyarrow's metadata of a file; the error names a file that is missing or damaged."""
    import pyarrow as pa

    try:
        with open(path, "rb") as file:
            return open_parquet(file).metadata
    except FileNotFoundError:
        raise FileNotFoundError(f"files names {path}, which does not exist") from None
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged or no Parquet file: {' '.join(str(error).split())}") from error


def stamp_of(path: Path) -> tuple[int, int]:
    """Size and time of the last change."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def digest_of(path: Path) -> str:
    """Hash of the footer's bytes, which hold columns, row groups and their statistics.

    pyarrow's ``RowGroupMetaData.column`` would end the process where the statistics are damaged.
    """
    with open(path, "rb") as file:
        file.seek(-8 - _footer_length(file), os.SEEK_END)
        return hashlib.sha256(file.read()[:-8]).hexdigest()[:16]


def _footer_length(file: IO[bytes]) -> int:
    """Bytes of the footer, as the file's last eight bytes say, at most those before them."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    return max(0, min(int.from_bytes(file.read(4), "little"), size - 8))
