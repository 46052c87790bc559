"""Equal rows and folds: copies are held out together, observations are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss

from restt.estimators import ResTTClassifier
from restt.estimators.class_rows import ClassSettings, pieces, stratified_folds
from tests.estimators.class_problems import class_rows

TWENTY = class_rows(np.random.default_rng(0).random((20, 1)), np.arange(20) % 2, [], ClassSettings())


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


@pytest.mark.parametrize(
    ("effort", "rows", "folds", "learned", "inducing"),
    [
        ("quick", 2000, 2, 173, 429),
        ("quick", 900, 3, 150, 399),
        ("quick", 5001, 1, 300, 565),
        ("auto", 1000, 5, 330, 999),
        ("auto", 1250, 4, 361, 1046),
        ("auto", 4999, 2, 466, 1189),
        ("auto", 5000, 1, 808, 1565),
        ("best", 1000, 5, 660, 1999),
        ("best", 20_000, 1, 1616, 3130),
    ],
)
def test_more_rows_have_fewer_folds_which_learn_on_more(effort, rows, folds, learned, inducing):
    own = replace(TWENTY, settings=ClassSettings.of_effort(effort))
    dealt = stratified_folds(np.arange(rows) % 2, own.settings.folds, own.settings.judged_rows)
    own = replace(own, folds=dealt)
    assert len(own.parts) == folds
    assert own.searches == (1 if folds == 1 else folds + 1)
    assert own.learned == learned
    assert int(own.settings.inducing_rows / own.searches**0.25) == inducing


def test_quick_has_fewer_candidates_and_steps():
    quick = ClassSettings.of_effort("quick")
    assert (quick.first_iterations, quick.iterations, quick.train_steps) == (3, 8, 150)
    assert [1 / penalty for penalty in quick.penalties] == [8, 256]
    assert (quick.train_penalties, quick.most_rows) == ((0.001,), 2000)


def test_many_columns_leave_time_for_fewer_rows():
    """Rows · columns of a search, not pairs of rows, are then what takes the time."""
    for columns, expected in ((1, 330), (27, 330), (28, 327), (300, 100)):
        assert replace(TWENTY, sites=TWENTY.sites * columns).learned == expected


def test_models_are_judged_where_two_classes_have_rows_enough():
    for counts, judged in (([8, 2], True), ([8, 2, 1], True), ([7, 2, 1], False), ([19, 1], False), ([19], False)):
        labels = np.repeat(np.arange(len(counts)), counts)
        assert replace(TWENTY, labels=labels).is_judged == judged


def test_the_first_rows_have_folds_of_their_own():
    assert TWENTY.first(20) is TWENTY
    few = TWENTY.first(19)
    for name in ("table", "labels", "weights"):
        assert np.array_equal(getattr(few, name), getattr(TWENTY, name)[:19], equal_nan=True)
    assert few.folds.tolist() == stratified_folds(TWENTY.labels[:19], 5, 1000).tolist()
    assert len(few.codes.code) == 19


def test_logits_of_a_row_are_those_of_its_fold_or_their_mean():
    rows = replace(TWENTY, folds=np.r_[np.arange(18) % 2, -1, -1])
    logits = np.random.default_rng(0).random((3, 2, 20, 2))
    found = rows.held_out(logits)
    for row in range(18):
        assert found[:, row].tolist() == logits[:, row % 2, row].tolist()
    np.testing.assert_allclose(found[:, 18:], logits[..., 18:, :].mean(1))


def test_a_site_varies_where_it_has_more_than_one_value_or_some_are_missing():
    table = np.array([[1.0, 1.0, np.nan, np.nan, 2.0], [1.0, 2.0, np.nan, 1.0, np.nan]])
    assert replace(TWENTY, table=table).varying == (1, 3, 4)


def test_straight_lines_have_knots_at_their_ends_alone():
    table, labels = np.random.default_rng(0).random((30, 2)), np.arange(30) % 2
    for work, knots in ((30 * 30 * 2.0, 30), (30 * 30 * 2.0 - 1, 2)):
        sites = class_rows(table, labels, [], ClassSettings(kernel_work=work)).sites
        assert [len(site.knots) for site in sites] == [knots] * 2


def test_equal_rows_that_mostly_disagree_are_shared_out():
    """More than a tenth of the weight of those that are not alone; a row of weight 2 is not alone."""
    ten = np.r_[1.0, 1.0, np.arange(2.0, 11.0)][:, None]
    assert pieces(ten, np.r_[1.0, 1.0, np.full(9, 2.0)], 5).tolist() == [1] * 11
    assert pieces(ten, np.r_[1.0, 1.0, np.full(8, 2.0), 1.9], 5).tolist() == [1, 1, *[2] * 8, 1]
    table = np.array([[1.0], [1.0], [2.0], [3.0]])
    for beside, expected in ((18.0, [1, 1, 1, 1]), (17.9, [1, 1, 5, 1])):
        assert pieces(table, np.array([1.0, 1.0, beside, 1.0]), 5).tolist() == expected
    assert pieces(table, np.array([2.5, 0.5, 2.0, 1.9]), 5).tolist() == [2, 1, 2, 1]
