"""Random changes of each batch: images shifted, turned, scaled, slanted and bent; sites dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

from restt._common.errors import check_positive, square_side
from restt._common.seeds import uniform
from restt.topology import Topology

# An elastic field is drawn on a coarse grid of this many points a side and smoothed by bicubic interpolation.
ELASTIC_POINTS = 4


@dataclass(frozen=True)
class Augmentation:
    """A random change of each image, on raw values (S, B, H·W) of square images before the feature map.

    Parameters
    ----------
    shift : float
        Up to this many pixels in each direction; pixels that come in from outside are 0.
    rotation : float
        Up to this many degrees either way.
    scale : float
        Up to this fraction larger or smaller.
    elastic : float
        Up to this many pixels of a smooth random displacement, different in each part of the image.
    flip : bool
        Whether half of the images are mirrored left to right.
    shear : float
        Up to this many degrees of slant either way: rows move sideways in proportion to their height.

    Examples
    --------
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
    shear: float = 0.0

    def __post_init__(self) -> None:
        for name in ("shift", "rotation", "scale", "shear", "elastic"):
            check_positive(f"augment.{name}", getattr(self, name), allow_zero=True)
        if not isinstance(self.flip, bool):
            raise TypeError(f"augment.flip must be True or False, got {self.flip!r}")
        for name, limit in (("scale", 1), ("shear", 90)):
            if getattr(self, name) >= limit:
                raise ValueError(f"augment.{name} must be below {limit}, got {getattr(self, name)}")

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError unless data of this shape are flat square images."""
        if len(shape) != 2:
            raise ValueError(f"augment takes flat images, x of shape (M, H·W), got {shape}")
        square_side("pixels of each image", shape[1])

    def __call__(
        self,
        x: Tensor,  # (S or 1, B, H·W)
        keys: Tensor,  # (S,)
        offset: int = 0,
    ) -> Tensor:  # (S, B, H·W)
        """Return the changed images; image ``b`` uses numbers of the runs' streams from ``offset + b`` on."""
        runs, batch, pixels = len(keys), x.shape[1], x.shape[2]
        side = square_side("pixels of each image", pixels)
        # Shear and flip came later: without them a stream has no number for them and stays what it was.
        per_image = 4 + 2 * ELASTIC_POINTS**2 + bool(self.shear) + self.flip
        random = uniform(keys, (batch, per_image), offset * per_image).to(x.dtype) * 2 - 1
        random = random.flatten(0, 1)  # (S·B, …) in [-1, 1)
        grid = affine_grid(self._matrices(random, side), [len(random), 1, side, side], align_corners=False)
        if self.elastic:
            fields = smooth_fields(random[:, 4 : 4 + 2 * ELASTIC_POINTS**2], side, side)
            grid = grid + self.elastic * (2 / side) * fields.permute(0, 2, 3, 1)
        if self.flip:
            across, down = grid.unbind(-1)
            grid = torch.stack([across * random[:, -1].sign()[:, None, None], down], dim=-1)
        images = x.expand(runs, -1, -1).reshape(runs * batch, 1, side, side)
        return grid_sample(images, grid, align_corners=False).view(runs, batch, pixels)

    def _matrices(self, random: Tensor, side: int) -> Tensor:  # (S·B, 2, 3)
        slant = random[:, 4 + 2 * ELASTIC_POINTS**2] if self.shear else torch.zeros_like(random[:, 0])
        return affine_matrices(
            (side, side),
            random[:, 0] * self.rotation,
            1 + random[:, 1] * self.scale,
            random[:, 2] * self.shift,
            random[:, 3] * self.shift,
            slant * self.shear,
        )


def smooth_fields(points: Tensor, height: int, width: int) -> Tensor:  # (M, 2·P²) -> (M, 2, H, W)
    """Two fields for each image, from their values on a coarse grid by bicubic interpolation.

    A product with the interpolation of each single point: torch's own interpolation of many small images has no more
    threads on a GPU than an image has pixels, and took a third of a training step.
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
    """Affine maps from a changed image to where its pixels are read; ``image`` is height and width.

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


def droppable_sites(topology: Topology) -> tuple[bool, ...]:  # N
    """Mark the sites with a full skip, which may vanish without breaking the chain; at site N output is the same.

    >>> droppable_sites(Topology.residual(4).without_skip(3))
    (False, True, False, True)
    """
    inner = tuple(skip == "full" for skip in topology.skips[:-1])
    return (False, *inner, topology.ends_with_skip)[: topology.sites]


class SiteDropout:
    """Sets x(n) to 0 with the run's probability p, which makes the site an identity step; others grow by 1/(1-p).

    The output is multilinear in the site vectors and sites drop independently, so its expectation is the output without
    dropout, exactly.
    """

    def __init__(self, topology: Topology, probabilities: Sequence[float], like: Tensor) -> None:
        """Take one probability per run; dtype and device are those of ``like``."""
        p = torch.tensor(probabilities, dtype=torch.float64)[:, None]  # (S, 1)
        p = p * torch.tensor(droppable_sites(topology), dtype=torch.float64)  # (S, N)
        self.p = p[:, None].to(like.device, torch.float32)  # (S, 1, N)
        self.scale = (1 / (1 - p))[:, None].to(like)  # (S, 1, N)

    def __call__(
        self,
        x: Tensor,  # (S or 1, B, N, I)
        keys: Tensor,  # (S,)
        offset: int,
    ) -> Tensor:  # (S, B, N, I)
        """Drop sites of ``x``; ``offset`` is the position in the runs' streams."""
        kept = uniform(keys, tuple(x.shape[1:3]), offset) >= self.p
        return x * (kept * self.scale).unsqueeze(-1)
