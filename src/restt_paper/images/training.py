"""Training of one cell of an image table: all seeds side by side, with the three accuracies that are never mixed.

Beside the seeds, which train on all their images and are scored on the test images, a few held-out runs train on most
of theirs and are scored on the rest. They alone decide which epoch is "selected"; the test images never do.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from restt import data
from restt._common.errors import check_choice
from restt.data.images import choose_rows
from restt.train import EpochRecord, TrainConfig, train
from restt_paper.images.sites import block_means

if TYPE_CHECKING:
    from restt_baselines.network import TrainFirst

DATASETS = ("mnist", "fashion-mnist", "digits")
FeatureMap = Callable[[Tensor], Tensor]
Views = Callable[[Tensor], Iterable[Tensor]]
TEST_ROWS_AT_ONCE = 1024


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
        loaded = data.load(dataset).split(0.3, random_state=0)
    else:
        loaded = data.load(dataset, preprocess="full")
    kept = slice(rows)
    parts = [loaded.x_train[kept].flatten(1), loaded.x_test[kept].flatten(1)]
    x = torch.cat([block_means(part) for part in parts] if half else parts)
    y = torch.cat([loaded.y_train[kept], loaded.y_test[kept]]).long()
    return Images(x, y, len(parts[0]), len(loaded.classes))


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
    count = max(1, round(share * len(rows)))
    return rows[order[count:]], rows[order[:count]]


def train_seeds(
    build: Callable[[int], nn.Module],  # runs -> a module (B, …) -> (runs, B, O)
    images: Images,
    config: TrainConfig,
    *,
    fraction: float,
    seeds: int,
    held_out: int,
    validation_share: float,
    subset: str = "random",
    feature_map: FeatureMap | None = None,
    together: bool = True,
    views: Views | None = None,
    prepare: Callable[[nn.Module, TrainFirst], None] | None = None,
) -> dict[str, Any]:
    """Train and score; accuracies in percent.

    ``final``, ``selected`` and ``best_on_test`` have one entry per seed: after the last epoch, after the epoch that is
    best for the held-out runs, and after the epoch that is best on the test images (how the paper's public code picks
    its number; only to compare with the paper). ``averaged`` is the accuracy of the seeds' mean output. With
    ``views``, ``of_views`` has both of outputs averaged over the views of each test image.

    ``together=False`` trains the held-out runs after the seeds instead of beside them: a batch norm must not see runs
    of different lengths side by side. ``prepare`` changes a module in place before its training, by a function that
    trains a module on the same images.
    """
    rows = [training_rows(images, fraction, run, subset) for run in range(seeds)]
    scored = [images.test_rows] * seeds
    for run in range(held_out):
        kept, validation = split_rows(training_rows(images, fraction, run, subset), run, validation_share)
        rows.append(kept)
        scored.append(validation)
    parts = [slice(0, seeds + held_out)] if together or not held_out else [slice(0, seeds), slice(seeds, None)]
    modules, curves, events, seconds = [], [], [], 0.0
    for part in parts:
        module = build(len(rows[part]))
        modules.append(module)
        device = next(module.parameters()).device
        fit = partial(train, x=images.x.to(device), y=images.y.to(device), subset=rows[part], feature_map=feature_map)
        if prepare is not None:
            prepare(module, partial(_train_first, fit))
        records = list(fit(module, config=config, validation_subset=scored[part]))
        curves.append(accuracy_curves(records))
        events += [event for record in records for event in record.events]
        seconds += sum(record.seconds for record in records)
    score = partial(_scored, modules[0], images, seeds, feature_map)
    of_views = {} if views is None else {"of_views": dict(zip(("final", "averaged"), score(views), strict=True))}
    accuracy = torch.cat(curves, dim=1)  # (epochs, S + H)
    return {
        "lr": config.lr,
        "rows": len(rows[0]),
        **three_accuracies(accuracy[:, :seeds], accuracy[:, seeds:]),
        "averaged": score(lambda x: [x])[1],
        **of_views,
        "curves": _rounded(accuracy[:, :seeds].T),  # one per seed, over the epochs
        "held_out_curve": _rounded(accuracy[:, seeds:].mean(1)) if held_out else None,
        "rolled_back": sum(event.kind == "rolled-back" for event in events),
        "given_up": sum(event.kind == "failed" for event in events),
        "training_seconds": round(seconds, 3),
    }


def _train_first(fit: Callable[..., Iterable[EpochRecord]], module: nn.Module, config: TrainConfig) -> None:
    for _ in fit(module, config=config):
        pass


@contextlib.contextmanager
def matmul_precision(name: str, device: str) -> Iterator[None]:
    """Precision of float32 products on a GPU inside the block; the CPU's are always exact."""
    before = torch.get_float32_matmul_precision()
    if torch.device(device).type == "cuda":
        torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def accuracy_curves(records: Sequence[EpochRecord]) -> Tensor:  # (epochs, S) percent
    """Accuracy by epoch; a run that stopped repeats its last value, since its weights stay."""
    curves = 100 * torch.tensor([record.validation["accuracy"] for record in records], dtype=torch.float64)
    for epoch in range(1, len(curves)):
        stopped = curves[epoch].isnan()
        curves[epoch, stopped] = curves[epoch - 1, stopped]
    return curves


def three_accuracies(test: Tensor, held_out: Tensor) -> dict[str, Any]:  # (epochs, S), (epochs, H)
    """Per seed: final, selected by the held-out runs' mean, best on test.

    >>> test, held_out = torch.tensor([[90.0], [95.0], [94.0]]), torch.tensor([[80.0], [81.0], [85.0]])
    >>> three_accuracies(test, held_out)
    {'final': [94.0], 'selected': [94.0], 'selected_epoch': 3, 'best_on_test': [95.0]}
    """
    epoch = int(held_out.mean(1).nan_to_num(-math.inf).argmax()) + 1 if held_out.shape[1] else None
    return {
        "final": _rounded(test[-1]),
        "selected": None if epoch is None else _rounded(test[epoch - 1]),
        "selected_epoch": epoch,
        "best_on_test": _rounded(test.nan_to_num(-math.inf).max(0).values),
    }


@torch.no_grad()
def _scored(
    module: nn.Module, images: Images, seeds: int, feature_map: FeatureMap | None, views: Views
) -> tuple[list[float], float]:
    """Accuracy on the test images of each seed and of their mean, outputs being means over views."""
    device = next(module.parameters()).device
    module.eval()
    hits = torch.zeros(seeds + 1)
    for rows in images.test_rows.split(TEST_ROWS_AT_ONCE):
        seen = [view if feature_map is None else feature_map(view) for view in views(images.x[rows].to(device))]
        output = torch.stack([module(view)[:seeds] for view in seen]).mean(0)  # (S, B, O)
        predicted = torch.cat([output, output.mean(0, keepdim=True)]).argmax(-1).cpu()
        hits += (predicted == images.y[rows]).sum(1)
    *of_seeds, of_mean = _rounded(100 * hits.double() / len(images.test_rows))
    return of_seeds, of_mean


def _rounded(values: Tensor) -> list[Any]:
    rounded: list[Any] = torch.round(values, decimals=4).tolist()
    return rounded
