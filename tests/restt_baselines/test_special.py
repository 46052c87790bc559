import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression

from restt import baselines
from restt_baselines.registry import BASELINES
from tests.restt_baselines.cases import (
    assert_is_a_proper_estimator,
    assert_runs_are_independent,
    diabetes,
    digits,
    score_after_fit,
    small_table,
)

FULLY_CONNECTED = BASELINES["fully-connected"]
VOLTERRA = BASELINES["volterra"]


@pytest.mark.parametrize("outputs", [1, 2])
def test_fully_connected_ends_where_linear_regression_does(outputs):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4)) * [1.0, 5.0, 0.2, 1.0] + [0.0, 3.0, -1.0, 10.0]
    y = X @ rng.normal(size=(4, outputs)) + 2.0 + 0.3 * rng.normal(size=(80, outputs))
    y = y[:, 0] if outputs == 1 else y
    expected = LinearRegression().fit(X, y).predict(X)
    estimator = baselines.make("fully-connected", task="regression", batch_size=None, epochs=500, random_state=0)
    np.testing.assert_allclose(estimator.fit(X, y).predict(X), expected, atol=2e-3 * y.std())


def test_fully_connected_learns_digits_and_diabetes():
    assert score_after_fit(baselines.make("fully-connected", epochs=50, random_state=0), digits()) > 0.93
    regressor = baselines.make("fully-connected", task="regression", random_state=0)
    assert score_after_fit(regressor, diabetes()) > 0.35


def test_fully_connected_has_one_site_per_column_and_no_interactions():
    module = FULLY_CONNECTED.make("classification").build(6, 3, runs=2, seed=0)
    assert (module.sites, module.bond_dim, module.topology.orders()) == (6, 3, (1,))


def test_fully_connected_refuses_a_bond_below_the_outputs():
    X = np.random.default_rng(0).random((9, 2))
    with pytest.raises(ValueError, match="bond_dim must be at least the number of outputs, 3, got 2"):
        FULLY_CONNECTED.make("classification", bond_dim=2).fit(X, np.arange(9) % 3)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_volterra_is_the_series_of_its_kernels(order):
    """h0 + Σ h1 x + Σ h2 x x + Σ h3 x x x, the kernels read off the cores, in both forms of the input."""
    estimator = VOLTERRA.make("regression", order=order, bond_dim=4)
    chain, windows = estimator.build(3, 1, runs=2, seed=3).double(), estimator.feature_map()
    with torch.no_grad():
        chain.bias.copy_(torch.tensor([[[0.5]], [[-0.7]]]))
    x = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = chain(windows(x)).detach()
    for run in range(2):
        expected = chain.bias[run, 0, 0].detach().expand(6)
        if order == 1:
            kernels = [chain.first[run, :, 0]]
        else:
            last = chain.last_chain[run, :, :, 0]  # (I, R)
            kernels = [chain.last_linear[run, :, 0]]
            starts = [chain.first[run]] if order == 2 else [chain.linear[run, 0], chain.first[run]]
            kernels.append(torch.einsum("ik,jk->ij", starts[0], last))
            if order == 3:
                kernels.append(torch.einsum("ik,jkl,ml->ijm", starts[1], chain.chain[run, 0], last))
        for kernel in kernels:
            value = kernel.detach().expand(6, *kernel.shape)
            while value.dim() > 1:
                value = torch.einsum("b...i,bi->b...", value, x)
            expected = expected + value
        torch.testing.assert_close(found[run, :, 0], expected)
    torch.testing.assert_close(chain(windows(x.expand(2, -1, -1))), chain(windows(x)))


def second_order_system(length, seed):
    series = np.random.default_rng(seed).normal(size=length)
    windows = np.lib.stride_tricks.sliding_window_view(series, 4)
    now, one, two, three = windows.T[::-1]
    return windows, 0.4 + now - 0.6 * two + 0.8 * now * one - 0.5 * two**2 + 0.3 * one * three


def test_volterra_recovers_a_second_order_system():
    X, y = second_order_system(600, seed=0)
    fresh_X, fresh_y = second_order_system(600, seed=1)
    scores = {
        order: baselines.make("volterra", task="regression", order=order, random_state=0).fit(X, y) for order in (1, 2)
    }
    assert scores[2].score(fresh_X, fresh_y) > 0.999
    assert scores[1].score(fresh_X, fresh_y) < 0.7


def test_volterra_learns_digits():
    assert score_after_fit(baselines.make("volterra", epochs=20, random_state=0), digits()) > 0.94


@pytest.mark.parametrize("setting", [{"order": 0}, {"bond_dim": 0}])
def test_volterra_names_bad_settings(setting):
    X, y = small_table("regression")
    with pytest.raises(ValueError, match=next(iter(setting))):
        VOLTERRA.make("regression", **setting).fit(X, y)


@pytest.mark.parametrize("baseline", [FULLY_CONNECTED, VOLTERRA])
def test_runs_are_independent(baseline):
    assert_runs_are_independent(baseline.make("regression"))


@pytest.mark.parametrize("baseline", [FULLY_CONNECTED, VOLTERRA])
def test_is_a_proper_estimator(baseline):
    assert_is_a_proper_estimator(baseline.make)
