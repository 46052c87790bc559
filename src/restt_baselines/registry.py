"""The baselines by name. Adding one takes an estimator class in this folder and one line here."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any

from restt._common.errors import check_choice

TASKS = ("classification", "regression")


@dataclass(frozen=True)
class Baseline:
    """Estimator of each task as ``module:name``, and the optional package it needs.

    Modules without a dot are files of this package.
    """

    classification: str | None = None
    regression: str | None = None
    requires: str | None = None

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks that have an estimator."""
        return tuple(task for task in TASKS if getattr(self, task) is not None)

    @property
    def missing(self) -> str | None:
        """The required package, where it is not installed."""
        needed = self.requires
        return needed if needed is not None and importlib.util.find_spec(needed) is None else None

    def make(self, task: str, **params: Any) -> Any:
        """An unfitted estimator; loads its file."""
        module, _, name = getattr(self, task).partition(":")
        path = module if "." in module else f"restt_baselines.{module}"
        return getattr(importlib.import_module(path), name)(**params)


BASELINES: dict[str, Baseline] = {
    "lr": Baseline("dense:SoftmaxClassifier", "tabular:LeastSquares"),
    "pr": Baseline(regression="tabular:PolynomialLeastSquares"),
    "rr": Baseline(regression="tabular:RidgeRegression"),
    "prr": Baseline(regression="tabular:PolynomialRidge"),
    "lar": Baseline(regression="tabular:LassoRegression"),
    "plar": Baseline(regression="tabular:PolynomialLasso"),
    "svr": Baseline(regression="tabular:SupportVectorRegression"),
    "mlp": Baseline("dense:MLPClassifier", "dense:MLPRegressor"),
    "lenet5": Baseline("convolutional:LeNet5Classifier"),
    "resnet18": Baseline("convolutional:ResNet18Classifier"),
    "tt": Baseline("plain:TTClassifier", "plain:TTRegressor"),
    "meantt": Baseline("plain:MeanTTClassifier", "plain:MeanTTRegressor"),
    "tt-bn": Baseline("tt_bn:TTBNClassifier", "tt_bn:TTBNRegressor"),
    "tt-bn-paper": Baseline("tt_bn:PaperTTBNClassifier"),
    "mps-dmrg": Baseline("mps_dmrg:MPSClassifier"),
    "mps-adam": Baseline("string_bond:MPSAdamClassifier"),
    "ttn": Baseline("ttn:TTNClassifier"),
    "eps-sbs": Baseline("string_bond:EPSSBSClassifier"),
    "snake-sbs": Baseline("string_bond:SnakeSBSClassifier"),
    "dmtrl-tt": Baseline("dmtrl:DMTRLTTClassifier"),
    "dmtrl-tucker": Baseline("dmtrl:DMTRLTuckerClassifier"),
    "dmtrl-laf": Baseline("dmtrl:DMTRLLAFClassifier"),
    "fully-connected": Baseline("plain:FullyConnectedClassifier", "plain:FullyConnectedRegressor"),
    "volterra": Baseline("plain:VolterraClassifier", "plain:VolterraRegressor"),
    "full-tensor": Baseline("products:FullTensorClassifier", "products:FullTensorRegressor"),
    "fm": Baseline("products:FMClassifier", "products:FMRegressor"),
    "gp": Baseline("tabular:GaussianProcessClassification", "tabular:GaussianProcessRegression"),
    "hgb": Baseline("sklearn.ensemble:HistGradientBoostingClassifier", "tabular:boosted_trees"),
    "ebm": Baseline(
        "interpret.glassbox:ExplainableBoostingClassifier",
        "interpret.glassbox:ExplainableBoostingRegressor",
        requires="interpret",
    ),
}


def available(task: str | None = None) -> tuple[str, ...]:
    """Names of the baselines that :func:`make` can build here; with ``task``, of those that can do it.

    A baseline whose optional package is not installed is left out.

    >>> from restt import baselines
    >>> {"lr", "tt", "meantt"} <= set(baselines.available())
    True
    """
    if task is not None:
        check_choice("task", task, TASKS)
    return tuple(
        name
        for name, baseline in BASELINES.items()
        if (task is None or task in baseline.tasks) and not baseline.missing
    )


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
    baseline = BASELINES[check_choice("name", name, BASELINES)]
    check_choice("task", task, TASKS)
    if task not in baseline.tasks:
        raise ValueError(f"{name} does {' and '.join(baseline.tasks)}, got task={task!r}")
    if baseline.missing:
        raise ImportError(f"{name} needs the package {baseline.missing}: pip install 'restt[baselines]'")
    try:
        return baseline.make(task, **params)
    except TypeError as error:
        known = sorted(baseline.make(task).get_params(deep=False))
        wrong = sorted(set(params) - set(known))
        if not wrong:
            raise
        raise TypeError(f"{name} has no parameter {', '.join(wrong)}; it has {', '.join(known)}") from error
