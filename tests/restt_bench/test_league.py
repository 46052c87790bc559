"""The league of tables: same rows for all, honest differences, failures told."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from rich.console import Console
from sklearn.linear_model import LinearRegression

from restt_bench.case import QUICK
from restt_bench.league import draw_league, league, match, models, season
from restt_bench.league.fixtures import Fixture, fixtures
from restt_bench.league.models import MOST_ROWS, OURS, players
from restt_bench.league.season import paired_interval


class Mean:
    """Predicts what it was told; remembers what it saw."""

    seen: ClassVar[list] = []

    def fit(self, x, y):
        self.seen.append(len(x))
        self.value = y.mean()
        return self

    def predict(self, x):
        return np.full(len(x), self.value)


class Broken:
    def fit(self, x, y):
        raise ValueError("cannot")


@pytest.fixture
def result(monkeypatch):
    """Of two models that are no models, on the quick tables of values."""
    monkeypatch.setattr(season, "OURS", "mean")
    monkeypatch.setattr(models, "_regressors", lambda fixture, seed: {"mean": Mean, "other": Mean, "broken": Broken})
    tables = [one for one in fixtures(0, quick=True) if one.task == "regression"]
    monkeypatch.setattr(season, "fixtures", lambda seed, quick: tables)
    return league("cpu", QUICK, Console(file=io.StringIO()))


def test_every_model_is_fitted_to_the_same_number_of_rows(result):
    rows = {row["model"]: row for row in result["results"]}
    assert rows["mean"]["r2_all"] == rows["other"]["r2_all"]
    assert rows["mean"]["count"] == 2
    assert set(Mean.seen) == {60}
    assert -0.5 < rows["mean"]["r2"] <= 0  # no constant explains anything of rows it has not seen


def test_a_model_that_fails_is_told_and_has_no_mean(result):
    (broken,) = [row for row in result["results"] if row["model"] == "broken"]
    assert broken["failed"] == ["ValueError: cannot"] * 2
    assert "r2" not in broken
    assert {entry["baseline"] for entry in result["differences"]} == {"other"}


def test_equal_models_are_a_tie(result):
    (entry,) = result["differences"]
    assert entry["mean"] == 0
    assert entry["verdict"] == "tie"


def test_an_interval_needs_more_than_one_split_and_grows_with_shared_rows():
    gaps = np.array([0.1, 0.2, 0.3, 0.2])
    assert paired_interval(gaps[:1], 0.4) is None
    narrow, wide = paired_interval(gaps, 0.0), paired_interval(gaps, 1.0)
    assert wide[0] < narrow[0] < 0.2 < narrow[1] < wide[1]
    # With no shared rows it is the t interval of independent numbers.
    assert narrow[1] - 0.2 == pytest.approx(3.182446 * gaps.std(ddof=1) / 2, rel=1e-5)


def test_a_clear_lead_is_one_and_for_log_loss_less_is_better():
    fixture = Fixture("t", "classification", np.zeros((10, 1)), np.zeros(10), 3)
    scores = [
        {"model": name, "split": split, "log_loss": base + 0.01 * split}
        for name, base in ((OURS, 0.1), ("worse", 0.5), ("better", 0.05))
        for split in range(3)
    ]
    verdicts = {entry["baseline"]: entry["verdict"] for entry in season._differences(fixture, scores)}
    assert verdicts == {"worse": "ahead", "better": "behind"}


def test_slow_models_are_not_asked_beyond_their_rows():
    x = np.zeros((30_000, 2))
    fixture = Fixture("large", "regression", x, np.zeros(len(x)), 1, train=25_000)
    assert not {name for name, most in MOST_ROWS.items() if most < 25_000} & set(players(fixture, 0))
    assert OURS in players(fixture, 0)


def test_our_intervals_are_scored_where_they_are_true():
    rng = np.random.default_rng(0)
    x = rng.random((150, 2))
    fixture = Fixture("t", "regression", x, x[:, 0] + 0.1 * rng.standard_normal(150), 1, train=90)
    score = match.play(fixture, OURS, 0, 0)
    assert 0.7 < score["coverage"] <= 1
    assert score["r2"] > 0.7
    assert score["nll"] < 0  # a density above 1: the noise is 0.1


def test_tables_are_the_same_every_time():
    first, second = list(fixtures(0, quick=True)), list(fixtures(0, quick=True))
    assert [one.name for one in first] == ["friedman 1", "iris"]
    assert all(np.array_equal(a.x, b.x) for a, b in zip(first, second, strict=True))


def test_the_picture_is_drawn_from_the_results_alone(result, tmp_path):
    path = draw_league(
        {**result, "results": [{**row, "model": row["model"]} for row in result["results"]]}, tmp_path / "a.png"
    )
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_workers_change_nothing(monkeypatch):
    tables = [replace(one, splits=1) for one in fixtures(0, quick=True) if one.task == "regression"]
    monkeypatch.setattr(season, "fixtures", lambda seed, quick: tables)
    monkeypatch.setattr(season, "players", lambda fixture, seed: {"linear": LinearRegression})
    one, two = (league("cpu", replace(QUICK, workers=count), Console(file=io.StringIO())) for count in (1, 2))
    assert one["results"][0]["r2_all"] == two["results"][0]["r2_all"]


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_every_player_can_be_fitted(task):
    (fixture,) = [one for one in fixtures(0, quick=True) if one.task == task]
    few = replace(fixture, train=40)
    for name in set(players(few, 0)) - {OURS, "EBM", "CatBoost"}:
        score = match.play(few, name, 0, 0)
        assert "failed" not in score, score
        assert score["seconds"] > 0
