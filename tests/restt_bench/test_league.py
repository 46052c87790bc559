"""The league of tables: same rows for all, honest differences, failures told."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from restt_bench import league, league_models
from restt_bench.case import QUICK
from restt_bench.league import paired_interval
from restt_bench.league_models import MOST_ROWS, OURS, models
from restt_bench.league_tables import (
    CHOSE_WEIGHTS,
    LeagueTable,
    _large,
    _made_classes,
    _made_values,
    _real,
    league_tables,
)


class Mean:
    """Predicts the mean; counts the rows of its fits."""

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
    monkeypatch.setattr(league, "OURS", "mean")
    monkeypatch.setattr(league_models, "_values", lambda *_: {"mean": Mean, "other": Mean, "broken": Broken})
    monkeypatch.setattr(league_models, "_optional", lambda *_: {})
    tables = [table for table in league_tables(0, quick=True) if table.task == "regression"]
    monkeypatch.setattr(league, "league_tables", lambda seed, quick: tables)
    return league.league("cpu", QUICK, Console(file=io.StringIO()))


def test_every_model_is_fitted_to_the_same_number_of_rows(result):
    rows = {row["model"]: row for row in result["results"]}
    assert rows["mean"]["r2_all"] == rows["other"]["r2_all"]
    assert rows["mean"]["count"] == 2
    assert set(Mean.seen) == {60}
    assert -0.5 < rows["mean"]["r2"] <= 0  # no constant explains anything of rows it has not seen


def test_a_model_that_fails_is_reported_without_a_mean(result):
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
    table = LeagueTable("t", "classification", np.zeros((10, 1)), np.zeros(10), 3)
    scores = [
        {"model": name, "split": split, "log_loss": base + 0.01 * split}
        for name, base in ((OURS, 0.1), ("worse", 0.5), ("better", 0.05))
        for split in range(3)
    ]
    verdicts = {entry["baseline"]: entry["verdict"] for entry in league.paired_differences(table, scores)}
    assert verdicts == {"worse": "ahead", "better": "behind"}


def test_slow_models_are_not_asked_beyond_their_rows():
    x = np.zeros((30_000, 2))
    table = LeagueTable("large", "regression", x, np.zeros(len(x)), 1, train=25_000)
    assert not {name for name, most in MOST_ROWS.items() if most < 25_000} & set(models(table, 0))
    assert OURS in models(table, 0)


@pytest.mark.parametrize(("rows", "asked"), [(1200, True), (1202, False)])
def test_rows_given_as_a_share_count_for_who_is_asked(rows, asked):
    table = LeagueTable("half", "regression", np.zeros((rows, 2)), np.zeros(rows), 1, train=0.5)
    assert ("Gaussian process" in models(table, 0)) == asked  # at most 600 rows


def test_intervals_are_scored_by_the_rows_between_their_ends():
    class Banded:
        def predict(self, x, return_std=False):
            return (np.zeros(len(x)), np.ones(len(x))) if return_std else np.zeros(len(x))

        def predict_interval(self, x, coverage):
            return np.tile([-1.0, 3.0], (len(x), 1))

    score = league.score_values(Banded(), np.zeros((4, 1)), np.array([-2.0, -1.0, 3.0, 5.0]))
    assert (score["coverage"], score["interval_width"]) == (0.5, 4.0)
    assert score["nll"] == pytest.approx(39 / 8 + np.log(2 * np.pi) / 2)


def test_tables_are_the_same_every_time():
    first, second = (list(league_tables(0, quick=True)) for _ in range(2))
    assert [table.name for table in first] == ["friedman 1", "iris"]
    assert all(np.array_equal(a.x, b.x) for a, b in zip(first, second, strict=True))


def test_one_rule_decides_who_won_and_who_lost():
    tables = [LeagueTable(name, "regression", np.zeros((10, 1)), np.zeros(10), 2) for name in "abcd"]
    verdicts = {"a": ("ahead", "ahead"), "b": ("ahead", "behind"), "c": ("ahead", "tie"), "d": ("ahead", "one split")}
    differences = [{"table": name, "verdict": verdict} for name, both in verdicts.items() for verdict in both]
    found = league.standing([*tables, replace(tables[0], name="product")], differences)
    counts = {"won": 1, "lost": 1, "tied": 1, "undecided": 2}
    assert found == {"tables": 5, "made": 5, "made_and_used_in_development": 1, **counts}


def test_the_league_says_which_tables_are_made():
    tables = [table for make in (_real, _made_values, _made_classes, _large) for table in make(0)]
    made = [table.name for table in tables if table.made]
    assert len(tables) + 4 == 30  # the paper's two tables twice
    assert len(made) == 21
    assert len(CHOSE_WEIGHTS) == 9
    assert set(made) >= CHOSE_WEIGHTS


@pytest.fixture
def coded():
    """Two numbers and a column of codes that decides."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.standard_normal((120, 2)), columns=["a", "b"])
    codes = rng.integers(0, 4, 120)
    x["code"] = pd.Categorical(codes)
    y = np.array([0.0, 3.0, -2.0, 1.0])[codes] + 0.1 * x["a"].to_numpy()
    return LeagueTable("coded", "regression", x, y, 1, train=80)


def test_a_gaussian_process_has_a_length_for_every_encoded_column(coded):
    score = league.score(coded, "Gaussian process", 0, 0)
    assert "failed" not in score, score
    assert score["r2"] > 0.95


def test_models_get_categories_as_categories(coded):
    (table,) = [table for table in _made_values(0) if table.name == "categories"]
    assert table.categories == ["a", "b", "c", "d"]
    for name in ("linear", "boosting", "random forest"):
        assert league.score(coded, name, 0, 0)["r2"] > 0.95


@pytest.mark.parametrize("name", sorted(league_models.OPTIONAL))
def test_optional_packages_take_part_where_they_are_installed(name, coded, monkeypatch):
    monkeypatch.setattr(league_models, "_is_installed", lambda module: module == league_models.OPTIONAL[name])
    assert set(models(coded, 0)) - set(models(coded, 0, optional=False)) == {name}


def test_a_process_that_never_says_never_has_a_finite_log_loss():
    class Sure:
        classes_ = np.array([0, 1])

        def predict_proba(self, x):
            return np.tile([1.0, 0.0], (len(x), 1))

    scores = league.score_classes(Sure(), np.zeros((2, 1)), np.array([0, 1]))
    assert scores["accuracy"] == 0.5
    assert scores["log_loss"] == pytest.approx(-np.log(1e-9) / 2, rel=1e-6)


def test_splits_that_share_rows_widen_the_interval_of_a_league_table(coded):
    """80 of 120 rows are trained on: the variance counts 1/J + 40/80 times."""
    scores = [
        {"model": name, "split": split, "r2": value}
        for name, values in ((OURS, (0.5, 0.7, 0.9)), ("other", (0.4, 0.5, 0.6)))
        for split, value in enumerate(values)
    ]
    (entry,) = league.paired_differences(coded, scores)
    low, high = paired_interval(np.array([0.1, 0.2, 0.3]), 0.5)
    assert (entry["low"], entry["high"]) == pytest.approx((low, high))


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_every_model_can_be_fitted(task):
    (table,) = [table for table in league_tables(0, quick=True) if table.task == task]
    few = replace(table, train=40)
    for name in set(models(few, 0)) - {OURS, *league_models.OPTIONAL}:
        score = league.score(few, name, 0, 0)
        assert "failed" not in score, score
        assert score["seconds"] > 0
