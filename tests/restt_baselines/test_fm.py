import itertools

import numpy as np
import pytest
import torch

from restt import baselines
from restt_baselines.products import FactorizationMachine, anova, pairs
from restt_baselines.registry import BASELINES
from tests.restt_baselines.cases import (
    assert_is_a_proper_estimator,
    assert_runs_are_independent,
    diabetes,
    digits,
    score_after_fit,
    small_table,
)

FACTORIZATION_MACHINE = BASELINES["fm"]


def double(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def brute_force(machine, x):  # (B, C) -> (S, B, O)
    output = machine.bias + torch.einsum("bc,sco->sbo", x, machine.linear)
    for t in range(2, machine.order + 1):
        factors = machine.factors[:, t - 2]  # (S, C, O, K)
        for columns in itertools.combinations(range(machine.columns), t):
            weight = factors[:, list(columns)].prod(1).sum(-1)  # (S, O)
            output = output + weight[:, None] * x[:, list(columns)].prod(1)[None, :, None]
    return output


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_output_is_the_sum_over_products_of_different_columns(order):
    machine = FactorizationMachine(columns=5, outputs=2, order=order, rank=3, runs=2, seed=1).double()
    with torch.no_grad():
        machine.bias.copy_(double(2, 1, 2))
        machine.linear.copy_(double(2, 5, 2, seed=1))
        machine.factors.copy_(double(2, order - 1, 5, 2, 3, seed=2))
    x = double(6, 5, seed=3)
    torch.testing.assert_close(machine(x), brute_force(machine, x))
    torch.testing.assert_close(machine(x.expand(2, -1, -1)), machine(x))


def test_order_2_is_rendles_formula():
    """Σ_{i<j} <v_i, v_j> x_i x_j."""
    factors, x = double(1, 6, 1, 4), double(1, 7, 6, seed=1)
    v = factors[0, :, 0]
    expected = sum((v[i] @ v[j]) * x[0, :, i] * x[0, :, j] for i, j in itertools.combinations(range(6), 2))
    torch.testing.assert_close(pairs(factors, x).sum(-1)[0, :, 0], expected)
    torch.testing.assert_close(anova(factors, x, 2), pairs(factors, x))


def test_orders_beyond_the_columns_have_no_products():
    assert FactorizationMachine(columns=2, outputs=1, order=5).factors.shape[1] == 1
    assert FactorizationMachine(columns=1, outputs=1, order=2)(torch.rand(3, 1)).shape == (1, 3, 1)


@pytest.mark.parametrize("order", [2, 4])
def test_each_order_starts_small(order):
    machine = FactorizationMachine(columns=12, outputs=1, order=order, rank=4, runs=50, seed=0)
    with torch.no_grad():
        spread = machine(double(400, 12).float()).std().item()
    assert spread == pytest.approx(0.1 * (order - 1) ** 0.5, rel=0.35)


def test_a_third_order_target_needs_order_3():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    y = X[:, 0] * X[:, 1] * X[:, 3]
    scores = [
        baselines.make("fm", task="regression", order=order, lr=0.05, random_state=0).fit(X[:350], y[:350])
        for order in (2, 3)
    ]
    assert scores[1].score(X[350:], y[350:]) > 0.98
    assert scores[0].score(X[350:], y[350:]) < 0.5


def test_learns_digits_and_diabetes():
    assert score_after_fit(baselines.make("fm", epochs=40, random_state=0), digits()) > 0.93
    assert score_after_fit(baselines.make("fm", task="regression", random_state=0), diabetes()) > 0.3


@pytest.mark.parametrize("order", [2, 3])
def test_runs_are_independent(order):
    assert_runs_are_independent(FACTORIZATION_MACHINE.make("regression", order=order, rank=2))


@pytest.mark.parametrize("order", [1, 3])
def test_is_a_proper_estimator(order):
    assert_is_a_proper_estimator(FACTORIZATION_MACHINE.make, order=order, rank=2)


@pytest.mark.parametrize("setting", [{"order": 0}, {"rank": 0}])
def test_bad_settings_are_named(setting):
    X, y = small_table("regression")
    with pytest.raises(ValueError, match=next(iter(setting))):
        FACTORIZATION_MACHINE.make("regression", **setting).fit(X, y)
