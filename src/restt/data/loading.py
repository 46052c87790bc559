"""Data sets by name: their files read from a data folder or downloaded, checked by SHA-256, and parsed."""

from __future__ import annotations

import csv
import hashlib
import http.client
import inspect
import os
import sys
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from restt._common.errors import check_choice, shown
from restt._common.files import user_cache, write_bytes_atomic
from restt.data.catalog import CATALOG, Description, RemoteFile
from restt.data.dataset import Dataset
from restt.data.images import load_images
from restt.data.synthetic import load_synthetic

HOME_VARIABLE = "RESTT_DATA_HOME"
DIGITS_FULL_SCALE = 16
CHUNK = 1 << 18
TIMEOUT_SECONDS = 30.0
Progress = Callable[[str, int, int], None]


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
    about = CATALOG[check_choice("name", name, CATALOG)]
    parameters = inspect.signature(LOADERS[name]).parameters.values()
    allowed = [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise TypeError(f"load({name!r}) takes the options {allowed}, got {unknown}")
    files = read_files(about.remote_files, search_folders(data_home), may_download=download)
    fields = LOADERS[name](*([files] if files else []), **options)
    return Dataset(name, **fields, classes=about.classes, source=about.source, description=about.description)


def fetch(
    name: str, *, data_home: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> tuple[Path, ...]:
    """Make sure that the files of ``name`` are on this machine; their paths, empty for sets without files.

    ``progress(path, bytes so far, bytes in all)`` is called while a file arrives.

    >>> fetch("digits")
    ()
    """
    files = describe(name).remote_files
    return tuple(path for path, _ in read_files(files, search_folders(data_home), progress=progress))


def describe(name: str, *, data_home: str | os.PathLike[str] | None = None) -> Description:
    """Describe a data set and say whether its files are here (by size; hashes are checked on loading).

    >>> describe("diabetes").ready
    True
    """
    about = CATALOG[check_choice("name", name, CATALOG)]
    return replace(about, folder=locate(about.remote_files, search_folders(data_home)) if about.remote_files else None)


def system_folders() -> tuple[Path, ...]:
    """Folders an administrator or an environment may have filled."""
    shared = os.environ.get("XDG_DATA_DIRS") or os.pathsep.join(["/usr/local/share", "/usr/share"])
    bases = [Path(sys.prefix) / "share", *(Path(part) for part in shared.split(os.pathsep) if part)]
    return tuple(dict.fromkeys(base / "restt" for base in bases))


def search_folders(data_home: Any = None) -> tuple[Path, ...]:
    """All data homes in the order of the search; the first is where downloads go."""
    if data_home is not None and not isinstance(data_home, (str, os.PathLike)):
        raise TypeError(f"data_home must be a path, got {shown(data_home)} of type {type(data_home).__name__}")
    named = [Path(home).expanduser().absolute() for home in (data_home, os.environ.get(HOME_VARIABLE)) if home]
    return tuple(dict.fromkeys([*named, user_cache(), *system_folders()]))


def locate(files: Sequence[RemoteFile], folders: Sequence[Path]) -> Path | None:
    """Return the first folder that has all files in the right size; hashes are checked when they are read."""
    for folder in folders:
        paths = [(folder / file.path, file.size) for file in files]
        if all(path.is_file() and path.stat().st_size == size for path, size in paths):
            return folder
    return None


def read_files(
    files: Sequence[RemoteFile], folders: Sequence[Path], *, may_download: bool = True, progress: Progress | None = None
) -> list[tuple[Path, bytes]]:
    """Return path and verified content of each file; a download is written to the first folder.

    A file with the wrong hash is passed over. ``FileNotFoundError`` names every file that is missing, the place to
    put it and its hash. ``progress(path, bytes so far, bytes in all)`` is called while a file arrives.
    """
    contents, missing = [], []
    reasons: list[str] = []
    for file in files:
        here = [path for folder in folders if (path := folder / file.path).is_file()]
        sources: list[Path | str] = [*here, *(file.mirrors if may_download else ())]
        for source in sources:
            try:
                content = source.read_bytes() if isinstance(source, Path) else _download(source, file, progress)
                digest = hashlib.sha256(content).hexdigest()
                if digest != file.sha256:
                    raise ValueError(f"SHA-256 is {digest}, so it is not the expected file ({len(content)} bytes)")
                path = source if isinstance(source, Path) else write_bytes_atomic(folders[0] / file.path, content)
            except (OSError, ValueError, http.client.HTTPException) as error:
                reasons.append(f"{source}: {str(error) or type(error).__name__}")
                continue
            contents.append((path, content))
            break
        else:
            missing.append(file)
    if missing:
        raise FileNotFoundError(_how_to_get(missing, folders, reasons, may_download))
    return contents


def _download(url: str, file: RemoteFile, progress: Progress | None) -> bytes:
    """Read at most one byte more than the file has."""
    content = bytearray()
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
        while len(content) <= file.size and (chunk := response.read(min(CHUNK, file.size + 1 - len(content)))):
            content += chunk
            if progress is not None:
                progress(file.path, len(content), file.size)
    return bytes(content)


def _how_to_get(
    missing: Sequence[RemoteFile], folders: Sequence[Path], reasons: Sequence[str], tried_download: bool
) -> str:
    tried = "and could not be downloaded" if tried_download else "and downloading was not asked for"
    lines = [f"{len(missing)} data file(s) are not in any of the data folders {tried}. Put"]
    for file in missing:
        lines.append(f"  {folders[0] / file.path}")
        lines.append(f"    {file.size} bytes, SHA-256 {file.sha256}")
        lines += [f"    from {url}" for url in file.mirrors]
    lines.append(f"or set {HOME_VARIABLE} to a folder that has {', '.join(file.path for file in missing)}.")
    lines.append("Looked in: " + ", ".join(str(folder) for folder in folders))
    lines += [f"Tried {reason}" for reason in reasons]
    return "\n".join(lines)


def _load_boston(files: Sequence[tuple[Path, bytes]]) -> dict[str, Any]:
    """Read x (506, 13) and target MEDV; the line of sizes above the column names is skipped."""
    return _from_csv(files[0][1].decode().splitlines()[1:], target="MEDV")


def _load_ale(files: Sequence[tuple[Path, bytes]]) -> dict[str, Any]:
    """Read x (107, 4) and target ale; ``sd_ale`` is a by-product of measuring the target and would give it away."""
    return _from_csv(files[0][1].decode().splitlines(), target="ale", ignore=("sd_ale",))


def _load_digits() -> dict[str, Any]:
    """Load x (1797, 64) in [0, 1], float32."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    rows = torch.tensor(bunch.data / DIGITS_FULL_SCALE, dtype=torch.float32), torch.tensor(bunch.target).long()
    return {"rows": rows, "feature_names": tuple(bunch.feature_names), "target_name": "label"}


def _load_diabetes() -> dict[str, Any]:
    """Load x (442, 10) in scikit-learn's scaling, float64."""
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes()
    rows = torch.tensor(bunch.data), torch.tensor(bunch.target)
    return {"rows": rows, "feature_names": tuple(bunch.feature_names), "target_name": "progression"}


def _from_csv(lines: Sequence[str], target: str, ignore: Sequence[str] = ()) -> dict[str, Any]:
    """Read lines of numbers under a line of column names; the file's hash was checked, so its form is known."""
    names, *rows = csv.reader(lines)
    columns = torch.tensor([[float(field) for field in row] for row in rows], dtype=torch.float64).T
    values = dict(zip(names, columns, strict=True))
    kept = [name for name in names if name != target and name not in ignore]
    table = torch.stack([values[name] for name in kept], dim=1), values[target].contiguous()
    return {"rows": table, "feature_names": tuple(kept), "target_name": target}


# Functions that return fields of a Dataset; their keyword arguments are options of ``load``.
LOADERS: dict[str, Callable[..., dict[str, Any]]] = {
    "digits": _load_digits,
    "diabetes": _load_diabetes,
    "mnist": load_images,
    "fashion-mnist": load_images,
    "boston": _load_boston,
    "ale": _load_ale,
    "synthetic": load_synthetic,
}
