"""MNIST and Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int, check_positive
from restt.data.catalog import Entry
from restt.data.dataset import Dataset
from restt.data.idx import parse_idx
from restt.data.preprocess import PREPROCESS, preprocess_images

CLASSES = {
    "mnist": tuple("0123456789"),
    "fashion-mnist": (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
}
SUBSETS = ("first", "random")


def load_images(
    entry: Entry,
    files: Sequence[tuple[Path, bytes]],
    *,
    preprocess: str = "paper",
    fraction: float = 1.0,
    subset: str = "random",
    seed: int = 0,
) -> Dataset:
    """An image set from its four files; ``fraction`` and ``subset`` thin the training part only."""
    check_choice("preprocess", preprocess, PREPROCESS)
    contents = {
        path.name.split("-ubyte")[0]: parse_idx(content, str(path), _dimensions(path)) for path, content in files
    }
    x_train, y_train = _pair(contents, "train")
    x_test, y_test = _pair(contents, "t10k")
    kept = choose_rows(len(x_train), fraction, subset, seed)
    if kept is not None:
        x_train, y_train = x_train[kept], y_train[kept]
    return Dataset(
        name=entry.name,
        rows=(preprocess_images(x_train, preprocess), y_train.long()),
        test_rows=(preprocess_images(x_test, preprocess), y_test.long()),
        target_name="label",
        classes=CLASSES[entry.name],
        source=entry.source,
        description=entry.description,
    )


def choose_rows(rows: int, fraction: float, subset: str = "random", seed: int = 0) -> Tensor | None:
    """The indices, in order, of round(fraction · rows) rows; ``None`` for all of them.

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


def _dimensions(path: Path) -> int:
    return 3 if "idx3" in path.name else 1


def _pair(contents: dict[str, Tensor], part: str) -> tuple[Tensor, Tensor]:
    images, labels = contents[f"{part}-images-idx3"], contents[f"{part}-labels-idx1"]
    if len(images) != len(labels):
        raise ValueError(f"{part} must have one label per image, got {len(images)} images and {len(labels)} labels")
    return images, labels
