"""Tables of many columns and many rows are trained by gradients; here few columns are many."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.special import logsumexp

from restt import ResTTClassifier, load
from restt.estimators import classifier
from restt.estimators.class_rows import ClassSettings
from restt.estimators.classifier import WideSettings


@pytest.fixture
def few_are_many(monkeypatch):
    small = replace(ClassSettings(), kernel_work=5e4, step_rows=100)
    monkeypatch.setattr(ClassSettings, "of_effort", classmethod(lambda cls, effort: small))
    short = partial(WideSettings, sample=200, sample_epochs=4, batch=50, steps=80, fewest_epochs=12, most_epochs=12)
    monkeypatch.setattr(classifier, "WideSettings", short)


def test_held_out_rows_choose_the_training_and_its_temperature(few_are_many, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (600, 4))
    y = np.where(x[:, 0] + x[:, 1] > 0, "above", "below")
    model = ResTTClassifier(random_state=0).fit(x[:400], y[:400])
    assert model.score(x[400:], y[400:]) > 0.9
    assert set(model.candidates_) == set(WideSettings().candidates)
    shares = {name: share for name, (_, share) in model.candidates_.items()}
    assert sum(shares.values()) == 1
    assert list(model.fit_report_["members"]) == [name for name, share in shares.items() if share]
    assert np.allclose(model.predict_proba(x[400:]).sum(axis=1), 1)
    model.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict_proba(x[400:]), model.predict_proba(x[400:]))


def test_the_loss_that_is_reported_is_that_after_the_temperature(few_are_many, monkeypatch):
    """Of a tenth of the rows, by weight; each training has the rows and passes that its settings ask for."""
    seen, trained = [], []
    monkeypatch.setattr(classifier, "fitted_temperature", lambda *given: seen.append(given) or 2.0)

    class Noted(classifier.ResTTNetClassifier):
        def fit(self, X, y, sample_weight=None):
            trained.append((len(X), self.epochs, self.penalty))
            return super().fit(X, y, sample_weight)

    monkeypatch.setattr(classifier, "ResTTNetClassifier", Noted)
    x = np.random.default_rng(0).uniform(-1, 1, (400, 4))
    weights = 1.0 + np.arange(400) % 3
    model = ResTTClassifier(random_state=0).fit(x, x[:, 0] > 0, sample_weight=weights)
    ((logits, labels, held),) = seen
    assert model.temperature_ == 2.0
    halved = logits / 2 - logsumexp(logits / 2, axis=1, keepdims=True)
    expected = -np.average(halved[np.arange(40), labels], weights=held)
    (best,) = [name for name, (_, share) in model.candidates_.items() if share]
    assert model.candidates_[best] == (pytest.approx(expected), 1.0)
    assert model.fit_report_["out_of_fold_log_loss"] == pytest.approx(expected)
    penalties = [one["penalty"] for one in WideSettings().candidates.values()]
    last = penalties[list(model.candidates_).index(best)]
    last = last and pytest.approx(last * 200 / 360)
    assert trained == [*((200, 4, penalty) for penalty in penalties), (360, 12, last)]


def test_every_class_is_trained_on(few_are_many):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(150, 4))
    y = np.array(["rare"] + ["usual"] * 149)
    assert list(ResTTClassifier(random_state=0).fit(x, y).classes_) == ["rare", "usual"]


def test_no_class_is_left_out_in_silence(few_are_many):
    x, y = np.random.default_rng(2).normal(size=(150, 4)), np.arange(150) % 2
    with pytest.raises(
        ValueError, match=r"classes must be those of y, \[0, 1\], .* trained by gradients; got \[0, 1, 2\]"
    ):
        ResTTClassifier(random_state=0).partial_fit(x, y, classes=[0, 1, 2])
    assert ResTTClassifier(random_state=0).partial_fit(x, y, classes=[1, 0]).classes_.tolist() == [0, 1]
