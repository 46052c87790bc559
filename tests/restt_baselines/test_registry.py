"""The baselines by name."""

from __future__ import annotations

import importlib.util

import pytest
from sklearn.base import clone

from restt import baselines
from restt_baselines import registry

CASES = [(name, task) for name in registry.BASELINES for task in registry.BASELINES[name].tasks]


@pytest.mark.parametrize(("name", "task"), CASES)
def test_every_rival_is_an_estimator_with_plain_settings(name, task):
    if name not in baselines.available():
        pytest.skip(f"{name} needs the package {registry.BASELINES[name].requires}: pip install 'restt[baselines]'")
    estimator = baselines.make(name, task=task)
    for method in ("fit", "predict", "score"):
        assert callable(getattr(estimator, method))
    settings = estimator.get_params(deep=False)
    assert settings
    assert not any("__" in setting for setting in settings)
    assert clone(estimator).get_params() == estimator.get_params()
    remade = baselines.make(name, task=task, **settings)
    assert type(remade) is type(estimator)
    assert remade.get_params() == estimator.get_params()


def test_available_by_task():
    assert {"lr", "pr", "rr", "prr", "lar", "plar", "svr", "gp", "hgb"} <= set(baselines.available("regression"))
    classifiers = set(baselines.available("classification"))
    assert {"lr", "gp", "hgb"} <= classifiers
    assert not {"pr", "rr", "prr", "lar", "plar", "svr"} & classifiers
    assert set(baselines.available()) >= classifiers


def test_settings_reach_the_estimator():
    assert baselines.make("rr", task="regression", alpha=1.5).alpha == 1.5
    assert baselines.make("hgb", task="regression", min_samples_leaf=7).min_samples_leaf == 7


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"name": "nonsense"}, ValueError, ["name", "'nonsense'", "'rr'"]),
        ({"name": 3}, TypeError, ["name", "3", "int"]),
        ({"name": "rr", "task": "clustering"}, ValueError, ["task", "'clustering'", "'regression'"]),
        ({"name": "rr", "task": "classification"}, ValueError, ["rr does regression", "task='classification'"]),
        ({"name": "rr", "task": "regression", "alfa": 1}, TypeError, ["rr has no parameter alfa", "alpha"]),
        ({"name": "hgb", "task": "regression", "alfa": 1}, TypeError, ["hgb has no parameter alfa", "max_iter"]),
        ({"name": "lr", "task": "classification", "alpha": 1}, TypeError, ["lr has no parameter alpha", "epochs"]),
    ],
)
def test_wrong_arguments_are_named(arguments, error, words):
    with pytest.raises(error) as caught:
        baselines.make(**arguments)
    for word in words:
        assert word in str(caught.value)


def test_available_refuses_an_unknown_task():
    with pytest.raises(ValueError, match="task must be one of"):
        baselines.available("clustering")


def test_a_missing_package_hides_its_rival_and_says_how_to_get_it(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "interpret" else find(name, *rest)
    )
    assert "ebm" not in baselines.available()
    assert "hgb" in baselines.available()
    with pytest.raises(ImportError, match=r"ebm needs the package interpret: pip install 'restt\[baselines\]'"):
        baselines.make("ebm")
