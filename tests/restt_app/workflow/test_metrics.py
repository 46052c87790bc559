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

from restt_app.workflow.metrics import RESAMPLES, confusion, draws, entry, weak_groups


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
