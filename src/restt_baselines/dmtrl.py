"""DMTRL: ten one-against-all networks whose weights are tied layer by layer.

Y. Yang, T. M. Hospedales, "Deep multi-task representation learning: a tensor factorisation approach" (2017), on images:
each class is a task, "this class or another", with a convolutional network and a binary cross-entropy of its own. A row
belongs to the class whose task says yes most clearly.

    image → 32 maps by 5×5 → ReLU → largest of 2×2 → 64 by 4×4 → ReLU → largest of 2×2 → 512, ReLU → 1

The weights of a layer in T tasks are stacked to 𝒲 (D_1 × … × D_n × T), the task last, and held by their factors; the
biases are the tasks' own:

    LAF      𝒲 = L · S              L (D_1⋯D_n × K), S (K × T): last axis flattening
    Tucker   𝒲 = C ×_1 U_1 … ×_{n+1} U_{n+1}      C (K_1 × … × K_{n+1}), U_m (K_m × D_m)
    TT       𝒲 = G_1 · G_2 ⋯ G_{n+1}              G_m (K_{m-1} × D_m × K_m), K_0 = K_{n+1} = 1

Ranks follow from the share of the squared norm of 𝒲 that each truncated singular value decomposition may lose; with
runs, those of the first run. From the source's public code: networks of single tasks are trained first, all weights
their own; the factors decompose what they have learned, each within a relative error of 0.1 (``lost`` is its square),
and are then trained together. ``start="random"`` decomposes a random draw of all tasks instead, brought back to its
norm.

Assumed: widths and windows, which could not be checked against the source's text; zeros beyond the edges; single
networks that train as long, and by the same Adam at its default rate, as the factors after them; the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor, nn
from torch.nn import functional as F

from restt._common.errors import check_choice, check_int, check_positive
from restt._common.seeds import run_generator
from restt_baselines.layers import image_side, with_runs
from restt_baselines.network import NetworkClassifier, TrainFirst

Factors = list[Tensor]


def laf(stacked: Tensor, lost: float) -> Factors:  # (S, D_1, …, D_n, T) -> L, S
    """Factorise all other axes against the last by a truncated SVD.

    >>> [tuple(factor.shape) for factor in laf(torch.ones(2, 3, 4, 5), 0.1)]
    [(2, 12, 1), (2, 1, 5)]
    """
    left, values, right = torch.linalg.svd(stacked.flatten(1, -2), full_matrices=False)
    kept = _rank(values[0], lost)
    root = values[:, :kept].sqrt()
    return [left[..., :kept] * root.unsqueeze(1), root.unsqueeze(2) * right[:, :kept]]


def laf_rebuilt(factors: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:  # -> (S, D_1, …, D_n, T)
    """The stacked tensor from its factors."""
    left, right = factors
    return (left @ right).unflatten(1, tuple(sizes[:-1]))


def tucker(stacked: Tensor, lost: float) -> Factors:
    """Higher-order singular value decomposition; the core first, then a factor for each axis.

    >>> [tuple(factor.shape) for factor in tucker(torch.ones(2, 3, 4, 5), 0.1)]
    [(2, 1, 1, 1), (2, 1, 3), (2, 1, 4), (2, 1, 5)]
    """
    factors = []
    core = stacked
    for axis in range(1, stacked.dim()):
        unfolded = stacked.movedim(axis, 1).flatten(2)
        left, values = _left(unfolded)
        factors.append(left[..., : _rank(values[0], lost)].transpose(1, 2))  # (S, K, D)
        core = torch.matmul(factors[-1], core.movedim(axis, 1).flatten(2)).unflatten(2, core.movedim(axis, 1).shape[2:])
        core = core.movedim(1, axis)
    return [core.contiguous(), *(factor.contiguous() for factor in factors)]


def tucker_rebuilt(factors: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """The stacked tensor from its factors."""
    rebuilt, *others = factors
    for axis, factor in enumerate(others, start=1):
        moved = rebuilt.movedim(axis, 1)
        rebuilt = (factor.transpose(1, 2) @ moved.flatten(2)).unflatten(2, moved.shape[2:]).movedim(1, axis)
    return rebuilt


def tt(stacked: Tensor, lost: float) -> Factors:
    """The tensor train decomposition (Oseledets, 2011).

    >>> [tuple(factor.shape) for factor in tt(torch.ones(2, 3, 4, 5), 0.1)]
    [(2, 1, 3, 1), (2, 1, 4, 1), (2, 1, 5, 1)]
    """
    factors = []
    runs, *sizes = stacked.shape
    rest, before = stacked.reshape(runs, 1, -1), 1
    for size in sizes[:-1]:
        matrix = rest.reshape(runs, before * size, -1)
        left, values = _left(matrix)
        left, before = left[..., : _rank(values[0], lost)], _rank(values[0], lost)
        factors.append(left.reshape(runs, -1, size, before))
        rest = left.transpose(1, 2) @ matrix
    return [*factors, rest.reshape(runs, before, sizes[-1], 1)]


def tt_rebuilt(factors: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """The stacked tensor from its factors."""
    rebuilt = factors[0].squeeze(1)  # (S, D_1, K_1)
    for factor in factors[1:]:
        rebuilt = rebuilt.flatten(1, -2) @ factor.flatten(2)
        rebuilt = rebuilt.unflatten(2, factor.shape[2:])
    return rebuilt.flatten(1).unflatten(1, tuple(sizes))


def _left(matrix: Tensor) -> tuple[Tensor, Tensor]:  # (S, A, B) -> (S, A, K), (S, K)
    """Left singular vectors and values; of wide matrices by their Gram matrix in float64, many times faster."""
    if matrix.shape[1] > matrix.shape[2]:
        left, values, _ = torch.linalg.svd(matrix, full_matrices=False)
        return left, values
    wide = matrix.double()
    squares, vectors = torch.linalg.eigh(wide @ wide.transpose(1, 2))
    return vectors.flip(2).to(matrix), squares.flip(1).clamp(min=0).sqrt().to(matrix)


def _rank(values: Tensor, lost: float) -> int:  # (K,), falling
    """The fewest leading values that lose at most the given share of the squares."""
    squares = values.double().square()
    tails = squares.sum() - squares.cumsum(0)
    return min(len(values), int((tails > lost * squares.sum()).sum()) + 1)


# Name -> how a stacked tensor becomes factors, and how these become it again.
FACTORISATIONS: dict[
    str, tuple[Callable[[Tensor, float], Factors], Callable[[Sequence[Tensor], Sequence[int]], Tensor]]
] = {
    "laf": (laf, laf_rebuilt),
    "tucker": (tucker, tucker_rebuilt),
    "tt": (tt, tt_rebuilt),
}


WINDOWS = (5, 4)  # of the two convolutions
STARTS = ("trained", "random")


class TaskWeights(nn.Module):
    """One layer's weights in all tasks, (S, D_1, …, D_n, T), whole or by their factors, and each task's bias."""

    def __init__(self, sizes: Sequence[int], outputs: int, fan_in: int, generators: list[torch.Generator]) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self.kind: str | None = None
        drawn = torch.stack([torch.rand(self.sizes, generator=generator) for generator in generators])
        self.factors = nn.ParameterList([nn.Parameter((2 * drawn - 1) / math.sqrt(fan_in))])
        self.bias = nn.Parameter(torch.zeros(len(generators), self.sizes[-1], outputs))

    @torch.no_grad()
    def factorise(self, kind: str, lost: float, *, keep_norm: bool) -> None:
        """Hold the weights by their factors, ``keep_norm`` with the norm they have."""
        stacked = self.stacked()
        decomposed, rebuilt = FACTORISATIONS[kind]
        factors = decomposed(stacked, lost)
        if keep_norm:
            kept = rebuilt(factors, self.sizes).flatten(1).norm(dim=1) / stacked.flatten(1).norm(dim=1)
            factors[0] = factors[0] / kept.view(-1, *[1] * (factors[0].dim() - 1))
        self.kind = kind
        self.factors = nn.ParameterList([nn.Parameter(factor.contiguous()) for factor in factors])

    def stacked(self) -> Tensor:  # (S, D_1, …, D_n, T)
        """The weights of all tasks."""
        return self.factors[0] if self.kind is None else FACTORISATIONS[self.kind][1](list(self.factors), self.sizes)

    def forward(self) -> Tensor:  # (S, T, D_1, …, D_n)
        """Outputs of every run."""
        return self.stacked().movedim(-1, 1)


class MultiTaskNet(nn.Module):
    """(B, P) or (S, B, P) -> (S, B, T): a logit for each task, whose weights are its own until they are factorised.

    >>> net = MultiTaskNet(8, 3, 2, 0, maps=(2, 3), hidden=4)
    >>> net.factorise("tt", lost=0.5, keep_norm=True)
    >>> net(torch.rand(5, 64)).shape
    torch.Size([2, 5, 3])
    """

    def __init__(self, side: int, tasks: int, runs: int, seed: int, *, maps: Sequence[int], hidden: int) -> None:
        super().__init__()
        self.side, self.runs = side, runs
        first, second = (check_int("maps", width, minimum=1) for width in maps)
        hidden = check_int("hidden", hidden, minimum=1)
        generators = [run_generator(seed, run) for run in range(runs)]
        flat = second * math.ceil(side / 4) ** 2

        def layer(sizes: Sequence[int], outputs: int, fan_in: int) -> TaskWeights:
            return TaskWeights((*sizes, tasks), outputs, fan_in, generators)

        one, two = WINDOWS
        self.conv1 = layer((one, one, 1, first), first, one**2)
        self.conv2 = layer((two, two, first, second), second, first * two**2)
        self.hidden = layer((flat, hidden), hidden, flat)
        self.head = layer((hidden, 1), 1, hidden)

    def factorise(self, kind: str, lost: float, *, keep_norm: bool) -> None:
        """Tie the tasks' weights layer by layer."""
        for layer in (self.conv1, self.conv2, self.hidden, self.head):
            layer.factorise(kind, lost, keep_norm=keep_norm)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of every run."""
        images = with_runs(x, self.runs, (self.side**2,)).unflatten(2, (1, self.side, self.side))
        maps = images.unsqueeze(1)  # (S or 1, T or 1, B, C, H, W)
        for layer in (self.conv1, self.conv2):
            maps = _pooled(_convolved(maps, layer(), layer.bias).relu())
        rows = maps.flatten(3)  # (S, T, B, D)
        rows = (rows @ self.hidden() + self.hidden.bias.unsqueeze(2)).relu()
        logits = rows @ self.head() + self.head.bias.unsqueeze(2)  # (S, T, B, 1)
        return logits.squeeze(3).transpose(1, 2)


def _convolved(
    maps: Tensor,  # (S or 1, T or 1, B, C, H, W)
    weight: Tensor,  # (S, T, kh, kw, C, M)
    bias: Tensor,  # (S, T, M)
) -> Tensor:  # (S, T, B, M, H, W)
    """A convolution of each run and task as products of matrices: grouped, hundreds of them would be slow backwards."""
    height, width = maps.shape[-2:]
    window = weight.shape[2]
    # Views instead of torch's unfold, which launches a kernel for every image on a GPU.
    padded = F.pad(maps, [(window - 1) // 2, window // 2] * 2)
    windows = (
        padded.unfold(-2, window, 1).unfold(-2, window, 1).permute(0, 1, 2, 3, 6, 7, 4, 5).flatten(6).flatten(3, 5)
    )
    kernels = weight.permute(0, 1, 5, 4, 2, 3).flatten(3)  # (S, T, M, C·kh·kw), as the windows lie
    outputs = kernels.unsqueeze(2) @ windows + bias[:, :, None, :, None]
    return outputs.unflatten(-1, (height, width))


def _pooled(maps: Tensor) -> Tensor:  # (S, T, B, M, H, W) -> (S, T, B, M, H/2, W/2)
    return F.max_pool2d(maps.flatten(0, 2), 2, ceil_mode=True).unflatten(0, maps.shape[:3])


@dataclass(kw_only=True, eq=False, repr=False)
class DMTRLTTClassifier(NetworkClassifier):
    """Weights tied by a tensor train; parameters beyond those of :class:`restt_baselines.network.Network`.

    factorisation : {"tt", "tucker", "laf"}
    maps, hidden
        Widths of the two convolutions and of the hidden layer, in each task.
    start : {"trained", "random"}
        Whose weights the initial factors decompose: single tasks' networks, trained first, or a random draw.
    lost : float
        Share of the squared norm of those weights that each truncation loses: the larger, the more is shared.
    """

    images = True

    factorisation: str = "tt"
    maps: Sequence[int] = (32, 64)
    hidden: int = 512
    start: str = "trained"
    lost: float = 0.01
    epochs: int = 30
    batch_size: int | None = 32
    lr: float = 1e-3
    schedule: str = "cosine"
    scaling: str = "shared"
    loss: str = "binary-cross-entropy"

    def build(self, columns: int, outputs: int, runs: int, seed: int) -> nn.Module:
        """The untrained module."""
        kind, lost = self._sharing()
        net = MultiTaskNet(image_side(columns), outputs, runs, seed, maps=self.maps, hidden=self.hidden)
        if self.start == "random":
            net.factorise(kind, lost, keep_norm=True)
        return net

    def prepare(self, module: nn.Module, train_first: TrainFirst, rows: int, seed: int) -> None:
        """Train single tasks first and factorise them."""
        if self.start == "trained":
            kind, lost = self._sharing()
            assert isinstance(module, MultiTaskNet)
            train_first(module, self.training_config(rows, seed))
            module.factorise(kind, lost, keep_norm=False)

    def _sharing(self) -> tuple[str, float]:
        check_choice("start", self.start, STARTS)
        kind = check_choice("factorisation", self.factorisation, FACTORISATIONS)
        return kind, check_positive("lost", self.lost, allow_zero=True)

    def _scores(self, X: object) -> np.ndarray:  # (B, K)
        """The members' mean probability that each task says yes."""
        return np.asarray(expit(self._members(X)).mean(axis=0))


@dataclass(kw_only=True, eq=False, repr=False)
class DMTRLTuckerClassifier(DMTRLTTClassifier):
    """Weights tied by a Tucker decomposition."""

    factorisation: str = "tucker"


@dataclass(kw_only=True, eq=False, repr=False)
class DMTRLLAFClassifier(DMTRLTTClassifier):
    """Weights tied by a matrix of shared latent tasks."""

    factorisation: str = "laf"
