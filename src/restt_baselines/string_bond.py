"""Networks of several plain trains over the same inputs, on the chain backends: string-bond states, and MPS by Adam.

The trains of all runs go through :func:`restt.chain.contract` as if each were a run, so they cost little more than one.
Scores are products of a few hundred matrices, so all trains start near the identity; pixels p enter as [1 − p, p]. What
the sources leave open was chosen on 2000 MNIST images of 14×14 pixels held out of the training set.

String-bond states: I. Glasser, N. Pancotti, J. I. Cirac, "From probabilistic graphical models to generalized tensor
networks for supervised learning" (2018, 2020). The score of a class is Π_k f_k, each factor a train over one string
with the label on its last tensor. Snake-SBS has four overlapping snakes over an image, two along the rows and two along
the columns, from two corners each; a product of four trains explodes at larger rates without clipping. EPS-SBS has
entangled plaquettes first: one tensor over each window of 2×2 pixels, overlapping and shared as a convolution's, makes
the site vectors of four snakes; it starts so that dark windows leave the strings as they are, without which they do not
learn.

MPS by automatic gradients: S. Efthymiou, J. Hidary, S. Leichenauer, "TensorNetwork for machine learning" (2019): one
bond for all sites and the label on a tensor in the middle, softmax cross-entropy, Adam. The train left of the label and
that right of it are contracted side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from restt import chain
from restt._common.errors import check_int, check_positive
from restt.chain.reference import ChainWeights
from restt.topology import Topology
from restt.train.data import FeatureMap
from restt_baselines.layers import RunDraws, image_side, with_runs
from restt_baselines.network import NetworkClassifier


class Strings(nn.Module):
    """K plain trains over N site vectors, for each of S runs: (B, M, I) or (S, B, M, I) -> (S, K, B, O).

    ``orders`` (K, N) says which of the M sites train k sees, first to last.

    Near the identity: core i is ``share``_i · 1 plus a parameter that starts as noise, so that a step multiplies the
    state by Σ_i share_i x_i and a little more. Site vectors [1 − p, p] with equal shares, or [1, …] with the first
    share alone, make that 1, and however long the train its state starts near (1, 0, …, 0), which ``head`` turns into
    outputs: by default 1 for each. Weight decay draws towards the identity, not towards a train that gives 0.

    >>> trains = Strings(torch.tensor([[0, 1, 2], [2, 1, 0]]), feature_dim=2, bond_dim=3, outputs=4, runs=5, seed=0)
    >>> trains(torch.rand(7, 3, 2)).shape
    torch.Size([5, 2, 7, 4])
    """

    orders: Tensor
    first_start: Tensor
    inner_start: Tensor
    last_start: Tensor

    def __init__(
        self,
        orders: Tensor,  # (K, N)
        feature_dim: int,
        bond_dim: int,
        outputs: int,
        runs: int,
        seed: int,
        *,
        noise: float = 1e-2,
        share: Tensor | None = None,  # (I,)
        head: Tensor | None = None,  # (R, O)
        stream: int = 0,
    ) -> None:
        super().__init__()
        self.runs = check_int("runs", runs, minimum=1)
        bond, outputs = check_int("bond_dim", bond_dim, minimum=1), check_int("outputs", outputs, minimum=1)
        strings, sites = orders.shape
        if sites < 2:
            raise ValueError(f"orders must name at least 2 sites for each train, got {sites}")
        self.topology = Topology.plain(sites)
        self.register_buffer("orders", orders, persistent=False)
        draws, noise = RunDraws(seed, runs, stream), check_positive("noise", noise, allow_zero=True)
        self.first = nn.Parameter(noise * draws(strings, feature_dim, bond))
        self.inner = nn.Parameter(noise * draws(strings, sites - 2, feature_dim, bond, bond))
        self.last = nn.Parameter(noise * draws(strings, feature_dim, bond, outputs))
        identity = torch.eye(bond)
        head = identity[:, :1].expand(bond, outputs) if head is None else head
        by_feature = (torch.ones(feature_dim) if share is None else share).view(-1, 1, 1)
        self.register_buffer("first_start", by_feature[:, 0] * identity[0], persistent=False)
        self.register_buffer("inner_start", by_feature * identity, persistent=False)
        self.register_buffer("last_start", by_feature * head, persistent=False)

    def cores(self) -> tuple[Tensor, Tensor, Tensor]:
        """First (S, K, I, R), inner (S, K, N-2, I, R, R) and last (S, K, I, R, O) cores of all trains."""
        return self.first + self.first_start, self.inner + self.inner_start, self.last + self.last_start

    def forward(self, x: Tensor) -> Tensor:  # (B, M, I) or (S, B, M, I) -> (S, K, B, O)
        """Outputs of every run."""
        features = with_runs(x, self.runs, tuple(x.shape[-2:]))
        walked = features[:, :, self.orders].transpose(1, 2)  # (S or 1, K, B, N, I)
        walked = walked.expand(self.runs, *walked.shape[1:]).flatten(0, 1).contiguous()
        first, inner, last = (core.flatten(0, 1) for core in self.cores())
        weights = ChainWeights(first, inner, None, last, None, None, outputs=last.shape[-1])
        return chain.contract(walked, weights, self.topology).unflatten(0, (self.runs, -1))


def shares(values: Tensor) -> Tensor:  # (…, N) -> (…, N, 2)
    """[1 − p, p] of each column in [0, 1]: site vectors that sum to one.

    >>> shares(torch.tensor([0.25]))
    tensor([[0.7500, 0.2500]])
    """
    return torch.stack([1 - values, values], dim=-1)


PLAQUETTE = 2


def snakes(height: int, width: int) -> Tensor:  # (4, H·W)
    """Four strings over all pixels of an image: along the rows and along the columns, each from two corners.

    >>> snakes(2, 2).tolist()
    [[0, 1, 3, 2], [1, 0, 2, 3], [0, 2, 3, 1], [2, 0, 1, 3]]
    """
    grid = torch.arange(height * width).view(height, width)
    orders = []
    for lines in (grid, grid.flip(1), grid.T, grid.T.flip(1)):
        snake = lines.clone()
        snake[1::2] = snake[1::2].flip(1)
        orders.append(snake.flatten())
    return torch.stack(orders)


class StringBondState(nn.Module):
    """Π_k of the trains' outputs, for each run: (B, M, I) or (S, B, M, I) -> (S, B, O).

    ``plaquettes`` make the site vectors that the trains read.

    >>> StringBondState(Strings(snakes(2, 2), 2, bond_dim=3, outputs=4, runs=2, seed=0))(torch.rand(5, 4, 2)).shape
    torch.Size([2, 5, 4])
    """

    def __init__(self, strings: Strings, plaquettes: Plaquettes | None = None) -> None:
        super().__init__()
        self.runs = strings.runs
        self.plaquettes, self.strings = plaquettes, strings

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of every run."""
        first, *others = self.strings(x if self.plaquettes is None else self.plaquettes(x)).unbind(1)
        product: Tensor = first
        for factor in others:
            product = product * factor
        return product


class Plaquettes(nn.Module):
    """Entangled plaquettes: one tensor over the pixels of every 2×2 window, overlapping, with D values as its output.

    (B, H·W, 2) or (S, B, H·W, 2) -> (S, B, (H−1)·(W−1), D). All windows share the tensor of their run, (16, D).
    Output 1 starts as the sum over all entries, 1 for site vectors that sum to one; the others start random, and 0 for
    a window that is dark: most are, and what they have in common would grow too fast in all strings.

    >>> Plaquettes(3, 3, outputs=5, runs=2, seed=0)(torch.rand(7, 9, 2)).shape
    torch.Size([2, 7, 4, 5])
    """

    def __init__(self, height: int, width: int, outputs: int, runs: int, seed: int) -> None:
        super().__init__()
        self.runs = runs
        self.shape = height, width
        tensor = RunDraws(seed, runs, stream=1)(2 ** (PLAQUETTE * PLAQUETTE), outputs)
        tensor[:, 0] = 0.0
        tensor[:, :, 0] = 1.0
        self.tensor = nn.Parameter(tensor)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of every run."""
        images = (x if x.dim() == 4 else x.unsqueeze(0)).unflatten(2, self.shape)  # (S or 1, B, H, W, 2)
        height, width = (side - PLAQUETTE + 1 for side in self.shape)
        product = images[:, :, :height, :width]
        for down, right in ((0, 1), (1, 0), (1, 1)):
            pixel = images[:, :, down : down + height, right : right + width]
            product = (product.unsqueeze(-1) * pixel.unsqueeze(-2)).flatten(-2)
        flat = product.flatten(1, 3).expand(self.runs, -1, -1)  # (S, B·windows, 16)
        return torch.bmm(flat, self.tensor).unflatten(1, (x.shape[-3], height * width))


@dataclass(kw_only=True, eq=False, repr=False)
class SnakeSBSClassifier(NetworkClassifier):
    """Parameters beyond those of :class:`restt_baselines.network.Network`.

    bond_dim : int
        Width of all bonds.
    noise : float
        Standard deviation of what is added to the identity at the start.
    """

    images = True

    bond_dim: int = 16
    noise: float = 3e-3
    epochs: int = 40
    batch_size: int | None = 256
    lr: float = 1e-3
    clip_norm: float | None = 1.0
    schedule: str = "cosine"
    scaling: str = "shared"

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> nn.Module:
        """The untrained module."""
        side = image_side(columns)
        return StringBondState(Strings(snakes(side, side), 2, self.bond_dim, outputs, runs, seed, noise=self.noise))

    def feature_map(self) -> FeatureMap:
        """The map from scaled columns to site vectors."""
        return shares


@dataclass(kw_only=True, eq=False, repr=False)
class EPSSBSClassifier(SnakeSBSClassifier):
    """Parameters beyond those of :class:`SnakeSBSClassifier`.

    plaquette_dim : int
        Width D of what a plaquette gives.
    """

    bond_dim: int = 10
    plaquette_dim: int = 6
    epochs: int = 30

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> nn.Module:
        """The untrained module."""
        side, width = image_side(columns), check_int("plaquette_dim", self.plaquette_dim, minimum=1)
        orders = snakes(side - PLAQUETTE + 1, side - PLAQUETTE + 1)
        share = torch.eye(width)[0]
        strings = Strings(orders, width, self.bond_dim, outputs, runs, seed, noise=self.noise, share=share)
        return StringBondState(strings, Plaquettes(side, side, width, runs, seed))


# Below, a half of the train would have a single site and no bond of its own.
LEAST_COLUMNS = 4


class LabelInTheMiddle(nn.Module):
    """f_o = y(left)ᵀ L_o y(right), y the states of the trains from either end, for each run.

    >>> LabelInTheMiddle(7, 2, bond_dim=3, outputs=4, runs=2, seed=0, noise=0.01)(torch.rand(5, 7, 2)).shape
    torch.Size([2, 5, 4])
    """

    def __init__(
        self, sites: int, feature_dim: int, bond_dim: int, outputs: int, runs: int, seed: int, noise: float
    ) -> None:
        super().__init__()
        self.runs = runs
        middle = sites // 2
        left, right = torch.arange(middle), torch.arange(sites - 1, middle - 1, -1)
        identity = torch.eye(bond_dim)
        self.left, self.right = (
            Strings(half, feature_dim, bond_dim, bond_dim, runs, seed, noise=noise, head=identity, stream=stream)
            for stream, half in enumerate((left.unsqueeze(0), right.unsqueeze(0)), start=1)
        )
        self.label = nn.Parameter(noise * RunDraws(seed, runs)(bond_dim, outputs, bond_dim) + identity.unsqueeze(1))

    def forward(self, x: Tensor) -> Tensor:  # (B, N, I) or (S, B, N, I) -> (S, B, O)
        """Outputs of every run."""
        left, right = self.left(x).squeeze(1), self.right(x).squeeze(1)  # (S, B, R)
        seen = (left @ self.label.flatten(2)).unflatten(2, self.label.shape[2:])
        return torch.einsum("sbor,sbr->sbo", seen, right)


@dataclass(kw_only=True, eq=False, repr=False)
class MPSAdamClassifier(SnakeSBSClassifier):
    """The settings of :class:`SnakeSBSClassifier`, with other defaults."""

    bond_dim: int = 20
    noise: float = 1e-2
    lr: float = 2e-3
    scaling: str = "minmax"

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> nn.Module:
        """The untrained module."""
        if columns < LEAST_COLUMNS:
            raise ValueError(f"mps-adam needs at least {LEAST_COLUMNS} columns, got n_features = {columns}")
        noise = check_positive("noise", self.noise, allow_zero=True)
        return LabelInTheMiddle(columns, 2, self.bond_dim, outputs, runs, seed, noise)
