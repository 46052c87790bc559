"""What "auto" stands for in a training, and the memory that one needs."""

from __future__ import annotations

import re

import pytest
import torch

from restt.estimators import settings
from restt.estimators.settings import Settings, check_fits, read_penalty, settle, training_bytes
from restt.train import Penalty

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("rows", "width", "batch_size", "epochs", "expected"),
    [
        (2048, 5, "auto", "auto", (None, 150, 2048.0)),
        (2049, 5, "auto", "auto", (512, 30, 512.0)),  # five steps an epoch
        (99_999, 5, "auto", "auto", (512, 20, 512.0)),
        (300, 5, 100, "auto", (100, 50, 100.0)),
        (301, 5, 100, 7, (100, 7, 100.0)),
        (300, 5, 300, 1, (None, 1, 300.0)),
        (300, 5, 900, 1, (None, 1, 300.0)),
    ],
)
def test_batches_epochs_and_the_work_of_a_step(rows, width, batch_size, epochs, expected):
    found = settle(rows, width, 3, 2, device="cpu", precision="auto", batch_size=batch_size, epochs=epochs)
    batch, count, step_rows = expected
    assert (found.batch_size, found.epochs) == (batch, count)
    assert found.step_work == pytest.approx(step_rows * width * 3**2 * 2)


def test_float64_is_for_epochs_of_little_work():
    for rows, precision in ((2_000_000, "float64"), (2_000_001, "float32")):
        options = {"device": "cpu", "precision": "auto", "batch_size": "auto", "epochs": "auto"}
        assert settle(rows, 10, 5, 4, **options).precision == precision  # rows · width · 5² · 4
        assert settle(rows, 10, 5, 4, **options | {"precision": "bf16"}).precision == "bf16"


def test_bytes_are_copies_of_the_weights_the_rows_and_a_step():
    sizes = {"sites": 3, "width": 5, "bond_dim": 2, "outputs": 7, "runs": 2, "rows": 11}
    weights = 3 * (5 * 2 * 2 + 5 * 2) + 5 * 2 * 7  # cores and linear entries of each site, and the head
    states, features, outer = 3 * (3 * 2), 2 * (3 * 5), 2 * (5 * 2)
    for precision, batch, step_rows, size in (("float64", None, 11, 8), ("float32", 4, 4, 4), ("tf32", 99, 11, 4)):
        expected = 15 * 2 * weights + 11 * 3 * 5 + step_rows * 2 * (states + features + outer)
        assert training_bytes(Settings(CPU, precision, batch, 1, 0.0), **sizes) == size * expected


def test_a_training_may_take_all_memory_and_as_many_sites_as_are_walked_in_time(monkeypatch):
    own = Settings(CPU, "float64", None, 1, 0.0)
    sizes = {"sites": 100_000, "width": 2, "bond_dim": 1, "outputs": 1, "runs": 1, "rows": 3}
    need = training_bytes(own, **sizes)
    monkeypatch.setattr(settings, "available_memory", lambda device: float(need))
    check_fits(**sizes, settings=own)
    monkeypatch.setattr(settings, "available_memory", lambda device: float(need - 1))
    with pytest.raises(ValueError, match=re.escape("X is too large: 100000 columns as sites of width 2")):
        check_fits(**sizes, settings=own)
    monkeypatch.setattr(settings, "available_memory", lambda device: float("inf"))
    with pytest.raises(ValueError, match="a chain may have 100000 sites"):
        check_fits(**sizes | {"sites": 100_001}, settings=own)


def test_penalties_are_numbers_or_weights_of_each_part():
    weights = {"chain": 0.3, "head": 0.01}
    assert read_penalty(None, 1.0) is None
    assert read_penalty(given := Penalty(**weights), 1.0) is given
    assert read_penalty(weights, 1.0) == given
    assert read_penalty(0.5, 1.0) == Penalty(chain=5.0, linear=0.5, head=0.5)
    with pytest.raises(ValueError, match=re.escape("penalty may hold chain, linear and head, got ['tail']")):
        read_penalty({"chain": 1.0, "tail": 1.0}, 1.0)
