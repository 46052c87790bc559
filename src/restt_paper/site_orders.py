"""Ways to walk over an image: a chain sees pixels in an order, and models with different orders err differently."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from restt._common.errors import square_side
from restt.module import ResTT


def image_walks(sites: int) -> Tensor:  # (8, N)
    """Eight walks over a square of sites: row by row or column by column, each line in the same direction or in
    turns (a snake), from the start or from the end.

    >>> image_walks(4).tolist()[:4]
    [[0, 1, 2, 3], [3, 2, 1, 0], [0, 1, 3, 2], [2, 3, 1, 0]]
    """
    side = square_side("sites", sites)
    square = torch.arange(sites).view(side, side)
    walks = []
    for lines in (square, square.T):
        snake = lines.clone()
        snake[1::2] = snake[1::2].flip(1)
        for walk in (lines.flatten(), snake.flatten()):
            walks += [walk, walk.flip(0)]
    return torch.stack(walks)


class Walking(nn.Module):
    """A ResTT whose run k sees the sites in the order of walk k mod 8.

    >>> model = Walking(ResTT(4, 2, bond_dim=3, outputs=2, runs=3))
    >>> model(torch.rand(5, 4, 2)).shape
    torch.Size([3, 5, 2])
    """

    order: Tensor

    def __init__(self, inner: ResTT) -> None:
        super().__init__()
        assert inner.runs is not None
        self.inner = inner
        self.runs: int = inner.runs
        walks = image_walks(inner.sites).to(inner.first.device)
        self.register_buffer("order", walks[torch.arange(inner.runs, device=walks.device) % len(walks)])

    def forward(
        self,
        x: Tensor,  # (B, N, I) or (S, B, N, I)
    ) -> Tensor:  # (S, B, O)
        if x.dim() == 3:
            walked = x[:, self.order].transpose(0, 1)
        else:
            runs = torch.arange(len(x), device=x.device).unsqueeze(1)
            walked = x[runs, :, self.order].transpose(1, 2)  # indexing puts (S, N) first
        outputs: Tensor = self.inner(walked.contiguous())
        return outputs
