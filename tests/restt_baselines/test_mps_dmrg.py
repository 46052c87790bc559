from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from restt import baselines
from tests.restt_baselines.cases import digits, score_after_fit, small_table

SMALL = {"bond_dim": 4, "sweeps": 2, "random_state": 0, "device": "cpu"}


def small(**changes):
    return baselines.make("mps-dmrg", **SMALL | changes)


def test_learns_digits():
    estimator = small(bond_dim=15, sweeps=2, angle=0.8)
    assert score_after_fit(estimator, digits()) > 0.95
    assert max(step.kept for step in estimator.steps_) == 15
    assert all(0 <= step.discarded < 1 for step in estimator.steps_)


def test_the_public_codes_map_is_one_and_a_quarter_of_the_pixel():
    values = torch.tensor([[0.0, 1.0], [0.5, 0.25]])
    expected = [[[1.0, 0.0], [1.0, 0.125]], [[1.0, 0.25], [1.0, 0.0625]]]
    assert small(angle=None).feature_map()(values).tolist() == expected
    assert score_after_fit(small(bond_dim=15, angle=None), digits()) > 0.9


def test_sweeps_are_recorded_and_validated():
    X, y = small_table("classification")
    estimator = small()
    records = list(estimator.fit_epochs(X[:30], y[:30], validation=(X[30:], y[30:])))
    assert [record.epoch for record in records] == [1, 2]
    assert records == estimator.history_
    assert estimator.n_iter_ == 2
    assert records[-1].validation["accuracy"][0] == pytest.approx(estimator.score(X[30:], y[30:]))
    assert records[-1].train_loss[0] == pytest.approx(estimator.steps_[-1].costs[-1] / 30)


def test_probabilities_and_decisions_agree_with_the_classes():
    X, y = small_table("classification")
    labels = np.array(["a", "b", "c"])[y + (X[:, 3] > 0.5)]
    estimator = small().fit(X, labels)
    shares = estimator.predict_proba(X)
    np.testing.assert_allclose(shares.sum(1), 1)
    assert (estimator.classes_[shares.argmax(1)] == estimator.predict(X)).all()
    assert estimator.decision_function(X).shape == (40, 3)
    two = small().fit(X, y)
    assert ((two.decision_function(X) > 0) == two.predict(X)).all()


def test_only_the_seed_decides_and_pickles_predict_alike():
    X, y = small_table("classification")
    first, second = small(start_bond=2).fit(X, y), small(start_bond=2).fit(X, y)
    assert np.array_equal(first.decision_function(X), second.decision_function(X))
    again = pickle.loads(pickle.dumps(first))
    assert np.array_equal(again.predict_proba(X), first.predict_proba(X))
    assert clone(first).get_params() == first.get_params()


def test_images_are_rows_of_pixels():
    X, y = small_table("classification", columns=6)
    flat, shaped = small().fit(X, y), small().fit(X.reshape(-1, 2, 3), y)
    assert np.array_equal(flat.predict_proba(X), shaped.predict_proba(X.reshape(-1, 2, 3)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bond_dim": 0}, "bond_dim must be at least 1"),
        ({"sweeps": 0}, "sweeps must be at least 1"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"angle": -1.0}, "angle must be"),
        ({"penalty": -1.0}, "penalty must be"),
        ({"device": "abacus"}, "device must be"),
    ],
)
def test_bad_settings_are_named_and_nothing_is_fitted(settings, words):
    X, y = small_table("classification")
    estimator = small(**settings)
    with pytest.raises(ValueError, match=words):
        estimator.fit(X, y)
    with pytest.raises(NotFittedError):
        estimator.predict(X)


def test_bad_rows_are_named():
    X, y = small_table("classification")
    with pytest.raises(ValueError, match="rows, got 40 and 39"):
        small().fit(X, y[:-1])
    with pytest.raises(ValueError, match="requires y"):
        small().fit(X, None)
    with pytest.raises(ValueError, match="at least 2 classes"):
        small().fit(X, np.zeros(40, dtype=int))
    with pytest.raises(ValueError, match="at least 2 columns"):
        small().fit(X[:, :1], y)
    with pytest.raises(TypeError, match="validation must be"):
        small().fit_epochs(X, y, validation=X)
    with pytest.raises(ValueError, match="mps-dmrg does classification"):
        baselines.make("mps-dmrg", task="regression")
