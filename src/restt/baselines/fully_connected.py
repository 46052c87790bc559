"""The fully-connected layer as a special case of ResTT (paper, Sec. III-B): only linear entries and skips are kept.

Each column is one site of width 1, as it is after scaling; the constant is the module's bias (the paper has none).
With bond_dim ≥ outputs every affine map of the columns can be reached, so the minimum is that of linear regression
or, with cross-entropy, of logistic regression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from restt._common.errors import check_int
from restt.baselines.network import Network, NetworkClassifier, NetworkRegressor
from restt.module import ResTT
from restt.train.data import FeatureMap

TASKS = ("classification", "regression")

RATE = 3e-2
# A table of a few hundred rows then takes several steps an epoch.
BATCH = 128


@dataclass(kw_only=True, eq=False, repr=False)
class FullyConnected(Network):
    """Parameters beyond :class:`restt.baselines.network.Network`'s:

    bond_dim : int or None
        Width r of the state, at least the number of outputs; None takes just that.
    """

    bond_dim: int | None = None
    batch_size: int | None = BATCH
    lr: float = RATE
    schedule: str = "cosine"
    scaling: str = "standard"

    images = True

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> ResTT:
        bond = outputs if self.bond_dim is None else check_int("bond_dim", self.bond_dim, minimum=1)
        if bond < outputs:
            raise ValueError(f"bond_dim must be at least the number of outputs, {outputs}, got {bond}")
        module = ResTT(columns, 1, bond, outputs, "linear", bias=True, runs=runs)
        module.reset_parameters(seed=seed)
        return module

    def feature_map(self) -> FeatureMap:
        return _sites_of_width_one


@dataclass(kw_only=True, eq=False, repr=False)
class FullyConnectedClassifier(FullyConnected, NetworkClassifier):
    """Logistic regression by gradient descent."""


@dataclass(kw_only=True, eq=False, repr=False)
class FullyConnectedRegressor(FullyConnected, NetworkRegressor):
    """Linear regression by gradient descent."""


def make(task: str, **params: Any) -> FullyConnected:
    """The estimator of the task.

    >>> import numpy as np
    >>> X = np.arange(20.0).reshape(10, 2)
    >>> round(make("regression", epochs=300, random_state=0).fit(X, X[:, 0]).score(X, X[:, 0]), 2)
    1.0
    """
    return FullyConnectedClassifier(**params) if task == "classification" else FullyConnectedRegressor(**params)


def _sites_of_width_one(values: Tensor) -> Tensor:  # (…, N) -> (…, N, 1)
    return values.unsqueeze(-1)
