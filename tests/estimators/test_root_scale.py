"""The root of y as the scale of a model of 0.8: what estimators and exported graphs make of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from restt.estimators.export import Undone
from restt.estimators.targets import Modelled
from restt.interop.operations import TorchOps
from restt.prior.target import Target


@pytest.mark.parametrize("size", [1.0, 1e200])
def test_decisions_and_graphs_of_the_root_agree_with_predictions(size):
    rng = np.random.default_rng(0)
    y, ones = size * rng.poisson(2.0, 50).astype(float), np.ones(50)
    empty, divided = Modelled.scaled(y, ones)
    model = Target.fit(divided, ones, "sqrt").smeared(np.zeros((50, 1)), divided, ones)
    target = replace(empty, model=model)
    outputs = np.linspace(-5, 5, 11)[:, None]
    found = target.decode(outputs)
    decisions = outputs * target.scale + target.mean
    assert target.label == "√y"
    lift = np.sqrt(y).var()
    np.testing.assert_allclose(found, np.maximum(decisions, 0)[:, 0] ** 2 + lift, rtol=1e-12)
    assert found[0] == pytest.approx(lift)
    graph = Undone(target, model, torch.float64).build(TorchOps(torch.float64), torch.from_numpy(outputs)).numpy()
    np.testing.assert_allclose(graph, found, rtol=1e-12)
