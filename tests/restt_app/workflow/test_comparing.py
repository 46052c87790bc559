from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import betabinom, binom
from sklearn.metrics import r2_score

from restt_app.workflow import check_table, compare_tables, comparing, fit_table, predict_table
from restt_app.workflow.columns import Column
from restt_app.workflow.comparing import _compared, _counted, _ends, _in_words
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
    assert [one["row"] for one in found["apart"]["rows"]] == (np.argsort(-gaps, kind="stable")[:5] + 1).tolist()
    first = found["apart"]["rows"][0]
    predictions = [predict_table(model, new).prediction[gaps.argmax()] for model in (fitted, less)]
    assert [first["a"], first["b"], first["observed"]] == [*predictions, new.height[gaps.argmax()]]
    assert (found["apart"]["mean"], found["apart"]["largest"]) == pytest.approx((gaps.mean(), gaps.max()))


def test_each_model_has_the_groups_in_which_it_is_the_worse_one(fitted):
    def off(kind):
        def predict(x):
            return fitted.estimator.predict(x) + 9.0 * np.asarray(x.kind == kind)

        return replace(fitted, estimator=SimpleNamespace(predict=predict))

    found = compare_tables(off("oak"), off("fir"), trees(80, seed=5))
    for name, kind in (("worse_a", "oak"), ("worse_b", "fir")):
        (group,) = [group for group in found[name] if group["column"] == "kind"]
        assert (group["values"], group["loss"] > 50, group["others"] < 0) == (kind, True, True)


def test_classes_differ_by_half_of_all_probabilities_that_moved(labelled, tree_frame):
    frame = tree_frame.assign(tall=np.where(tree_frame.height > 9, "tall", "small"))
    own = labelled.estimator
    turned = SimpleNamespace(classes_=own.classes_, predict_proba=lambda x: own.predict_proba(x)[:, ::-1])
    apart = compare_tables(labelled, replace(labelled, estimator=turned), frame)["apart"]
    gaps = (2 * predict_table(labelled, frame)["probability tall"] - 1).abs()
    assert (apart["mean"], apart["largest"]) == pytest.approx((gaps.mean(), gaps.max()))
    most = apart["rows"][0]
    assert (most["row"], most["a"][1], most["b"][1]) == (gaps.argmax() + 1, *[pytest.approx((1 + gaps.max()) / 2)] * 2)
    assert {most["a"][0], most["b"][0]} == {"small", "tall"}


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
    said = "was fitted to this file: its score here says nothing about new rows"
    assert compare_tables(model, fitted, tmp_path / "trees.csv")["notes"] == [f"a {said}"]
    assert compare_tables(fitted, model, tree_frame)["notes"] == []


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
    shares = [one["share"] for one in found["findings"]]
    assert shares == sorted(shares, reverse=True)
    assert all(one["share"] == one["rows"] / 60 for one in found["findings"])
    assert any(one["column"] == column and what in one["what"] for one in found["findings"])


@pytest.mark.parametrize(
    ("count", "chance", "found"), [(3, 0.0024, True), (3, 0.0026, False), (0, 0.0, False), (1, 0.0, True)]
)
def test_all_tests_share_one_chance_of_a_finding(count, chance, found, fitted, monkeypatch):
    monkeypatch.setattr(comparing, "_counted", lambda *_: [("missing", count, chance)])
    rows = trees(20, seed=3).drop(columns="height")
    columns = ["girth", "kind", "planted", "watered"]
    expected = [{"column": name, "what": "missing", "rows": count, "share": count / 20} for name in columns]
    assert check_table(fitted, rows)["findings"] == (expected if found else [])


@pytest.mark.parametrize(
    ("metric", "shift", "worse"), [("r2", -0.5, True), ("r2", 0.5, False), ("rmse", 0.5, True), ("rmse", -0.5, False)]
)
def test_scores_are_worse_where_the_intervals_do_not_meet(metric, shift, worse, fitted, monkeypatch):
    scores = [{"model": "ResTT", "metric": metric, "value": 0.5, "low": 0.45, "high": 0.55}]
    other = [{"model": "linear", "metric": metric, "value": 9.0, "low": 9.0, "high": 9.0}]
    model = replace(fitted, card=replace(fitted.card, scores=[*other, *scores]))
    monkeypatch.setattr(
        comparing, "draws", lambda *_: {metric: 0.5 + shift + np.linspace(-0.1, 0.1, 101), "brier": np.ones(9)}
    )
    (score,) = check_table(model, trees(20, seed=3))["scores"]
    assert (score["metric"], score["held_out"], score["worse"]) == (metric, 0.5, worse)
    monkeypatch.setattr(comparing, "draws", lambda *_: {metric: 0.5 + shift / 5 + np.linspace(-0.1, 0.1, 101)})
    assert not check_table(model, trees(20, seed=3))["scores"][0]["worse"]


def test_scores_stand_beside_those_of_the_fit(fitted):
    scores = check_table(fitted, trees(60, seed=3))["scores"]
    assert [one["metric"] for one in scores] == ["r2", "rmse"]
    assert scores[0]["held_out"] == fitted.card.held_out["metrics"]["r2"]


def counted(column, values, rows=20, levels=None):
    encoding = SimpleNamespace(columns=[None, SimpleNamespace(levels=levels)])
    estimator = SimpleNamespace(feature_names_in_=np.array(["other", column.name]), encoding_=encoding)
    return _counted(column, pd.Series(values), rows, estimator)


def test_counts_have_the_probability_of_as_many_or_more_in_rows_of_the_same_kind():
    number = Column("a", "number", "1234.5", 2, 9, range=[0.0, 1.0])
    missing, outside = counted(number, [0.0, 1.0, -0.1, 1.1, 2.0, np.nan])
    # With a uniform prior on the share of missing values: 2 of the fit's 20 rows, 1 of 6; every set of counts by hand.
    assert missing == ("missing", 1, pytest.approx(1 - betabinom.pmf(0, 6, 3, 19)))
    assert outside == ("outside the range of the fit", 3, pytest.approx(betabinom.pmf([3, 4, 5], 5, 2, 17).sum()))
    single = Column("a", "number", "1234.5", 19, 1, range=[0.0, 1.0])
    assert counted(single, [2.0])[1][2] == pytest.approx(betabinom.pmf(1, 1, 2, 1))
    level = Column("k", "category", "text", 0, 5, levels=["u", "v"])
    _, unseen = counted(level, ["u", "w", "x", "y", None], levels=["w"])
    # Three of five levels had one row in the fit: as frequent as new ones are.
    assert unseen == ("levels that the fit has not seen", 2, pytest.approx(1 - binom.cdf(1, 4, 4 / 21)))
    many = Column("k", "category", "text", 0, 101, levels=["u"])
    assert counted(many, ["w"])[1][2] == pytest.approx(1 / 21)  # of more than are listed nothing is known
    hundred = Column("k", "category", "text", 0, 100, levels=["u"])
    assert counted(hundred, ["w"], rows=200)[1][2] == pytest.approx(100 / 201)


def test_ends_of_dates_are_days_to_the_millisecond():
    assert _ends(Column("a", "number", "1234.5", 0, 2, range=[-1, 2])) == (-1.0, 2.0)
    assert _ends(Column("a", "number", "1234.5", 0, 0)) == (-np.inf, np.inf)
    low, high = _ends(Column("a", "date", "ISO8601", 0, 2, range=["1970-01-02", "1970-01-03 12:00:00"]))
    assert (low, high) == (pytest.approx(1 - 1e-6, abs=1e-12), pytest.approx(2.5 + 1e-6, abs=1e-12))


@pytest.mark.parametrize(
    ("metric", "gap", "better"),
    [("r2", 0.1, "a"), ("r2", -0.1, "b"), ("rmse", 0.1, "b"), ("rmse", -0.1, "a"), ("r2", 0.0, "")],
)
def test_a_model_is_better_where_the_interval_of_the_difference_holds_no_0(metric, gap, better):
    b = np.linspace(0.4, 0.6, 101)
    found = _compared(metric, b + gap, b)
    assert found == {
        **{"metric": metric, "a": pytest.approx(0.4 + gap), "b": 0.4, "difference": pytest.approx(gap)},
        **{"low": pytest.approx(gap), "high": pytest.approx(gap), "better": better},
    }


def test_a_prediction_is_a_number_or_a_class_with_its_probability():
    assert _in_words(np.float64(1.5), None) == 1.5
    assert _in_words(np.array([0.2, 0.5, 0.3]), np.array(["u", "v", "w"])) == ["v", 0.5]
