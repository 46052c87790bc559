"""Equal rows and folds: copies are held out together, observations are not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss

from restt.estimators import ResTTClassifier
from restt.estimators.class_rows import ClassSettings, pieces, stratified_folds


def few_cells(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in 48 different cells, classes, and the probability of the second."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, [4, 3, 4], (rows, 3))
    single, pair = [rng.standard_normal(count) for count in (4, 3, 4)], rng.standard_normal((4, 3))
    effect = sum(own[column] for own, column in zip(single, x.T, strict=True)) + pair[x[:, 0], x[:, 1]]
    likely = expit(1.2 * effect)
    return x.astype(float), (rng.random(rows) < likely).astype(int), likely


def test_a_table_of_few_different_rows_is_learned():
    """Judged on rows of one class where all models had seen the other's only, it ended 0.098 above the least loss."""
    x, y, likely = few_cells(3000, seed=3)
    model = ResTTClassifier(random_state=0).fit(x[:400], y[:400])
    least = log_loss(y[400:], likely[400:])
    assert log_loss(y[400:], model.predict_proba(x[400:])) < least + 0.06


def test_copies_of_a_row_are_in_one_fold():
    """None disagrees with an equal row: nothing shows that they are observations of their own."""
    table = np.random.default_rng(0).standard_normal((20, 2))
    assert pieces(table, np.full(20, 7.0), 5).tolist() == [1] * 20


@pytest.mark.usefixtures("hasty")
def test_repeated_rows_that_disagree_are_rows_of_a_larger_weight():
    x, y, _ = few_cells(60, seed=0)
    weights = 1 + np.arange(60) % 3
    weighted = ResTTClassifier(random_state=0).fit(x, y, sample_weight=weights)
    repeated = ResTTClassifier(random_state=0).fit(np.repeat(x, weights, axis=0), np.repeat(y, weights))
    assert weighted.predict_proba(x) == pytest.approx(repeated.predict_proba(x), abs=1e-6)


def test_pieces_of_a_row_are_in_different_folds():
    sizes = np.array([5, 3, 1, 4, 2])
    folds = stratified_folds(np.array([0, 0, 1, 1, 1]), 5, 100, sizes)
    for own in np.split(folds, np.cumsum(sizes)[:-1]):
        assert len(set(own)) == len(own)


def test_folds_spread_every_class_and_keep_single_rows_out():
    labels = np.repeat([0, 1, 2, 3], [23, 7, 2, 1])
    folds = stratified_folds(labels, 5, 100)
    for label in range(3):
        counts = np.bincount(folds[labels == label], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert folds[labels == 3].tolist() == [-1]


def test_of_many_rows_as_few_folds_are_held_out_as_have_enough():
    labels = np.repeat([0, 1], [70, 30])
    for judged, expected in ((100, 5), (41, 3), (20, 1), (1, 1)):
        folds = stratified_folds(labels, 5, judged)
        assert folds.max() + 1 == expected
        assert (folds >= 0).sum() == 20 * expected


def test_best_is_twice_the_rows_and_steps_of_auto():
    best, auto = ClassSettings.of_effort("best"), ClassSettings.of_effort("auto")
    for name in ("first_iterations", "iterations", "inducing_rows", "train_steps"):
        assert getattr(best, name) == 2 * getattr(auto, name)
    pairs = best.learning_pairs, best.learning_entries  # pairs of rows
    assert pairs == (4 * auto.learning_pairs, 4 * auto.learning_entries)
    rows = 3e9 / 1565 / 100  # times inducing rows and columns
    assert [auto.is_costly(int(rows) + step, 100) for step in (0, 1)] == [False, True]
    assert not auto.is_costly(10**9, int(3e9 / 1565 / 20_000))  # the sample is as long as it gets


def test_one_row_is_certain():
    model = ResTTClassifier(random_state=0).fit(np.array([[1.0, 2.0, 3.0]]), [7])
    assert model.predict_proba(np.zeros((2, 3))).tolist() == [[1.0], [1.0]]
