"""Images and which of them each run sees."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from restt import data
from restt._common.errors import check_choice
from restt.data.images import choose_rows
from restt_paper.images.sites import block_means

# As the paper and its numbers name the sets.
NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
DATASETS = (*NAMES, "digits")


def part_of(dataset: str, fraction: float) -> str:
    """Name a part of a data set.

    >>> part_of("mnist", 0.05), part_of("fashion-mnist", 1.0)
    ('5 % of MNIST', 'Fashion-MNIST')
    """
    return NAMES[dataset] if fraction == 1.0 else f"{100 * fraction:g} % of {NAMES[dataset]}"


@dataclass(frozen=True, eq=False)
class Images:
    """Training and test images, one after the other, as rows of pixels in [0, 1]."""

    x: Tensor  # (M + T, H·W)
    y: Tensor  # (M + T,)
    training: int  # M
    classes: int

    @property
    def test_rows(self) -> Tensor:  # (T,)
        """Places of the test images, (T,)."""
        return torch.arange(self.training, len(self.x))


def load_images(dataset: str, rows: int | None = None, *, half: bool = False) -> Images:
    """The images of ``dataset``; with ``rows``, only that many for training, the first ones, and for testing.

    ``half`` takes the means of 2×2 blocks, as the paper does for tensor networks. ``"digits"`` is scikit-learn's
    bundled set, for trying things out.

    >>> images = load_images("digits", 100)
    >>> images.x.shape, images.x.max().item()
    (torch.Size([200, 64]), 1.0)
    """
    if check_choice("dataset", dataset, DATASETS) == "digits":
        found = data.load(dataset).split(0.3, random_state=0)
    else:
        found = data.load(dataset, preprocess="full")
    kept = slice(rows)
    x_train, x_test = found.x_train[kept].flatten(1), found.x_test[kept].flatten(1)
    if half:
        x_train, x_test = block_means(x_train), block_means(x_test)
    return Images(
        torch.cat([x_train, x_test]),
        torch.cat([found.y_train[kept], found.y_test[kept]]).long(),
        len(x_train),
        len(found.classes),
    )


def training_rows(images: Images, fraction: float, run: int, subset: str = "random") -> Tensor:
    """The training images of run ``run``.

    ``"random"`` ones are a part of its own, the same for the same run; the ``"first"``, which the authors' public code
    takes, are the same for every run.
    """
    chosen = choose_rows(images.training, fraction, subset, run)
    return torch.arange(images.training) if chosen is None else chosen


def split_rows(rows: Tensor, seed: int, share: float) -> tuple[Tensor, Tensor]:
    """A run's images in a part to train on and a part, ``share`` of them, to validate with.

    >>> [len(part) for part in split_rows(torch.arange(600), 0, 0.1)]
    [540, 60]
    """
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    held = max(1, round(share * len(rows)))
    return rows[order[held:]], rows[order[:held]]
