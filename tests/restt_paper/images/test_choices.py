"""Recipes chosen on held-out training images: who is tried on what, who wins, and what is trained then."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from restt.train import train
from restt_paper.engine.store import Store
from restt_paper.images import choices, improved, trials
from restt_paper.images.accuracy import mean_of_views, shown_accuracy
from restt_paper.images.choices import CHOICES, choice_cell, chosen_cell
from restt_paper.images.data import load_images, training_rows

NAME = "chosen-few-labels"


@pytest.fixture
def on_digits(monkeypatch):
    """Two candidates, two seeds with choices of their own; one of the candidates cannot learn."""
    choice = CHOICES[NAME]
    able = replace(
        choice.candidates["few-labels"],
        augment=None,
        lr=1e-2,
        init="balanced",
        sigma2="auto",
        training={"batch_size": 20, "schedule": "cosine"},
    )
    unable = replace(able, lr=1e-12)
    small = replace(choice, dataset="digits", candidates={"unable": unable, "able": able}, folds=3)
    monkeypatch.setitem(CHOICES, NAME, small)
    monkeypatch.setattr(choices, "QUICK", {"epochs": 20, "final_epochs": 20, "seeds": 2, "fraction": 0.2, "tried": 2})
    monkeypatch.setitem(choices.BOND_DIM, "quick", 4)


@pytest.fixture
def trainings(monkeypatch):
    given = []

    def noting(module, x, y, **settings):
        given.append(settings)
        return train(module, x, y, **settings)

    monkeypatch.setattr(trials, "train", noting)
    return given


def test_candidates_are_scored_on_training_images_that_their_trials_do_not_see(on_digits, trainings, tmp_path):
    cell = choice_cell("quick", NAME)
    result = improved.EXPERIMENT.compute_cell(cell, Store(tmp_path))["result"]
    images = load_images("digits", cell.settings["rows"])
    assert len(trainings) == 2  # candidates
    for given in trainings:
        assert len(given["subset"]) == 4  # two seeds, two folds
        for place, (kept, held) in enumerate(zip(given["subset"], given["validation_subset"], strict=True)):
            own = set(training_rows(images, cell.settings["fraction"], place // 2).tolist())
            assert set(kept.tolist()) | set(held.tolist()) == own
            assert not set(kept.tolist()) & set(held.tolist())
            assert max(own) < images.training
    first, second = (given["validation_subset"] for given in trainings)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert result["chosen"] == ["able", "able"]
    assert min(result["held_out_accuracy"]["able"]) > max(result["held_out_accuracy"]["unable"])


def test_the_best_candidate_is_trained_on_all_images(on_digits, tmp_path):
    store = Store(tmp_path)
    cell = chosen_cell("quick", NAME)
    result = improved.EXPERIMENT.compute_cell(cell, store)["result"]
    assert store.load(choice_cell("quick", NAME)) is not None
    images = load_images("digits", cell.settings["rows"])
    assert result["rows"] == len(training_rows(images, cell.settings["fraction"], 0))
    assert len(result["final"]) == 2
    assert min(result["final"]) > 30


def test_each_seed_is_read_where_its_own_choice_was_trained(on_digits, monkeypatch, tmp_path):
    monkeypatch.setattr(
        choices,
        "_train_on_all",
        lambda recipe, settings, context: {
            "final": [recipe.lr, recipe.lr + 1],
            "best_on_test": [0.0, 0.0],
            "curves": [[], []],
            "rows": 5,
            "training_seconds": 1.0,
        },
    )
    store = Store(tmp_path)
    recipes = {label: one.settings() for label, one in CHOICES[NAME].candidates.items()}
    store.compute(choice_cell("quick", NAME), lambda _: {"chosen": ["able", "unable"], "recipes": recipes})
    result = improved.EXPERIMENT.compute_cell(chosen_cell("quick", NAME), store)["result"]
    assert result["final"] == [recipes["able"]["lr"], recipes["unable"]["lr"] + 1]
    assert result["training_seconds"] == 2.0


def test_one_choice_for_all_seeds_goes_by_their_mean(on_digits, monkeypatch, tmp_path):
    monkeypatch.setitem(CHOICES, NAME, replace(CHOICES[NAME], by_seed=False))
    scores = {1e-12: [90.0, 90.0, 80.0, 80.0], 1e-2: [84.0, 84.0, 88.0, 88.0]}
    monkeypatch.setattr(
        trials,
        "try_side_by_side",
        lambda recipes, *_: [{"held_out_accuracy": scores[recipe.lr]} for recipe in recipes.values()],
    )
    result = improved.EXPERIMENT.compute_cell(choice_cell("quick", NAME), Store(tmp_path))["result"]
    assert result["chosen"] == ["able"]
    monkeypatch.setitem(CHOICES, NAME, replace(CHOICES[NAME], by_seed=True))
    result = improved.EXPERIMENT.compute_cell(choice_cell("quick", NAME), Store(tmp_path))["result"]
    assert result["chosen"] == ["unable", "able"]


def test_other_candidates_are_another_choice_and_another_training(monkeypatch):
    before = choice_cell("paper", NAME).key, chosen_cell("paper", NAME).key
    fewer = dict(list(CHOICES[NAME].candidates.items())[1:])
    monkeypatch.setitem(CHOICES, NAME, replace(CHOICES[NAME], candidates=fewer))
    after = choice_cell("paper", NAME).key, chosen_cell("paper", NAME).key
    assert before[0] != after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize("name", CHOICES)
def test_every_candidate_can_be_trained(name):
    images = load_images("digits", 60)
    parts = [(torch.arange(40), torch.arange(40, 60))]
    settings = {"bond_dim": 2, "seed": 0, "epochs": 1, "judged_by_last_epochs": 1}
    for label, recipe in CHOICES[name].candidates.items():
        (found,) = trials.try_side_by_side({label: recipe}, images, parts, settings, "cpu")
        (accuracy,) = found["held_out_accuracy"]
        assert 0 <= accuracy <= 100


def test_a_list_without_a_training_of_its_own_is_decided_all_the_same():
    names = {cell.name for cell in improved.cells("paper")}
    assert choice_cell("paper", "chosen-digits").name in names
    trained = [cell.settings["recipe"] for cell in improved.trainings("paper")]
    assert "chosen-digits" not in trained
    assert "blended-clothes" in trained


def test_the_views_of_a_list_are_scored_beside_its_final_training(on_digits, monkeypatch, tmp_path):
    monkeypatch.setitem(CHOICES, NAME, replace(CHOICES[NAME], by_seed=False, views=((0, 0), (0, 1))))
    result = improved.EXPERIMENT.compute_cell(chosen_cell("quick", NAME), Store(tmp_path))["result"]
    assert len(result["of_views"]["final"]) == len(result["final"])
    assert result["of_views"]["final"] != result["final"]


def test_one_models_views_are_read_apart_from_its_single_images(on_digits, tmp_path):
    store, cell = Store(tmp_path), chosen_cell("quick", NAME)
    assert mean_of_views(store, cell) is None
    found = {"final": [90.0, 92.0], "averaged": 93.0, "of_views": {"final": [91.0, 94.0], "averaged": 95.0}}
    store.compute(cell, lambda _: found)
    assert mean_of_views(store, cell) == 92.5
    assert shown_accuracy(store, cell, "final", of_views=True) == shown_accuracy(store, cell, "final").replace(
        "91.00 ± 1.41", "92.50 ± 2.12"
    )
