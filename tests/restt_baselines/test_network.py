"""What every torch baseline gets from its base, by the example of the perceptron."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from restt_baselines import make
from restt_baselines.estimator import Inputs
from restt_baselines.registry import BASELINES
from tests.restt_baselines.cases import TASKS, small_table

LENET5 = BASELINES["lenet5"]
PERCEPTRON = BASELINES["mlp"]


def small(task: str = "classification", **settings):
    return PERCEPTRON.make(task, **{"hidden": (6,), "epochs": 4, "random_state": 0, "device": "cpu"} | settings)


@pytest.mark.parametrize("task", TASKS)
def test_parameters_are_those_of_the_signature(task):
    estimator = small(task, lr=0.02)
    parameters = estimator.get_params()
    assert {"epochs", "batch_size", "lr", "schedule", "weight_decay", "clip_norm", "scaling", "runs"} <= set(parameters)
    assert not any(name.endswith("_") for name in parameters)
    assert clone(estimator).get_params() == parameters
    assert clone(estimator.set_params(lr=0.5)).lr == 0.5
    assert "lr=0.5" in repr(estimator)


@pytest.mark.parametrize("task", TASKS)
def test_only_the_seed_decides(task):
    X, y = small_table(task)
    wanted = small(task, runs=2).fit(X, y)._members(X)
    torch.manual_seed(123)
    np.random.seed(123)  # noqa: NPY002 (the global state is what must not matter)
    assert np.array_equal(small(task, runs=2).fit(X, y)._members(X), wanted)
    assert not np.array_equal(small(task, runs=2, random_state=1).fit(X, y)._members(X), wanted)


def test_members_are_averaged():
    X, y = small_table("regression")
    estimator = small("regression", runs=3).fit(X, y)
    members = np.stack([estimator.target_.decode(member) for member in estimator._members(X)])
    assert members.shape == (3, 40)
    assert not np.allclose(members[0], members[1])
    np.testing.assert_allclose(estimator.predict(X), members.mean(0))


def test_classifier_averages_probabilities():
    X, y = small_table("classification")
    estimator = small(runs=3).fit(X, np.array(["no", "yes"])[y])
    logits = estimator._members(X)
    shares = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    np.testing.assert_allclose(estimator.predict_proba(X), shares.mean(0))
    np.testing.assert_allclose(estimator.predict_proba(X).sum(1), 1)
    assert estimator.predict(X).tolist() == estimator.classes_[shares.mean(0).argmax(1)].tolist()


def test_mse_gives_probabilities_too():
    X, y = small_table("classification")
    estimator = small(loss="mse").fit(X, y)
    outputs = estimator._members(X)[0]
    shares = estimator.predict_proba(X)
    assert shares.min() >= 0
    np.testing.assert_allclose(shares.sum(1), 1)
    assert (shares.argmax(1) == outputs.argmax(1)).all()


@pytest.mark.parametrize(
    ("outputs", "shares"),
    [
        ([-2.0, -1.0], [0.0, 1.0]),  # where none is above 0, the largest takes all
        ([-0.5, 0.2], [0.0, 1.0]),
        ([1.0, 3.0], [0.25, 0.75]),  # outputs above 1 keep their order
    ],
)
def test_with_mse_the_predicted_class_is_the_most_probable(outputs, shares):
    X, y = small_table("classification")
    estimator = small(loss="mse", hidden=()).fit(X, y)
    with torch.no_grad():
        weight, bias = estimator.module_.parameters()
        weight.zero_()
        bias.copy_(torch.tensor([outputs]))
    assert estimator.predict_proba(X[:1]).tolist() == [shares]
    assert estimator.predict(X[:1]).tolist() == [1]


def test_validation_rows_are_scored_after_each_epoch():
    X, y = small_table("classification")
    estimator = small(runs=2)
    records = list(estimator.fit_epochs(X[:30], y[:30], validation=(X[30:], y[30:])))
    assert records == estimator.history_
    assert [record.epoch for record in records] == [1, 2, 3, 4]
    hits = (estimator._members(X[30:]).argmax(2) == y[30:]).mean(1)
    assert records[-1].validation["accuracy"] == pytest.approx(tuple(hits))


def test_validation_of_regression_is_on_the_scale_of_the_training():
    X, y = small_table("regression")
    estimator = small("regression")
    records = list(estimator.fit_epochs(X[:30], y[:30], validation=(X[30:], y[30:])))
    assert records[-1].validation["r2"][0] == pytest.approx(estimator.score(X[30:], y[30:]), abs=1e-5)


def test_a_fit_left_early_can_predict():
    X, y = small_table("classification")
    estimator = small()
    next(estimator.fit_epochs(X, y))
    assert estimator.n_iter_ == 1
    assert estimator.predict(X).shape == (40,)


def test_log_target_predicts_on_the_users_scale():
    X, y = small_table("regression")
    logs = small("regression").fit(X, np.log(y + 1)).predict(X)
    np.testing.assert_allclose(small("regression", log_target=True).fit(X, y + 1).predict(X), np.exp(logs))
    with pytest.raises(ValueError, match=r"y must be above 0.*got -1"):
        small("regression", log_target=True).fit(X, y - y.min() - 1)


@pytest.mark.parametrize("task", TASKS)
def test_pickles(task):
    X, y = small_table(task)
    estimator = small(task, runs=2).fit(X, y)
    again = pickle.loads(pickle.dumps(estimator))
    assert np.array_equal(again.predict(X), estimator.predict(X))
    assert again.history_ == estimator.history_


def test_works_inside_scikit_learn():
    X, y = small_table("classification", rows=120)
    model = make_pipeline(StandardScaler(), small(epochs=40, scaling="none"))
    assert cross_val_score(model, X, y, cv=3).mean() > 0.85


def test_column_names_are_remembered():
    X, y = small_table("classification")
    frame = pd.DataFrame(X, columns=list("abcde"))
    estimator = small().fit(frame, y)
    assert estimator.feature_names_in_.tolist() == list("abcde")
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.predict(frame[list("edcba")])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", ["predict", "score"])
def test_unfitted_says_so(task, method):
    X, y = small_table(task)
    with pytest.raises(NotFittedError):
        getattr(small(task), method)(*((X, y) if method == "score" else (X,)))


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"runs": 0}, ValueError, "runs must be at least 1, got 0"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1, got 0"),
        ({"batch_size": -1}, ValueError, "batch_size must be at least 1"),
        ({"lr": "fast"}, TypeError, "lr must be a number"),
        ({"schedule": "sine"}, ValueError, "schedule must be one of"),
        ({"scaling": "robust"}, ValueError, "scaling must be one of"),
        ({"loss": "hinge"}, ValueError, "loss must be one of"),
        ({"device": "abacus"}, ValueError, "device must be"),
        ({"clip_norm": 0.0}, ValueError, "clip_norm must be"),
    ],
)
def test_bad_settings_are_named_and_nothing_is_fitted(settings, error, words):
    X, y = small_table("classification")
    estimator = small(**settings)
    with pytest.raises(error, match=words):
        estimator.fit(X, y)
    with pytest.raises(NotFittedError):
        estimator.predict(X)


def test_bad_rows_are_named():
    X, y = small_table("classification")
    with pytest.raises(ValueError, match="rows, got 40 and 39"):
        small().fit(X, y[:-1])
    with pytest.raises(ValueError, match="requires y"):
        small().fit(X, None)
    with pytest.raises(ValueError, match="NaN"):
        small().fit(np.full_like(X, np.nan), y)
    with pytest.raises(ValueError, match="5 features"):
        small().fit(X, y).predict(X[:, :4])
    with pytest.raises(TypeError, match="validation must be"):
        small().fit_epochs(X, y, validation=X)
    with pytest.raises(ValueError, match="y has the class 7 in row 0"):
        small().fit_epochs(X, y, validation=(X, y + 7))
    with pytest.raises(ValueError, match="y must have shape"):
        small("regression").fit(X, np.zeros((40, 1, 1)))


def test_rows_predicted_in_parts_are_all_there(monkeypatch):
    X, y = small_table("classification")
    estimator = small().fit(X, y)
    whole = estimator.predict_proba(X)
    monkeypatch.setattr("restt_baselines.estimator.ROWS_AT_ONCE", 7)
    np.testing.assert_allclose(estimator.predict_proba(X), whole)


def test_a_prediction_does_not_depend_on_the_other_rows():
    X, y = small_table("regression")
    estimator = small("regression").fit(X, y)
    alone = np.concatenate([estimator.predict(row[None]) for row in X])
    np.testing.assert_allclose(alone, estimator.predict(X), rtol=1e-12, atol=1e-13)
    assert next(estimator.module_.parameters()).dtype == torch.float32


def test_verbose_shows_the_last_epoch(capsys):
    X, y = small_table("classification")
    small(verbose=1).fit(X, y)
    assert "epoch 4/4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ("none", [[1.0, 5.0, -8.0], [3.0, 5.0, 4.0]]),
        ("standard", [[-1.0, 0.0, -1.0], [1.0, 0.0, 1.0]]),
        ("minmax", [[0.0, 0.0, 0.0], [1.0, 0.0, 1.0]]),
        ("shared", [[0.125, 0.625, -1.0], [0.375, 0.625, 0.5]]),
    ],
)
def test_scalings(scaling, expected):
    rows = np.array([[1.0, 5.0, -8.0], [3.0, 5.0, 4.0]])
    assert Inputs(rows, scaling)(rows).tolist() == expected


def test_shared_scaling_of_black_images_leaves_them():
    assert Inputs(np.zeros((2, 3)), "shared")(np.zeros((1, 3))).tolist() == [[0.0, 0.0, 0.0]]


def test_only_minmax_keeps_new_rows_within_bounds():
    rows, new = np.array([[0.0], [2.0]]), np.array([[4.0], [-2.0]])
    assert Inputs(rows, "minmax")(new).tolist() == [[1.0], [0.0]]
    assert Inputs(rows, "standard")(new).tolist() == [[3.0], [-3.0]]


def test_only_image_models_take_images():
    images, y = np.random.default_rng(0).random((12, 4, 4)), np.array([0, 1] * 6)
    settings = {"epochs": 1, "random_state": 0, "device": "cpu"}
    shaped, flat = (LENET5.make("classification", **settings) for _ in range(2))
    found = shaped.fit(images, y).predict_proba(images)
    assert np.array_equal(found, flat.fit(images.reshape(12, 16), y).predict_proba(images.reshape(12, 16)))
    with pytest.raises(ValueError, match="dim 3"):
        small("regression").fit(images, y.astype(float))


def test_a_fitted_model_keeps_the_settings_of_its_fit():
    x, y = np.random.default_rng(0).uniform(size=(30, 3)), np.arange(1.0, 31.0)
    model = make("tt", task="regression", log_target=True, epochs=2, random_state=0).fit(x, y)
    before = model.predict(x)
    model.set_params(angle=0.1, log_target=False, scaling="standard")
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(x), before)


@pytest.mark.parametrize("scaling", ["standard", "minmax"])
def test_a_column_that_was_constant_says_nothing_later(scaling):
    constant = np.full((354, 1), 0.1)
    assert constant.std() > 0  # by rounding
    inputs = Inputs(constant, scaling)
    assert inputs(constant).abs().max() == 0
    assert inputs(constant + 0.1).abs().max() <= 0.1 + 1e-6
