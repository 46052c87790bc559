from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from restt import data
from restt.data.synthetic import synthetic_weights


def test_target_is_the_papers_sum() -> None:
    made = data.load("synthetic", d=3, n_train=5, n_test=2, seed=7)
    w1, w2, w3 = (w.tolist() for w in synthetic_weights(3, seed=7))
    for x, y in zip(made.x_train.double().tolist(), made.y_train.tolist(), strict=True):
        a, b, c = x
        total = sum(w1[i] * a[i] for i in range(3))
        total += sum(w2[i][j] * a[i] * b[j] for i in range(3) for j in range(3))
        total += sum(w3[i][j][k] * a[i] * b[j] * c[k] for i in range(3) for j in range(3) for k in range(3))
        assert y == pytest.approx(total, abs=1e-6)


def test_shapes_and_default_sizes() -> None:
    made = data.load("synthetic", d=1)
    assert made.x_train.shape == made.x_test.shape == (10_000, 3, 1)
    assert made.y_train.shape == (10_000,)
    assert made.x_train.dtype == made.y_train.dtype == torch.float32
    assert made.task == "regression"


@pytest.mark.parametrize(("spread", "weight", "feature"), [("std", 0.1, 0.5), ("variance", 0.1**0.5, 0.5**0.5)])
def test_both_readings_of_the_spread(spread: str, weight: float, feature: float) -> None:
    made = data.load("synthetic", d=20, n_train=2000, n_test=1, spread=spread)
    assert made.x_train.std().item() == pytest.approx(feature, rel=5 / math.sqrt(2 * made.x_train.numel()))
    third = synthetic_weights(20, spread=spread)[2]
    assert third.std().item() == pytest.approx(weight, rel=5 / math.sqrt(2 * third.numel()))


def test_a_longer_training_part_extends_the_shorter() -> None:
    short = data.load("synthetic", d=2, n_train=10, n_test=5)
    long = data.load("synthetic", d=2, n_train=50, n_test=5)
    assert torch.equal(long.x_train[:10], short.x_train)
    torch.testing.assert_close(long.y_train[:10], short.y_train)
    assert torch.equal(long.x_test, short.x_test)
    assert not torch.equal(short.x_train[:5], short.x_test)


def test_seeds() -> None:
    first, again, other = (data.load("synthetic", d=2, n_train=9, n_test=1, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.x_train, again.x_train)
    assert torch.equal(first.y_train, again.y_train)
    assert not torch.equal(first.x_train, other.x_train)


@pytest.mark.parametrize("options", [{"d": 0}, {"n_train": 0}, {"n_test": 0}, {"seed": -1}, {"spread": "sd"}])
def test_bad_arguments(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        data.load("synthetic", **options)
