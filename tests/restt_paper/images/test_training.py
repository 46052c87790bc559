from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from restt.train import EpochRecord
from restt_paper.experiments import Store
from restt_paper.images import cells, table4
from restt_paper.images.cells import rate_cell
from restt_paper.images.recipes import RECIPES, Recipe
from restt_paper.images.training import (
    Images,
    _scored,
    accuracy_curves,
    load_images,
    matmul_precision,
    split_rows,
    three_accuracies,
    train_seeds,
    training_rows,
)


@pytest.fixture(scope="module")
def digits():
    return load_images("digits")


def train_digits(digits, *, together, held_out=2, views=None):
    recipe = RECIPES["restt"]
    return train_seeds(
        lambda runs: recipe.module(64, 6, 10, runs, 0, "cpu"),
        digits,
        recipe.config(epochs=20, batch_size=64, lr=1e-2, seed=0),
        fraction=0.5,
        seeds=2,
        held_out=held_out,
        validation_share=0.1,
        feature_map=recipe.feature_map(),
        together=together,
        views=views,
    )


def test_the_epoch_is_selected_by_held_out_runs_and_never_by_the_test_images():
    test = torch.tensor([[10.0, 20.0], [90.0, 80.0], [50.0, 60.0]])
    held_out = torch.tensor([[0.0, 0.0], [40.0, 50.0], [60.0, 40.0]])
    found = three_accuracies(test, held_out)
    assert found == {
        "final": [50.0, 60.0],
        "selected": [50.0, 60.0],
        "selected_epoch": 3,
        "best_on_test": [90.0, 80.0],
    }
    assert three_accuracies(test, test[:, :0])["selected"] is None


def test_a_run_that_stopped_keeps_its_accuracy():
    scores = [(0.5, 0.25), (math.nan, 0.75), (math.nan, 1.0)]
    records = [
        EpochRecord(k, (0, 1), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), {"accuracy": s}) for k, s in enumerate(scores)
    ]
    assert accuracy_curves(records).tolist() == [[50.0, 25.0], [50.0, 75.0], [50.0, 100.0]]


def test_seeds_have_their_own_images_and_validation_images_are_not_trained_on(digits):
    first, second = (training_rows(digits, 0.1, run) for run in (0, 1))
    assert len(first) == len(second) == round(0.1 * digits.training)
    assert not torch.equal(first, second)
    assert int(max(first.max(), second.max())) < digits.training <= int(digits.test_rows.min())
    kept, held = split_rows(first, 0, 0.1)
    assert sorted(torch.cat([kept, held]).tolist()) == first.tolist()
    assert not set(kept.tolist()) & set(held.tolist())
    assert torch.equal(training_rows(digits, 1.0, 5), torch.arange(digits.training))


def test_digits_are_learned_and_held_out_runs_leave_the_seeds_alone(digits):
    beside, after = train_digits(digits, together=True), train_digits(digits, together=False)
    assert min(beside["final"]) > 60.0
    assert beside["averaged"] > 60.0
    assert len(beside["curves"]) == 2
    assert len(beside["curves"][0]) == len(beside["held_out_curve"]) == 20
    for one, other in zip(beside["curves"], after["curves"], strict=True):
        assert one == pytest.approx(other, abs=1.0)  # a few images of 540 may fall the other way by rounding
    assert beside["final"] == [curve[-1] for curve in beside["curves"]]
    assert beside["best_on_test"] == [max(curve) for curve in beside["curves"]]
    assert beside["selected"] == [curve[beside["selected_epoch"] - 1] for curve in beside["curves"]]


def test_outputs_are_averaged_over_views(digits):
    same = train_digits(digits, together=True, held_out=0, views=lambda x: [x, x])
    assert same["of_views"] == {"final": same["final"], "averaged": same["averaged"]}
    # A view that shows nothing adds the same to every image's output: it can only do harm.
    blank = train_digits(digits, together=True, held_out=0, views=lambda x: [0 * x])
    assert max(blank["of_views"]["final"]) < 20.0
    assert blank["averaged"] == same["averaged"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["the image first", "the image last"])
def test_every_view_counts_whatever_its_place(order):
    """Two classes told apart by one pixel: the image says one, and louder, its other view the other."""

    class Loudest(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.unused = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x):  # (B, 1) -> (1, B, 2)
            return torch.stack([-x, x], -1).transpose(0, 1)

    images = Images(torch.tensor([[1.0], [1.0]]), torch.tensor([0, 0]), 1, 2)

    def views(x):
        both = (x, -3 * x)
        return [both[k] for k in order]

    _, alone = _scored(Loudest(), images, 1, None, lambda x: [x])
    _, together = _scored(Loudest(), images, 1, None, views)
    assert (alone, together) == (0.0, 100.0)


def test_digits_are_seen_on_their_whole_scale(digits):
    assert digits.x.min() == 0.0
    assert digits.x.max() == 1.0
    assert 0.2 < digits.x.mean() < 0.4


@pytest.mark.parametrize(("device", "inside"), [("cuda", "medium"), ("cpu", "highest")])
def test_products_are_as_the_settings_say_on_a_gpu_and_as_before_afterwards(device, inside):
    before = torch.get_float32_matmul_precision()
    assert before == "highest"
    with matmul_precision("medium", device):
        assert torch.get_float32_matmul_precision() == inside
    assert torch.get_float32_matmul_precision() == before


def test_the_rate_is_chosen_on_held_out_images_once_and_stored(tmp_path, monkeypatch):
    monkeypatch.setitem(cells.SIZES, "quick", replace(cells.SIZES["quick"], epochs=6, rate_seeds=1, rows=300))
    cell = rate_cell("quick", "digits", "restt", 4)
    store = Store(tmp_path)
    found = table4.EXPERIMENT.compute_cell(cell, store)["result"]
    scores = found["validation_accuracy"]
    assert found["lr"] == max((0.01, 0.001, 0.0001), key=lambda rate: scores[f"{rate:g}"][0])
    assert found["validation_rows"] == 50
    monkeypatch.setattr(cells, "train", lambda *_, **__: pytest.fail("trained again"))
    assert table4.EXPERIMENT.compute_cell(cell, store)["result"] == found


def test_another_recipe_is_another_cell():
    one, other = (rate_cell("quick", "digits", name, 4) for name in ("restt", "meantt"))
    assert one.key != other.key
    assert one.settings["recipe_settings"]["sigma2"] == 0.01


def test_a_recipe_is_built_from_settings_alone(monkeypatch, tmp_path):
    """What the table of recipes says when a cell is computed plays no part."""
    cell = cells.recipe_cell("improved", "quick", "digits", "products", 3, rows=60, epochs=1, seeds=2, held_out=0)
    first = table4.EXPERIMENT.compute_cell(cell, Store(tmp_path / "one"))["result"]
    monkeypatch.setattr(cells, "RECIPES", {})
    monkeypatch.setattr("restt_paper.images.recipes.RECIPES", {})
    again = table4.EXPERIMENT.compute_cell(cell, Store(tmp_path / "two"))["result"]
    assert {**first, "training_seconds": 0} == {**again, "training_seconds": 0}
    assert "of_views" in first


def test_a_recipe_that_lacks_a_setting_is_refused():
    settings = RECIPES["restt"].settings()
    del settings["angle"]
    with pytest.raises(ValueError, match=r"settings of a recipe must be \['angle', .*, got"):
        Recipe.from_settings(settings)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_trains_by_the_papers_loss(name):
    """Not a setting of the cells: all their committed results are by squares on one-hot classes."""
    assert RECIPES[name].config(epochs=1, lr=1e-3, seed=0).loss == "mse"
