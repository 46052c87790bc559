"""From the pixels of whole images to site vectors, on the device and after any augmentation.

Beside the maps: the orders in which a chain can see the sites, since models with different orders err differently, and
several views of one image, whose outputs are averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

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


def pixel_sites(x: Tensor, angle: float = PAPER_ANGLE) -> Tensor:  # (…, H·W) -> (…, N, 2)
    """The paper's sites: the mean of each 2×2 block, then [cos(angle·p), sin(angle·p)]; the paper's angle is π/2.

    >>> pixel_sites(torch.tensor([[1.0, 0.0, 1.0, 0.0]])).shape
    torch.Size([1, 1, 2])
    """
    return on_the_sphere(block_means(x).unsqueeze(-1), angle)


def patch_sites(x: Tensor, angle: float = PAPER_ANGLE) -> Tensor:  # (…, H·W) -> (…, N, 8)
    """Each 2×2 block of the whole image as a site of its four pixels: the paper's vector map.

    >>> patch_sites(torch.zeros(3, 16)).shape
    torch.Size([3, 4, 8])
    """
    return on_the_sphere(square_blocks(x), angle)


def product_sites(x: Tensor, angle: float = PAPER_ANGLE) -> Tensor:  # (…, H·W) -> (…, N, 16)
    """Each 2×2 block as a site of all products of its four pixels' [cos, sin].

    Within a patch every order of interaction is a feature then; the vector map has no product of two pixels of a patch.

    >>> product_sites(torch.zeros(3, 16)).shape
    torch.Size([3, 4, 16])
    """
    pairs = on_the_sphere(square_blocks(x).unsqueeze(-1), angle)  # (…, N, 4, 2)
    product = pairs[..., 0, :]
    for pair in pairs.unbind(-2)[1:]:
        product = (product.unsqueeze(-1) * pair.unsqueeze(-2)).flatten(-2)
    return product


# Name -> width of a site vector, and the map.
SITE_MAPS: dict[str, tuple[int, Callable[[Tensor, float], Tensor]]] = {
    "pixels": (2, pixel_sites),
    "patches": (8, patch_sites),
    "products": (16, product_sites),
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

    def forward(self, x: Tensor) -> Tensor:  # (B, N, I) or (S, B, N, I) -> (S, B, O)
        """Outputs of every run."""
        if x.dim() == 3:
            reordered = x[:, self.order].transpose(0, 1)
        else:
            runs = torch.arange(len(x), device=x.device).unsqueeze(1)
            reordered = x[runs, :, self.order].transpose(1, 2)  # indexing puts (S, N) first
        outputs: Tensor = self.inner(reordered.contiguous())
        return outputs


def image_views(x: Tensor, views: Sequence[Sequence[float]]) -> Iterator[Tensor]:  # (…, H·W) each
    """Views of an image; what comes in from outside is 0.

    Pairs (down, right) are moves of the image and of its mirror by whole pixels. Fours (down, right, degrees, size) are
    moves, turns against the clock and scalings of the image, interpolated as :class:`restt.train.Augmentation` does.

    >>> x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    >>> [view.tolist() for view in image_views(x, [(0, 0), (0, 1)])][:2]
    [[[1.0, 2.0, 3.0, 4.0]], [[0.0, 1.0, 0.0, 3.0]]]
    >>> [view.round().tolist() for view in image_views(x, [(0, 1, 0, 1), (0, 0, 90, 1)])]
    [[[0.0, 1.0, 0.0, 3.0]], [[2.0, 4.0, 1.0, 3.0]]]
    """
    side = square_side("pixels of an image in x", x.shape[-1])
    if len(views[0]) == 2:
        images = x.unflatten(-1, (side, side))
        for seen in (images, images.flip(-1)):
            for down, right in views:
                # A negative pad cuts off what leaves the image.
                yield pad(seen, [int(pixels) for pixels in (right, -right, down, -down)]).flatten(-2)
        return
    images = x.view(-1, 1, side, side)
    for down, right, degrees, size in views:
        numbers = torch.tensor([degrees, size, -right, -down, 0.0], dtype=x.dtype, device=x.device)
        matrix = affine_matrices((side, side), *numbers.unsqueeze(1)).expand(len(images), -1, -1)
        grid = affine_grid(matrix, list(images.shape), align_corners=False)
        yield grid_sample(images, grid, align_corners=False).view_as(x)
