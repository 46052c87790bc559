"""The baselines by name. Adding one is one file in this folder and one line here."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from restt._common.errors import check_choice

TASKS = ("classification", "regression")

# Name -> its file under restt_baselines, and behind a colon which of the baselines in that file.
BASELINES: dict[str, str] = {
    "lr": "linear:LR",
    "pr": "linear:PR",
    "rr": "linear:RR",
    "prr": "linear:PRR",
    "lar": "linear:LAR",
    "plar": "linear:PLAR",
    "svr": "kernel:SVR",
    "mlp": "networks.mlp",
    "lenet5": "networks.lenet5",
    "resnet18": "networks.resnet18",
    "tt": "tensor.plain:TENSOR_TRAIN",
    "meantt": "tensor.plain:MEANTT",
    "tt-bn": "tensor.tt_bn",
    "tt-bn-paper": "tensor.tt_bn:PAPER",
    "mps-dmrg": "tensor.mps_dmrg",
    "mps-adam": "tensor.mps_adam",
    "ttn": "tensor.ttn",
    "ttn-crossentropy": "tensor.ttn_crossentropy",
    "eps-sbs": "tensor.eps_sbs",
    "snake-sbs": "tensor.snake_sbs",
    "dmtrl-tt": "networks.dmtrl:TT",
    "dmtrl-tucker": "networks.dmtrl:TUCKER",
    "dmtrl-laf": "networks.dmtrl:LAF",
    "fully-connected": "tensor.special_cases:FULLY_CONNECTED",
    "volterra": "tensor.special_cases:VOLTERRA",
    "full-tensor": "tensor.full_tensor",
    "fm": "tensor.fm",
    "gp": "kernel:GP",
    "hgb": "boosting:HGB",
    "ebm": "boosting:EBM",
}


class Described(Protocol):
    """What a baseline says of itself: a file at its top, or a :class:`Baseline` where a file holds several.

    ``REQUIRES``, the package it needs beyond restt's own, is left out where there is none.
    """

    TASKS: tuple[str, ...]

    @property
    def make(self) -> Callable[..., Any]:
        """``make(task, **params)``: an unfitted scikit-learn estimator; unknown params are a TypeError."""


@dataclass(frozen=True)
class Baseline:
    """One of several baselines in a file."""

    TASKS: tuple[str, ...]
    make: Callable[..., Any]
    REQUIRES: str | None = None

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
        if (task is None or task in baseline.TASKS) and not _missing(baseline):
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
    if task not in baseline.TASKS:
        raise ValueError(f"{name} does {' and '.join(baseline.TASKS)}, got task={task!r}")
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


def described(name: str) -> Described:
    """What the baseline ``name`` says of itself; loads its file."""
    file, _, which = BASELINES[name].partition(":")
    module = importlib.import_module(f"restt_baselines.{file}")
    return cast(Described, getattr(module, which) if which else module)


def _missing(baseline: Described) -> str | None:
    """The optional package the baseline needs and this machine lacks."""
    needed: str | None = getattr(baseline, "REQUIRES", None)
    return needed if needed is not None and importlib.util.find_spec(needed) is None else None
