"""Image augmentation on the device: each image of each batch shifted, turned, scaled, slanted and bent at random."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

from restt._common.errors import check_int, check_positive
from restt._common.seeds import uniform

# An elastic field is drawn on a coarse grid of this many points a side and smoothed by bicubic interpolation.
ELASTIC_POINTS = 4


@dataclass(frozen=True)
class Augmentation:
    """A random change of each image, on raw values (S, B, H·W) before the feature map.

    Parameters
    ----------
    shift : float
        Up to this many pixels in each direction.
    rotation : float
        Up to this many degrees either way.
    scale : float
        Up to this fraction larger or smaller.
    shear : float
        Up to this many degrees of slant either way: rows move sideways in proportion to their height.
    elastic : float
        Up to this many pixels of a smooth random displacement, different in each part of the image.
    flip : bool
        Whether half of the images are mirrored left to right.
    blend : float
        Up to this part of each image comes from another image of its batch, and as much of its target (mixup,
        Zhang et al. 2018); each image's part is uniform between 0 and this.
    image : (int, int), optional
        Height and width; by default the image is square.

    Pixels that come in from outside are 0.

    >>> from restt._common.seeds import stream_keys
    >>> images = torch.rand(2, 3, 196)
    >>> Augmentation(shift=2.0, rotation=9.0, scale=0.1)(images, stream_keys([0, 0], [0, 1], "augment", 0)).shape
    torch.Size([2, 3, 196])
    """

    shift: float = 0.0
    rotation: float = 0.0
    scale: float = 0.0
    elastic: float = 0.0
    flip: bool = False
    blend: float = 0.0
    image: tuple[int, int] | None = None
    shear: float = 0.0

    def __post_init__(self) -> None:
        for name in ("shift", "rotation", "scale", "shear", "elastic", "blend"):
            check_positive(f"augment.{name}", getattr(self, name), allow_zero=True)
        if not isinstance(self.flip, bool):
            raise TypeError(f"augment.flip must be True or False, got {self.flip!r}")
        if self.scale >= 1:
            raise ValueError(f"augment.scale must be below 1, got {self.scale}")
        if self.shear >= 90:
            raise ValueError(f"augment.shear must be below 90 degrees, got {self.shear}")
        if self.blend > 1:
            raise ValueError(f"augment.blend must be at most 1, got {self.blend}")
        if self.image is not None:
            if len(self.image) != 2:
                raise ValueError(f"augment.image must be (height, width), got {self.image}")
            for size in self.image:
                check_int("augment.image", size, minimum=1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; ``blend`` and ``shear`` only where used, as in checkpoints from before they were there."""
        plain = {**asdict(self), "image": None if self.image is None else list(self.image)}
        return {name: value for name, value in plain.items() if value or name not in ("blend", "shear")}

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError unless data of this shape are flat images of the right size."""
        if len(shape) != 2:
            raise ValueError(f"augment takes flat images, x of shape (M, H·W), got {shape}")
        self.size(shape[1])

    def size(self, pixels: int) -> tuple[int, int]:
        """Height and width of images of this many pixels."""
        side = math.isqrt(pixels)
        height, width = self.image or (side, side)
        if height * width != pixels:
            shape = f"{height}×{width}" if self.image else "square, set augment.image=(height, width)"
            raise ValueError(f"x has {pixels} pixels per image, which is not {shape}")
        return height, width

    def __call__(
        self,
        x: Tensor,  # (S or 1, B, H·W)
        keys: Tensor,  # (S,)
        offset: int = 0,
    ) -> Tensor:  # (S, B, H·W)
        """The changed images; image ``b`` uses numbers of the runs' streams from ``offset + b`` on."""
        runs, batch, pixels = len(keys), x.shape[1], x.shape[2]
        height, width = self.size(pixels)
        # A number that is not used is not drawn where it came to the others later: their streams stay what they were.
        per_image = 4 + 2 * ELASTIC_POINTS**2 + bool(self.shear) + self.flip
        random = uniform(keys, (batch, per_image), offset * per_image).to(x.dtype) * 2 - 1
        random = random.flatten(0, 1)  # (S·B, …) in [-1, 1)
        grid = affine_grid(self._matrices(random, height, width), [len(random), 1, height, width], align_corners=False)
        if self.elastic:
            across, down = smooth_fields(random[:, 4 : 4 + 2 * ELASTIC_POINTS**2], height, width).unbind(1)
            grid = grid + self.elastic * torch.stack([across * (2 / width), down * (2 / height)], dim=-1)
        if self.flip:
            across, down = grid.unbind(-1)
            grid = torch.stack([across * random[:, -1].sign()[:, None, None], down], dim=-1)
        images = x.expand(runs, -1, -1).reshape(runs * batch, 1, height, width)
        return grid_sample(images, grid, align_corners=False).view(runs, batch, pixels)

    def parts(self, keys: Tensor, batch: int, offset: int = 0) -> Tensor:  # (S, B)
        """How much of each image comes from another one; image ``b`` uses number ``offset + b``.

        The complement of a key is a stream of its own: numbers that move an image are not used again.
        """
        return self.blend * uniform(keys.bitwise_not(), (batch,), offset)

    def _matrices(self, random: Tensor, height: int, width: int) -> Tensor:  # (S·B, 2, 3)
        slant = random[:, 4 + 2 * ELASTIC_POINTS**2] if self.shear else torch.zeros_like(random[:, 0])
        return affine_matrices(
            (height, width),
            random[:, 0] * self.rotation,
            1 + random[:, 1] * self.scale,
            random[:, 2] * self.shift,
            random[:, 3] * self.shift,
            slant * self.shear,
        )


def smooth_fields(points: Tensor, height: int, width: int) -> Tensor:  # (M, 2·P²) -> (M, 2, H, W)
    """Two fields for each image, from their values on a coarse grid by bicubic interpolation.

    By a product with what each point alone becomes: torch's own interpolation of many small images has no more threads
    on a GPU than an image has pixels, and took a third of a training step.
    """
    alone = torch.eye(ELASTIC_POINTS**2, dtype=points.dtype, device=points.device)
    bumps = interpolate(
        alone.view(-1, 1, ELASTIC_POINTS, ELASTIC_POINTS), size=(height, width), mode="bicubic", align_corners=True
    )
    return (points.view(-1, 2, len(alone)) @ bumps.flatten(1)).unflatten(-1, (height, width))


def affine_matrices(
    image: tuple[int, int],
    degrees: Tensor,  # (M,) each
    size: Tensor,
    across: Tensor,
    down: Tensor,
    slant: Tensor,
) -> Tensor:  # (M, 2, 3)
    """Where each pixel of a changed image is read from; ``image`` is its height and width.

    In grid_sample's [-1, 1] coordinates, x to the right and y down. A pixel is read ``across`` and ``down`` of its
    place, in pixels: the image itself moves the other way. It is then turned against the clock, made ``size`` times as
    large, and slanted, its upper rows to the right.

    >>> zero, one = torch.zeros(1), torch.ones(1)
    >>> affine_matrices((4, 8), zero, one, one, zero, zero)
    tensor([[[1.0000, 0.0000, 0.2500],
             [0.0000, 1.0000, 0.0000]]])
    """
    height, width = image
    angle = torch.deg2rad(degrees)
    cos, sin, slope = angle.cos() / size, angle.sin() / size, torch.deg2rad(slant).tan()
    aspect = height / width  # a turn is one of pixels, not of the stretched unit square
    rows = [
        cos,
        (cos * slope - sin) * aspect,
        across * (2 / width),
        sin / aspect,
        cos + sin * slope,
        down * (2 / height),
    ]
    return torch.stack(rows, dim=-1).view(-1, 2, 3)
