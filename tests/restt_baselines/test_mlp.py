from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from restt import baselines
from restt_baselines import dense
from restt_baselines.registry import BASELINES
from tests.restt_baselines.cases import (
    assert_is_a_proper_estimator,
    assert_runs_are_independent,
    diabetes,
    digits,
    score_after_fit,
    small_table,
)
from tests.restt_baselines.image_cases import assert_every_parameter_gets_a_gradient
from tests.sklearn_checks import Checked, assert_every_check_passes

PERCEPTRON = BASELINES["mlp"]

# As few epochs as learn what the checks ask for.
CHECKED = [
    Checked("restt_baselines", "make", {"name": "mlp", "task": task, "epochs": epochs})
    for task, epochs in (("regression", 30), ("classification", 15))
]


def test_passes_every_check_of_scikit_learn():
    assert_every_check_passes(CHECKED, least=[50, 52])


@pytest.mark.parametrize("hidden", [(), (7,), (7, 4)])
def test_is_torchs_layers_run_by_run(hidden):
    module = dense.build_mlp(5, hidden, 3, runs=2, seed=0)
    x = torch.rand(2, 6, 5, generator=torch.Generator().manual_seed(0))
    for run in range(2):
        widths = [5, *hidden, 3]
        steps = [layer for sizes in pairwise(widths) for layer in (nn.Linear(*sizes), nn.ReLU())]
        own_mlp = nn.Sequential(*steps[:-1])
        own_mlp.load_state_dict({name: value[run] for name, value in module.network.state_dict().items()})
        torch.testing.assert_close(module(x)[run], own_mlp(x[run]))
        torch.testing.assert_close(module(x[0])[run], own_mlp(x[0]))


def test_papers_network_has_two_hidden_layers_of_100():
    for task in PERCEPTRON.tasks:
        module = baselines.make("mlp", task=task).build(784, 10, runs=2, seed=0)
        count = 784 * 100 + 100 + 100 * 100 + 100 + 100 * 10 + 10
        assert sum(parameter[0].numel() for parameter in module.parameters()) == count


def test_every_parameter_gets_a_gradient():
    assert_every_parameter_gets_a_gradient(dense.build_mlp(64, (20, 10), 3, runs=2, seed=0))


def test_runs_are_independent():
    assert_runs_are_independent(PERCEPTRON.make("regression", hidden=(8, 8)))


def test_is_a_proper_estimator():
    assert_is_a_proper_estimator(PERCEPTRON.make, hidden=(8,))


def test_learns_digits():
    estimator = baselines.make("mlp", epochs=15, random_state=0, device="cpu")
    assert score_after_fit(estimator, digits()) > 0.96


def test_learns_diabetes():
    assert score_after_fit(baselines.make("mlp", task="regression", random_state=0), diabetes()) > 0.3


def test_decay_weighs_more_the_fewer_rows_there_are():
    X, y = small_table("regression")
    auto, given = (
        PERCEPTRON.make("regression", epochs=5, random_state=0, weight_decay=decay) for decay in ("auto", 3 / 40)
    )
    assert np.array_equal(auto.fit(X, y).predict(X), given.fit(X, y).predict(X))
    half, same = (
        PERCEPTRON.make("regression", epochs=5, random_state=0, weight_decay=decay) for decay in ("auto", 3 / 40)
    )
    assert not np.array_equal(half.fit(X[:20], y[:20]).predict(X), same.fit(X[:20], y[:20]).predict(X))


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ({"hidden": (0,)}, ValueError),
        ({"hidden": 100}, TypeError),
        ({"hidden": (2.5,)}, TypeError),
        ({"weight_decay": "none"}, TypeError),
        ({"weight_decay": -1.0}, ValueError),
    ],
)
def test_bad_settings_are_named(setting, error):
    X, y = small_table("regression")
    with pytest.raises(error, match=next(iter(setting))):
        PERCEPTRON.make("regression", **setting).fit(X, y)
