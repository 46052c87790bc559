"""The paper's tables and figures, one file each, and the store their results live in.

>>> import restt_paper as reproduce
>>> reproduce.run("table1", output=getfixture("tmp_path"))[0].name
[0/1, 0 s] table1/parameters: begun
[1/1, ... s] table1/parameters: finished in ... s
'parameters-...json'
>>> reproduce.tables_of("table1", output=getfixture("tmp_path"))[0].rows[0]
('TT', '10', '38840', '38840', '39020', '39020')
"""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from restt._common.errors import check_choice, check_folder

if TYPE_CHECKING:
    from restt_paper.store import Store
    from restt_paper.tables import Table

# Name -> its file in restt_paper. Each has a TITLE, cells(profile), compute(cell, store) and
# tables(store, profile), and may have pictures(store, profile, folder), TARGETS, and the one DEVICE it runs on.
EXPERIMENTS = {
    "table1": "table1",
    "table2": "table2",
    "table3": "table3",
    "table4": "table4",
    "table5": "table5",
    "table6": "table6",
    "fig-synthetic": "fig_synthetic",
    "fig-training": "fig_training",
    "fig-meanfield": "fig_meanfield",
    "claims-stability": "claims_stability",
    "improved": "improved",
}
PROFILES = ("quick", "paper")
RESULTS = Path("results")
PICTURES = "pictures"
QUICK_MARK = " (quick profile)"
QUICK_MEANS = "The quick profile has smaller sets and fewer epochs than the paper: it shows that all works, no more."


def experiment(name: str) -> ModuleType:
    """The module of the experiment ``name``."""
    return importlib.import_module(f"restt_paper.{EXPERIMENTS[check_choice('name', name, EXPERIMENTS)]}")


def run(
    name: str, profile: str = "quick", output: str | PathLike[str] | None = None, device: str = "auto"
) -> list[Path]:
    """Compute what is missing of an experiment, telling of each cell; returns the files that hold its results.

    Parameters
    ----------
    name : str
        One of ``EXPERIMENTS``.
    profile : {"quick", "paper"}
        Smaller sizes, or the paper's.
    output : path, optional
        The folder of results, ``results/<profile>``.
    device : str
        A torch device; ``"auto"`` takes a GPU where there is one.
    """
    module = experiment(name)
    store = open_store(name, profile, output, getattr(module, "DEVICE", device))
    cells = module.cells(profile)
    store.compute_all(cells, lambda cell: module.compute(cell, store))
    return [store.path(cell) for cell in cells]


def tables_of(name: str, profile: str = "quick", output: str | PathLike[str] | None = None) -> list[Table]:
    """The experiment's tables from its results; what is not there is "not yet". Those of ``quick`` say so."""
    tables = experiment(name).tables(open_store(name, profile, output), profile)
    return [replace(table, title=table.title + QUICK_MARK) if profile == "quick" else table for table in tables]


def pictures_of(name: str, profile: str = "quick", output: str | PathLike[str] | None = None) -> list[Path]:
    """Draw the experiment's pictures, if it has any, into ``pictures`` inside its folder of results."""
    module, store = experiment(name), open_store(name, profile, output)
    if not hasattr(module, "pictures"):
        return []
    drawn: list[Path] = module.pictures(store, profile, store.folder / PICTURES)
    return drawn


def results_of(
    name: str, profile: str = "quick", output: str | PathLike[str] | None = None
) -> list[dict[str, Any] | None]:
    """The files behind an experiment's tables, None for each that is missing."""
    module, store = experiment(name), open_store(name, profile, output)
    return [store.load(cell) for cell in module.cells(profile)]


def open_store(name: str, profile: str, output: str | PathLike[str] | None = None, device: str = "cpu") -> Store:
    """The store that holds an experiment's results."""
    from restt_paper.store import Store

    check_choice("profile", profile, PROFILES)
    folder = check_folder("output", results_folder(profile) if output is None else output)
    return Store(folder, read_device(device), f"restt reproduce {name} --profile {profile}")


def results_folder(profile: str) -> Path:
    """Where results of ``profile`` are kept unless told otherwise.

    >>> results_folder("paper").as_posix()
    'results/paper'
    """
    return RESULTS / check_choice("profile", profile, PROFILES)


def read_device(device: str) -> str:
    """A device torch can use here; ``"auto"`` is the GPU where there is one.

    >>> read_device("gpu")
    Traceback (most recent call last):
    ValueError: device must be "auto", "cpu", "cuda", "cuda:N" or "mps", got 'gpu'
    """
    from restt._common.devices import read_device as read_torch_device

    return str(read_torch_device(device, math.inf))
