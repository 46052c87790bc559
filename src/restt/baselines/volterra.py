"""The truncated Volterra series as a special case of ResTT (paper, Sec. III-B; Boyd and Chua, 1985).

A row is the lag window u(t), u(t-1), … of the series; the same window stands at every one of ``order`` sites. (The
paper writes one symbol x(n) per site; with one lag per site only the products of the last sites would exist.) The
outputs hold the kernels of order 0, the module's bias, to ``order``, those of order 2 and more with rank at most
``bond_dim``: for order 2 and bond_dim at least the window's length, every second-order system can be reached.

Windows of a series come from ``numpy.lib.stride_tricks.sliding_window_view(series, lags)``, the oldest lag first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from restt._common.errors import check_int
from restt.baselines.network import Network, NetworkClassifier, NetworkRegressor
from restt.baselines.shapes import with_runs
from restt.module import ResTT

TASKS = ("classification", "regression")

RATE = 1e-2
# A series of a few hundred windows then takes several steps an epoch.
BATCH = 128


class VolterraSeries(nn.Module):
    """h0 + Σ_i h1(i) x_i + Σ_ij h2(i,j) x_i x_j + … up to order N, for lag windows x of length W.

    >>> import torch
    >>> model = VolterraSeries(lags=5, order=3, bond_dim=4, outputs=1, runs=2)
    >>> model(torch.rand(7, 5)).shape, model.chain.topology.orders()
    (torch.Size([2, 7, 1]), (1, 2, 3))
    """

    def __init__(self, lags: int, order: int, bond_dim: int, outputs: int, runs: int = 1, seed: int = 0) -> None:
        super().__init__()
        self.lags, self.order = check_int("lags", lags, minimum=1), check_int("order", order, minimum=1)
        self.runs = check_int("runs", runs, minimum=1)
        # A standardised window has a squared length of about W.
        self.chain = ResTT(
            order, lags, bond_dim, outputs, "volterra", second_moment=float(lags), bias=True, runs=self.runs
        )
        self.chain.reset_parameters(seed=seed)

    def forward(
        self,
        x: Tensor,  # (B, W) or (S, B, W)
    ) -> Tensor:  # (S, B, O)
        windows = with_runs(x, self.runs, (self.lags,)).unsqueeze(2).expand(-1, -1, self.order, -1)
        output: Tensor = self.chain(windows if len(windows) == self.runs else windows[0])
        return output


@dataclass(kw_only=True, eq=False, repr=False)
class Volterra(Network):
    """Parameters beyond :class:`restt.baselines.network.Network`'s:

    order : int
        Highest order of the series, the number of sites.
    bond_dim : int
        Largest rank of the kernels of order 2 and more.
    """

    order: int = 2
    bond_dim: int = 10
    batch_size: int | None = BATCH
    lr: float = RATE
    schedule: str = "cosine"
    scaling: str = "standard"

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> VolterraSeries:
        return VolterraSeries(columns, self.order, self.bond_dim, outputs, runs, seed)


@dataclass(kw_only=True, eq=False, repr=False)
class VolterraClassifier(Volterra, NetworkClassifier):
    """The series as logits."""


@dataclass(kw_only=True, eq=False, repr=False)
class VolterraRegressor(Volterra, NetworkRegressor):
    """The series of standardised targets."""


def make(task: str, **params: Any) -> Volterra:
    """The estimator of the task.

    >>> import numpy as np
    >>> series = np.random.default_rng(0).normal(size=502)
    >>> windows = np.lib.stride_tricks.sliding_window_view(series, 3)
    >>> target = windows[:, 2] + 0.5 * windows[:, 0] * windows[:, 1]
    >>> make("regression", order=2, random_state=0).fit(windows, target).score(windows, target) > 0.99
    True
    """
    return VolterraClassifier(**params) if task == "classification" else VolterraRegressor(**params)
