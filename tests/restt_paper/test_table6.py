from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone

from restt.data.dataset import PAPER_SPLIT_SEED, Dataset
from restt_paper import table6
from restt_paper.experiments import Store
from restt_paper.table import FAILED, NOT_YET
from restt_paper.table6 import (
    MODELS,
    PAPER_BASELINES,
    RANDOM_SPLITS,
    RESTT_ROWS,
    Scores,
    claims_of,
    estimator_of,
    model_cell,
    score_splits,
    scores_table,
)
from tests.data.conftest import load_or_skip as load_or_skip

# The variance of y in the test part of the paper's split of Boston.
BOSTON_VARIANCE = 61.5


PRINTED = {**PAPER_BASELINES, "restt-r50": "ResTT"}


def made_up():
    """A table of 50 rows that is the same whenever asked for."""
    x = torch.from_numpy(np.random.default_rng(0).random((50, 2)))
    return Dataset("made up", (x, 1 + x[:, 0]), target_name="y")


def training_part():
    parts = made_up().split(0.2, random_state=0)
    return parts.x_train.numpy(), parts.y_train.numpy()


@pytest.fixture
def small_tables(monkeypatch):
    monkeypatch.setattr("restt.data.load", lambda dataset: made_up())


def estimator(name, dataset="ale", profile="quick", split=0):
    return estimator_of(model_cell(profile, dataset, name).settings, "cpu")(split)


def claims(tables):
    return claims_of(tables, list(PAPER_BASELINES), list(RESTT_ROWS))


def scores(model, r2_paper_split, r2_random, splits=(PAPER_SPLIT_SEED, 0, 1, 2)):
    values = [r2_paper_split, *(r2_random + shift for shift in (-0.01, 0.0, 0.01))]
    rmse = [None if r2 is None else float(np.sqrt(BOSTON_VARIANCE * (1 - r2))) for r2 in values]
    return Scores(model, MODELS[model], splits, values, rmse)


def test_every_model_has_the_same_21_splits():
    cells = table6.cells("paper")
    assert {tuple(cell.settings["splits"]) for cell in cells} == {(PAPER_SPLIT_SEED, *RANDOM_SPLITS)}
    assert len(set(RANDOM_SPLITS)) == 20
    assert PAPER_SPLIT_SEED not in RANDOM_SPLITS
    assert len({cell.key for cell in cells}) == len(cells)


def test_lr_on_the_papers_split_is_the_papers(load_or_skip):
    load_or_skip("boston")
    settings = model_cell("paper", "boston", "lr").settings
    found = score_splits("boston", [PAPER_SPLIT_SEED], estimator_of(settings, "cpu"))
    assert round(found["r2"][0], 3) == 0.654
    assert round(found["rmse"][0], 2) == 4.61


def test_baselines_that_cannot_be_built_here_have_no_cell(monkeypatch):
    monkeypatch.setattr(table6, "available", lambda task: ("lr", "svr"))
    models = {cell.settings["model"] for cell in table6.cells("paper")}
    assert models == {"lr", "svr", "svr-selected", *RESTT_ROWS}


def test_a_quick_run(small_tables, tmp_path, monkeypatch):
    monkeypatch.setattr(table6, "QUICK_MODELS", ("lr", "restt-estimator"))
    monkeypatch.setattr(table6, "DATASETS", {"boston": "Boston"})
    monkeypatch.setitem(table6.SPLITS, "quick", (PAPER_SPLIT_SEED, 0))
    store = Store(tmp_path)
    table6.EXPERIMENT.run(store, "quick")
    for table in table6.tables(store, "quick")[1:]:
        assert [row[0] for row in table.rows] == [MODELS["lr"], MODELS["restt-estimator"]]
        linear = table.rows[0]
        assert linear[3:] == ("1.000", "0.000", "1.000", "0.000")
        assert float(table.rows[1][3]) > 0.9


def test_a_baseline_is_searched_inside_its_training_part():
    fitted = estimator("plar-selected").fit(*training_part())
    assert fitted.best_params_["alpha"] == 0.001
    assert fitted.n_splits_ == 5


def test_seeds_follow_the_split_where_a_model_has_one():
    assert estimator("mlp", split=3).random_state == 3
    assert "random_state" not in estimator("lr", split=3).get_params()


def test_without_results_all_of_ours_are_not_yet(tmp_path):
    shown = table6.EXPERIMENT.show(Store(tmp_path), "paper")
    assert all(row[3:] == (NOT_YET,) * 4 for table in shown[1:3] for row in table.rows)
    assert {row[2] for row in shown[3].rows} == {NOT_YET}
    assert not any(tmp_path.iterdir())


def test_the_papers_contradictions_are_named():
    notes = " ".join(scores_table("Boston", [scores("lr", 0.654, 0.7)], PRINTED).notes)
    assert "MLP (R² 0.829, but RMSE 3.47 means 0.804)" in notes
    assert "ResTT (R² 0.864, but RMSE 2.96 means 0.858)" in notes
    assert "PLaR (" not in notes


def test_failed_splits_are_shown():
    row = scores_table("Boston", [scores("lr", None, 0.7)], PRINTED).rows[0]
    assert row[3:6] == (FAILED, FAILED, "0.700 ± 0.010")


@pytest.mark.parametrize(("on_random", "expected"), [(0.9, "holds"), (0.6, "does not hold"), (0.7005, "does not hold")])
def test_restt_is_best_only_where_the_random_splits_tell_it_from_chance(on_random, expected):
    rows = [scores(name, 0.99, 0.7) for name in PAPER_BASELINES]  # the paper's split decides nothing
    rows = [Scores(row.model, row.label, row.splits, noisy(row.r2), row.rmse) for row in rows]
    rows += [scores(model, 0.5, on_random) for model in ("restt-r50", "restt-estimator")]
    shown = claims({"Boston": [*rows, scores("gp", 0.8, 0.5)], "ALE": [*rows, scores("gp", 0.95, 0.95)]}).rows
    assert [shown[k][2] for k in (0, 1, 3, 4)] == [expected] * 4
    assert shown[5][2] == "does not hold"


def noisy(r2):
    return [value + shift for value, shift in zip(r2, (0.0, 0.003, -0.002, 0.001), strict=True)]


def test_polynomial_against_linear():
    better = [scores(name, *((0.8, 0.8) if name.startswith("p") else (0.7, 0.7))) for name in PAPER_BASELINES]
    rows = [*better, *(scores(way, 0.9, 0.9) for way in ("restt-r50", "restt-estimator"))]
    shown = claims({"Boston": rows, "ALE": rows}).rows
    assert [row[2] for row in shown[6:]] == ["holds", "does not hold"]
    assert shown[7][1].startswith("in 0 of 3; not: LR and PR (R² 0.700 against 0.800)")


def test_the_papers_recipe_draws_its_weights_as_the_paper_does():
    of = {name: estimator(name, "boston", "paper") for name in ("restt-r50", "restt-estimator")}
    model = clone(of["restt-r50"].estimator).set_params(epochs=1)
    module = model.fit(*training_part()).module_
    assert (module.init, module.bond_dim) == ("paper", 50)
    assert of["restt-estimator"].fit(*training_part()).module_.init == "balanced"
