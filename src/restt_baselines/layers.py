"""Layers with the runs axis: S networks of the same shape side by side, each with weights of its own.

Every layer takes (S or 1, B, …) and gives (S, B, …); all its parameters and buffers have S in front, which is what
:func:`restt.train.train` asks of a module with runs. The number of runs is read off the weights, so that a copy of the
module with fewer runs needs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from restt._common.errors import square_side
from restt._common.seeds import run_generator


class Linear(nn.Module):
    """x W + b for each run."""

    def __init__(self, inputs: int, outputs: int, runs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(runs, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(runs, outputs))

    @property
    def fan_in(self) -> int:
        """Inputs of one output."""
        return self.weight.shape[1]

    def forward(self, x: Tensor) -> Tensor:  # (S or 1, B, I) -> (S, B, O)
        """Outputs of every run."""
        runs = len(self.weight)
        return torch.baddbmm(self.bias.unsqueeze(1), x.expand(runs, -1, -1), self.weight)


class Conv2d(nn.Module):
    """A convolution for each run: all as one grouped convolution, or with :meth:`each` one after the other.

    Groups suit small layers. In large ones each run fills the device by itself, and the backward pass of a grouped
    convolution is slow there.
    """

    def __init__(
        self, inputs: int, outputs: int, size: int, runs: int, *, stride: int = 1, padding: int = 0, bias: bool = True
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(runs, outputs, inputs, size, size))
        self.bias = nn.Parameter(torch.zeros(runs, outputs)) if bias else None
        self.stride, self.padding = stride, padding

    @property
    def fan_in(self) -> int:
        """Inputs of one output."""
        return math.prod(self.weight.shape[2:])

    @property
    def fan_out(self) -> int:
        """Outputs of one input."""
        return self.weight.shape[1] * math.prod(self.weight.shape[3:])

    def forward(self, x: Tensor) -> Tensor:  # (S or 1, B, C, H, W) -> (S, B, C', H', W')
        """Outputs of every run."""
        # Images that the runs share need no groups: each run only adds output channels.
        groups, batch = x.shape[:2]
        grouped = x.transpose(0, 1).reshape(batch, -1, *x.shape[3:])
        bias = None if self.bias is None else self.bias.flatten()
        y = F.conv2d(grouped, self.weight.flatten(0, 1), bias, self.stride, self.padding, groups=groups)
        return y.view(batch, len(self.weight), -1, *y.shape[2:]).transpose(0, 1)

    def each(self, xs: Sequence[Tensor]) -> list[Tensor]:  # S of (B, C, H, W) -> S of (B, C', H', W')
        """The runs one after the other, in the precision of ``xs``."""
        # unbind gathers the runs' gradients at once; indexing would fill a tensor of all runs for each of them.
        weights = self.weight.to(xs[0].dtype).unbind()
        biases = [None] * len(weights) if self.bias is None else self.bias.to(xs[0].dtype).unbind()
        return [
            F.conv2d(x, weight, bias, self.stride, self.padding)
            for x, weight, bias in zip(xs, weights, biases, strict=True)
        ]


class BatchNorm2d(nn.Module):
    """Batch normalisation for each run, with running statistics of its own for the evaluation.

    As torch's own, with one addition: where a batch has a single value per channel, whose variance says nothing, the
    running statistics stand in and stay as they are. Runs of :func:`restt.train.train` whose subsets differ in size
    see rows that only fill up the batch, and these count in the statistics: give such runs subsets of one size.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, runs: int, *, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(runs, channels))
        self.bias = nn.Parameter(torch.zeros(runs, channels))
        self.register_buffer("running_mean", torch.zeros(runs, channels))
        self.register_buffer("running_var", torch.ones(runs, channels))
        self.momentum, self.eps = momentum, eps

    def each(self, xs: Sequence[Tensor]) -> list[Tensor]:  # S of (B, C, H, W)
        """The runs one after the other; in training mode the running statistics are updated in place."""
        of_batch = self.training and xs[0].numel() > xs[0].shape[1]
        return [
            F.batch_norm(x, mean, var, weight, bias, of_batch, self.momentum, self.eps)
            for x, mean, var, weight, bias in zip(
                xs, self.running_mean, self.running_var, self.weight.unbind(), self.bias.unbind(), strict=True
            )
        ]


class RunDraws:
    """Normal draws of S runs, run k's from child k of the seed sequence ``seed``.

    >>> RunDraws(0, runs=3)(2, 5).shape
    torch.Size([3, 2, 5])
    """

    def __init__(self, seed: int, runs: int, stream: int = 0) -> None:
        self.generators = [run_generator(seed, run, stream) for run in range(runs)]

    def __call__(self, *shape: int) -> Tensor:  # (S, *shape)
        """The next draws of every run."""
        return torch.stack([torch.randn(shape, generator=generator) for generator in self.generators])


@torch.no_grad()
def draw_fan_in(module: nn.Module, seed: int, runs: int) -> None:
    """Uniform weights and biases in ±1/√fan_in, torch's own default, from child k of the seed sequence for run k."""
    layers = [layer for layer in module.modules() if isinstance(layer, (Linear, Conv2d))]
    for run in range(runs):
        generator = run_generator(seed, run)
        for layer in layers:
            bound = 1 / math.sqrt(layer.fan_in)
            for parameter in (layer.weight, layer.bias):
                if parameter is not None:
                    values = torch.rand(parameter.shape[1:], generator=generator) * (2 * bound) - bound
                    parameter[run] = values.to(parameter)


def image_side(columns: int) -> int:
    """The side of a square image of this many pixels.

    >>> image_side(784)
    28
    """
    return square_side("columns of X, one for each pixel,", columns)


def as_images(x: Tensor, side: int) -> Tensor:  # (B, P) or (S, B, P) -> (1 or S, B, 1, side, side)
    """Rows of pixels as images of one channel."""
    if x.dim() not in (2, 3) or x.shape[-1] != side * side:
        raise ValueError(f"x must have shape (B, {side * side}) or (S, B, {side * side}), got {tuple(x.shape)}")
    return x.reshape(-1 if x.dim() == 3 else 1, x.shape[-2], 1, side, side)


def with_runs(
    x: Tensor,  # (B, …) or (S, B, …)
    runs: int,
    row: tuple[int, ...],  # shape of one row
) -> Tensor:  # (1 or S, B, …)
    """``x`` with the runs axis in front, of length 1 where all runs see the same rows.

    >>> import torch
    >>> with_runs(torch.zeros(5, 4), 3, (4,)).shape, with_runs(torch.zeros(3, 5, 4), 3, (4,)).shape
    (torch.Size([1, 5, 4]), torch.Size([3, 5, 4]))
    """
    leading, own = tuple(x.shape[: x.dim() - len(row)]), tuple(x.shape[x.dim() - len(row) :])
    if own != row or len(leading) not in (1, 2) or (len(leading) == 2 and leading[0] != runs):
        sizes = ", ".join(map(str, row))
        raise ValueError(f"x must have shape (B, {sizes}) or ({runs}, B, {sizes}), got {tuple(x.shape)}")
    return x if len(leading) == 2 else x.unsqueeze(0)
