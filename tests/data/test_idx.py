from __future__ import annotations

import gzip

import pytest
import torch

from restt.data.idx import parse_idx

IMAGES = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + bytes(range(12))


@pytest.mark.parametrize("content", [IMAGES, gzip.compress(IMAGES, mtime=0)])
def test_images(content: bytes) -> None:
    images = parse_idx(content, "images", dimensions=3)
    assert torch.equal(images, torch.arange(12, dtype=torch.uint8).view(2, 2, 3))
    images[0, 0, 0] = 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (IMAGES[:-1], r"images must have 12 bytes of data for shape \(2, 2, 3\), got 11"),
        (IMAGES + b"x", "got 13"),
        (IMAGES[:9], "images is cut off: an IDX header has 16 bytes, got 9"),
        (b"", "images is cut off"),
        (bytes([0, 0, 13, 3]) + IMAGES[4:], "magic number 0x00000803 .* got 0x00000d03"),
        (bytes([0, 0, 8, 1]) + IMAGES[4:], "got 0x00000801"),
        (gzip.compress(IMAGES, mtime=0)[:-9], "images is not a whole gzip file"),
        (gzip.compress(IMAGES, mtime=0)[:12] + b"\xff" * 20, "images is not a whole gzip file"),
    ],
)
def test_broken_files(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_idx(content, "images", dimensions=3)
