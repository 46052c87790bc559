"""Data sets by name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restt.data import catalog, images, synthetic, tables
from restt.data.dataset import Dataset
from restt.data.files import Progress, locate, read_files, search_folders

LOADERS: dict[str, Callable[..., Dataset]] = {
    "digits": tables.load_digits,
    "diabetes": tables.load_diabetes,
    "mnist": images.load_images,
    "fashion-mnist": images.load_images,
    "boston": tables.load_boston,
    "ale": tables.load_ale,
    "synthetic": synthetic.load_synthetic,
}


@dataclass(frozen=True)
class Description:
    """Properties of a data set that are known before loading it."""

    name: str
    task: str
    shape: str
    source: str
    licence: str
    description: str
    size: int  # bytes of its files, 0 where there are none
    files: tuple[str, ...]  # paths inside a data home
    folder: Path | None  # the data home that has them
    ready: bool  # whether ``load`` needs no download
    options: tuple[str, ...]  # keyword arguments of ``load`` for this set


def load(
    name: str, *, data_home: str | os.PathLike[str] | None = None, download: bool = True, **options: Any
) -> Dataset:
    """Load the data set ``name``, one of ``available()``.

    Files are looked for in ``data_home``, ``$RESTT_DATA_HOME``, the user's cache and system folders, and downloaded
    into the first of these if they are in none; their SHA-256 is checked either way. ``download=False`` stays
    offline. ``FileNotFoundError`` says which file to put where.

    Options of ``mnist`` and ``fashion-mnist``: ``preprocess`` ("paper", "authors", "patches", "full", "raw"),
    ``fraction`` of the training part, ``subset`` ("random", "first") and ``seed``. Options of ``synthetic``: ``d``,
    ``n_train``, ``n_test``, ``spread`` ("std", "variance") and ``seed``.

    Images and synthetic data are float32, tables float64, labels int64.

    >>> from restt import data
    >>> data.load("synthetic", d=4, n_train=100, n_test=10)
    Dataset('synthetic', regression, x_train (100, 3, 4), x_test (10, 3, 4))
    """
    entry = catalog.entry(name)
    allowed = _options(name)
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise TypeError(f"load({name!r}) takes the options {list(allowed)}, got {unknown}")
    if not entry.files:
        return LOADERS[name](entry, **options)
    files = read_files(entry.files, search_folders(data_home), may_download=download)
    return LOADERS[name](entry, files, **options)


def fetch(
    name: str, *, data_home: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> tuple[Path, ...]:
    """Make sure that the files of ``name`` are on this machine; their paths, empty for sets without files.

    ``progress(path, bytes so far, bytes in all)`` is called while a file arrives.

    >>> fetch("digits")
    ()
    """
    entry = catalog.entry(name)
    files = read_files(entry.files, search_folders(data_home), progress=progress)
    return tuple(path for path, _ in files)


def describe(name: str, *, data_home: str | os.PathLike[str] | None = None) -> Description:
    """Describe a data set and say whether its files are here (by size; hashes are checked on loading).

    >>> describe("diabetes").ready
    True
    """
    entry = catalog.entry(name)
    folder = locate(entry.files, search_folders(data_home)) if entry.files else None
    texts = {name: value for name, value in vars(entry).items() if name != "files"}
    return Description(
        **texts,
        size=sum(file.size for file in entry.files),
        files=tuple(file.path for file in entry.files),
        folder=folder,
        ready=folder is not None or not entry.files,
        options=_options(name),
    )


def _options(name: str) -> tuple[str, ...]:
    parameters = inspect.signature(LOADERS[name]).parameters.values()
    return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)
