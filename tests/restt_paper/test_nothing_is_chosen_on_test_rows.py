"""Epochs, rates and stopping times come from held-out training rows, which nobody trains on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

import restt
from restt import data
from restt.features import Trigonometric
from restt.train import TrainConfig, train
from restt_paper.experiments import Store
from restt_paper.images import cells, table3, table4, training
from restt_paper.images.cells import rate_cell
from restt_paper.images.training import Images, training_rows
from restt_paper.synthetic_training import choose_rate

TRAINING, TEST, PIXELS = 60, 24, 4
CONFIG = TrainConfig(epochs=1, batch_size=None, seed=0)


def random_rows(count, seed):
    """Pixels that no two rows share, with classes that mean nothing."""
    return torch.rand(count, PIXELS, generator=torch.Generator().manual_seed(seed)), torch.arange(count) % 2


@pytest.fixture
def images():
    x, y = random_rows(TRAINING + TEST, 0)
    return Images(x, y, TRAINING, 2)


@pytest.fixture
def trainings(monkeypatch):
    """What every training was given, in order."""
    given = []

    def noting(module, x, y, **settings):
        given.append({"x": x, **settings})
        return train(module, x, y, **settings)

    for module in (training, cells, table3):
        monkeypatch.setattr(module, "train", noting)
    return given


def numbers(rows):
    return set(rows.tolist())


@pytest.mark.parametrize("together", [True, False], ids=["beside the seeds", "after the seeds"])
def test_held_out_runs_are_scored_on_training_images_they_do_not_train_on(images, trainings, together):
    training.train_seeds(
        lambda runs: restt.ResTT(PIXELS, 2, 2, 2, runs=runs),
        images,
        CONFIG,
        fraction=0.5,
        seeds=3,
        held_out=2,
        validation_share=0.1,
        feature_map=Trigonometric(),
        together=together,
    )
    trained = [rows for given in trainings for rows in given["subset"]]
    scored = [rows for given in trainings for rows in given["validation_subset"]]
    for run in range(3):
        assert numbers(trained[run]) == numbers(training_rows(images, 0.5, run))
        assert numbers(scored[run]) == numbers(images.test_rows)
    for run in range(2):
        kept, held = numbers(trained[3 + run]), numbers(scored[3 + run])
        assert kept
        assert held
        assert not kept & held
        assert kept | held == numbers(training_rows(images, 0.5, run))


def test_rates_are_compared_on_training_images_that_no_trial_trains_on(images, trainings, monkeypatch, tmp_path):
    monkeypatch.setattr(cells, "load_images", lambda *_: images)
    monkeypatch.setitem(cells.SIZES, "quick", replace(cells.SIZES["quick"], epochs=1, rate_seeds=2, rows=None))
    cell = rate_cell("quick", "digits", "restt", 2)
    table4.EXPERIMENT.compute_cell(cell, Store(tmp_path))
    (given,) = trainings
    assert len(given["subset"]) == len(given["validation_subset"]) == 2 * len(cell.settings["rates"])
    for kept, held in zip(given["subset"], given["validation_subset"], strict=True):
        assert len(held) == TRAINING // cell.settings["one_held_out_in"]
        assert not numbers(kept) & numbers(held)
        assert numbers(kept) | numbers(held) == set(range(TRAINING))


def test_the_clock_is_stopped_by_training_rows_that_are_not_trained_on(trainings):
    images = data.Dataset(
        "dots", random_rows(TRAINING, 0), random_rows(TEST, 1), target_name="class", classes=("a", "b")
    )
    make = partial(restt.ResTT, PIXELS, 2, 2, 2)
    table3.time_to_accuracy(make, images, CONFIG, bar=101.0, held_out=20, seed=0)
    warm_up, timed = trainings
    for given in (warm_up, timed):
        kept, held = ({tuple(row) for row in part.tolist()} for part in (given["x"], given["validation"][0]))
        assert (len(kept), len(held)) == (TRAINING - 20, 20)
        assert kept | held == {tuple(row) for row in images.x_train.tolist()}


def test_rate_and_epoch_of_the_synthetic_figure_follow_validation_where_the_test_curve_disagrees():
    validation = torch.tensor([[[5.0], [3.0]], [[4.0], [1.0]], [[6.0], [2.0]]])  # (epochs, rates, repeats)
    test = torch.tensor([[[0.1], [0.7]], [[0.2], [0.9]], [[0.3], [0.8]]])
    found = choose_rate({"training": validation, "validation": validation, "test": test}, (1e-2, 1e-3))
    assert found["lr"] == 1e-3
    assert found["selected_epoch"] == [2]
    assert found["selected"] == pytest.approx([0.9])
    assert found["best_on_test"] == pytest.approx([0.7])


@pytest.mark.parametrize(("by_validation", "by_test"), [(4.0, 1.0), (1.0, 4.0)])
def test_the_convergence_target_reads_the_time_on_validation_rows(by_validation, by_test, monkeypatch, tmp_path):
    monkeypatch.setattr(table3, "TARGET_DEVICE", "")  # any
    store = Store(tmp_path)
    run = {"by_validation": {"seconds": by_validation}, "by_test": {"seconds": by_test}}
    store.compute_all(table3.cells("paper"), lambda _: {"convergence": [run]})
    assert table3.slowest_convergence(store) == by_validation
