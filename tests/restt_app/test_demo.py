import json

import pandas as pd
import pytest

from restt_app.demo import rentals, run
from restt_app.workflow import load_table
from tests.hasty import hasty_solvers

ROWS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("tour") / "new" / "folder"
    with hasty_solvers():
        run(made, seed=1, rows=ROWS)
    return made


def test_the_tour_ends_in_models_predictions_and_pages(folder):
    assert sorted(path.name for path in folder.iterdir()) == [
        *("demo.json", "model", "page.html", "predictions.csv", "rentals.csv", "sold-out", "sold-out.html")
    ]
    card = load_table(folder / "model").card
    assert {score["model"] for score in card.scores} == {"ResTT", "linear", "boosting", "mean"}
    assert load_table(folder / "sold-out").card.classes == ["no", "yes"]
    assert len(pd.read_csv(folder / "predictions.csv")) == ROWS
    for page in ("page.html", "sold-out.html"):
        assert (folder / page).read_text(encoding="utf-8").startswith("<!doctype html>")
    saved = json.loads((folder / "demo.json").read_text())
    assert (saved["seed"], saved["results"][0]) == (1, {"target": "rented", "scores": card.scores})
    assert saved["versions"]["torch"]


def test_the_tour_replaces_what_an_earlier_one_left(folder, capsys, hasty):
    card = run(folder, seed=2, rows=ROWS)
    assert load_table(folder / "model").card == card
    assert card.settings["seed"] == 2
    shown = capsys.readouterr().out
    for words in (
        "1. A table: bikes rented in 60 hours",
        "held-out rows",
        "4. Why",
        "5. Classes",
        str(folder / "model"),
    ):
        assert words in shown


def test_there_is_something_to_see():
    data = rentals()
    assert len(data) == 600
    # The tour is of the same table for everybody.
    assert (data.rented.sum(), (data.sold_out == "yes").sum(), round(data.wind.sum(), 1)) == (37912, 65, 4644.2)
    assert round(data.temperature.sum(), 1) == 9393.5
    assert 0.1 < (data.sold_out == "yes").mean() < 0.3
    noon = data[data.hour.between(12, 15) & (data.weather != "rain")].groupby("day").rented.mean()
    morning = data[data.hour.between(7, 9)].groupby("day").rented.mean()
    assert noon["free"] > 1.5 * noon["working"]
    assert morning["working"] > 1.5 * morning["free"]
