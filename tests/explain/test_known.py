"""On data made from known interactions, gradient training finds them and the explanation puts them first."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import make_friedman1

import restt
from restt import ResTTNetRegressor
from restt.data.synthetic import synthetic_target, synthetic_weights
from restt.explain import effect, order_spectrum, sobol_indices, top_interactions


@pytest.mark.parametrize("members", [(3, 11), (3, 11, 15)])
def test_the_parity_of_a_few_columns_among_twenty(members: tuple[int, ...]) -> None:
    X = np.random.default_rng(0).integers(0, 2, (600, 20)).astype(float)
    y = X[:, members].sum(1) % 2
    model = ResTTNetRegressor(feature_map="identity", epochs=200, random_state=0).fit(X, y)
    found = top_interactions(model, X, k=5)
    assert found.complete
    assert found[0].columns == members
    assert float(found[0].share) > 0.95
    shares = sobol_indices(model, X).by_order
    assert int(shares[:, 0].argmax()) == len(members)
    orders = order_spectrum(model, X, X).abs().mean(0)[1:, 0]
    assert int(orders.argmax()) == len(members) - 1


def test_products() -> None:
    X = np.random.default_rng(0).normal(size=(500, 8))
    y = X[:, 0] * X[:, 1] + X[:, 2] * X[:, 3] * X[:, 4]
    model = ResTTNetRegressor(feature_map="identity", epochs=200, random_state=0).fit(X, y)
    found = top_interactions(model, X, k=3)
    assert found.complete
    assert {term.columns for term in found.terms[:2]} == {(0, 1), (2, 3, 4)}
    assert float(found[2].share) < 0.02 < 0.3 < float(found[1].share)


def test_friedman_1() -> None:
    X, y = make_friedman1(500, 10, random_state=0)
    model = ResTTNetRegressor(random_state=0, penalty=0.002).fit(X, y)
    found = top_interactions(model, X, k=55, max_order=2)
    singles = [term.columns[0] for term in found.terms if len(term.columns) == 1]
    pairs = [term.columns for term in found.terms if len(term.columns) == 2]
    assert set(singles[:5]) == {0, 1, 2, 3, 4}
    assert pairs[0] == (0, 1)
    curve = effect(model, 3, X)  # 10 x3, less its mean
    slope = np.polyfit(curve.grids[0], curve.values[:, 0].numpy(), 1)[0]
    assert slope == pytest.approx(10, rel=0.15)
    bowl = effect(model, 2, X)  # 20 (x2 - ½)²
    lowest = bowl.grids[0][int(bowl.values[:, 0].argmin())]
    assert 0.35 < lowest < 0.65


def test_the_papers_formula() -> None:
    weights = synthetic_weights(3)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(500, 3, 3)))
    y = synthetic_target(x, weights)
    torch.manual_seed(0)
    module = restt.ResTT(3, 3, 8, 1, dtype=torch.float64)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.03)
    for _ in range(250):
        optimizer.zero_grad()
        loss = (module(x)[:, 0] - y).square().mean()
        loss.backward()
        optimizer.step()
    found = top_interactions(module, x, k=7)
    assert {term.columns for term in found.terms[:3]} == {(0,), (0, 1), (0, 1, 2)}
    assert float(sum(term.share for term in found.terms[:3])) > 0.98
