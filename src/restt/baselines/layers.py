"""Layers with the runs axis: S networks of the same shape side by side, each with weights of its own.

Every layer takes (S or 1, B, …) and gives (S, B, …); all its parameters and buffers have S in front, which is what
:func:`restt.train.train` asks of a module with runs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from restt.seeding import run_generator


class Linear(nn.Module):
    """x Wᵀ + b for each run."""

    def __init__(self, inputs: int, outputs: int, runs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(runs, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(runs, outputs))

    @property
    def fan_in(self) -> int:
        return self.weight.shape[1]

    def forward(self, x: Tensor) -> Tensor:  # (S or 1, B, I) -> (S, B, O)
        runs = len(self.weight)
        return torch.baddbmm(self.bias.unsqueeze(1), x.expand(runs, -1, -1), self.weight)


class Conv2d(nn.Module):
    """A convolution for each run, as one convolution with a group per run."""

    def __init__(
        self, inputs: int, outputs: int, size: int, runs: int, *, stride: int = 1, padding: int = 0, bias: bool = True
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(runs, outputs, inputs, size, size))
        self.bias = nn.Parameter(torch.zeros(runs, outputs)) if bias else None
        self.stride, self.padding = stride, padding

    @property
    def fan_in(self) -> int:
        return self.weight[0, 0].numel()

    def forward(self, x: Tensor) -> Tensor:  # (S or 1, B, C, H, W) -> (S, B, C', H', W')
        runs = len(self.weight)
        batch = x.shape[1]
        x = x.expand(runs, *x.shape[1:])
        grouped = x.transpose(0, 1).reshape(batch, -1, *x.shape[3:])
        bias = None if self.bias is None else self.bias.flatten()
        y = nn.functional.conv2d(grouped, self.weight.flatten(0, 1), bias, self.stride, self.padding, groups=runs)
        return y.view(batch, runs, -1, *y.shape[2:]).transpose(0, 1)


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
