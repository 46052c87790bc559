"""From the pixels of whole images to site vectors, on the device and after any augmentation.

Beside the maps: the orders in which a chain can see the sites, since models with different orders err differently, and
several views of one image, whose outputs are averaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, grid_sample, pad

from restt._common.errors import square_side
from restt.data.images import image_blocks
from restt.features.formulas import PAPER_ANGLE, on_the_sphere
from restt.module import ResTT
from restt.topology import Topology
from restt.train.augment import affine_matrices


def square_blocks(x: Tensor) -> Tensor:  # (…, H·W) -> (…, N, 4)
    """Flat square images in blocks of 2×2 pixels."""
    side = square_side("pixels of an image in x", x.shape[-1])
    if side % 2:
        raise ValueError(f"x must hold images with an even side, got images of {side}×{side} pixels")
    return image_blocks(x.unflatten(-1, (side, side)))


def block_means(x: Tensor) -> Tensor:  # (…, H·W) -> (…, N)
    """The paper's smaller image.

    >>> block_means(torch.tensor([[1.0, 0.0, 1.0, 0.0]]))
    tensor([[0.5000]])
    """
    return square_blocks(x).mean(-1)


class _Blocks:
    """Each block of 2×2 pixels of a square image (…, H·W) becomes a site."""

    def __init__(self, angle: float = PAPER_ANGLE) -> None:
        self.angle = angle


class Pixels(_Blocks):
    """The paper's sites: the mean of each 2×2 block, then [cos(angle·p), sin(angle·p)]; the paper's angle is π/2.

    >>> Pixels()(torch.tensor([[1.0, 0.0, 1.0, 0.0]])).shape
    torch.Size([1, 1, 2])
    """

    width = 2

    def __call__(self, x: Tensor) -> Tensor:  # (…, H·W) -> (…, N, 2)
        """Site vectors of pixels (…, H·W)."""
        return on_the_sphere(block_means(x).unsqueeze(-1), self.angle)


class Patches(_Blocks):
    """Each 2×2 block of the whole image is a site of its four pixels: the paper's vector map, I = 8.

    >>> Patches()(torch.zeros(3, 16)).shape
    torch.Size([3, 4, 8])
    """

    width = 8

    def __call__(self, x: Tensor) -> Tensor:  # (…, H·W) -> (…, N, 8)
        """Site vectors of pixels (…, H·W)."""
        return on_the_sphere(square_blocks(x), self.angle)


class Products(_Blocks):
    """Each 2×2 block is a site of all products of its four pixels' [cos, sin], I = 16.

    Within a patch every order of interaction is a feature then; the vector map has no product of two pixels of a patch.

    >>> Products()(torch.zeros(3, 16)).shape
    torch.Size([3, 4, 16])
    """

    width = 16

    def __call__(self, x: Tensor) -> Tensor:  # (…, H·W) -> (…, N, 16)
        """Site vectors of pixels (…, H·W)."""
        pairs = on_the_sphere(square_blocks(x).unsqueeze(-1), self.angle)  # (…, N, 4, 2)
        product = pairs[..., 0, :]
        for pair in pairs.unbind(-2)[1:]:
            product = (product.unsqueeze(-1) * pair.unsqueeze(-2)).flatten(-2)
        return product


SITE_MAPS: dict[str, type[Pixels] | type[Patches] | type[Products]] = {
    "pixels": Pixels,
    "patches": Patches,
    "products": Products,
}


def image_orders(sites: int) -> Tensor:  # (8, N)
    """Eight orders of a square of sites.

    Row by row or column by column, each line in the same direction or in turns (a snake), from the start or from the
    end.

    >>> image_orders(4).tolist()[:4]
    [[0, 1, 2, 3], [3, 2, 1, 0], [0, 1, 3, 2], [2, 3, 1, 0]]
    """
    side = square_side("sites", sites)
    square = torch.arange(sites).view(side, side)
    orders = []
    for lines in (square, square.T):
        snake = lines.clone()
        snake[1::2] = snake[1::2].flip(1)
        for order in (lines.flatten(), snake.flatten()):
            orders += [order, order.flip(0)]
    return torch.stack(orders)


class ReorderedSites(nn.Module):
    """A ResTT whose run k sees the sites in order k mod ``orders`` of :func:`image_orders`.

    ``run_ids`` are the runs' numbers where they are not 0, 1, ….

    >>> model = ReorderedSites(ResTT(4, 2, bond_dim=3, outputs=2, runs=3), orders=8)
    >>> model(torch.rand(5, 4, 2)).shape
    torch.Size([3, 5, 2])
    """

    order: Tensor

    def __init__(self, inner: ResTT, orders: int, run_ids: Sequence[int] | None = None) -> None:
        super().__init__()
        assert inner.runs is not None
        self.inner = inner
        self.runs: int = inner.runs
        used = image_orders(inner.sites)[:orders].to(inner.first.device)
        numbers = torch.tensor(range(inner.runs) if run_ids is None else run_ids, device=used.device)
        self.register_buffer("order", used[numbers % len(used)])

    @property
    def topology(self) -> Topology:
        """The chain's, by which a training drops sites.

        It drops them in the image's own order, so a run's first site, elsewhere in the image, may be among them. The
        output is linear in that site too: the expectation stays exact.
        """
        return self.inner.topology

    def forward(
        self,
        x: Tensor,  # (B, N, I) or (S, B, N, I)
    ) -> Tensor:  # (S, B, O)
        """Outputs of every run."""
        if x.dim() == 3:
            reordered = x[:, self.order].transpose(0, 1)
        else:
            runs = torch.arange(len(x), device=x.device).unsqueeze(1)
            reordered = x[runs, :, self.order].transpose(1, 2)  # indexing puts (S, N) first
        outputs: Tensor = self.inner(reordered.contiguous())
        return outputs


def seen_through(x: Tensor, views: Sequence[Sequence[float]]) -> Iterator[Tensor]:  # (…, H·W) each
    """Views of an image: :func:`mirrored_and_moved` for pairs of numbers, :func:`moved_and_turned` for fours."""
    return mirrored_and_moved(x, views) if len(views[0]) == 2 else moved_and_turned(x, views)


def mirrored_and_moved(x: Tensor, moves: Sequence[Sequence[float]]) -> Iterator[Tensor]:  # (…, H·W) each
    """The image and its mirror, each moved by ``moves``, pairs of rows and columns; what comes in from outside is 0.

    >>> [view.tolist() for view in mirrored_and_moved(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), [(0, 0), (0, 1)])][:2]
    [[[1.0, 2.0, 3.0, 4.0]], [[0.0, 1.0, 0.0, 3.0]]]
    """
    side = square_side("pixels of an image in x", x.shape[-1])
    images = x.unflatten(-1, (side, side))
    for seen in (images, images.flip(-1)):
        for down, right in moves:
            # A negative pad cuts off what leaves the image.
            moved = pad(seen, [int(pixels) for pixels in (right, -right, down, -down)])
            yield moved.flatten(-2)


def moved_and_turned(x: Tensor, views: Sequence[Sequence[float]]) -> Iterator[Tensor]:  # (…, H·W) each
    """The image moved by rows and columns, turned against the clock by degrees, and made so many times as large.

    Read between the pixels as :class:`restt.train.Augmentation` does; what comes in from outside is 0.

    >>> views = [(0, 1, 0, 1), (0, 0, 90, 1)]
    >>> [view.round().tolist() for view in moved_and_turned(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), views)]
    [[[0.0, 1.0, 0.0, 3.0]], [[2.0, 4.0, 1.0, 3.0]]]
    """
    side = square_side("pixels of an image in x", x.shape[-1])
    images = x.view(-1, 1, side, side)
    for down, right, degrees, size in views:
        numbers = torch.tensor([degrees, size, -right, -down, 0.0], dtype=x.dtype, device=x.device)
        matrix = affine_matrices((side, side), *numbers.unsqueeze(1)).expand(len(images), -1, -1)
        grid = affine_grid(matrix, list(images.shape), align_corners=False)
        yield grid_sample(images, grid, align_corners=False).view_as(x)
