from __future__ import annotations

import pytest

from restt_paper import synthetic as figure
from restt_paper.experiments import Store
from restt_paper.synthetic import SIZES, Errors, Sizes, in_target_units
from restt_paper.table import FAILED, NOT_YET

TINY = Sizes((1, 2), (200,), 100, 2, 3, bond_dim=3, batch_size=64)


@pytest.fixture
def finished(tmp_path, monkeypatch):
    monkeypatch.setitem(SIZES, "quick", TINY)
    store = Store(tmp_path)
    figure.EXPERIMENT.run(store, "quick")
    return store


def case(reading="std", rows=1000, d=1, *, std=2.0, spread=0.01, **selected):
    """A data set on which the models have these errors in the mean of three repeats; None has no results."""
    results = {
        model: None
        if error is None
        else {
            "selected": [error] if model == "lr" else [error - spread, error, error + spread],
            "final": [2 * error],
            "training_rmse": [0.5 * error],
            "lr": 0.01,
            "target_std": std,
            "order_variances": [1.0, 1.0, 2.0],
            "least_rmse": 0.5,
        }
        for model, error in selected.items()
    }
    return Errors(reading, rows, d, results)


def test_the_paper_profile_is_the_papers():
    cells = figure.cells("paper")
    assert len({cell.key for cell in cells}) == len(cells) == 5 * 2 * 2 * 3
    settings = [cell.settings for cell in cells]
    assert {setting["d"] for setting in settings} == {1, 10, 20, 30, 40}
    assert {(setting["rows"], setting["test_rows"]) for setting in settings} == {(10_000, 10_000), (50_000, 10_000)}
    assert {setting["reading"] for setting in settings} == {"std", "variance"}
    assert all((setting["bond_dim"], setting["repeats"], setting["epochs"]) == (20, 5, 100) for setting in settings)


def test_a_whole_run(finished):
    shown = figure.tables(finished, "quick")
    assert [len(table.rows) for table in shown] == [2, 4]
    assert not any(entry in (NOT_YET, FAILED) for table in shown for row in table.rows for entry in row)
    result = finished.load(figure.cells("quick")[0])["result"]
    assert len(result["final"]) == len(result["selected"]) == TINY.repeats
    assert result["lr"] in (1e-2, 1e-3, 1e-4)


def test_the_picture_is_drawn_from_what_is_there(finished, tmp_path):
    pytest.importorskip("matplotlib")
    (drawn,) = figure.pictures(finished, "quick", tmp_path / "pictures")
    assert drawn.stat().st_size > 1000
    assert figure.pictures(Store(tmp_path / "empty"), "quick", tmp_path) == []


def test_without_results_all_is_not_yet(tmp_path):
    shown = figure.tables(Store(tmp_path), "paper")
    assert all(NOT_YET in " ".join(row) for table in shown for row in table.rows)
    assert not any(tmp_path.iterdir())


def test_verdicts_of_a_data_set():
    found = case(restt=0.5, tt=1.0, lr=0.999)
    assert [found.verdict(*pair) for pair in (("restt", "tt"), ("tt", "lr"), ("lr", "restt"))] == ["yes", "tie", "no"]
    assert case(restt=None, tt=1.0, lr=1.0).verdict("restt", "tt") == "not yet"
    assert found.leads("restt", "tt") == pytest.approx([0.5] * 3)


def test_a_lead_smaller_than_its_noise_or_than_that_of_the_data_is_a_tie():
    assert case(restt=0.5, tt=0.6, lr=0.6).verdict("restt", "tt") == "yes"
    assert case(restt=0.5, tt=0.6, lr=0.6, spread=0.2).verdict("restt", "tt") == "tie"
    assert case(restt=0.5, tt=0.6, lr=0.6, spread=0.2).verdict("restt", "lr") == "tie"
    assert case(restt=0.5, tt=0.51, lr=0.6, spread=1e-6).verdict("restt", "tt") == "tie"


@pytest.fixture
def claims(monkeypatch):
    """The paper's claims, judged by given errors."""

    def judge(measured):
        monkeypatch.setattr(figure, "_read", lambda store, profile: measured)
        return figure.claims(None)

    return judge


def test_claims_hold_only_where_every_data_set_agrees(claims):
    narrow, wide = case(d=1, restt=0.5, tt=1.0, lr=1.5), case(d=10, restt=0.5, tt=2.0, lr=3.0)
    assert [row[2] for row in claims([narrow, wide]).rows] == ["holds"] * 4
    swapped = case(d=1, restt=0.5, tt=1.5, lr=1.0)
    shown = claims([swapped, wide]).rows
    assert shown[0][1:] == ("in 1 of 2; not: d = 1 (std, 1000 rows)", "does not hold")
    assert shown[1][2] == "holds"
    assert claims([wide, case(d=20, restt=1.0, tt=2.0, lr=9.0)]).rows[2][2] == "does not hold"
    assert claims([narrow, case(d=10, restt=None, tt=1.0, lr=1.0)]).rows[1][1:] == (
        "in 1 of 1; 1 not yet compared",
        NOT_YET,
    )


def test_errors_stand_in_units_of_the_spread_of_y():
    (row,) = in_target_units([case(restt=0.5, tt=1.0, lr=1.5)]).rows
    assert row[3:10] == ("25 %, 25 %, 50 %", "0.250", "0.500", "0.750", "0.250", "0.250", "0.250")


def test_a_failed_repeat_is_shown_and_decides_nothing():
    broken = case(restt=0.5, tt=1.0, lr=1.5)
    broken.results["restt"]["selected"] = [0.5, None]
    assert broken.verdict("restt", "tt") == "not yet"
    assert FAILED in in_target_units([broken]).rows[0]
