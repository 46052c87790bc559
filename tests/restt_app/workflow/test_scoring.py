from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import accuracy_score, log_loss, r2_score, root_mean_squared_error

from restt_app.workflow.scoring import (
    Scorer,
    ScoringSettings,
    _common_labels,
    _Predicted,
    _reliability,
    split_rows,
)


def score(make, x, y, classes, seed, step, settings=None):
    splits, method = split_rows(y, None if classes is None else y, seed, settings or ScoringSettings())
    return Scorer(x, y, classes, splits, method, seed).score(make, "quick", step)


def numbers(rows, seed=0):
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.normal(size=(rows, 2)), columns=["a", "b"])
    return x, (2 * x.a + rng.normal(0, 0.5, rows)).to_numpy()


def by_name(honest):
    return {(one["model"], one["metric"]): one for one in honest["scores"]}


def test_folds_predict_every_row_unseen_and_the_metrics_are_scikit_learns():
    x, y = numbers(100)
    spent = []
    splits, method = split_rows(y, None, 0, ScoringSettings())
    scorer = Scorer(x, y, None, splits, method, 0)
    cost = scorer.cost("auto")
    assert cost == pytest.approx(5 * (10 + 0.2 + 1))
    honest = scorer.score(LinearRegression, "auto", lambda what, share: spent.append(share))
    assert set(honest["held_out"]["seconds"]) == {"ResTT", "linear", "boosting", "mean"}
    assert honest["held_out"]["method"] == "5 folds"
    assert honest["held_out"]["rows"] == 100
    assert honest["held_out"]["trained_on"] == 80
    assert sum(spent) == pytest.approx(cost)
    predicted = np.array([row["predicted"] for row in honest["calibration"]["rows"]])
    observed = np.array([row["observed"] for row in honest["calibration"]["rows"]])
    assert len(observed) == 100
    assert honest["held_out"]["metrics"]["r2"] == pytest.approx(r2_score(observed, predicted))
    assert honest["held_out"]["metrics"]["rmse"] == pytest.approx(root_mean_squared_error(observed, predicted))
    own = by_name(honest)["ResTT", "r2"]
    assert own["low"] < own["value"] < own["high"]
    assert own["high"] - own["low"] < 0.1


def test_coverage_is_the_share_of_rows_within_the_ends_of_their_intervals():
    x, y = numbers(100)
    low = np.sort(y)[10]  # an end belongs to its interval

    class Banded(LinearRegression):
        def predict_interval(self, X, coverage):
            return np.stack([np.full(len(X), low), np.full(len(X), coverage)], axis=1)

    calibration = score(Banded, x, y, None, 0, lambda *_: None)["calibration"]
    for level in calibration["coverage"]:
        assert level["observed"] == pytest.approx(np.mean((y >= low) & (y <= level["expected"])))
        assert level["width"] == pytest.approx(level["expected"] - low)
    fifths = calibration["fifths"]
    predicted = np.sort([row["predicted"] for row in calibration["rows"]])
    assert [part["rows"] for part in fifths] == [20] * 5
    assert [part["high"] for part in fifths] == pytest.approx(predicted[19::20])
    shown = next(level for level in calibration["coverage"] if level["expected"] == fifths[0]["expected"])
    assert np.mean([part["observed"] for part in fifths]) == pytest.approx(shown["observed"])


def test_a_model_that_knows_nothing_scores_nothing():
    x, y = numbers(100)
    found = by_name(score(DummyRegressor, x, y, None, 0, lambda *_: None))
    assert found["ResTT", "r2"]["value"] < 0.01
    assert found["linear", "r2"]["value"] > 0.9
    assert found["boosting", "r2"]["value"] > 0.7


def test_of_many_rows_a_part_is_held_out_that_no_model_was_fitted_to():
    seen = []

    class Remembering(LinearRegression):
        def fit(self, X, y):
            seen.append(X.index.to_numpy())
            return super().fit(X, y)

        def predict(self, X):
            seen.append(X.index.to_numpy())
            return super().predict(X)

    x, y = numbers(600)
    honest = score(Remembering, x, y, None, 0, lambda *_: None, ScoringSettings(most_trained=300))
    assert honest["held_out"]["method"] == "20 % of the rows"
    assert honest["held_out"]["rows"] == 120
    kept, held = seen
    assert (len(kept), len(held)) == (300, 120)
    assert not set(kept) & set(held)


def test_classes_are_scored_by_their_probabilities():
    x, y = numbers(120)
    classes = np.array(["down", "up"], dtype=object)
    labels = np.where(y > 0, "up", "down").astype(object)

    class Sure(DummyClassifier):
        def predict_proba(self, X):
            up = np.where(X.a > 0, 0.9, 0.1)
            return np.stack([1 - up, up], axis=1)

    honest = score(Sure, x, labels, classes, 0, lambda *_: None)
    shares = by_name(honest)["class shares", "accuracy"]["value"]
    assert shares == pytest.approx(max((labels == "up").mean(), (labels == "down").mean()))
    assert by_name(honest)["class shares", "roc_auc"]["value"] == pytest.approx(0.5, abs=0.1)
    counts = honest["calibration"]["confusion"]
    assert sum(counts["positive"][50:]) == ((labels == "up") & (x.a > 0)).sum()
    assert sum(counts["negative"][50:]) == ((labels == "down") & (x.a > 0)).sum()
    up = np.where(x.a > 0, 0.9, 0.1)
    assert honest["held_out"]["metrics"]["log_loss"] == pytest.approx(
        log_loss(labels, np.stack([1 - up, up], axis=1)), rel=1e-4
    )
    assert honest["held_out"]["metrics"]["accuracy"] == accuracy_score(labels, np.where(x.a > 0, "up", "down"))
    assert honest["calibration"]["of"] == "up"
    low, high = honest["calibration"]["bins"]
    assert low["rows"] == int((x.a <= 0).sum())
    assert high["predicted"] == pytest.approx(0.9, abs=1e-5)
    assert high["observed"] == pytest.approx((labels == "up")[x.a > 0].mean())


def test_a_class_that_a_fold_has_not_seen_costs_but_breaks_nothing():
    x, _ = numbers(40)
    labels = np.array(["a", "b"] * 19 + ["a", "rare"], dtype=object)
    honest = score(DummyClassifier, x, labels, np.unique(labels), 0, lambda *_: None)
    assert np.isfinite(honest["held_out"]["metrics"]["log_loss"])
    assert honest["calibration"]["of"] is None


def test_the_linear_model_has_one_place_for_levels_of_less_than_a_hundredth():
    x, y = numbers(200)
    x["kind"] = pd.Categorical(["common"] * 197 + ["two"] * 2 + ["one"])
    model = Scorer(x, y, None, [(np.arange(200),) * 2], "", 0)._baseline("linear").fit(x, y + 5 * (x.kind != "common"))
    kinds = ["common", "two", "one", "unseen"]
    common, two, one, unseen = model.predict(pd.DataFrame({"a": 0.0, "b": np.nan, "kind": pd.Categorical(kinds)}))
    assert one == unseen > common + 1
    assert two not in (one, common)


def test_boosting_takes_a_class_of_one_row_in_a_long_table():
    x, y = numbers(10_100)
    labels = np.where(y > 0, "u", "v").astype(object)
    labels[0] = "once"  # row 0 is fitted to
    splits = [(np.arange(10_050), np.arange(10_050, 10_100))]
    scorer = Scorer(x, labels, np.unique(labels), splits, "", 0)
    fitted = scorer._baseline("boosting").set_params(max_iter=1).fit(x[:10_050], labels[:10_050])
    assert fitted.classes_.tolist() == ["once", "u", "v"]


def test_baselines_take_gaps_and_categories_of_any_number():
    rng = np.random.default_rng(0)
    rows = 500
    codes = rng.integers(300, size=rows)
    x = pd.DataFrame(
        {"a": rng.normal(size=rows), "many": pd.Categorical(codes.astype(str)), "few": pd.Categorical(["u", "v"] * 250)}
    )
    x.loc[::5, "a"] = np.nan
    x.loc[::7, "few"] = np.nan
    y = np.nan_to_num(x.a.to_numpy()) + (x.few == "u").to_numpy()
    found = by_name(score(DummyRegressor, x, y, None, 0, lambda *_: None))
    assert found["linear", "r2"]["value"] > 0.8
    assert found["boosting", "r2"]["value"] > 0.8


def test_the_same_seed_gives_the_same_scores():
    x, y = numbers(60)
    first, again, other = (score(LinearRegression, x, y, None, seed, lambda *_: None)["scores"] for seed in (1, 1, 2))
    assert first == again != other


def test_baselines_are_fitted_once_for_two_efforts():
    x, y = numbers(60)
    splits, method = split_rows(y, None, 0, ScoringSettings())
    scorer, told = Scorer(x, y, None, splits, method, 0), []
    first = scorer.score(DummyRegressor, "quick", lambda what, _: told.append(what))
    assert [scorer.cost(effort) for effort in ("quick", "auto", "best")] == [15.0, 50.0, 150.0]  # baselines are there
    second = scorer.score(LinearRegression, "auto", lambda what, _: told.append(what))
    assert told[0] == "scoring linear, fold 1 of 5"
    assert sum(what.startswith("scoring boosting") for what in told) == 5
    assert by_name(first)["boosting", "r2"] == by_name(second)["boosting", "r2"]
    assert by_name(first)["ResTT", "r2"]["value"] < by_name(second)["ResTT", "r2"]["value"]


def test_coverage_by_fifth_and_the_groups_that_do_worse():
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"a": rng.normal(size=400), "kind": pd.Categorical(["calm", "wild"] * 200)})
    y = (x.a + np.where(x.kind == "wild", 3.0, 0.3) * rng.normal(size=400)).to_numpy()

    class Wide(LinearRegression):
        def fit(self, X, y):
            return super().fit(X[["a"]], y)

        def predict(self, X):
            return super().predict(X[["a"]])

        def predict_interval(self, X, coverage):
            middle = self.predict(X)
            return np.stack([middle - 1, middle + 1], axis=1)

    calibration = score(Wide, x, y, None, 0, lambda *_: None)["calibration"]
    assert [part["rows"] for part in calibration["fifths"]] == [80] * 5
    inside = sum(part["rows"] * part["observed"] for part in calibration["fifths"]) / 400
    predicted = np.sort([row["predicted"] for row in calibration["rows"]])
    assert [part["low"] for part in calibration["fifths"]] == predicted[::80].tolist()
    assert [part["high"] for part in calibration["fifths"]] == predicted[79::80].tolist()
    assert {part["expected"] for part in calibration["fifths"]} == {0.9}
    assert [part["width"] for part in calibration["fifths"]] == pytest.approx([2.0] * 5)
    for row in calibration["rows"]:
        assert (row["low"], row["high"]) == pytest.approx((row["predicted"] - 1, row["predicted"] + 1))
    assert inside == pytest.approx(calibration["coverage"][2]["observed"])
    worst = calibration["groups"][0]
    assert (worst["column"], worst["values"], worst["rows"]) == ("kind", "wild", 200)
    assert worst["loss"] > 10 * worst["others"]


def test_bins_hold_equally_many_rows_and_equal_probabilities_together():
    x, y = numbers(60)
    labels = np.where(y > 0, 1, 0)

    class Steps(DummyClassifier):
        def predict_proba(self, X):
            up = np.resize([0.05, 0.25, 1.0], len(X))
            return np.stack([1 - up, up], axis=1)

    calibration = score(Steps, x, labels, np.array([0, 1]), 0, lambda *_: None)["calibration"]
    ends = [part[name] for part in calibration["bins"] for name in ("low", "high")]
    assert ends == pytest.approx([0.05, 0.05, 0.25, 0.25, 1.0, 1.0], abs=1e-5)
    assert sum(part["rows"] for part in calibration["bins"]) == 60
    held = np.concatenate([out for _, out in split_rows(labels, labels, 0, ScoringSettings())[0]])
    sure = [labels[rows][2::3] for _, rows in split_rows(labels, labels, 0, ScoringSettings())[0]]
    assert len(held) == 60
    assert calibration["bins"][-1]["observed"] == pytest.approx(np.concatenate(sure).mean())


def test_a_label_of_one_row_counts_as_the_most_common():
    assert _common_labels(np.array([*"aabbbc"])).tolist() == [*"aabbbb"]


def test_a_class_that_a_fold_lacks_has_a_millionth():
    x, y = pd.DataFrame({"a": [0.0, 1.0]}), np.array(["u", "w"], dtype=object)
    scorer = Scorer(x, y, np.array(["u", "v", "w"], dtype=object), [(np.arange(2), np.arange(2))], "", 0)
    model = SimpleNamespace(classes_=np.array(["u", "w"], dtype=object), predict_proba=lambda rows: [[0.25, 0.75]] * 2)
    found = scorer._values(model, x)
    np.testing.assert_allclose(found, np.array([[0.25, 1e-6, 0.75]] * 2) / (1 + 1e-6), rtol=1e-12)


def test_of_several_classes_the_predicted_ones_probability_is_meant():
    shares = np.array([[0.8, 0.1, 0.1], [0.8, 0.2, 0.0], [0.2, 0.5, 0.3], [0.1, 0.4, 0.5]])
    x, y = pd.DataFrame({"a": np.arange(4.0)}), np.array([1, 5, 5, 9])
    found = _reliability(x, y, _Predicted(shares, 0.0), np.array([1, 5, 9]))
    assert found["bins"] == [
        {"low": 0.5, "high": 0.5, "predicted": 0.5, "observed": 1.0, "rows": 2},
        {"low": 0.8, "high": 0.8, "predicted": 0.8, "observed": 0.5, "rows": 2},
    ]
    assert found["confusion"] == {"matrix": [[1, 0, 0], [1, 1, 0], [0, 0, 1]]}
    assert (found["of"], found["groups"]) == (None, [])


def test_bins_of_probabilities_are_tenths_of_the_rows():
    shares = (np.arange(30) / 32)[:, None] * [-1, 1] + [1, 0]
    x, y = pd.DataFrame({"a": np.zeros(30)}), np.arange(30) % 3 // 2
    bins = _reliability(x, y, _Predicted(shares, 0.0), np.array([0, 1]))["bins"]
    assert [(one["low"], one["high"]) for one in bins] == [(3 * k / 32, (3 * k + 2) / 32) for k in range(10)]
    assert [one["observed"] for one in bins] == pytest.approx([1 / 3] * 10)


def test_a_model_without_intervals_has_rows_without_ends():
    x, y = numbers(60)
    calibration = score(LinearRegression, x, y, None, 0, lambda *_: None)["calibration"]
    assert (calibration["coverage"], calibration["fifths"], len(calibration["rows"])) == ([], [], 60)
    assert {(row["low"], row["high"]) for row in calibration["rows"]} == {(None, None)}
