"""The paper's tables and figures by command, and the store of their results.

>>> import restt_paper
>>> restt_paper.reproduce("table1", output=getfixture("tmp_path"))[0].name
[0/1, 0 s] table1/parameters: begun
[1/1, ... s] table1/parameters: finished in ... s
'parameters-...json'
>>> restt_paper.tables_of("table1", output=getfixture("tmp_path"))[0].rows[0]
('10', '38840', '38840', '39020', '39020', '42740', '42740', '43020', '43020')
"""

from __future__ import annotations

import importlib
import math
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from restt._common.errors import check_choice, check_folder

if TYPE_CHECKING:
    from restt_paper.experiments import Experiment, Store
    from restt_paper.table import Table

# Name -> the module that has it as EXPERIMENT.
EXPERIMENTS = {
    "table1": "table1",
    "table2": "images.table2",
    "table3": "images.table3",
    "table4": "images.table4",
    "table5": "images.table5",
    "table6": "table6",
    "fig-synthetic": "synthetic",
    "fig-training": "images.training_curves",
    "fig-meanfield": "meanfield.study",
    "improved": "images.improved",
}
PROFILES = ("quick", "paper")
RESULTS = Path("results")


def experiment(name: str) -> Experiment:
    """The experiment ``name``."""
    module = importlib.import_module(f"restt_paper.{EXPERIMENTS[check_choice('name', name, EXPERIMENTS)]}")
    result: Experiment = module.EXPERIMENT
    return result


def reproduce(
    name: str, profile: str = "quick", output: str | PathLike[str] | None = None, device: str = "auto"
) -> list[Path]:
    """Compute the missing cells of an experiment, with a line each; returns the files that hold its results.

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
    wanted = experiment(name)
    store = open_store(name, profile, output, wanted.device or device)
    wanted.run(store, profile)
    return [store.path(cell) for cell in wanted.cells(profile)]


def reproduce_and_show(what: str, profile: str, output: str | PathLike[str] | None, device: str) -> None:
    """Run one experiment or ``"all"``: compute, show the tables, draw the pictures."""
    from restt_paper.experiments import QUICK_MEANS

    names = list(EXPERIMENTS)
    check_choice("name", what, [*names, "all"])
    device = read_device(device)
    left_out = []
    for name in names if what == "all" else [what]:
        try:
            reproduce(name, profile, output, device)
        except ImportError as error:  # of an optional package: the others can do without
            left_out.append(f"{name} was left out: {error}")
            continue
        for table in tables_of(name, profile, output):
            table.print()
        try:
            for picture in pictures_of(name, profile, output):
                print(picture)
        except ImportError as error:  # of matplotlib: there are still results and tables
            print(f"no pictures: {error}")
        print(f"{name}: results in {open_store(name, profile, output).folder}", flush=True)
    if profile == "quick":
        print(QUICK_MEANS)
    if left_out:
        raise ImportError("; ".join(left_out))


def tables_of(name: str, profile: str = "quick", output: str | PathLike[str] | None = None) -> list[Table]:
    """The experiment's tables from its results; missing ones are "not yet". Those of ``quick`` say so."""
    return experiment(name).show(open_store(name, profile, output), profile)


def pictures_of(name: str, profile: str = "quick", output: str | PathLike[str] | None = None) -> list[Path]:
    """Draw the experiment's pictures, if it has any, into ``pictures`` inside its folder of results."""
    return experiment(name).draw(open_store(name, profile, output), profile)


def open_store(name: str, profile: str, output: str | PathLike[str] | None = None, device: str = "cpu") -> Store:
    """The store of an experiment's results, ``results/<profile>`` in the working directory unless given."""
    from restt_paper.experiments import Store

    check_choice("profile", profile, PROFILES)
    folder = check_folder("output", RESULTS / profile if output is None else output)
    return Store(folder, read_device(device), f"restt reproduce {name} --profile {profile}")


def read_device(device: str) -> str:
    """A device torch can use here; ``"auto"`` is the GPU where there is one.

    >>> read_device("gpu")
    Traceback (most recent call last):
    ValueError: device must be "auto", "cpu", "cuda", "cuda:N" or "mps", got 'gpu'
    """
    from restt._common.devices import read_device as read_torch_device

    return str(read_torch_device(device, math.inf))
