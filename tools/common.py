"""Parts that tools share: arguments, worker processes, tables in CSV files, results files."""

from __future__ import annotations

import argparse
import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from restt._common.files import write_json_atomic
from restt._common.provenance import provenance

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
LEAST_VALUES = 10  # different numbers of a target above which it is a regression
# CSV tables whose columns are all categories.
CATEGORIES = ("car", "gametes", "gametes-continuous", "monks-1", "monks-2", "monks-3", "nursery", "tic-tac-toe")


def parser(description: str | None, *paths: str, workers: int | None = None) -> argparse.ArgumentParser:
    """A parser with a tool's docstring as its help, and the arguments that many tools have."""
    reader = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in paths:
        reader.add_argument(name, type=Path)
    if workers is not None:
        reader.add_argument("--workers", type=int, default=workers, help="processes side by side")
    return reader


def write_results(name: str, content: dict[str, Any], command: str, seed: Any = 0) -> None:
    """Write results/NAME with the provenance of this run."""
    origin = provenance(seed=seed, command=f"python tools/{command}")
    write_json_atomic(RESULTS / name, {**content, "provenance": origin})


def spread(function: Callable[[Any], Any], tasks: Iterable[Any], workers: int) -> Iterator[Any]:
    """Results of a function of one argument in the order of the tasks, in quiet processes of one thread each."""
    with multiprocessing.get_context("spawn").Pool(workers, be_quiet, maxtasksperchild=20) as pool:
        yield from pool.imap(function, tasks)


def be_quiet() -> None:
    """Use one thread and ignore warnings."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def name_of(path: Path) -> str:
    """Name of a table: its file name up to the first point."""
    return path.name.split(".")[0]


def read_table(path: Path) -> tuple[pd.DataFrame, pd.Series]:
    """Columns of a CSV table, categories as text, and its column ``target``."""
    frame = pd.read_csv(path)
    if name_of(path) in CATEGORIES:
        frame = frame.astype({column: str for column in frame.columns if column != "target"})
    return frame.drop(columns="target"), frame["target"]


def is_regression(target: pd.Series) -> bool:
    """Whether a target is numbers, rather than classes."""
    return bool(pd.api.types.is_numeric_dtype(target) and target.nunique() > LEAST_VALUES)


def table_paths(folder: Path, *, regressions: bool = True, only: str = "") -> list[Path]:
    """CSV tables of a folder (``*.csv.gz``) that are regressions, or classes; all of those named in ``only``."""
    chosen = set(filter(None, only.split(",")))
    paths = [path for path in sorted(folder.glob("*.csv.gz")) if not chosen or name_of(path) in chosen]
    # A regression that is named can be scored as classes: above or below its median.
    return [path for path in paths if (chosen and not regressions) or is_regression(read_table(path)[1]) == regressions]


def coded(frame: pd.DataFrame) -> tuple[np.ndarray, list[int | None]]:
    """Columns as numbers, NaN where missing, and the levels of each category; constant columns are dropped."""
    columns, levels = [], []
    for _, column in frame.items():
        if column.nunique() < 2:
            continue
        if pd.api.types.is_numeric_dtype(column) and column.dtype != bool:
            columns.append(column.to_numpy(float))
            levels.append(None)
        else:
            codes, values = pd.factorize(column.astype(str).where(column.notna()), sort=True)
            columns.append(np.where(codes < 0, np.nan, codes))
            levels.append(len(values))
    return np.column_stack(columns), levels
