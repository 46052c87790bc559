import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

from restt_app.workflow import check_table, compare_tables, fit_table, predict_table
from tests.restt_app.workflow.conftest import trees


@pytest.fixture(scope="module")
def less(tree_frame):
    return fit_table(tree_frame, "height", effort="quick", drop=["girth"])


def test_differences_are_paired_and_signed(fitted, less):
    new = trees(80, seed=5)
    found = compare_tables(fitted, less, new)
    r2 = found["metrics"][0]
    expected = [r2_score(new.height, predict_table(model, new).prediction) for model in (fitted, less)]
    assert [r2["a"], r2["b"]] == pytest.approx(expected)
    assert r2["difference"] == pytest.approx(expected[0] - expected[1])
    assert r2["low"] < r2["difference"] < r2["high"]
    assert [one["better"] for one in found["metrics"]] == ["a", "a"]
    back = compare_tables(less, fitted, new)
    assert [one["better"] for one in back["metrics"]] == ["b", "b"]
    gaps = (predict_table(fitted, new).prediction - predict_table(less, new).prediction).abs()
    assert found["apart"]["rows"][0]["row"] == gaps.argmax() + 1


def test_rows_without_a_target_count_and_a_score_that_one_target_does_not_have_is_left_out(fitted, less):
    new = trees(30, seed=5)
    new.loc[:9, "height"] = np.nan
    new.loc[10:, "height"] = 5.0
    found = compare_tables(fitted, less, new)
    assert [one["metric"] for one in found["metrics"]] == ["rmse"]
    gaps = (predict_table(fitted, new).prediction - predict_table(less, new).prediction).abs()
    assert found["apart"]["rows"][0]["row"] == gaps[10:].idxmax() + 1


def test_the_model_that_lacks_a_column_is_named(fitted, less):
    with pytest.raises(ValueError, match=r"b: the table lacks the column\(s\) 'girth'"):
        compare_tables(less, fitted, trees(20, seed=5).drop(columns="girth"))


def test_a_model_is_no_better_than_itself(labelled, tree_frame):
    frame = tree_frame.assign(tall=np.where(tree_frame.height > 9, "tall", "small"))
    found = compare_tables(labelled, labelled, frame)
    assert {one["better"] for one in found["metrics"]} == {""}
    assert (found["apart"]["largest"], found["worse_a"]) == (0.0, [])


def test_rows_of_the_fit_are_said(fitted, tree_frame, tmp_path):
    tree_frame.to_csv(tmp_path / "trees.csv", index=False)
    model = fit_table(tmp_path / "trees.csv", "height", effort="quick")
    assert any(
        "a was fitted to this file" in note for note in compare_tables(model, fitted, tmp_path / "trees.csv")["notes"]
    )


def test_rows_of_the_same_kind_pass_the_check(fitted):
    wrong = sum(
        bool(check_table(fitted, trees(50, seed)[["girth", "kind", "planted", "watered"]])["findings"])
        for seed in range(10)
    )
    assert wrong <= 1


@pytest.mark.parametrize(
    ("change", "column", "what"),
    [
        (lambda frame: frame.assign(girth=frame.girth + 3), "girth", "outside the range of the fit"),
        (lambda frame: frame.assign(planted=frame.planted + pd.Timedelta(days=2000)), "planted", "outside the range"),
        (lambda frame: frame.assign(kind="ash"), "kind", "levels that the fit has not seen"),
        (lambda frame: frame.assign(watered=None), "watered", "missing"),
        (lambda frame: frame.assign(height=-frame.height), "height", "R² is worse than on the held-out rows"),
    ],
)
def test_what_has_changed_is_found(fitted, change, column, what):
    found = check_table(fitted, change(trees(60, seed=3)))
    assert any(one["column"] == column and what in one["what"] for one in found["findings"])


def test_scores_stand_beside_those_of_the_fit(fitted):
    scores = check_table(fitted, trees(60, seed=3))["scores"]
    assert [one["metric"] for one in scores] == ["r2", "rmse"]
    assert scores[0]["held_out"] == fitted.card.held_out["metrics"]["r2"]
