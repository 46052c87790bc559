"""The rivals by name. Adding one is one file in this folder and one line here."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Any

from restt._errors import check_choice

TASKS = ("classification", "regression")

# Name -> its file in restt.baselines. Each file says its TASKS, the package it REQUIRES beyond restt's own where there
# is one, and make(task, **params).
RIVALS: dict[str, str] = {
    "lr": "lr",
    "pr": "pr",
    "rr": "rr",
    "prr": "prr",
    "lar": "lar",
    "plar": "plar",
    "svr": "svr",
    "mlp": "mlp",
    "lenet5": "lenet5",
    "resnet18": "resnet18",
    "tt": "tt",
    "meantt": "meantt",
    "tt-bn": "tt_bn",
    "mps-dmrg": "mps_dmrg",
    "mps-adam": "mps_adam",
    "snake-sbs": "snake_sbs",
    "eps-sbs": "eps_sbs",
    "ttn": "ttn",
    "dmtrl-tt": "dmtrl_tt",
    "dmtrl-tucker": "dmtrl_tucker",
    "dmtrl-laf": "dmtrl_laf",
    "fully-connected": "fully_connected",
    "volterra": "volterra",
    "full-tensor": "full_tensor",
    "fm": "fm",
    "gp": "gp",
    "hgb": "hgb",
    "ebm": "ebm",
}


def available(task: str | None = None) -> tuple[str, ...]:
    """Names of the rivals that :func:`make` can build here; with ``task``, of those that can do it.

    A rival whose optional package is not installed is left out.

    >>> from restt import baselines
    >>> {"lr", "tt", "meantt"} <= set(baselines.available())
    True
    """
    if task is not None:
        check_choice("task", task, TASKS)
    found = []
    for name in RIVALS:
        rival = _file(name)
        if (task is None or task in rival.TASKS) and not _missing(rival):
            found.append(name)
    return tuple(found)


def make(name: str, task: str = "classification", **params: Any) -> Any:
    """An unfitted estimator of the rival ``name`` with ``fit``, ``predict`` and ``score``.

    Parameters
    ----------
    name : str
        One of :func:`available`.
    task : {"classification", "regression"}
    **params
        Settings of the estimator, as its ``get_params`` lists them.

    Examples
    --------
    >>> from restt import baselines
    >>> baselines.make("tt", task="regression", bond_dim=4).get_params()["bond_dim"]
    4
    """
    check_choice("name", name, RIVALS)
    check_choice("task", task, TASKS)
    rival = _file(name)
    if task not in rival.TASKS:
        raise ValueError(f"{name} does {' and '.join(rival.TASKS)}, got task={task!r}")
    if missing := _missing(rival):
        raise ImportError(f"{name} needs the package {missing}: pip install restt[rivals]")
    try:
        return rival.make(task, **params)
    except TypeError as error:
        known = sorted(rival.make(task).get_params(deep=False))
        wrong = sorted(set(params) - set(known))
        if not wrong:
            raise
        raise TypeError(f"{name} has no parameter {', '.join(wrong)}; it has {', '.join(known)}") from error


def _file(name: str) -> ModuleType:
    return importlib.import_module(f"restt.baselines.{RIVALS[name]}")


def _missing(rival: ModuleType) -> str | None:
    """The optional package the rival needs and this machine lacks."""
    needed: str | None = getattr(rival, "REQUIRES", None)
    return needed if needed is not None and importlib.util.find_spec(needed) is None else None
