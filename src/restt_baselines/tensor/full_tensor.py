"""The general tensorised model (paper, Eq. 4): one weight for every product of the columns, none shared.

    Y = C[W, X(1), …, X(N)],    X(n) = [1, x_n],    W of 2^N entries for each output

It holds every multilinear interaction of every order, as ResTT does, but without the low rank that makes ResTT's
number of weights grow linearly with N; columns are scaled to [0, 1] so that products of many stay of order 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from restt._common.errors import check_int
from restt._common.seeds import run_generator
from restt.train.data import FeatureMap
from restt_baselines.inputs import with_runs
from restt_baselines.network import Network, NetworkClassifier, NetworkRegressor

TASKS = ("classification", "regression")

# Weights of one run, about 20 columns for one output; each further column doubles them.
MAX_WEIGHTS = 2**20
# A table of a few hundred rows then takes several steps an epoch.
BATCH = 128
RATE = 1e-2


class FullTensor(nn.Module):
    """Σ W[i_1 … i_N] x(1)_{i_1} … x(N)_{i_N} with a weight tensor of I^N entries for each of O outputs.

    ``weight`` is (S, I^a, I^b·O) with a + b = N: the products of the first a sites and of the last b are formed apart,
    so that a row needs √(I^N) numbers and not I^N.

    >>> model = FullTensor(sites=5, feature_dim=2, outputs=3, runs=4)
    >>> model(torch.rand(7, 5, 2)).shape, model.tensor().shape
    (torch.Size([4, 7, 3]), torch.Size([4, 2, 2, 2, 2, 2, 3]))
    """

    def __init__(
        self,
        sites: int,
        feature_dim: int,
        outputs: int,
        runs: int = 1,
        seed: int = 0,
        max_weights: int = MAX_WEIGHTS,
    ) -> None:
        super().__init__()
        self.sites = check_int("sites", sites, minimum=1)
        self.feature_dim = check_int("feature_dim", feature_dim, minimum=1)
        self.outputs = check_int("outputs", outputs, minimum=1)
        self.runs = check_int("runs", runs, minimum=1)
        weights = feature_dim**sites * outputs
        if weights > max_weights:
            raise ValueError(
                f"the full tensor of {sites} columns needs {feature_dim}^{sites}·{outputs} weights, {_size(weights)}, "
                f"the limit is {max_weights:,}: use fewer columns, or restt.ResTT, whose weights grow linearly"
            )
        self._left = sites // 2
        left, right = feature_dim**self._left, feature_dim ** (sites - self._left)
        self.weight = nn.Parameter(torch.empty(runs, left, right * outputs))
        with torch.no_grad():
            for run in range(self.runs):
                # Outputs of order 1 for site vectors of length up to √I.
                drawn = torch.randn(self.weight.shape[1:], generator=run_generator(seed, run))
                self.weight[run] = drawn / (left * right) ** 0.5

    def tensor(self) -> Tensor:  # (S, I, …, I, O)
        """The weight tensor W, a view: writing to it writes to the model."""
        return self.weight.detach().view(-1, *[self.feature_dim] * self.sites, self.outputs)

    def forward(
        self,
        x: Tensor,  # (B, N, I) or (S, B, N, I)
    ) -> Tensor:  # (S, B, O)
        x = with_runs(x, self.runs, (self.sites, self.feature_dim))
        first, second = _products(x[:, :, : self._left]), _products(x[:, :, self._left :])
        half = first.expand(self.runs, -1, -1) @ self.weight  # (S, B, I^b·O)
        return (half.unflatten(2, (-1, self.outputs)) * second.unsqueeze(3)).sum(2)


def _size(number: int) -> str:
    return f"{number:,}" if number < 10**9 else f"about 10^{math.floor(math.log10(number))}"


def _products(x: Tensor) -> Tensor:  # (S or 1, B, n, I) -> (S or 1, B, I^n)
    """All products of one feature of each site; 1 where there is no site."""
    product = x.new_ones(*x.shape[:2], 1)
    for site in x.unbind(2):
        product = (product.unsqueeze(3) * site.unsqueeze(2)).flatten(2)
    return product


@dataclass(kw_only=True, eq=False, repr=False)
class GeneralTensor(Network):
    """Settings with which tables of up to about 20 columns are learned."""

    batch_size: int | None = BATCH
    lr: float = RATE
    schedule: str = "cosine"
    scaling: str = "minmax"

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> FullTensor:
        return FullTensor(columns, 2, outputs, runs, seed)

    def feature_map(self) -> FeatureMap:
        return with_constant


@dataclass(kw_only=True, eq=False, repr=False)
class FullTensorClassifier(GeneralTensor, NetworkClassifier):
    """The tensor's outputs as logits."""


@dataclass(kw_only=True, eq=False, repr=False)
class FullTensorRegressor(GeneralTensor, NetworkRegressor):
    """The tensor's outputs as standardised targets."""


def make(task: str, **params: Any) -> GeneralTensor:
    """The estimator of the task.

    >>> X, y = [[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0]
    >>> make("classification", lr=0.1, random_state=0).fit(X, y).predict(X).tolist()
    [0, 1, 1, 0]
    """
    return FullTensorClassifier(**params) if task == "classification" else FullTensorRegressor(**params)


def with_constant(values: Tensor) -> Tensor:  # (…, N) -> (…, N, 2)
    """[1, x] of each column.

    >>> with_constant(torch.tensor([[0.5]])).tolist()
    [[[1.0, 0.5]]]
    """
    return torch.stack([torch.ones_like(values), values], dim=-1)
