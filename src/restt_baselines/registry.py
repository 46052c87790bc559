"""The baselines by name. Adding one is one file in this folder and one line here."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from restt._common.errors import check_choice

TASKS = ("classification", "regression")

# Name -> file under restt_baselines and, behind the colon, its Baseline there.
BASELINES: dict[str, str] = {
    "lr": "linear:LR",
    "pr": "linear:PR",
    "rr": "linear:RR",
    "prr": "linear:PRR",
    "lar": "linear:LAR",
    "plar": "linear:PLAR",
    "svr": "kernel:SVR",
    "mlp": "networks.dense:PERCEPTRON",
    "lenet5": "networks.convolutional:LENET5",
    "resnet18": "networks.convolutional:RESNET18",
    "tt": "tensor.plain:TENSOR_TRAIN",
    "meantt": "tensor.plain:MEANTT",
    "tt-bn": "tensor.tt_bn:TT_BN",
    "tt-bn-paper": "tensor.tt_bn:PAPER",
    "mps-dmrg": "tensor.mps_dmrg:MPS_DMRG",
    "mps-adam": "tensor.mps_adam:MPS_ADAM",
    "ttn": "tensor.ttn:TTN",
    "eps-sbs": "tensor.string_bond:EPS_SBS",
    "snake-sbs": "tensor.string_bond:SNAKE_SBS",
    "dmtrl-tt": "networks.dmtrl:TT",
    "dmtrl-tucker": "networks.dmtrl:TUCKER",
    "dmtrl-laf": "networks.dmtrl:LAF",
    "fully-connected": "tensor.plain:FULLY_CONNECTED",
    "volterra": "tensor.plain:VOLTERRA",
    "full-tensor": "tensor.products:FULL_TENSOR",
    "fm": "tensor.products:FACTORIZATION_MACHINE",
    "gp": "kernel:GP",
    "hgb": "boosting:HGB",
    "ebm": "boosting:EBM",
}


@dataclass(frozen=True)
class Baseline:
    """A baseline: its tasks, ``make(task, **params)`` for an unfitted estimator, and the optional package it needs."""

    tasks: tuple[str, ...]
    make: Callable[..., Any]
    requires: str | None = None

    @classmethod
    def of(cls, **estimators: type) -> Baseline:
        """From one estimator class for each task.

        >>> from sklearn.dummy import DummyRegressor
        >>> Baseline.of(regression=DummyRegressor).make("regression", strategy="median")
        DummyRegressor(strategy='median')
        """
        return cls(tuple(estimators), lambda task, **params: estimators[task](**params))


def available(task: str | None = None) -> tuple[str, ...]:
    """Names of the baselines that :func:`make` can build here; with ``task``, of those that can do it.

    A baseline whose optional package is not installed is left out.

    >>> from restt import baselines
    >>> {"lr", "tt", "meantt"} <= set(baselines.available())
    True
    """
    if task is not None:
        check_choice("task", task, TASKS)
    found = []
    for name in BASELINES:
        baseline = described(name)
        if (task is None or task in baseline.tasks) and not _missing(baseline):
            found.append(name)
    return tuple(found)


def make(name: str, task: str = "classification", **params: Any) -> Any:
    """An unfitted estimator of the baseline ``name`` with ``fit``, ``predict`` and ``score``.

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
    check_choice("name", name, BASELINES)
    check_choice("task", task, TASKS)
    baseline = described(name)
    if task not in baseline.tasks:
        raise ValueError(f"{name} does {' and '.join(baseline.tasks)}, got task={task!r}")
    if missing := _missing(baseline):
        raise ImportError(f"{name} needs the package {missing}: pip install 'restt[baselines]'")
    try:
        return baseline.make(task, **params)
    except TypeError as error:
        known = sorted(baseline.make(task).get_params(deep=False))
        wrong = sorted(set(params) - set(known))
        if not wrong:
            raise
        raise TypeError(f"{name} has no parameter {', '.join(wrong)}; it has {', '.join(known)}") from error


def described(name: str) -> Baseline:
    """The baseline ``name``; loads its file."""
    file, _, which = BASELINES[name].partition(":")
    baseline: Baseline = getattr(importlib.import_module(f"restt_baselines.{file}"), which)
    return baseline


def _missing(baseline: Baseline) -> str | None:
    """The optional package the baseline needs and this machine lacks."""
    needed = baseline.requires
    return needed if needed is not None and importlib.util.find_spec(needed) is None else None
