import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from restt import ResTTClassifier, ResTTRegressor
from restt_app.workflow import Card, fit_table, fitting, read_table
from restt_app.workflow.columns import Column
from restt_app.workflow.fitting import _card_entry, _times


def test_a_regression_from_end_to_end(fitted, tree_frame):
    card = fitted.card
    assert isinstance(fitted.estimator, ResTTRegressor)
    assert (card.task, card.target, card.classes) == ("regression", "height", [])
    assert card.source["rows"] == card.source["rows_used"] == 60
    assert [column["name"] for column in card.columns] == ["girth", "kind", "planted", "watered"]
    assert fitted.estimator.feature_names_in_.tolist() == [
        *("girth", "kind", "planted", "planted month", "planted weekday", "watered")
    ]
    assert card.target_column["range"] == [tree_frame.height.min(), tree_frame.height.max()]
    assert {one["model"] for one in card.scores} == {"ResTT", "linear", "boosting", "mean"}
    assert card.held_out["metrics"]["r2"] > 0.6
    assert [pair["expected"] for pair in card.calibration["coverage"]] == [0.5, 0.8, 0.9, 0.95]
    assert card.settings == {"seed": 0, "device": "auto"}
    assert any("regression, since 'height' has" in note for note in card.notes)
    assert card.seconds > 0
    assert Card.from_json(json.loads(json.dumps(card.to_json(), allow_nan=False))) == card


def test_a_classification_from_end_to_end(labelled):
    card = labelled.card
    assert isinstance(labelled.estimator, ResTTClassifier)
    assert (card.task, card.classes) == ("classification", ["small", "tall"])
    assert card.held_out["metrics"]["accuracy"] > 0.7
    assert card.calibration["of"] == "tall"
    assert card.settings["effort"] == "quick"
    json.dumps(card.to_json(), allow_nan=False)


def frame(y, **columns):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(size=len(y)), "b": rng.normal(size=len(y)), **columns, "y": y})


@pytest.mark.usefixtures("little_scoring")
@pytest.mark.parametrize(
    ("y", "task", "classes"),
    [
        ([0, 1] * 20, "classification", [0, 1]),
        ([1.5, 2.5] * 20, "classification", ["1.5", "2.5"]),
        (list(range(10)) * 4, "classification", list(range(10))),
        (list(range(20)) * 2, "regression", []),
        ([0.5, 1.5, 2.5, 3.5] * 10, "regression", []),
        (["no", "yes"] * 20, "classification", ["no", "yes"]),
        ([True, False] * 20, "classification", [False, True]),
        (["No", "yes", "no", "Yes", "No", "yes"] * 7, "classification", ["No", "yes"]),
    ],
)
def test_the_task_is_told_by_the_target(y, task, classes):
    card = fit_table(frame(y), "y", effort="quick").card
    assert (card.task, card.classes) == (task, classes)
    assert any(note.startswith(f"{task}, since") for note in card.notes)


@pytest.mark.usefixtures("little_scoring")
def test_the_task_can_be_named():
    assert fit_table(frame([0, 1, 2, 3] * 10), "y", task="regression", effort="quick").card.task == "regression"
    card = fit_table(frame(list(range(12)) * 4), "y", task="classification", effort="quick").card
    assert card.classes == list(range(12))


def test_a_card_has_no_level_of_one_row_and_no_value_of_a_column_left_out():
    column = Column("k", "category", "text", 0, 3, levels=["u", "v", "w"])
    entry = _card_entry(column, pd.Series(["u", "u", "v", "v", "w"]))
    assert (entry["levels"], entry["distinct"]) == (["u", "v"], 3)
    out = _card_entry(replace(column, used=False, note="left out: as asked"), None)
    assert "levels" not in out
    price = Column("p", "number", "1,234.5 kg", 0, 3, range=[0.0, 1.0])
    assert _card_entry(price, None)["layout"] == "1,234.5 kg"
    out = _card_entry(replace(price, used=False), None)
    assert (out["layout"], "range" in out) == ("1,234.5", False)  # a unit is a value too


@pytest.mark.parametrize(("values", "row"), [([np.nan, 1.0], 1), ([1.0, 2.0, np.nan, np.nan], 3)])
def test_times_have_no_gaps(values, row):
    table = read_table(pd.DataFrame({"t": values}))
    with pytest.raises(ValueError, match=f"time must be there in every row, and 't' is missing in row {row}"):
        _times(table, "t", np.arange(len(values)))


@pytest.mark.usefixtures("little_scoring")
def test_notes_are_of_columns_left_out_and_seconds_of_the_whole_fit(monkeypatch):
    monkeypatch.setattr(fitting, "clock", SimpleNamespace(monotonic=iter([10.0, 12.3456]).__next__))
    card = fit_table(frame([0, 1] * 20, c=1.0), "y", effort="quick", drop=["b"]).card
    assert card.seconds == 2.35
    assert card.notes[:2] == ["column 'b' is left out: as asked", "column 'c' is left out: has one value"]
    assert not any("column 'a'" in note for note in card.notes)
    assert card.stored[2] == "card.json holds of the target its classes or its least and largest value."


def test_rows_without_a_target_are_left_out_and_said():
    y = [float(row) for row in range(40)]
    y[3] = y[7] = np.nan
    card = fit_table(frame(y), "y", effort="quick").card
    assert card.source["rows"] == 40
    assert card.source["rows_used"] == card.held_out["rows"] == 38
    assert "2 rows without a value in 'y' were left out" in card.notes


@pytest.mark.usefixtures("little_scoring")
def test_of_very_many_rows_some_are_drawn(monkeypatch):
    monkeypatch.setattr(fitting, "FIT_ROWS", 30)
    y = np.arange(50.0)
    y[::10] = np.nan
    data = frame(y, copy=np.arange(50.0) * 2 + 0.5)
    fitted = fit_table(data, "y", effort="quick")
    assert fitted.card.source["rows_used"] == 30
    assert any("fitted to 30 of the rows" in note for note in fitted.card.notes)
    assert fitted.card.held_out["metrics"]["r2"] > 0.9  # rows and targets still belong together
    monkeypatch.setattr(fitting, "FIT_ROWS", 45)
    assert not any("drawn at random" in note for note in fit_table(data, "y", effort="quick").card.notes)


@pytest.mark.usefixtures("little_scoring")
@pytest.mark.parametrize("options", [{}, {"group": "site_id"}, {"time": "b"}, {"test": frame(range(9), site_id=1)}])
def test_repeated_ids_are_a_note_where_no_other_way_of_scoring_is_asked_for(options):
    card = fit_table(frame(range(40), site_id=np.arange(40) // 4), "y", effort="quick", **options).card
    assert any("several rows share a value of 'site_id'" in note for note in card.notes) == (not options)


@pytest.mark.usefixtures("little_scoring")
def test_the_last_fits_warnings_become_notes():
    y = np.random.default_rng(0).normal(size=40)
    y[3] = 1e12
    card = fit_table(frame(y), "y", effort="quick").card
    assert any("left out of the fit" in note for note in card.notes)


def test_progress_goes_from_nothing_to_one():
    told = []
    fit_table(frame([0, 1] * 20), "y", effort="quick", progress=lambda what, share: told.append((what, share)))
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert len(told) == 21
    assert told[-1] == ("fitting all rows", pytest.approx(1.0))
    # The costs of four models in five folds, and of the last fit.
    assert shares[4::5] == pytest.approx(np.array([1, 6, 6, 21]) / 24)


@pytest.mark.usefixtures("little_scoring")
def test_a_quick_model_comes_first_where_one_is_asked_for():
    told, quick = [], []
    data = frame([0, 1] * 20)
    better = fit_table(data, "y", first=quick.append, progress=lambda what, share: told.append(share))
    assert [fitted.card.settings.get("effort") for fitted in (*quick, better)] == ["quick", None]
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1.0)
    fit_table(data, "y", effort="quick", first=quick.append)
    assert len(quick) == 1


@pytest.mark.usefixtures("little_scoring")
def test_a_row_without_a_target_needs_no_time():
    data = frame([np.nan, *range(20)], when=[np.nan, *range(20)])
    assert fit_table(data, "y", effort="quick", time="when").card.held_out["rows"] == 4


@pytest.mark.usefixtures("little_scoring")
def test_a_table_that_was_read_is_taken(tree_frame):
    table = read_table(tree_frame, drop=["planted"])
    assert fit_table(table, "height", effort="quick").estimator.n_features_in_ == 3


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        (frame([1.0] * 20), {}, "target 'y' has one value, 1.0, in all rows: there is nothing to predict"),
        (frame(["x"] * 20), {}, "target 'y' has one value, 'x'"),
        (frame([1.0, 2.0, 3.0]), {}, "3 rows have a value in the target 'y': at least 10"),
        (frame([np.nan] * 20), {}, "0 rows have a value in the target"),
        (frame(pd.date_range("2020", periods=20)), {}, "target 'y' holds dates"),
        (frame(["u", "v"] * 10), {"task": "regression"}, "must hold numbers for regression, got 'u' in row 1"),
        (frame([f"t{row}" for row in range(150)]), {}, "has 150 different values, and at most 100 classes"),
        (frame([*"u" * 20, "v"]), {}, "must have two classes of at least 2 rows each, got 'u' 20 times, 'v' 1 times"),
        (frame(1e-300 * np.arange(20)), {}, "target 'y' must have values of sizes between 1e-150 and"),
        (frame([*"u" * 18, *"vv"], when=range(20)), {"time": "when"}, "time must leave rows of two classes before"),
        (frame([0, 1] * 10), {"task": "ranking"}, "task must be one of"),
        (frame([0, 1] * 10), {"seed": -1}, "seed must be at least 0"),
        (frame([0, 1] * 10), {"seed": 2**32}, f"seed must be at most {2**32 - 1}"),
        (frame([0, 1] * 10), {"device": "abacus"}, "device must be"),
        (frame([0, 1] * 10), {"effort": "much"}, "effort must be one of"),
        (frame([0, 1] * 10), {"drop": ["y"]}, "drop names the target 'y', which cannot be left out"),
        (frame([0, 1] * 10), {"drop": ["a", "b"]}, "no column is left to predict 'y' from: 'a' was left out: as asked"),
    ],
)
def test_what_cannot_be_fitted_is_named(data, options, expected):
    with pytest.raises(ValueError, match=expected):
        fit_table(data, "y", **options)


def test_a_target_that_is_not_there_is_named_with_those_that_are(tree_frame):
    with pytest.raises(
        ValueError, match=r"target names the column 'Height', .*\(did you mean 'height'\?\); there are 'girth'"
    ):
        fit_table(tree_frame, "Height")


def test_a_table_that_was_read_is_not_read_otherwise(tree_frame):
    with pytest.raises(ValueError, match="drop is told to read_table"):
        fit_table(read_table(tree_frame), "height", drop=["kind"])


@pytest.mark.usefixtures("little_scoring")
def test_no_value_of_a_column_that_is_left_out_is_stored(tmp_path):
    rows = 40
    data = frame(
        np.random.default_rng(1).normal(size=rows),
        name=[f"Jane Doe {row}" for row in range(rows)],
        customer_id=np.arange(rows) * 1_000_003 + 77_000_000,
        site=["Elm Street"] * rows,
        secret=[f"dropped {row}" for row in range(rows)],
        kind=["common"] * 20 + ["usual"] * 19 + ["Only One"],
    )
    fitted = fit_table(data, "y", effort="quick", drop=["secret"])
    columns = {column["name"]: column for column in fitted.card.columns}
    assert [name for name in columns if not columns[name]["used"]] == ["name", "customer_id", "site", "secret"]
    assert columns["kind"]["levels"] == ["common", "usual"]
    assert columns["kind"]["distinct"] == 3
    assert columns["name"]["distinct"] == 40
    folder = fitted.save(tmp_path / "model")
    for path in folder.iterdir():
        content = path.read_bytes()
        for value in ("Jane Doe", "7700000", "77000000", "Elm Street", "dropped 1"):
            assert value.encode() not in content
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert "| secret | unread |  | left out: as asked |" in page
    assert "## What is stored" in page
    assert any("held-out rows" in sentence for sentence in fitted.card.stored)
    assert "Only One" not in (folder / "card.json").read_text(encoding="utf-8")


@pytest.mark.usefixtures("little_scoring")
@pytest.mark.parametrize("rows", [30, 600])
def test_a_class_of_one_row_and_one_of_two_are_fitted_and_said(rows):
    y = [*"v" * 2, "once", *"u" * (rows - 3)]
    card = fit_table(frame(y), "y", effort="quick").card
    assert card.classes == ["once", "u", "v"]
    assert "the class 'once' of 'y' is in one row only: little is learned about it" in card.notes
    assert np.isfinite(card.held_out["metrics"]["log_loss"])
