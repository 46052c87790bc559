"""A cell trains on the fraction it names, a seed on images of its own, a split with the choice made for it."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from sklearn.dummy import DummyClassifier

from restt.baselines import registry
from restt_paper import tabular_restt
from restt_paper.image_cells import compute_recipe, recipe_cell
from restt_paper.image_data import load_images, training_rows
from restt_paper.rival_cells import compute_rival, rival_cell
from restt_paper.store import Store
from restt_paper.tabular_candidates import Candidate
from restt_paper.tabular_restt import search_cell, searched

ROWS = 100


@pytest.fixture
def fitted_rows(monkeypatch):
    """The images each fit of a rival was given, one entry per seed."""
    given = []

    class Noting(DummyClassifier):
        def fit(self, X, y):
            given.append(torch.from_numpy(X))
            return super().fit(X, y)

    file = types.ModuleType("restt.baselines.noting")
    file.TASKS = ("classification",)
    file.make = lambda task, **params: Noting(**params)
    monkeypatch.setitem(sys.modules, file.__name__, file)
    monkeypatch.setitem(registry.BASELINES, "noting", "noting")
    return given


def test_a_recipe_trains_on_the_fraction_of_its_cell(tmp_path):
    cell = recipe_cell("table4", "quick", "digits", "tt", 2, 0.2, seeds=1, held_out=0, epochs=1, rows=ROWS)
    assert compute_recipe(cell, Store(tmp_path))["rows"] == 0.2 * ROWS


def test_every_seed_of_a_rival_has_its_own_images(tmp_path, fitted_rows):
    cell = rival_cell("table5", "quick", "digits", "noting", 0.2, seeds=3, rows=ROWS)
    compute_rival(cell, Store(tmp_path))
    images = load_images("digits", ROWS)
    assert len(fitted_rows) == 3
    for run, x in enumerate(fitted_rows):
        torch.testing.assert_close(x, images.x[training_rows(images, 0.2, run)])


def test_every_split_is_fitted_with_what_was_chosen_for_it(tmp_path, monkeypatch):
    penalties = {16: 0.003, 0: 0.01, 1: 0.1}
    chosen = [
        {"split": split, "selected": Candidate("trigonometric", False, penalty, penalty).to_dict()}
        for split, penalty in penalties.items()
    ]
    monkeypatch.setattr(tabular_restt, "search", lambda cell, device: {"chosen": chosen})
    estimator = searched("restt-selected", search_cell("ale", "quick", list(penalties)), Store(tmp_path))
    assert {split: estimator(split).penalty["chain"] for split in penalties} == penalties
