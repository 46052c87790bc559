import json

import pandas as pd
import pytest

from restt_app.demo import bundled_csv, run
from restt_app.workflow import load_table
from tests.hasty import hasty_solvers

ROWS = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("tour") / "new" / "folder"
    with hasty_solvers():
        run(made, seed=1, rows=ROWS)
    return made


def test_the_tour_ends_in_a_model_predictions_and_a_page(folder):
    assert sorted(path.name for path in folder.iterdir()) == [
        *("demo.json", "diabetes.csv", "model", "page.html", "predictions.csv")
    ]
    card = load_table(folder / "model").card
    assert {score["model"] for score in card.scores} == {"ResTT", "linear", "boosting", "mean"}
    assert len(pd.read_csv(folder / "predictions.csv")) == ROWS
    assert (folder / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    saved = json.loads((folder / "demo.json").read_text())
    assert saved["seed"] == 1
    assert saved["versions"]["torch"]
    assert saved["results"] == card.scores


def test_the_tour_replaces_what_an_earlier_one_left(folder, capsys, hasty):
    card = run(folder, seed=2, rows=ROWS)
    assert load_table(folder / "model").card == card
    assert card.settings["seed"] == 2
    shown = capsys.readouterr().out
    for words in (
        "1. A table: 30 patients",
        "2. A model",
        "held-out rows",
        "3. What it predicts",
        "4. Why it predicts",
        str(folder / "model"),
    ):
        assert words in shown


def test_the_bundled_table_is_whole():
    assert bundled_csv().count(b"\n") == 443
