"""Images to sites."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from restt._common.errors import check_choice

FULL_SCALE = 255
# The authors' public code centres pixels so; the paper says [0, 1].
AUTHORS_CENTRE = 127.5
IMAGES_AT_ONCE = 10_000


def preprocess_images(images: Tensor, preprocess: str = "paper") -> Tensor:
    """Images (M, 28, 28) of uint8 as columns or sites.

    - ``"paper"``: mean of each 2×2 block, divided by 255, flattened: (M, 196) in [0, 1] (paper, Sec. V-B).
    - ``"authors"``: what the authors' public code does: cubic interpolation to 14×14, then (p - 127.5)/255:
      (M, 196) in [-0.5, 0.5]. The interpolation is OpenCV's ``INTER_CUBIC`` on bytes: the kernel with a = -0.75
      without smoothing, the nearest pixel repeated at the border, results rounded and kept in 0…255.
    - ``"patches"``: each 2×2 block is one site: (M, 196, 4) in [0, 1], rows of the block one after the other.
    - ``"full"``: every pixel, divided by 255: (M, 784) in [0, 1].
    - ``"raw"``: the images as they are, uint8 (M, 28, 28).

    >>> preprocess_images(torch.full((1, 28, 28), 51, dtype=torch.uint8), "paper")[0, :2]
    tensor([0.2000, 0.2000])
    """
    if images.ndim != 3 or images.dtype != torch.uint8 or images.shape[1] % 2 or images.shape[2] % 2:
        raise ValueError(
            f"images must be uint8 of shape (M, height, width) with even sides, got {images.dtype} of shape "
            f"{tuple(images.shape)}"
        )
    return PREPROCESS[check_choice("preprocess", preprocess, PREPROCESS)](images)


def _paper(images: Tensor) -> Tensor:
    blocks = image_blocks(images)
    return blocks.sum(-1, dtype=torch.int32).float() / (4 * FULL_SCALE)


def _authors(images: Tensor) -> Tensor:
    half = (images.shape[1] // 2, images.shape[2] // 2)
    sites = torch.empty(len(images), half[0] * half[1], dtype=torch.float32)
    for part, out in zip(images.split(IMAGES_AT_ONCE), sites.split(IMAGES_AT_ONCE), strict=True):
        small = torch.nn.functional.interpolate(part.unsqueeze(1).float(), half, mode="bicubic", align_corners=False)
        # Half up, as OpenCV rounds; torch.round would go to even.
        rounded = (small + 0.5).floor().clamp(0, FULL_SCALE)
        out.copy_((rounded.flatten(1) - AUTHORS_CENTRE) / FULL_SCALE)
    return sites


def _patches(images: Tensor) -> Tensor:
    return image_blocks(images).float() / FULL_SCALE


def _full(images: Tensor) -> Tensor:
    return images.flatten(1).float() / FULL_SCALE


def _raw(images: Tensor) -> Tensor:
    return images


def image_blocks(images: Tensor) -> Tensor:  # (…, H, W) -> (…, H·W/4, 4)
    """The 2×2 blocks of images with even sides, row by row, each block's rows one after the other."""
    lead, (height, width) = images.shape[:-2], images.shape[-2:]
    blocks = images.reshape(*lead, height // 2, 2, width // 2, 2).transpose(-3, -2)
    return blocks.reshape(*lead, height * width // 4, 4)


PREPROCESS: dict[str, Callable[[Tensor], Tensor]] = {
    "paper": _paper,
    "authors": _authors,
    "patches": _patches,
    "full": _full,
    "raw": _raw,
}
