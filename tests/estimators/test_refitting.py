"""A refit beside predictions: answers belong to the old fit or to the new one, never to parts of both."""

import sys
import threading

import numpy as np
import pytest

from restt.estimators import ResTTClassifier, ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor
from tests.estimators.conftest import QUICK, short_fits
from tests.hasty import hasty_solvers

RNG = np.random.default_rng(0)
FIRST, SECOND = RNG.normal(size=(40, 3)), 5 + 3 * RNG.normal(size=(50, 3))
ASKED = RNG.normal(size=(8, 3))
KINDS = {
    "posterior": (ResTTRegressor, {"random_state": 0}),
    "trained": (ResTTNetRegressor, QUICK),
    "selected": (ResTTClassifier, {"random_state": 0}),
    "trained classes": (ResTTNetClassifier, {**QUICK, "loss": "mse"}),
}


def target(x):
    return np.rint(x[:, 0] + x[:, 1]).astype(int) % 3


def answers(model, x):
    found = [model.predict(x), model.numbers(x)]
    if hasattr(model, "predict_proba"):
        found += [model.predict_proba(x), model.decision_function(x), model.predict_log_proba(x)]
    elif isinstance(model, ResTTRegressor):
        found += [*model.predict(x, return_std=True), model.predict_interval(x)]
    return found


def is_same(found, expected):
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=0) for a, b in zip(found, expected, strict=True)
    )


class RefitsWhenRead:
    """A table that has a model fitted again, as another thread might, while a prediction reads it."""

    def __init__(self, values, model):
        self.values, self.model = values, model

    def __array__(self, dtype=None, copy=None):
        if self.model is not None:
            model, self.model = self.model, None
            with hasty_solvers():
                model.fit(SECOND, target(SECOND))
        return self.values


@pytest.mark.parametrize("name", KINDS)
def test_a_prediction_that_began_before_a_refit_is_the_old_one(name):
    kind, parameters = KINDS[name]
    with hasty_solvers():
        old = kind(**parameters).fit(FIRST, target(FIRST))
        methods = ["predict", "numbers"]
        methods += ["predict_proba", "decision_function"] if hasattr(kind, "predict_proba") else []
        methods += ["predict_interval"] if name == "posterior" else []
        for method in methods:
            model = kind(**parameters).fit(FIRST, target(FIRST))
            found = getattr(model, method)(RefitsWhenRead(ASKED, model))
            np.testing.assert_array_equal(found, getattr(old, method)(ASKED))
            assert not np.array_equal(getattr(model, method)(ASKED), found) or method == "numbers"


@pytest.mark.parametrize("name", KINDS)
def test_a_fit_shows_only_once_it_is_whole(name, monkeypatch):
    kind, parameters = KINDS[name]
    seen = []
    with hasty_solvers():
        model = kind(**parameters).fit(FIRST, target(FIRST))
        before = answers(model, ASKED)
        whole = kind._become

        def watched(self, made):
            seen.append(answers(model, ASKED))
            whole(self, made)

        monkeypatch.setattr(kind, "_become", watched)
        model.fit(SECOND, target(SECOND))
    assert seen
    assert all(is_same(found, before) for found in seen)
    assert not is_same(answers(model, ASKED)[:1], before[:1])


@pytest.mark.parametrize("kind", [ResTTNetRegressor, ResTTNetClassifier])
def test_training_that_goes_on_leaves_the_last_fit_until_it_ends(kind, monkeypatch):
    model = kind(**QUICK, warm_start=True).fit(FIRST, target(FIRST))
    before, module = answers(model, ASKED), model.module_
    seen = []
    whole = kind._finish
    monkeypatch.setattr(kind, "_finish", lambda self, given: (seen.append(answers(model, ASKED)), whole(self, given)))
    model.fit(FIRST, target(FIRST))
    model.partial_fit(FIRST, target(FIRST))
    assert is_same(seen[0], before)
    assert not is_same(seen[1], before)
    assert model.n_iter_ == 2 * QUICK["epochs"] + 1 == len(model.history_)
    assert model.module_ is not module


@pytest.mark.parametrize("kind", [ResTTNetRegressor, ResTTNetClassifier])
def test_an_interrupted_training_keeps_its_last_epoch(kind, monkeypatch):
    model = kind(**QUICK)

    def interrupted(records, *_):
        for record in records:
            yield record
            if record.epoch == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr("restt.estimators.net.shown_progress", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(FIRST, target(FIRST))
    assert model.n_iter_ == 3
    assert len(model.predict(ASKED)) == len(ASKED)


def test_a_fit_keeps_what_is_set_while_it_runs(monkeypatch):
    model = ResTTNetRegressor(**QUICK)
    whole = ResTTNetRegressor._finish
    monkeypatch.setattr(
        ResTTNetRegressor, "_finish", lambda self, given: (model.set_params(lr=0.5), whole(self, given))
    )
    model.note_ = "mine"
    model.fit(FIRST, target(FIRST))
    assert (model.lr, model.note_) == (0.5, "mine")


@short_fits
@pytest.mark.parametrize("name", KINDS)
def test_threads_that_predict_while_another_refits(name):
    kind, parameters = KINDS[name]
    trained = "trained" in name
    model = kind(**{**parameters, "epochs": 3} if trained else parameters)
    method = {"posterior": "predict_interval", "trained": "predict"}.get(name, "predict_proba")
    ended, answered = threading.Event(), []

    def ask():
        while not ended.is_set():
            answered.append(getattr(model, method)(ASKED))

    threads, interval = [threading.Thread(target=ask) for _ in range(3)], sys.getswitchinterval()
    with hasty_solvers():
        expected = [getattr(model.fit(x, target(x)), method)(ASKED) for x in (FIRST, SECOND)]
        sys.setswitchinterval(1e-5)
        try:
            for thread in threads:
                thread.start()
            for _ in range(15 if trained else 2):
                for x in (FIRST, SECOND):
                    model.fit(x, target(x))
        finally:
            ended.set()
            for thread in threads:
                thread.join()
            sys.setswitchinterval(interval)
    old, new = ([is_same([found], [known]) for found in answered] for known in expected)
    assert all(a or b for a, b in zip(old, new, strict=True))
    assert any(old)
    assert any(new)
