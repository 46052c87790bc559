"""Images on the device and which of them each run sees."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from restt import data
from restt._common.errors import check_choice
from restt.data.images import choose_rows
from restt_paper.image_maps import block_means

DATASETS = ("mnist", "fashion-mnist", "digits")
# Share of a run's own training images that held-out runs keep for validation.
VALIDATION_SHARE = 0.1
DIGITS_SCALE = 16.0


@dataclass(frozen=True, eq=False)
class Images:
    """Training and test images, one after the other, as rows of pixels in [0, 1]."""

    x: Tensor  # (M + T, H·W)
    y: Tensor  # (M + T,)
    training: int  # M
    classes: int

    @property
    def test_rows(self) -> Tensor:  # (T,)
        return torch.arange(self.training, len(self.x))


def load_images(dataset: str, rows: int | None = None, *, half: bool = False) -> Images:
    """The images of ``dataset``; with ``rows``, only that many for training, the first ones, and for testing.

    ``half`` takes the means of 2×2 blocks, as the paper does for tensor networks. ``"digits"`` is scikit-learn's
    bundled set, for trying things out.

    >>> load_images("digits", 100).x.shape
    torch.Size([200, 64])
    """
    if check_choice("dataset", dataset, DATASETS) == "digits":
        found = data.load(dataset).split(0.3, random_state=0)
        x_train, x_test = found.x_train.float() / DIGITS_SCALE, found.x_test.float() / DIGITS_SCALE
    else:
        found = data.load(dataset, preprocess="full")
        x_train, x_test = found.x_train, found.x_test
    kept = slice(rows)
    x_train, x_test = x_train[kept].flatten(1), x_test[kept].flatten(1)
    if half:
        x_train, x_test = block_means(x_train), block_means(x_test)
    return Images(
        torch.cat([x_train, x_test]),
        torch.cat([found.y_train[kept], found.y_test[kept]]).long(),
        len(x_train),
        len(found.classes),
    )


def training_rows(images: Images, fraction: float, run: int) -> Tensor:
    """The training images of run ``run``: a random part of its own, the same for the same run."""
    chosen = choose_rows(images.training, fraction, "random", run)
    return torch.arange(images.training) if chosen is None else chosen


def split_rows(rows: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """A run's images in a part to train on and a part to validate with.

    >>> [len(part) for part in split_rows(torch.arange(600), 0)]
    [540, 60]
    """
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    held = max(1, round(VALIDATION_SHARE * len(rows)))
    return rows[order[held:]], rows[order[:held]]
