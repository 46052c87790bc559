"""From the pixels of whole images to site vectors, on the device and after any augmentation."""

from __future__ import annotations

from torch import Tensor

from restt._common.errors import square_side
from restt.data.images import image_blocks
from restt.features.formulas import PAPER_ANGLE, on_the_sphere


def square_blocks(x: Tensor) -> Tensor:  # (…, H·W) -> (…, N, 4)
    """Flat square images in blocks of 2×2 pixels."""
    side = square_side("pixels of an image in x", x.shape[-1])
    if side % 2:
        raise ValueError(f"x must hold images with an even side, got images of {side}×{side} pixels")
    return image_blocks(x.unflatten(-1, (side, side)))


def block_means(x: Tensor) -> Tensor:  # (…, H·W) -> (…, N)
    """The paper's smaller image.

    >>> import torch
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

    >>> import torch
    >>> Pixels()(torch.tensor([[1.0, 0.0, 1.0, 0.0]])).shape
    torch.Size([1, 1, 2])
    """

    width = 2

    def __call__(self, x: Tensor) -> Tensor:  # (…, H·W) -> (…, N, 2)
        return on_the_sphere(block_means(x).unsqueeze(-1), self.angle)


class Patches(_Blocks):
    """Each 2×2 block of the whole image is a site of its four pixels: the paper's vector map, I = 8.

    >>> import torch
    >>> Patches()(torch.zeros(3, 16)).shape
    torch.Size([3, 4, 8])
    """

    width = 8

    def __call__(self, x: Tensor) -> Tensor:  # (…, H·W) -> (…, N, 8)
        return on_the_sphere(square_blocks(x), self.angle)


class Products(_Blocks):
    """Each 2×2 block is a site of all products of its four pixels' [cos, sin], I = 16.

    Within a patch every order of interaction is a feature then; the vector map has no product of two pixels of a patch.

    >>> import torch
    >>> Products()(torch.zeros(3, 16)).shape
    torch.Size([3, 4, 16])
    """

    width = 16

    def __call__(self, x: Tensor) -> Tensor:  # (…, H·W) -> (…, N, 16)
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
