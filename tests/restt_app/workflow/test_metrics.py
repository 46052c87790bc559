import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    brier_score_loss,
    log_loss,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from restt_app.workflow.metrics import (
    RESAMPLES,
    _areas,
    _groups,
    confusion,
    draws,
    entry,
    row_losses,
    weak_groups,
)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(5, 60), st.booleans())
def test_two_classes_are_scored_as_scikit_learn_does_ties_and_all(seed, rows, ties):
    rng = np.random.default_rng(seed)
    y = np.append([0, 1], rng.integers(2, size=rows - 2))
    p = rng.random(rows)
    p = np.clip(p.round(1) if ties else p, 0.01, 0.99)
    found = {name: values[0] for name, values in draws(y, np.stack([1 - p, p], 1), np.array([0, 1]), 0).items()}
    assert found["roc_auc"] == pytest.approx(roc_auc_score(y, p))
    assert found["average_precision"] == pytest.approx(average_precision_score(y, p))
    assert found["brier"] == pytest.approx(brier_score_loss(y, p))
    assert found["log_loss"] == pytest.approx(log_loss(y, p))


def test_several_classes_and_numbers():
    rng = np.random.default_rng(0)
    y, p = rng.integers(3, size=90), rng.dirichlet(np.ones(3), 90)
    found = {name: values[0] for name, values in draws(y, p, np.arange(3), 0).items()}
    assert found["roc_auc"] == pytest.approx(roc_auc_score(y, p, multi_class="ovr"))
    assert found["average_precision"] == pytest.approx(average_precision_score(np.eye(3)[y], p))
    assert found["brier"] == pytest.approx(((p - np.eye(3)[y]) ** 2).sum(1).mean())
    assert found["accuracy"] == pytest.approx(accuracy_score(y, p.argmax(1)))
    assert found["log_loss"] == pytest.approx(log_loss(y, p))
    values = y + rng.normal(size=90)
    found = {name: kept[0] for name, kept in draws(y.astype(float), values, None, 0).items()}
    assert found["r2"] == pytest.approx(r2_score(y, values))
    assert found["rmse"] == pytest.approx(root_mean_squared_error(y, values))


def test_intervals_are_those_of_resampled_rows():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    p = np.clip(0.5 + 0.3 * (y - 0.5) + 0.2 * rng.normal(size=200), 0.01, 0.99)
    drawn = draws(y, np.stack([1 - p, p], 1), np.array([0, 1]), seed=5)["roc_auc"]
    assert drawn.shape == (1 + RESAMPLES,)
    rows = np.random.default_rng(5).integers(200, size=200)
    assert drawn[1] == pytest.approx(roc_auc_score(y[rows], p[rows]))
    drawn_values = draws(y + 9.0, p, None, seed=5)
    assert drawn_values["r2"][1] == pytest.approx(r2_score(y[rows] + 9.0, p[rows]))
    assert drawn_values["rmse"][1] == pytest.approx(root_mean_squared_error(y[rows] + 9.0, p[rows]))
    assert entry(drawn)["low"] < drawn[0] < entry(drawn)["high"]


def test_numbers_that_do_not_vary_have_no_r2():
    found = draws(np.full(3, 2.0), np.array([2.0, 2.0, 5.0]), None, 0)
    assert np.isnan(found["r2"]).all()
    assert found["rmse"][0] == pytest.approx(np.sqrt(3))


def test_a_class_that_no_row_has_is_left_out_of_the_mean():
    p = np.full((4, 3), 1 / 3) + np.array([[0.1], [-0.1], [0.05], [0.0]]) * [1, -1, 0]
    found = draws(np.array([0, 1, 0, 1]), p, np.arange(3), 0)
    assert found["roc_auc"][0] == pytest.approx(1.0)


def test_the_confusion_matrix_of_every_threshold():
    rng = np.random.default_rng(0)
    own, p = rng.integers(2, size=300), rng.random(300).round(3)
    counts = confusion(own, np.stack([1 - p, p], 1))
    for threshold in (0, 7, 50, 99, 100):
        said = p >= threshold / 100
        assert sum(counts["positive"][threshold:]) == (said & (own == 1)).sum()
        assert sum(counts["negative"][threshold:]) == (said & (own == 0)).sum()
    assert confusion(np.array([0, 2, 2]), np.eye(3)[[0, 1, 2]])["matrix"] == [[1, 0, 0], [0, 0, 0], [0, 1, 1]]


def test_a_weak_group_is_described_by_its_own_rows():
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"a": np.arange(100.0), "b": ["u", "v"] * 50})
    residuals = np.where(x.a >= 80, 3.0, 0.1) + 0.01 * rng.normal(size=100)
    (group,) = weak_groups(x, residuals**2, residuals)
    assert (group["column"], group["values"], group["rows"]) == ("a", "80 to 99", 20)
    assert group["loss"] == pytest.approx((residuals[80:] ** 2).mean())
    assert group["others"] == pytest.approx((residuals[:80] ** 2).mean())
    assert group["bias"] == pytest.approx(residuals[80:].mean())
    assert weak_groups(x[:18], residuals[:18]) == []  # no group of ten on both sides


def test_missing_values_are_a_group():
    x = pd.DataFrame({"a": [np.nan] * 20 + [1.0] * 40})
    losses = np.where(x.a.isna(), 5.0, 1.0) + np.tile([0.1, -0.1], 30)
    assert [group["values"] for group in weak_groups(x, losses)] == ["missing"]


def test_rows_of_one_score_are_one_step():
    truth, score, weights = (
        np.array([1.0, 0, 1, 0]),
        np.array([0.9, 0.5, 0.5, 0.1]),
        np.array([[1.0, 1, 1, 1], [2, 0, 1, 3]]),
    )
    area, precision = _areas(truth, score, weights)
    assert area.tolist() == pytest.approx([3.5 / 4, 1.0])
    assert precision.tolist() == pytest.approx([1 / 2 + 1 / 2 * 2 / 3, 1.0])


def test_losses_of_rows_are_squares_or_of_the_true_class():
    assert row_losses(np.array([1.0, 3.0]), np.array([3.0, 2.5]), None).tolist() == [4.0, 0.25]
    losses = row_losses(np.array(["b", "a"]), np.array([[0.2, 0.8], [0.0, 1.0]]), np.array(["a", "b"]))
    assert losses.tolist() == pytest.approx([-np.log(0.8), -np.log(1e-15)])


def test_groups_are_fifths_levels_and_what_is_missing():
    numbers = _groups(pd.Series([*np.arange(10.0), np.nan]))
    assert [(words, int(there.sum())) for words, there in numbers] == [
        *(("missing", 1), ("0 to 1", 2), ("2 to 3", 2), ("4 to 5", 2), ("6 to 7", 2), ("8 to 9", 2)),
    ]
    levels = _groups(pd.Series(pd.Categorical(["u", "v", None, "u"])))
    assert [(words, there.tolist()) for words, there in levels] == [
        ("missing", [False, False, True, False]),
        ("u", [True, False, False, True]),
        ("v", [False, True, False, False]),
    ]
    assert [words for words, _ in _groups(pd.Series([1.0] * 9 + [2.0]))] == ["missing", "1", "2"]
    assert len(_groups(pd.Series([np.nan, np.nan]))) == 1


@pytest.mark.parametrize(("rows", "listed"), [(9, 0), (10, 1), (50, 1), (51, 0)])
def test_a_group_has_at_least_ten_rows_and_leaves_ten(rows, listed):
    x = pd.DataFrame({"kind": ["u"] * rows + ["v"] * (60 - rows)})
    assert len(weak_groups(x, (x.kind == "u") + np.arange(60) * 1e-3)) == listed


def test_a_group_is_listed_from_the_corrected_distance_on_and_eight_at_most():
    # Two groups tested: the gap must be 1.96 of its standard errors, 1.645 would do for one.
    x = pd.DataFrame({"kind": ["u"] * 10 + ["v"] * 10})
    spread = np.tile([-1.0, 1.0], 10) * np.sqrt(9 / 10)  # variance 1 in each, √0.2 of the gap
    for gap, listed in ((1.9, 0), (2.0, 1)):
        found = weak_groups(x, spread + gap * np.sqrt(0.2) * (x.kind == "u").to_numpy())
        assert [group["values"] for group in found] == ["u"] * listed
    many = pd.DataFrame({f"c{k}": x.kind for k in range(9)})
    found = weak_groups(many, spread + 9.0 * (x.kind == "u").to_numpy())
    assert [group["column"] for group in found] == [f"c{k}" for k in range(8)]
    assert weak_groups(x, np.repeat([2.0, 1.0], 10)) == []  # without any spread there is no error to compare with


def test_an_interval_leaves_a_fortieth_on_either_side():
    values = np.append([7.0], np.arange(401.0))
    assert entry(values) == pytest.approx({"value": 7.0, "low": 10.0, "high": 390.0})
    assert entry(np.array([7.0, np.nan])) == {"value": 7.0, "low": 7.0, "high": 7.0}
