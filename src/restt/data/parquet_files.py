"""Parquet files before their rows are read: which they are, their footers, and how one is told from another."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from restt.data.parquet_pages import footer_bytes, open_parquet


def parquet_paths(files: Any) -> list[Path]:
    """One path or several, and for a folder its Parquet files in the order of their names."""
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
    """pyarrow's metadata of a file; an error that names it where there is none or it is damaged."""
    import pyarrow as pa

    try:
        with open(path, "rb") as file:
            return open_parquet(file).metadata
    except FileNotFoundError:
        raise FileNotFoundError(f"files names {path}, which does not exist") from None
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged or no Parquet file: {' '.join(str(error).split())}") from error


def stamp_of(path: Path) -> tuple[int, int]:
    """Changes whenever the file does."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def digest_of(path: Path) -> str:
    """Of the footer: its columns and, for each row group, sizes and the statistics where they were written."""
    with open(path, "rb") as file:
        return hashlib.sha256(footer_bytes(file)).hexdigest()[:16]
