"""A cell trains on the fraction it names and a seed on images of its own."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin

from restt.train import EpochRecord
from restt_baselines import registry
from restt_paper.experiments import Context
from restt_paper.images.cells import baseline_cell, compute_images, recipe_cell
from restt_paper.images.training import load_images, training_rows

ROWS = 100


@pytest.fixture
def fitted_rows(monkeypatch):
    """The images each fit of a baseline was given, one entry per seed."""
    given = []

    class Noting(ClassifierMixin, BaseEstimator):
        def __init__(self, device="cpu", random_state=None):
            self.device, self.random_state = device, random_state

        def fit_epochs(self, X, y, validation):
            given.append(torch.from_numpy(X))
            yield EpochRecord(1, (0,), (1.0,), (1.0,), (1.0,), {"accuracy": (0.5,)}, seconds=1.0)

    file = types.ModuleType("restt_baselines.noting")
    file.Noting = Noting
    monkeypatch.setitem(sys.modules, file.__name__, file)
    monkeypatch.setitem(registry.BASELINES, "noting", registry.Baseline("noting:Noting"))
    return given


@pytest.fixture
def on_the_cpu(tmp_path):
    return Context("cpu", {}, tmp_path)


def test_a_recipe_trains_on_the_fraction_of_its_cell(on_the_cpu):
    cell = recipe_cell("table4", "quick", "digits", "tt", 2, 0.2, seeds=1, held_out=0, epochs=1, rows=ROWS)
    assert compute_images(cell.settings, on_the_cpu)["rows"] == 0.2 * ROWS


@pytest.mark.parametrize("subset", ["random", "first"])
def test_every_seed_of_a_baseline_has_the_images_its_cell_names(on_the_cpu, fitted_rows, subset):
    cell = baseline_cell("table5", "quick", "digits", "noting", 0.2, seeds=3, rows=ROWS, subset=subset)
    compute_images(cell.settings, on_the_cpu)
    images = load_images("digits", ROWS)
    assert len(fitted_rows) == 3
    for run, x in enumerate(fitted_rows):
        torch.testing.assert_close(x, images.x[training_rows(images, 0.2, run, subset)])
    assert torch.equal(fitted_rows[0], fitted_rows[1]) == (subset == "first")


def test_the_first_images_are_the_authors(on_the_cpu, monkeypatch):
    given = []

    def noting(build, images, config, **settings):
        given.append([training_rows(images, settings["fraction"], run, settings["subset"]) for run in range(2)])
        return {}

    monkeypatch.setattr("restt_paper.images.cells.train_seeds", noting)
    cell = recipe_cell("table4", "quick", "digits", "tt", 2, 0.2, "first", rows=ROWS)
    compute_images(cell.settings, on_the_cpu)
    assert [rows.tolist() for rows in given[0]] == [list(range(ROWS // 5))] * 2
