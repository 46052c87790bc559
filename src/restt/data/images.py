"""MNIST and Fashion-MNIST: IDX files, parts of the training set, and images as sites."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int, check_positive

SUBSETS = ("first", "random")
FULL_SCALE = 255
# The authors' public code centres pixels so; the paper says [0, 1].
AUTHORS_CENTRE = 127.5
IMAGES_AT_ONCE = 10_000


def load_images(
    files: Sequence[tuple[Path, bytes]],
    *,
    preprocess: str = "paper",
    fraction: float = 1.0,
    subset: str = "random",
    seed: int = 0,
) -> dict[str, Any]:
    """Read the fields of an image set from its four files; ``fraction`` and ``subset`` thin the training part only."""
    contents = {
        path.name.split("-ubyte")[0]: parse_idx(content, 3 if "idx3" in path.name else 1) for path, content in files
    }
    parts = []
    for part in ("train", "t10k"):
        images, labels = contents[f"{part}-images-idx3"], contents[f"{part}-labels-idx1"]
        kept = choose_rows(len(images), fraction, subset, seed) if part == "train" else None
        if kept is not None:
            images, labels = images[kept], labels[kept]
        parts.append((preprocess_images(images, preprocess), labels.long()))
    return {"rows": parts[0], "test_rows": parts[1], "target_name": "label"}


def choose_rows(rows: int, fraction: float, subset: str = "random", seed: int = 0) -> Tensor | None:
    """Choose round(fraction · rows) rows: their indices, in order, or ``None`` for all of them.

    ``"first"`` takes the first ones, as the authors' public code does. ``"random"`` draws without replacement, the
    same rows for the same seed, and a smaller fraction of a seed is part of a larger one.

    >>> choose_rows(10, 0.3, "first")
    tensor([0, 1, 2])
    """
    check_choice("subset", subset, SUBSETS)
    check_int("seed", seed, minimum=0)
    if check_positive("fraction", fraction) > 1:
        raise ValueError(f"fraction must be above 0 and at most 1, got {fraction}")
    count = round(fraction * rows)
    if count == 0:
        raise ValueError(f"fraction must keep at least one of the {rows} rows, got {fraction}")
    if count == rows:
        return None
    if subset == "first":
        return torch.arange(count)
    return torch.from_numpy(np.sort(np.random.default_rng(seed).permutation(rows)[:count]))


def parse_idx(content: bytes, dimensions: int) -> Tensor:
    """Parse a gzipped IDX file of unsigned bytes to a uint8 tensor; the file's hash was checked, so its form is known.

    >>> parse_idx(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9])), dimensions=1)
    tensor([7, 8, 9], dtype=torch.uint8)
    """
    unpacked = gzip.decompress(content)
    header = 4 + 4 * dimensions
    shape = struct.unpack(f">{dimensions}I", unpacked[4:header])
    return torch.from_numpy(np.frombuffer(unpacked, dtype=np.uint8, offset=header).copy()).view(shape)


def preprocess_images(images: Tensor, preprocess: str = "paper") -> Tensor:
    """Turn images (M, 28, 28) of uint8 into columns or sites.

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


def image_blocks(images: Tensor) -> Tensor:  # (…, H, W) -> (…, H·W/4, 4)
    """Cut images with even sides into 2×2 blocks, row by row, each block's rows one after the other."""
    lead, (height, width) = images.shape[:-2], images.shape[-2:]
    blocks = images.reshape(*lead, height // 2, 2, width // 2, 2).transpose(-3, -2)
    return blocks.reshape(*lead, height * width // 4, 4)


PREPROCESS: dict[str, Callable[[Tensor], Tensor]] = {
    "paper": _paper,
    "authors": _authors,
    "patches": lambda images: image_blocks(images).float() / FULL_SCALE,
    "full": lambda images: images.flatten(1).float() / FULL_SCALE,
    "raw": lambda images: images,
}
