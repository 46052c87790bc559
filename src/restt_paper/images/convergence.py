"""How long a training takes until its accuracy reaches a bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from restt.data.dataset import Dataset
from restt.features import Trigonometric
from restt.module import ResTT
from restt.train import TrainConfig, train


def time_to_accuracy(
    make: Callable[[], ResTT], images: Dataset, config: TrainConfig, *, bar: float, held_out: int, seed: int
) -> dict[str, Any]:
    """Train until the accuracy has reached ``bar`` percent on held-out training rows and on the test set.

    The clock runs inside the training loop only, evaluation of the held-out rows included; it stands still while the
    test images are looked at. A throw-away model trains an epoch before it starts, which compiles the kernels.

    Parameters
    ----------
    make : callable
        An untrained module of one run, on its device.
    images : Dataset
        Its ``x_train`` (M, N) are pixels, which become trigonometric site vectors.
    config : TrainConfig
        Its epochs are the most that are trained.
    bar : float
    held_out : int
        Rows of the training data kept for validation.
    seed : int
        Chooses the rows held out.

    Returns
    -------
    dict
        Seconds and accuracies by epoch, and ``by_validation`` and ``by_test``: epoch, seconds and test accuracy when
        the bar was first reached, None where it was not.
    """
    order = torch.randperm(len(images.x_train), generator=torch.Generator().manual_seed(seed))
    x, y = images.x_train[order[held_out:]], images.y_train[order[held_out:]]
    validation = images.x_train[order[:held_out]], images.y_train[order[:held_out]]
    feature_map = Trigonometric()
    next(train(make(), x, y, config=config, validation=validation, feature_map=feature_map))

    module = make()
    device = module.first.device
    test = feature_map(images.x_test.to(device)), images.y_test.to(device)
    seconds: list[float] = []
    on_validation: list[float] = []
    on_test: list[float] = []
    began, spent = time.perf_counter(), 0.0
    for record in train(module, x, y, config=config, validation=validation, feature_map=feature_map):
        spent += time.perf_counter() - began
        seconds.append(round(spent, 6))
        on_validation.append(round(100 * record.validation["accuracy"][0], 3))
        on_test.append(_accuracy(module, *test))
        if max(on_validation) >= bar and max(on_test) >= bar:
            break
        began = time.perf_counter()
    return {
        "seconds_by_epoch": seconds,
        "validation_accuracy_by_epoch": on_validation,
        "test_accuracy_by_epoch": on_test,
        "by_validation": _first(bar, on_validation, seconds, on_test),
        "by_test": _first(bar, on_test, seconds, on_test),
    }


@torch.no_grad()
def _accuracy(module: ResTT, x: Tensor, y: Tensor) -> float:  # (B, N, I), (B,)
    return round(100 * (module(x).argmax(-1) == y).double().mean().item(), 3)


def _first(
    bar: float, accuracy: Sequence[float], seconds: Sequence[float], on_test: Sequence[float]
) -> dict[str, float | None]:
    """The first epoch whose accuracy reached the bar, with its time and the test accuracy then.

    >>> _first(98.0, [97.0, 98.5], [1.0, 2.0], [96.0, 97.9])
    {'epochs': 2, 'seconds': 2.0, 'test_accuracy': 97.9}
    >>> _first(98.0, [97.0], [1.0], [96.0])
    {'epochs': None, 'seconds': None, 'test_accuracy': None}
    """
    for epoch, value in enumerate(accuracy):
        if value >= bar:
            return {"epochs": epoch + 1, "seconds": seconds[epoch], "test_accuracy": on_test[epoch]}
    return {"epochs": None, "seconds": None, "test_accuracy": None}
