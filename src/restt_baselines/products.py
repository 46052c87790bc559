"""Sums over products of columns: factorization machines, and the paper's general tensor with a weight for each.

Factorization machines of order 2 (Rendle, 2010) and higher (Blondel, Fujino, Ueda and Ishihata, 2016):

    y = w_0 + Σ_i w_i x_i + Σ_{t=2}^{order} Σ_k A_t(v_tk, x)

with the ANOVA kernel A_t(v, x) = Σ_{i_1<…<i_t} Π v_i x_i over all products of t different columns. Each order has
factors of its own, as in Blondel et al.; each output, for classes or several targets, is a machine of its own. Where
the sources are silent: columns are standardised, and factors are drawn so that each order starts with outputs of
standard deviation 0.1.

The general tensorised model (paper, Eq. 4): one weight for every product of the columns, none shared.

    Y = C[W, X(1), …, X(N)],    X(n) = [1, x_n],    W of 2^N entries for each output

It holds every multilinear interaction of every order, as ResTT does, but without the low rank that makes ResTT's
number of weights grow linearly with N; columns are scaled to [0, 1] so that products of many stay of order 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from restt._common.errors import check_int
from restt.train.data import FeatureMap
from restt_baselines.layers import RunDraws, with_runs
from restt_baselines.network import Network, NetworkClassifier, NetworkRegressor

RATE = 1e-2
START = 0.1


class FactorizationMachine(nn.Module):
    """All products of up to ``order`` different columns, the weights of each order t ≥ 2 of rank K.

    Orders above the number of columns have no products and are left out.

    >>> model = FactorizationMachine(columns=6, outputs=2, order=3, rank=4, runs=5)
    >>> model(torch.rand(7, 6)).shape, model.factors.shape
    (torch.Size([5, 7, 2]), torch.Size([5, 2, 6, 2, 4]))
    """

    def __init__(self, columns: int, outputs: int, order: int = 2, rank: int = 8, runs: int = 1, seed: int = 0) -> None:
        super().__init__()
        self.columns = check_int("columns", columns, minimum=1)
        self.runs = check_int("runs", runs, minimum=1)
        self.order = min(check_int("order", order, minimum=1), self.columns)
        rank, outputs = check_int("rank", rank, minimum=1), check_int("outputs", outputs, minimum=1)
        self.bias = nn.Parameter(torch.zeros(runs, 1, outputs))
        self.linear = nn.Parameter(torch.zeros(runs, columns, outputs))
        draws, factors = RunDraws(seed, runs), torch.empty(runs, self.order - 1, columns, outputs, rank)
        for t in range(2, self.order + 1):
            # Var Σ_k A_t = K·binom(C, t)·σ^2t for standardised, independent columns.
            log_deviation = (math.log(START) - math.log(rank * math.comb(columns, t)) / 2) / t
            factors[:, t - 2] = draws(columns, outputs, rank) * math.exp(log_deviation)
        self.factors = nn.Parameter(factors)

    def forward(self, x: Tensor) -> Tensor:  # (B, C) or (S, B, C) -> (S, B, O)
        """Outputs of every run."""
        x = with_runs(x, self.runs, (self.columns,))
        output = self.bias + x.expand(self.runs, -1, -1) @ self.linear
        for t, factors in enumerate(self.factors.unbind(1), start=2):
            output = output + (pairs(factors, x) if t == 2 else anova(factors, x, t)).sum(-1)
        return output


def pairs(factors: Tensor, x: Tensor) -> Tensor:  # (S, C, O, K), (S or 1, B, C) -> (S, B, O, K)
    """A_2 in time linear in C: ½[(Σ v_i x_i)² − Σ v_i² x_i²] (Rendle, Lemma 3.1)."""
    flat = factors.flatten(2)
    rows = x.expand(len(factors), -1, -1)
    kernel = ((rows @ flat).square() - rows.square() @ flat.square()) / 2
    return kernel.unflatten(2, factors.shape[2:])


def anova(factors: Tensor, x: Tensor, order: int) -> Tensor:  # (S, C, O, K), (S or 1, B, C) -> (S, B, O, K)
    """A_t by dynamic programming (Blondel et al., Sec. 3): a_t(j) = a_t(j-1) + v_j x_j a_{t-1}(j-1), a_0 = 1.

    All columns at once: a_t is the running sum of v_j x_j a_{t-1}(j-1).

    >>> value = anova(torch.ones(1, 4, 1, 1), torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]), 3)
    >>> value.item() == 1 * 2 * 3 + 1 * 2 * 4 + 1 * 3 * 4 + 2 * 3 * 4
    True
    """
    scaled = factors.unsqueeze(1) * x[..., None, None]  # (S, B, C, O, K)
    sums = scaled.cumsum(2)
    for t in range(2, order + 1):
        # a_{t-1}(j-1) is 0 for j < t.
        sums = (scaled[:, :, t - 1 :] * sums[:, :, :-1]).cumsum(2)
    return sums[:, :, -1]


@dataclass(kw_only=True, eq=False, repr=False)
class FM(Network):
    """Parameters beyond those of :class:`restt_baselines.network.Network`.

    order : int
        Columns in a product, at most.
    rank : int
        Length K of the factors.
    """

    order: int = 2
    rank: int = 8
    lr: float = RATE
    schedule: str = "cosine"
    scaling: str = "standard"

    images = True

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> FactorizationMachine:
        """The untrained module."""
        return FactorizationMachine(columns, outputs, self.order, self.rank, runs, seed)


@dataclass(kw_only=True, eq=False, repr=False)
class FMClassifier(FM, NetworkClassifier):
    """One machine per class, their outputs as logits."""


@dataclass(kw_only=True, eq=False, repr=False)
class FMRegressor(FM, NetworkRegressor):
    """One machine per target, on standardised targets."""


# Weights of one run, about 20 columns for one output; each further column doubles them.
MAX_WEIGHTS = 2**20
# A table of a few hundred rows then takes several steps an epoch.
BATCH = 128


class FullTensor(nn.Module):
    """Σ W[i_1 … i_N] x(1)_{i_1} … x(N)_{i_N} with a weight tensor of I^N entries for each of O outputs.

    ``weight`` is (S, I^a, I^b·O) with a + b = N: the products of the first a sites and of the last b are formed
    separately, so that a row needs √(I^N) numbers and not I^N.

    >>> model = FullTensor(sites=5, feature_dim=2, outputs=3, runs=4)
    >>> model(torch.rand(7, 5, 2)).shape, model.tensor().shape
    (torch.Size([4, 7, 3]), torch.Size([4, 2, 2, 2, 2, 2, 3]))
    """

    def __init__(self, sites: int, feature_dim: int, outputs: int, runs: int = 1, seed: int = 0) -> None:
        super().__init__()
        self.sites = check_int("sites", sites, minimum=1)
        self.feature_dim = check_int("feature_dim", feature_dim, minimum=1)
        self.outputs = check_int("outputs", outputs, minimum=1)
        self.runs = check_int("runs", runs, minimum=1)
        weights = feature_dim**sites * outputs
        if weights > MAX_WEIGHTS:
            raise ValueError(
                f"the full tensor of {sites} columns needs {feature_dim}^{sites}·{outputs} weights, {_size(weights)}, "
                f"the limit is {MAX_WEIGHTS:,}: use fewer columns, or restt.ResTT, whose weights grow linearly"
            )
        self._left = sites // 2
        left, right = feature_dim**self._left, feature_dim ** (sites - self._left)
        # Outputs of order 1 for site vectors of length up to √I.
        self.weight = nn.Parameter(RunDraws(seed, runs)(left, right * outputs) / (left * right) ** 0.5)

    def tensor(self) -> Tensor:  # (S, I, …, I, O)
        """The weight tensor W, a view: writing to it writes to the model."""
        return self.weight.detach().view(-1, *[self.feature_dim] * self.sites, self.outputs)

    def forward(self, x: Tensor) -> Tensor:  # (B, N, I) or (S, B, N, I) -> (S, B, O)
        """Outputs of every run."""
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
        """The untrained module."""
        return FullTensor(columns, 2, outputs, runs, seed)

    def feature_map(self) -> FeatureMap:
        """The map from scaled columns to site vectors."""
        return with_constant


@dataclass(kw_only=True, eq=False, repr=False)
class FullTensorClassifier(GeneralTensor, NetworkClassifier):
    """The tensor's outputs as logits."""


@dataclass(kw_only=True, eq=False, repr=False)
class FullTensorRegressor(GeneralTensor, NetworkRegressor):
    """The tensor's outputs as standardised targets."""


def with_constant(values: Tensor) -> Tensor:  # (…, N) -> (…, N, 2)
    """[1, x] of each column.

    >>> with_constant(torch.tensor([[0.5]])).tolist()
    [[[1.0, 0.5]]]
    """
    return torch.stack([torch.ones_like(values), values], dim=-1)
