"""Numbers of the page's tables: each sign, index, bound and share as a reader computes it by hand."""

import pytest

from restt_app.pages.learned import Learned
from restt_app.pages.model import _facts, _outputs, _summary
from restt_app.pages.numbers import percent
from restt_app.pages.quality import calibration, confusion_table, coverage, headlines, scores, weak_table
from restt_app.pages.shell import Bar, Bars, DataTable, Drawing


def texts(table, column):
    return [row[column].text for row in table.rows]


def score(model, value, metric="r2"):
    return {"model": model, "metric": metric, "value": value, "low": value - 0.1, "high": value + 0.1}


def test_the_best_model_is_first_whichever_way_a_metric_counts():
    values = {"linear": 0.4, "ResTT": 0.9, "mean": 0.0}
    more = scores({"scores": [score(*pair) for pair in values.items()]})
    less = scores({"scores": [score(*pair, "log_loss") for pair in values.items()]})
    assert (texts(more, 0), more.columns[1]) == (["ResTT", "linear", "mean"], "R² ↑")
    assert (texts(less, 0), less.columns[1]) == (["mean", "linear", "ResTT"], "log-loss ↓")
    assert [row[0].kind for row in more.rows] == ["best", "", ""]
    assert [row[1].remark for row in more.rows] == ["0.8 to 1", "0.3 to 0.5", "−0.1 to 0.1"]


def test_times_below_a_hundredth_are_not_shown_as_nothing():
    held_out = {"seconds": {"ResTT": 2.5, "mean": 0.01, "y": 0.0099}}
    values = {"ResTT": 0.9, "mean": 0.0, "x": -1.0, "y": -2.0}
    table = scores({"scores": [score(*pair) for pair in values.items()], "held_out": held_out})
    assert texts(table, -1) == ["2.5 s", "0.01 s", "–", "< 0.01 s"]


def test_the_headline_is_our_score_beside_the_last_baseline():
    (tile,) = headlines({"scores": [score("ResTT", 0.9), score("linear", 0.4), score("mean", 0.0)]})
    assert (tile["value"], tile["remark"]) == ("0.9", "0.8 to 1; mean: 0")


def test_the_headlines_are_our_first_two_metrics():
    entries = [
        score(model, value, name) for name in ("r2", "rmse", "brier") for model, value in (("ResTT", 0.5), ("x", 1))
    ]
    tiles = headlines({"scores": entries})
    assert [(tile["name"], tile["remark"]) for tile in tiles] == [
        ("R² on held-out rows", "0.4 to 0.6; x: 1"),
        ("RMSE on held-out rows", "0.4 to 0.6; x: 1"),
    ]
    bare = {"model": "restt net", "metric": "own", "value": 0.12345}
    assert headlines({"scores": [bare]}) == [{"name": "own on held-out rows", "value": "0.123", "remark": ""}]
    assert headlines({}) == []
    for low, high, remark in ((0.012345, 1.23456, "0.0123 to 1.23"), (None, 1.0, ""), (0.0, None, "")):
        assert headlines({"scores": [{**bare, "low": low, "high": high}]})[0]["remark"] == remark


def test_the_confusion_matrix_has_true_classes_in_rows():
    table = confusion_table({"classes": ["a", "b"], "calibration": {"confusion": {"matrix": [[3, 1], [0, 0]]}}})
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["is a", "3", "1", "75 %"],
        ["is b", "0", "0", "0 %"],
    ]
    assert [cell.kind for cell in table.rows[0]] == ["", "best", "", ""]


def test_weak_groups_of_a_regression_show_roots_of_squares_and_of_classes_their_losses():
    group = {"column": "kind", "values": "b", "rows": 12, "loss": 4.0, "others": 0.25}
    squared = weak_table({"task": "regression", "calibration": {"groups": [{**group, "bias": -0.5}]}})
    assert [cell.text for cell in squared.rows[0]] == ["kind is b", "12", "2", "0.5", "−0.5"]
    logs = weak_table({"task": "classification", "calibration": {"groups": [group]}})
    assert [cell.text for cell in logs.rows[0]] == ["kind is b", "12", "4", "0.25"]
    many = {**group, "rows": 1234, "loss": 1.23456, "others": 0.0123456}
    logs = weak_table({"task": "classification", "calibration": {"groups": [many]}})
    assert [cell.text for cell in logs.rows[0]] == ["kind is b", "1,234", "1.23", "0.0123"]
    assert (logs.columns, squared.columns[2:]) == (
        ("rows where", "rows", "log-loss there", "elsewhere"),
        ("RMSE there", "elsewhere", "observed − predicted"),
    )


def test_intervals_that_hold_more_or_fewer_rows_say_so():
    rows = [
        {"predicted": 1.0, "observed": 2.0, "low": 0.0, "high": 1.5},
        {"predicted": 1, "observed": 2, "low": 0, "high": 2},  # ends belong to their interval
        {"predicted": 1, "observed": 0, "low": 0, "high": 2},
    ]
    levels = [
        {"expected": 0.9, "observed": observed, "width": width}
        for observed, width in ((0.95, 1.0), (0.89, None), (0.904, 2.0))
    ]
    fifth = {"low": 1.0, "high": 2.0, "expected": 0.9, "observed": 0.9, "width": 3.0}
    assert [row[1].remark for row in coverage(levels).rows] == ["5 points more", "1 point fewer", "as it should"]
    assert texts(coverage(levels), 2) == ["1", "–", "2"]
    assert [cell.text for cell in coverage([fifth], fifths=True).rows[0]] == ["1 to 2", "90 %", "3"]
    fifth |= {"low": 1.23456, "high": 2.34567, "width": 1.234567}
    assert [cell.text for cell in coverage([fifth], fifths=True).rows[0]] == ["1.23 to 2.35", "90 %", "1.235"]
    assert "; 1 observed values lie outside" in calibration({"calibration": {"rows": rows}}, "y").caption


def test_the_gap_of_probabilities_weighs_bins_by_rows():
    bins = [{"predicted": 0.1, "observed": 0.3, "rows": 30}, {"predicted": 0.9, "observed": 0.9, "rows": 10}]
    held = calibration({"calibration": {"bins": bins, "of": "yes"}}, "ill")
    assert "ill = yes on 40 held-out rows in 2 bins" in held.caption
    assert "average gap is 15 %" in held.caption


def test_bars_lie_between_the_ends_of_all_of_them():
    bars = Bars("", (Bar("a", "", 0.0, 3.0, (2.0, 4.0)), Bar("b", "", 0.0, -1.0)))
    assert [bars.place(value) for value in (-1.0, 0.0, 4.0)] == [0.0, 20.0, 100.0]
    assert bars.signed
    assert not Bars("", bars.rows[:1]).signed


@pytest.mark.parametrize(
    ("classes", "outputs"),
    [(None, ("y",)), (["no", "yes"], ("y = yes",)), ([1, 2, 3], ("y = 1", "y = 2", "y = 3"))],
)
def test_two_classes_have_the_seconds_probability(classes, outputs):
    model = type("Model", (), {"target_": type("Target", (), {"outputs": 1})})
    assert _outputs(model, "y", classes) == outputs
    model.target_.outputs = 2
    assert _outputs(model, "y", None) == ("y 1", "y 2")


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ((0.0, 0.0), "the same for every row"),
        ((0.996, 0.004), "nearly additive"),
        ((0.994, 0.006), "99.4 % from single columns"),
    ],
)
def test_the_summary_says_whether_columns_interact(shares, words):
    nothing = DataTable("", (), ())
    learned = Learned(Drawing("", ""), "99.4 % from single columns", shares, (), (), nothing, ("y",), (0,))
    told = _summary({"source": {"rows_used": 1200}}, learned, ["a", "b"], "y")
    assert told[0] == "Predicts y, one of 2 classes (a, b), from a row's other columns, fitted to 1,200 rows."
    assert words in told[1]
    for count, ends in ((6, "0, 1, 2, 3, 4, 5)"), (7, "0, 1, 2, 3, 4, 5, …)")):
        many = _summary({"source": {"rows": 5}}, learned, list(range(count)), "y")[0]
        assert many == f"Predicts y, one of {count} classes ({ends}, from a row's other columns, fitted to 5 rows."
    assert _summary({"source": {}}, learned, None, "y")[0] == "Predicts y, a number, from a row's other columns."
    facts = _facts(type("Model", (), {"n_features_in_": 1234}), {"source": {"rows": 5678, "file": "a.csv"}}, learned, 9)
    assert [(fact["value"], fact["remark"]) for fact in facts] == [
        *(("5,678", "a.csv"), ("1,234", "that the model uses"), (percent(shares[1]), "of the variance")),
    ]
    assert _facts(type("Model", (), {"n_features_in_": 2}), {"source": {}}, learned, 9)[0]["value"] == "9"
