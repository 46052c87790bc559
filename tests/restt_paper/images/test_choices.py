"""Recipes chosen on held-out training images: who is tried on what, who wins, and what is trained then."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from restt.train import Augmentation, train
from restt_paper.engine.store import Store
from restt_paper.images import choices, improved, trials
from restt_paper.images.accuracy import mean_of_views, shown_accuracy
from restt_paper.images.choices import CHOICES, choice_cell, chosen_cell
from restt_paper.images.data import load_images, training_rows
from restt_paper.images.recipes import DIGIT_VIEWS, RECIPES

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


def digits_trial(together, **changes):
    """Two candidates with two seeds each, by label."""
    images = load_images("digits", 200)
    plain = replace(
        RECIPES["detailed"],
        lr=2e-2,
        augment={"shift": 1.0},
        init="balanced",
        sigma2="auto",
        training={"batch_size": 32, "schedule": "cosine"},
    )
    recipes = {"plain": plain, "slanted": replace(plain, augment={"shear": 20.0}, lr=1e-2, **changes)}
    parts = [(torch.arange(60, 200), torch.arange(60)), (torch.arange(130), torch.arange(130, 200))]
    views = [(0, 0, 0, 1), (0, 1, 0, 1), (0, 0, 10, 1)]
    settings = {"bond_dim": 4, "seed": 0, "epochs": 12, "judged_by_last_epochs": 2, "views": views}
    given = [recipes] if together else [{label: recipe} for label, recipe in recipes.items()]
    tried = [found for some in given for found in trials.try_side_by_side(some, images, parts, settings, "cpu")]
    return dict(zip(recipes, tried, strict=True))


def test_candidates_side_by_side_are_what_they_are_one_by_one():
    together, apart = digits_trial(together=True), digits_trial(together=False)
    for label, alone in apart.items():
        assert (
            together[label].keys() == alone.keys() == {"held_out_accuracy", "held_out_of_views", "last_training_loss"}
        )
        for name, values in alone.items():
            assert together[label][name] == pytest.approx(values, rel=1e-3), (label, name)
    assert max(apart["plain"]["held_out_accuracy"]) > 30
    assert apart["plain"]["last_training_loss"] != apart["slanted"]["last_training_loss"]
    assert apart["plain"]["held_out_accuracy"] != apart["plain"]["held_out_of_views"]


@pytest.mark.parametrize("changes", [{"sites": "patches"}, {"training": {"batch_size": 32, "dropout": 0.1}}])
def test_candidates_that_differ_in_more_are_not_tried_side_by_side(changes):
    with pytest.raises(ValueError, match="must differ in rate and augmentation alone, 'slanted' does not"):
        digits_trial(together=True, **changes)


def test_blended_images_are_not_tried_side_by_side():
    blended = CHOICES["blended-digits"].candidates
    with pytest.raises(ValueError, match="must not blend images"):
        trials._common({label: blended[label] for label in ("detailed", "blended by 0.2")}, 2)


def test_a_run_that_was_given_up_is_not_another_candidates():
    both = trials.AugmentationsSideBySide(kinds=(Augmentation(), Augmentation(shift=1.0)), each=2)
    with pytest.raises(RuntimeError, match="got 3 of 4 runs: a run was given up"):
        both(torch.zeros(3, 2, 16), torch.arange(3))


def test_views_of_each_runs_own_rows_are_scored():
    images = load_images("digits", 20)
    truth = torch.nn.functional.one_hot(images.y, 10).float()

    class Knows(torch.nn.Module):
        """Run 0 answers by the label that stands in the first pixel, run 1 never right."""

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(2))

        def forward(self, x):
            right = truth[x[..., 0].long()]
            return torch.stack([right[0], -right[1]])

    numbered = replace(images, x=torch.arange(40.0)[:, None].expand(40, 64).contiguous())
    rows = [torch.arange(7), torch.arange(5)]
    found = trials.accuracy_of_views(Knows(), numbered, rows, lambda x: x, lambda x: [x, x])
    assert found == [100.0, 0.0]


def test_only_lists_side_by_side_try_their_views():
    assert "views" not in choice_cell("paper", "blended-clothes").settings
    assert choice_cell("paper", "long-digits").settings["views"] == [list(view) for view in DIGIT_VIEWS]
