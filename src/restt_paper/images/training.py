"""One cell of an image table: all seeds side by side, with the three accuracies that are never mixed.

Beside the seeds, which train on all their images and are scored on the test images, a few held-out runs train on most
of theirs and are scored on the rest. They alone decide which epoch is "selected"; the test images never do.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from restt.train import EpochRecord, TrainConfig, train
from restt_paper.images.data import Images, split_rows, training_rows

if TYPE_CHECKING:
    from restt_baselines.network import TrainFirst

FeatureMap = Callable[[Tensor], Tensor]
Views = Callable[[Tensor], Iterable[Tensor]]
TEST_ROWS_AT_ONCE = 1024


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
    of different lengths side by side. ``prepare`` changes a module in place before its training; what it is given
    trains a module on the same images.
    """
    rows = [training_rows(images, fraction, run, subset) for run in range(seeds)]
    scored = [images.test_rows] * seeds
    for run in range(held_out):
        kept, validation = split_rows(training_rows(images, fraction, run, subset), run, validation_share)
        rows.append(kept)
        scored.append(validation)
    parts = [slice(0, seeds + held_out)] if together or not held_out else [slice(0, seeds), slice(seeds, None)]
    module: nn.Module | None = None
    curves, events, seconds = [], [], 0.0
    for part in parts:
        trained = build(len(rows[part]))
        module = trained if module is None else module
        device = next(trained.parameters()).device
        fitted = partial(
            train, x=images.x.to(device), y=images.y.to(device), subset=rows[part], feature_map=feature_map
        )
        if prepare is not None:
            prepare(trained, partial(_train_first, fitted))
        records = list(fitted(trained, config=config, validation_subset=scored[part]))
        curves.append(accuracy_curves(records))
        events += [event for record in records for event in record.events]
        seconds += sum(record.seconds for record in records)
    assert module is not None
    _, averaged = _scored(module, images, seeds, feature_map, _one_view)
    of_views = None
    if views is not None:
        of_views = dict(zip(("final", "averaged"), _scored(module, images, seeds, feature_map, views), strict=True))
    accuracy = torch.cat(curves, dim=1)  # (epochs, S + H)
    return {
        "lr": config.lr,
        "rows": len(rows[0]),
        **three_accuracies(accuracy[:, :seeds], accuracy[:, seeds:]),
        "averaged": averaged,
        **({} if of_views is None else {"of_views": of_views}),
        "curves": _rounded(accuracy[:, :seeds].T),  # one per seed, over the epochs
        "held_out_curve": _rounded(accuracy[:, seeds:].mean(1)) if held_out else None,
        "rolled_back": sum(event.kind == "rolled-back" for event in events),
        "given_up": sum(event.kind == "failed" for event in events),
        "training_seconds": round(seconds, 3),
    }


def _train_first(fitted: Callable[..., Iterable[EpochRecord]], module: nn.Module, config: TrainConfig) -> None:
    for _ in fitted(module, config=config):
        pass


@contextlib.contextmanager
def matmul_precision(name: str, device: str) -> Iterator[None]:
    """float32 products on a GPU as ``name`` says inside the block; the CPU's are always whole."""
    before = torch.get_float32_matmul_precision()
    if torch.device(device).type == "cuda":
        torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def accuracy_curves(records: Sequence[EpochRecord]) -> Tensor:  # (epochs, S) percent
    """Accuracy by epoch; a run that stopped keeps its last value, since it keeps its weights."""
    curves = 100 * torch.tensor([record.validation["accuracy"] for record in records], dtype=torch.float64)
    for epoch in range(1, len(curves)):
        stopped = curves[epoch].isnan()
        curves[epoch, stopped] = curves[epoch - 1, stopped]
    return curves


def three_accuracies(
    test: Tensor,  # (epochs, S)
    held_out: Tensor,  # (epochs, H)
) -> dict[str, Any]:
    """Per seed: final, selected by the held-out runs' mean, best on test.

    >>> test, held_out = torch.tensor([[90.0], [95.0], [94.0]]), torch.tensor([[80.0], [81.0], [85.0]])
    >>> three_accuracies(test, held_out)
    {'final': [94.0], 'selected': [94.0], 'selected_epoch': 3, 'best_on_test': [95.0]}
    """
    epoch = None
    if held_out.shape[1]:
        epoch = int(held_out.mean(1).nan_to_num(-math.inf).argmax()) + 1
    return {
        "final": _rounded(test[-1]),
        "selected": None if epoch is None else _rounded(test[epoch - 1]),
        "selected_epoch": epoch,
        "best_on_test": _rounded(test.nan_to_num(-math.inf).max(0).values),
    }


def _one_view(x: Tensor) -> list[Tensor]:
    return [x]


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
        found = torch.cat([output, output.mean(0, keepdim=True)]).argmax(-1).cpu()
        hits += (found == images.y[rows]).sum(1)
    *each, together = _rounded(100 * hits.double() / len(images.test_rows))
    return each, together


def _rounded(values: Tensor) -> list[Any]:
    rounded: list[Any] = torch.round(values, decimals=4).tolist()
    return rounded
