from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import restt
import restt_paper
from restt import data
from restt.train import TrainConfig
from restt_paper.experiments import Store
from restt_paper.images import table3
from restt_paper.images.table3 import time_to_accuracy

TINY = table3.Sizes((4,), 2, 0.1, 600, 100, 50, 20.0, 50, 8, (0, 1), lr=1e-2)


def stripes(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes of 6 pixels that a few epochs tell apart."""
    y = torch.arange(rows) % 2
    noise = torch.rand(rows, 6, generator=torch.Generator().manual_seed(seed)) / 4
    return torch.where(y[:, None] == 1, 1 - noise, noise), y


@pytest.fixture
def images():
    return data.Dataset("stripes", stripes(200, 0), stripes(100, 1), target_name="class", classes=("dark", "light"))


def make() -> restt.ResTT:
    module = restt.ResTT(6, 2, 3, 2)
    module.reset_parameters(seed=0)
    return module


def test_convergence_stops_at_the_bar_and_tells_the_time(images):
    config = TrainConfig.paper(epochs=50, batch_size=20, lr=1e-2, seed=0)
    found = time_to_accuracy(make, images, config, bar=95.0, held_out=40, seed=0)
    epochs = len(found["seconds_by_epoch"])
    assert 1 <= epochs < 50
    assert found["seconds_by_epoch"] == sorted(found["seconds_by_epoch"])
    for by in ("validation", "test"):
        first = found[f"by_{by}"]
        curve = found[f"{by}_accuracy_by_epoch"]
        assert curve[first["epochs"] - 1] >= 95.0
        assert all(value < 95.0 for value in curve[: first["epochs"] - 1])
        assert first["seconds"] == found["seconds_by_epoch"][first["epochs"] - 1]
    assert epochs == max(found["by_validation"]["epochs"], found["by_test"]["epochs"])


def test_a_bar_out_of_reach_is_not_reached(images):
    config = TrainConfig.paper(epochs=2, batch_size=20, lr=1e-4, seed=0)
    found = time_to_accuracy(make, images, config, bar=100.5, held_out=40, seed=0)
    assert found["by_validation"] == {"epochs": None, "seconds": None, "test_accuracy": None}
    assert len(found["seconds_by_epoch"]) == 2


def test_tables_from_a_tiny_run(tmp_path, monkeypatch, capsys):
    try:
        data.load("mnist", download=False)
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    monkeypatch.setitem(table3.SIZES, "quick", TINY)
    restt_paper.reproduce("table3", "quick", tmp_path, "cpu")
    (table,) = restt_paper.tables_of("table3", "quick", tmp_path)
    (row,) = table.rows
    assert row[:2] == ("4", "–")
    assert all(float(entry) > 0 for entry in (row[2], row[5]))
    assert "not yet" not in row
    assert "until 20 %" in table.title


def test_another_setting_is_another_cell(monkeypatch):
    before = [cell.key for cell in table3.cells("quick")]
    monkeypatch.setitem(table3.SIZES, "quick", replace(table3.SIZES["quick"], lr=1e-4))
    assert not set(before) & {cell.key for cell in table3.cells("quick")}


def test_the_paper_profile_has_the_paper_s_sizes():
    assert [cell.settings["bond_dim"] for cell in table3.cells("paper")] == [20, 30, 40, 50, 100]
    for cell in table3.cells("paper"):
        assert cell.settings["bar"] == 98.0
        assert cell.settings["batch"] == 512
        assert cell.settings["rows"] == 60_000


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        ([9.0, 7.0, 5.0, 6.0, 8.0], "holds"),  # falls, then r is too large
        ([9.0, 7.0, 8.0, 6.0, 5.0], "does not hold"),  # rises between
        ([9.0, 7.0, 6.95, 6.9, 6.0], "does not hold"),  # falls by less than the seeds differ
        ([5.0, 6.0, 7.0, 8.0, 9.0], "does not hold"),  # only rises
    ],
)
def test_larger_r_converges_in_less_time_up_to_a_point(seconds, verdict, tmp_path):
    store = Store(tmp_path)
    for milliseconds, (cell, taken) in enumerate(zip(table3.cells("paper"), seconds, strict=True), start=1):
        timed = {"median": float(milliseconds)}
        runs = [
            {
                name: {"seconds": taken + k / 10, "epochs": 5, "test_accuracy": 98.0}
                for name in ("by_validation", "by_test")
            }
            for k in range(3)
        ]
        names = ("inference", "backward", "inference_of_images")
        result = {"milliseconds": dict.fromkeys(names, timed), "convergence": runs}
        store.compute(cell, lambda _, result=result: result)
    claims = table3.claims(store)
    assert [row[-1] for row in claims.rows] == ["holds", "holds", verdict]
