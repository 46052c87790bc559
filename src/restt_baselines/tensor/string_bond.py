"""String-bond states: products of matrix product states over different strings of the same inputs.

I. Glasser, N. Pancotti, J. I. Cirac, "From probabilistic graphical models to generalized tensor networks for supervised
learning" (2018, 2020). The score of a class is Π_k f_k, each factor a train over one string with the label on its last
tensor; inputs that several strings read are copied. Softmax cross-entropy, stochastic gradients.

Scores are products of a few hundred matrices, so all trains start near the identity and every factor near 1
(:mod:`restt_baselines.tensor.strings`); pixels p enter as [1 − p, p].
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from restt._common.seeds import run_generator
from restt_baselines.tensor.strings import Strings

PLAQUETTE = 2


def snakes(height: int, width: int) -> Tensor:  # (4, H·W)
    """Four strings over all pixels of an image: along the rows and along the columns, each from two corners.

    >>> snakes(2, 2).tolist()
    [[0, 1, 3, 2], [1, 0, 2, 3], [0, 2, 3, 1], [2, 0, 1, 3]]
    """
    grid = torch.arange(height * width).view(height, width)
    return torch.stack([_snake(view) for lines in (grid, grid.T) for view in (lines, lines.flip(1))])


def _snake(lines: Tensor) -> Tensor:  # (H, W) -> (H·W,)
    turned = lines.clone()
    turned[1::2] = turned[1::2].flip(1)
    return turned.flatten()


class StringBondState(nn.Module):
    """Π_k of the trains' outputs, for each run: (B, M, I) or (S, B, M, I) -> (S, B, O).

    >>> StringBondState(Strings(snakes(2, 2), 2, bond_dim=3, outputs=4, runs=2, seed=0))(torch.rand(5, 4, 2)).shape
    torch.Size([2, 5, 4])
    """

    def __init__(self, strings: Strings) -> None:
        super().__init__()
        self.runs = strings.runs
        self.strings = strings

    def forward(self, x: Tensor) -> Tensor:
        first, *others = self.strings(x).unbind(1)
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
        self.tensor = nn.Parameter(torch.empty(runs, 2 ** (PLAQUETTE * PLAQUETTE), outputs))
        with torch.no_grad():
            for run in range(runs):
                self.tensor[run] = torch.randn(self.tensor.shape[1:], generator=run_generator(seed, run, 1))
                self.tensor[run, 0] = 0.0
                self.tensor[run, :, 0] = 1.0

    def forward(self, x: Tensor) -> Tensor:
        images = (x if x.dim() == 4 else x.unsqueeze(0)).unflatten(2, self.shape)  # (S or 1, B, H, W, 2)
        height, width = (side - PLAQUETTE + 1 for side in self.shape)
        product = images[:, :, :height, :width]
        for down, right in ((0, 1), (1, 0), (1, 1)):
            pixel = images[:, :, down : down + height, right : right + width]
            product = (product.unsqueeze(-1) * pixel.unsqueeze(-2)).flatten(-2)
        flat = product.flatten(1, 3).expand(self.runs, -1, -1)  # (S, B·windows, 16)
        return torch.bmm(flat, self.tensor).unflatten(1, (x.shape[-3], height * width))
