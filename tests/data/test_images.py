from __future__ import annotations

import gzip
from typing import Any

import numpy as np
import pytest
import torch

from restt.data.images import choose_rows, parse_idx, preprocess_images


@pytest.fixture
def images() -> torch.Tensor:
    random = np.random.default_rng(0).integers(0, 256, size=(5, 28, 28), dtype=np.uint8)
    return torch.from_numpy(random)


def test_paper_is_the_mean_of_blocks(images: torch.Tensor) -> None:
    sites = preprocess_images(images, "paper")
    assert sites.shape == (5, 196)
    assert sites.dtype == torch.float32
    block = images[2, 6:8, 10:12].double().mean() / 255
    assert sites[2, 3 * 14 + 5].item() == pytest.approx(block.item(), abs=1e-7)
    assert preprocess_images(torch.full((1, 28, 28), 255, dtype=torch.uint8)).unique().tolist() == [1.0]


def test_patches_keep_every_pixel(images: torch.Tensor) -> None:
    sites = preprocess_images(images, "patches")
    assert sites.shape == (5, 196, 4)
    assert torch.equal(sites[1, 2 * 14 + 7], images[1, 4:6, 14:16].flatten().float() / 255)
    torch.testing.assert_close(sites.mean(-1), preprocess_images(images, "paper"))


def test_authors_is_cubic_interpolation_on_bytes(images: torch.Tensor) -> None:
    """Against OpenCV's integer arithmetic, where the kernel at half steps is (-192, 1216, 1216, -192)/2048."""
    padded = np.pad(images.numpy().astype(np.int64), ((0, 0), (1, 1), (1, 1)), mode="edge")
    kernel = np.array([-192, 1216, 1216, -192])
    rows = sum(k * padded[:, i : i + 28 : 2] for i, k in enumerate(kernel))
    both = sum(k * rows[:, :, i : i + 28 : 2] for i, k in enumerate(kernel))
    pixels = np.clip((both + (1 << 21)) >> 22, 0, 255).reshape(5, 196)
    assert (pixels == 255).any() or (pixels == 0).any()
    sites = preprocess_images(images, "authors")
    np.testing.assert_array_equal(sites.numpy() * 255 + 127.5, pixels.astype(np.float32))
    assert sites.min() >= -0.5
    assert sites.max() <= 0.5


def test_full_and_raw(images: torch.Tensor) -> None:
    assert torch.equal(preprocess_images(images, "full"), images.flatten(1) / 255)
    assert torch.equal(preprocess_images(images, "raw"), images)


@pytest.mark.parametrize("preprocess", ["paper", "authors", "patches", "full", "raw"])
def test_no_images(preprocess: str) -> None:
    assert len(preprocess_images(torch.zeros(0, 28, 28, dtype=torch.uint8), preprocess)) == 0


def test_bad_arguments(images: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="preprocess must be one of"):
        preprocess_images(images, "resize")
    for bad in (images.float(), images[0], images[:, :27]):
        with pytest.raises(ValueError, match="images must be uint8 of shape"):
            preprocess_images(bad)


def test_random_rows_are_distinct_repeatable_and_nested() -> None:
    tenth, again, other = choose_rows(1000, 0.1, seed=3), choose_rows(1000, 0.1, seed=3), choose_rows(1000, 0.1, seed=4)
    assert tenth is not None
    assert again is not None
    assert other is not None
    assert len(tenth.unique()) == 100
    assert torch.equal(tenth, again)
    assert not torch.equal(tenth, other)
    assert tenth.max() > 500
    half = choose_rows(1000, 0.5, seed=3)
    assert half is not None
    assert set(tenth.tolist()) < set(half.tolist())


def test_fraction_sizes() -> None:
    first = choose_rows(60_000, 0.01, "first")
    assert first is not None
    assert first.tolist() == list(range(600))
    assert choose_rows(7, 1.0) is None
    rounded = choose_rows(7, 0.5, "first")
    assert rounded is not None
    assert len(rounded) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fraction": 0.0}, "fraction must be finite and above 0"),
        ({"fraction": 1.5}, "fraction must be above 0 and at most 1, got 1.5"),
        ({"fraction": 0.001}, "fraction must keep at least one of the 100 rows"),
        ({"fraction": 0.5, "subset": "last"}, "subset must be one of"),
        ({"fraction": 0.5, "seed": -1}, "seed must be at least 0"),
    ],
)
def test_bad_fractions(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_rows(100, **options)


IMAGES = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + bytes(range(12))


def test_images() -> None:
    images = parse_idx(gzip.compress(IMAGES, mtime=0), dimensions=3)
    assert torch.equal(images, torch.arange(12, dtype=torch.uint8).view(2, 2, 3))
    images[0, 0, 0] = 5
