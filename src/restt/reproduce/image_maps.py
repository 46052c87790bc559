"""From the pixels of whole images to site vectors, on the device and after any augmentation."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class _Blocks:
    """Square images (…, H·W) in blocks of 2×2 pixels, each block a site."""

    def __init__(self, angle: float = math.pi / 2) -> None:
        self.angle = angle

    def _blocks(self, x: Tensor) -> Tensor:  # (…, H·W) -> (…, N, 4)
        side = math.isqrt(x.shape[-1])
        if side * side != x.shape[-1] or side % 2:
            raise ValueError(f"images must be square with an even side, got {x.shape[-1]} pixels")
        blocks = x.reshape(*x.shape[:-1], side // 2, 2, side // 2, 2).transpose(-3, -2)
        return blocks.reshape(*x.shape[:-1], x.shape[-1] // 4, 4)

    def _on_the_sphere(self, values: Tensor) -> Tensor:  # (…, N, I) -> (…, N, 2I)
        turned = values * self.angle
        return torch.cat([turned.cos(), turned.sin()], dim=-1) / math.sqrt(values.shape[-1])


class Pixels(_Blocks):
    """The paper's sites: the mean of each 2×2 block, then [cos(angle·p), sin(angle·p)]; the paper's angle is π/2.

    >>> Pixels()(torch.tensor([[1.0, 0.0, 1.0, 0.0]])).shape
    torch.Size([1, 1, 2])
    """

    width = 2

    def __call__(self, x: Tensor) -> Tensor:  # (…, H·W) -> (…, N, 2)
        return self._on_the_sphere(self._blocks(x).mean(-1, keepdim=True))


class Patches(_Blocks):
    """Each 2×2 block of the whole image is a site of its four pixels: the paper's vector map, I = 8.

    >>> Patches()(torch.zeros(3, 16)).shape
    torch.Size([3, 4, 8])
    """

    width = 8

    def __call__(self, x: Tensor) -> Tensor:  # (…, H·W) -> (…, N, 8)
        return self._on_the_sphere(self._blocks(x))


SITE_MAPS: dict[str, type[Pixels] | type[Patches]] = {"pixels": Pixels, "patches": Patches}
