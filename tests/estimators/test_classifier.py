import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.metrics import log_loss

from restt.estimators import ResTTNetClassifier
from restt.estimators.classes import fitted_temperature
from restt.estimators.classes import log_loss as weighted_log_loss
from restt.estimators.targets import Labels, class_numbers
from tests.estimators.conftest import QUICK, short_fits


@pytest.mark.parametrize(
    "labels", [[0, 1, 2], [-5, 3, 70], ["low", "mid", "top"], [0.0, 1.0, 2.0], np.array(["a", "b", "c"], dtype=object)]
)
def test_labels_of_any_type_come_back(numbers, labels):
    x, _ = numbers
    y = np.asarray(labels)[np.digitize(x[:, 0], [-0.4, 0.4])]
    model = ResTTNetClassifier(**QUICK).fit(x, y)
    assert model.classes_.dtype == y.dtype
    assert model.classes_.tolist() == sorted(np.asarray(labels).tolist())
    assert model.score(x, y) > 0.85


def test_booleans(numbers):
    x, _ = numbers
    model = ResTTNetClassifier(**QUICK).fit(x, x[:, 0] > 0)
    assert model.classes_.tolist() == [False, True]
    assert model.predict(x).dtype == bool
    assert model.score(x, x[:, 0] > 0) > 0.9


@pytest.mark.parametrize("dtype", [object, "nullable"])
@pytest.mark.parametrize("labels", [[3, 8], [False, True]])
def test_labels_of_a_column_that_could_miss_some_keep_their_kind(numbers, labels, dtype):
    """Neither 3.0 for 3 nor an error: columns that were beside missing values are objects or pandas' nullable types."""
    x, _ = numbers
    plain = np.array(labels)[(x[:, 0] > 0).astype(int)]
    nullable = {"i": "Int64", "b": "boolean"}[plain.dtype.kind]
    model = ResTTNetClassifier(**QUICK).fit(x, pd.Series(plain, dtype=nullable if dtype == "nullable" else dtype))
    assert model.classes_.dtype == plain.dtype
    assert (model.predict(x) == plain).mean() > 0.9


@pytest.mark.parametrize("loss", ["cross-entropy", "mse"])
@pytest.mark.parametrize("classes", [2, 3])
def test_scores_agree_with_each_other(numbers, loss, classes):
    x, _ = numbers
    y = np.digitize(x[:, 0], [-0.4, 0.4][: classes - 1])
    model = ResTTNetClassifier(**QUICK, loss=loss, runs=2).fit(x, y)
    probabilities, scores = model.predict_proba(x), model.decision_function(x)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.predict_log_proba(x), np.log(probabilities))
    np.testing.assert_array_equal(model.predict(x), probabilities.argmax(axis=1))
    if classes == 2:
        assert scores.shape == (60,)
        np.testing.assert_allclose(scores, np.log(probabilities[:, 1] / probabilities[:, 0]))
    else:
        assert scores.shape == (60, 3)
        np.testing.assert_allclose(softmax(scores, axis=1), probabilities)


def test_spread_of_probabilities(fitted_classifier):
    x = np.random.default_rng(4).normal(size=(5, 3))
    mean, std = fitted_classifier.predict_proba(x, return_std=True)
    np.testing.assert_array_equal(mean, fitted_classifier.predict_proba(x))
    assert std.shape == (5, 3)
    assert (std > 0).all()


def test_a_single_class_is_certain(numbers):
    x, _ = numbers
    model = ResTTNetClassifier(**QUICK).fit(x, np.full(60, 4))
    assert model.predict_proba(x).tolist() == [[1.0]] * 60
    assert (model.predict(x) == 4).all()


@short_fits
def test_balanced_classes_weigh_the_same():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 1)), np.r_[np.zeros(190, int), np.ones(10, int)]
    options = {**QUICK, "penalty": 1.0}
    plain = ResTTNetClassifier(**options).fit(x, y).predict_proba(x)[:, 1].mean()
    balanced = ResTTNetClassifier(**options, class_weight="balanced").fit(x, y).predict_proba(x)[:, 1].mean()
    assert plain == pytest.approx(0.05, abs=0.03)
    assert balanced == pytest.approx(0.5, abs=0.1)
    by_hand = ResTTNetClassifier(**options, class_weight={0: 200 / 380, 1: 10}).fit(x, y).predict_proba(x)[:, 1].mean()
    assert by_hand == pytest.approx(balanced, abs=1e-9)


def test_class_weight_multiplies_sample_weight(numbers):
    x, _ = numbers
    y, weights = (x[:, 0] > 0).astype(int), np.random.default_rng(1).random(60)
    by_class = ResTTNetClassifier(**QUICK, class_weight={0: 1, 1: 3}).fit(x, y, sample_weight=weights)
    by_row = ResTTNetClassifier(**QUICK).fit(x, y, sample_weight=weights * np.where(y == 1, 3, 1))
    # Weights of rows also move the knots; the shares that the classes start from must be the same.
    np.testing.assert_allclose(by_class.target_.prior, by_row.target_.prior)
    np.testing.assert_allclose(by_class.target_.row_weights(y, weights), weights * np.where(y == 1, 3, 1))


@pytest.mark.parametrize("weights", [{0: -1.0, 1: 1.0}, {0: 0.0, 1: 0.0}, {0: np.nan, 1: 1.0}])
def test_class_weight_must_be_usable(numbers, weights):
    x, _ = numbers
    with pytest.raises(ValueError, match="class_weight must be finite, at least 0"):
        ResTTNetClassifier(**QUICK, class_weight=weights).fit(x, (x[:, 0] > 0).astype(int))


def test_partial_fit_knows_classes_before_it_sees_them(numbers):
    x, _ = numbers
    y = np.digitize(x[:, 0], [-0.4, 0.4])
    model = ResTTNetClassifier(bond_dim=3, random_state=0)
    with pytest.raises(ValueError, match="classes must be passed on the first call to partial_fit"):
        model.partial_fit(x, y)
    model.partial_fit(x[y < 2], y[y < 2], classes=[0, 1, 2])
    assert model.predict_proba(x).shape == (60, 3)
    for _ in range(60):
        model.partial_fit(x, y)
    assert model.score(x, y) > 0.85
    with pytest.raises(ValueError, match=r"classes must be those of the first call, \[0, 1, 2\], got \[0, 1\]"):
        model.partial_fit(x, y, classes=[0, 1])
    with pytest.raises(ValueError, match=r"y has the class 4 in row 0.*\[0, 1, 2\]"):
        model.partial_fit(x, y + 3)
    with pytest.raises(ValueError, match="needs all rows at once"):
        ResTTNetClassifier(class_weight="balanced").partial_fit(x, y, classes=[0, 1, 2])


def test_early_stopping_keeps_the_shares_of_classes(numbers):
    x, _ = numbers
    y = (np.arange(60) % 5 == 0).astype(int)
    model = ResTTNetClassifier(**QUICK, early_stopping=True, validation_fraction=0.5).fit(x, y)
    assert "accuracy" in model.history_[0].validation
    rare = np.r_[0, np.ones(59, int)]
    assert ResTTNetClassifier(**QUICK, early_stopping=True).fit(x, rare).n_iter_ > 0


def test_temperature_of_squares_beats_no_temperature(numbers):
    x, _ = numbers
    y = (x[:, 0] + 0.5 * np.random.default_rng(3).normal(size=60) > 0).astype(int)
    model = ResTTNetClassifier(**QUICK, loss="mse").fit(x, y)
    raw = softmax(model._members(x).mean(axis=0), axis=1)
    assert model.temperature_ != 1
    assert log_loss(y, model.predict_proba(x)) < log_loss(y, raw)
    assert ResTTNetClassifier(**QUICK).fit(x, y).temperature_ == 1


def test_temperature_counts_rows_by_weight():
    scores, y = np.repeat([[0.0, 1.0]], 2, axis=0), np.array([1, 0])
    found = fitted_temperature(scores, y, np.array([3.0, 1.0]))
    assert np.exp(1 / found) == pytest.approx(3, rel=1e-3)


def test_temperature_stays_within_its_bounds():
    scores = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert fitted_temperature(scores, np.array([1, 0]), np.ones(2), (0.5, 2.0)) == pytest.approx(0.5, rel=1e-3)
    assert fitted_temperature(scores, np.array([0, 1]), np.ones(2), (0.5, 2.0)) == pytest.approx(2.0, rel=1e-3)


def test_log_loss_is_the_weighted_mean():
    logits = np.log([[0.8, 0.2], [0.4, 0.6]])
    expected = -(3 * np.log(0.8) + np.log(0.6)) / 4
    assert float(weighted_log_loss(logits, np.array([0, 1]), np.array([3.0, 1.0]))) == pytest.approx(expected)


def test_labels_start_from_their_shares():
    labels = Labels(np.array([0, 1]), np.array([0.25, 0.75]), None, True)
    np.testing.assert_allclose(softmax(labels.initial_bias().numpy()), [0.25, 0.75])
    with pytest.raises(ValueError, match=r"y has the class 'z' in row 1"):
        class_numbers(np.array(["a", "z"]), np.array(["a", "b"]))


@pytest.mark.parametrize(
    ("counts", "held", "kept"),
    [
        ([4, 4], 2, True),
        ([4, 4], 6, True),
        ([4, 4], 1, False),
        ([4, 4], 7, False),
        ([7, 1], 3, False),
        ([6, 2], 3, True),
    ],
)
def test_held_out_rows_have_the_shares_of_the_classes_where_there_are_enough(counts, held, kept):
    """Two rows of each class, and a row of each on either side."""
    y = np.repeat([0, 1], counts)
    assert (ResTTNetClassifier()._split_labels(y, held) is y) == kept
