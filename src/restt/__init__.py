"""Residual tensor trains: one model that holds every multilinear feature interaction, from order 1 to N."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from restt._common.version import __version__

# Public name -> the module that defines it. Loaded on first use, so that `import restt` stays light.
_LAZY = {
    "Topology": "restt.topology",
    "ResTT": "restt.module",
    "DiagonalTT": "restt.diagonal",
    "ResTTClassifier": "restt.estimators",
    "ResTTNetClassifier": "restt.estimators",
    "ResTTNetRegressor": "restt.estimators",
    "ResTTRegressor": "restt.estimators",
    "ResTTSearchCV": "restt.estimators",
    "ResTTForecaster": "restt.sequences",
    "ResTTSequence": "restt.sequences",
    "ResTTSequenceClassifier": "restt.sequences",
    "VolterraRegressor": "restt.sequences",
    "load": "restt.estimators",
    "warm_up": "restt.first_use",
}

__all__ = [
    "DiagonalTT",
    "ResTT",
    "ResTTClassifier",
    "ResTTForecaster",
    "ResTTNetClassifier",
    "ResTTNetRegressor",
    "ResTTRegressor",
    "ResTTSearchCV",
    "ResTTSequence",
    "ResTTSequenceClassifier",
    "Topology",
    "VolterraRegressor",
    "__version__",
    "baselines",
    "chain",
    "data",
    "design",
    "explain",
    "features",
    "interop",
    "load",
    "meanfield",
    "prior",
    "sequences",
    "tasks",
    "testing",
    "train",
    "warm_up",
    "workflow",
]

if TYPE_CHECKING:
    from restt import (
        baselines,
        chain,
        data,
        design,
        explain,
        features,
        interop,
        meanfield,
        prior,
        sequences,
        tasks,
        testing,
        train,
        workflow,
    )
    from restt.diagonal import DiagonalTT
    from restt.estimators import (
        ResTTClassifier,
        ResTTNetClassifier,
        ResTTNetRegressor,
        ResTTRegressor,
        ResTTSearchCV,
        load,
    )
    from restt.first_use import warm_up
    from restt.module import ResTT
    from restt.sequences import ResTTForecaster, ResTTSequence, ResTTSequenceClassifier, VolterraRegressor
    from restt.topology import Topology


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    elif name in __all__:
        value = importlib.import_module(f"restt.{name}")
    else:
        raise AttributeError(f"module 'restt' has no attribute {name!r}; it has {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
