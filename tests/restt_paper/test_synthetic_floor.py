"""The bounds against samples and against tensors of known rank."""

from __future__ import annotations

import math

import pytest
import torch

from restt import data
from restt.data.synthetic import synthetic_target, synthetic_weights
from restt_paper.synthetic_training import feature_std, least_rmse, order_variances


@pytest.mark.parametrize("order", [1, 2, 3])
def test_order_variances_are_those_of_the_rows(order):
    weights = synthetic_weights(4, spread="variance", seed=1)
    alone = tuple(weight * (place == order) for place, weight in enumerate(weights, 1))
    std = feature_std("variance")
    x = std * torch.randn(200_000, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sampled = float(synthetic_target(x, alone).var())
    assert order_variances(alone, std)[order - 1] == pytest.approx(sampled, rel=0.03)
    assert sum(order_variances(alone, std)) == order_variances(alone, std)[order - 1]


@pytest.mark.parametrize("reading", ["std", "variance"])
def test_feature_std_is_that_of_the_data_set(reading):
    x = data.load("synthetic", d=3, n_train=20_000, n_test=1, spread=reading).x_train
    assert feature_std(reading) == pytest.approx(float(x.std()), rel=0.01)


def test_lr_reaches_its_bound_on_many_rows():
    dataset = data.load("synthetic", d=3, n_train=50_000, n_test=50_000, spread="variance")
    x, x_test = (
        torch.nn.functional.pad(part.flatten(1), (0, 1), value=1.0) for part in (dataset.x_train, dataset.x_test)
    )
    fitted = torch.linalg.lstsq(x, dataset.y_train[:, None]).solution[:, 0]
    reached = float((x_test @ fitted - dataset.y_test).square().mean().sqrt())
    bound = least_rmse("lr", synthetic_weights(3, spread="variance"), feature_std("variance"), bond_dim=1)
    assert reached == pytest.approx(bound, rel=0.02)


def test_a_plain_train_has_no_bound_beyond_the_missing_orders_where_its_bond_is_large_enough():
    generator = torch.Generator().manual_seed(0)
    cores = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((5, 2), (2, 5, 2), (2, 5))]
    third = torch.einsum("ia,ajb,bk->ijk", *cores)
    weights = torch.ones(5), torch.ones(5, 5), third
    missing = math.sqrt(sum(order_variances(weights, 0.5)[:2]))
    assert least_rmse("tt", weights, 0.5, bond_dim=2) == pytest.approx(missing)
    assert least_rmse("tt", weights, 0.5, bond_dim=1) > 1.01 * missing


def test_no_train_of_bond_1_is_nearer_than_the_bound():
    first, second, third = synthetic_weights(3)
    generator = torch.Generator().manual_seed(0)
    factors = [torch.randn(3, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(3)]
    optimizer = torch.optim.Adam(factors, lr=0.02)
    for _ in range(500):
        optimizer.zero_grad()
        distance = (torch.einsum("i,j,k->ijk", *factors) - third).square().sum()
        distance.backward()
        optimizer.step()
    bound = least_rmse("tt", (0 * first, 0 * second, third), 1.0, bond_dim=1)
    assert 0 < bound <= math.sqrt(distance.item()) < math.sqrt(float(third.square().sum()))


def test_restt_can_hold_everything_where_d_is_at_most_r():
    weights = synthetic_weights(6)
    assert least_rmse("restt", weights, 0.5, bond_dim=6) == pytest.approx(0.0, abs=1e-9)
    assert least_rmse("restt", weights, 0.5, bond_dim=3) > 0.1 * math.sqrt(sum(order_variances(weights, 0.5)))


def test_unknown_models_are_refused():
    with pytest.raises(ValueError, match="model must be one of"):
        least_rmse("ttn", synthetic_weights(2), 0.5, bond_dim=2)
