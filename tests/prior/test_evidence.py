from __future__ import annotations

import numpy as np
import pytest
import torch

from restt.prior.evidence import Evidence, cholesky
from restt.prior.learning import hyper_prior, learn, learning_rows, starting_point
from restt.prior.posterior import condition, covariance
from tests.prior.problems import assert_gradient_matches_differences, bound, mixed_table, some_prior


def objective(outputs: int = 1, rows: int = 40):
    numbers, y = mixed_table(rows)
    weights = np.random.default_rng(3).random(rows) + 0.5
    kernels, states = bound(numbers, weights)
    targets = torch.from_numpy(np.stack([y, y**2, -y], axis=1)[:, :outputs])
    return Evidence(kernels, states, targets, torch.from_numpy(weights), hyper_prior(kernels)), kernels


@pytest.mark.parametrize("outputs", [1, 3])
def test_gradients_match_differences(outputs):
    evidence, kernels = objective(outputs)
    assert_gradient_matches_differences(evidence, some_prior(kernels).theta)


def test_a_factor_of_zero_leaves_the_other_gradients_right():
    evidence, kernels = objective(rows=12)
    theta = some_prior(kernels).theta
    expected = evidence(theta)[1]
    usual = evidence.columns[0].factors

    def with_zeros(rows, others, out):
        usual(rows, others, out)
        out[0, 0, 3] = out[0, 3, 0] = 0.0

    evidence.columns[0].factors = with_zeros
    found = evidence(theta)[1]
    assert np.isfinite(found).all()
    assert not np.allclose(found, expected)


def test_more_rows_than_a_block_have_the_same_gradients(monkeypatch):
    evidence, kernels = objective(rows=150)
    theta = some_prior(kernels).theta
    value, gradient = evidence(theta)
    monkeypatch.setattr("restt.prior.columns._ROWS_AT_ONCE", 150)
    whole, slopes = objective(rows=150)[0](theta)
    assert value == pytest.approx(whole, rel=1e-12)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-9, atol=1e-9)


def test_the_value_is_the_gaussian_likelihood():
    numbers, y = mixed_table(20)
    kernels, states = bound(numbers, np.ones(20))
    prior = some_prior(kernels)
    hyper = hyper_prior(kernels)
    evidence = Evidence(kernels, states, torch.from_numpy(y[:, None]), torch.ones(20, dtype=torch.float64), hyper)
    full = covariance(prior, states) + prior.noise * torch.eye(20, dtype=torch.float64)
    density = torch.distributions.MultivariateNormal(torch.zeros(20, dtype=torch.float64), full)
    expected = -density.log_prob(torch.from_numpy(y)).item() - 10 * np.log(2 * np.pi)
    assert evidence(prior.theta)[0] - hyper(prior.theta)[0] == pytest.approx(expected, rel=1e-10)


def test_a_weight_of_two_is_a_repeated_row():
    numbers, y = mixed_table(30)
    weights = np.ones(30)
    weights[4] = 2
    kernels, states = bound(numbers, weights)
    again, twice = np.vstack([numbers, numbers[4:5]]), np.append(y, y[4])
    same, more = bound(again, np.ones(31))
    theta, hyper = some_prior(kernels).theta, hyper_prior(kernels)
    once = Evidence(kernels, states, torch.from_numpy(y[:, None]), torch.from_numpy(weights), hyper)
    repeated = Evidence(same, more, torch.from_numpy(twice[:, None]), torch.ones(31, dtype=torch.float64), hyper)
    shifted = theta + 0.1
    # Equal up to a constant that no parameter changes.
    assert once(theta)[0] - once(shifted)[0] == pytest.approx(repeated(theta)[0] - repeated(shifted)[0], rel=1e-9)
    assert np.allclose(once(theta)[1], repeated(theta)[1], rtol=1e-8, atol=1e-9)


def test_learning_climbs_and_stays_within_bounds():
    evidence, kernels = objective(rows=60)
    start = starting_point(kernels)
    found, _ = learn(kernels, evidence.states, evidence.targets, evidence.weights)
    assert evidence(found)[0] < evidence(start)[0] - 5
    hyper = hyper_prior(kernels)
    assert ((found >= hyper.low) & (found <= hyper.high)).all()


def test_learning_evaluates_nothing_twice_and_returns_the_best_it_saw(monkeypatch):
    seen = {}
    usual = Evidence.__call__

    def watched(self, theta):
        assert theta.tobytes() not in seen
        found = usual(self, theta)
        seen[theta.tobytes()] = found[0]
        return found

    monkeypatch.setattr(Evidence, "__call__", watched)
    evidence, kernels = objective(rows=60)
    theta, evaluations = learn(kernels, evidence.states, evidence.targets, evidence.weights)
    assert evaluations == len(seen)
    assert seen[theta.tobytes()] == min(seen.values())


def test_what_the_search_leaves_is_a_fraction_of_a_unit_of_log_evidence(monkeypatch):
    evidence, kernels = objective(rows=100)
    given = kernels, evidence.states, evidence.targets, evidence.weights
    found, evaluations = learn(*given)
    monkeypatch.setattr("restt.prior.learning._LEAST_GAIN", 1e-9)
    best, more = learn(*given, iterations=500)
    assert evaluations < more
    assert evidence(best)[0] <= evidence(found)[0] < evidence(best)[0] + 0.2


def test_the_search_is_on_one_thread_and_gives_them_back(monkeypatch):
    seen = set()
    usual = Evidence.__call__

    def watched(self, theta):
        seen.add(torch.get_num_threads())
        return usual(self, theta)

    monkeypatch.setattr(Evidence, "__call__", watched)
    evidence, kernels = objective(rows=20)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        learn(kernels, evidence.states, evidence.targets, evidence.weights, iterations=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == {1}


def test_learning_finds_the_columns_that_matter():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 3))
    kernels, states = bound(np.column_stack([x[:, :2], rng.integers(0, 4, 150)]), np.ones(150))
    y = np.sin(2 * x[:, 0])
    theta, _ = learn(kernels, states, torch.from_numpy(y[:, None] / y.std()), torch.ones(150, dtype=torch.float64))
    relevance = some_prior(kernels).__class__(kernels, theta, ("a", "b", "c")).relevance
    assert relevance[0] > 10 * max(relevance[1:])


def test_a_covariance_without_a_factor_is_an_error_that_says_so():
    with pytest.raises(ValueError, match="no Cholesky factor"):
        cholesky(-torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))
    singular = torch.ones(5, 5, dtype=torch.float64)
    assert cholesky(singular, torch.zeros(5, dtype=torch.float64)).isfinite().all()


def test_large_tables_are_learned_on_a_part_of_their_rows():
    rng = np.random.default_rng(0)
    assert len(learning_rows(350, 13, rng)) == 350
    assert len(learning_rows(100_000, 20, rng)) == 500
    assert len(learning_rows(100_000, 5000, rng)) == 150


def test_left_out_predictions_are_those_of_refits():
    numbers, y = mixed_table(25)
    weights = np.random.default_rng(5).random(25) + 0.5
    kernels, states = bound(numbers, weights)
    prior, targets, given = some_prior(kernels), torch.from_numpy(y[:, None]), torch.from_numpy(weights)
    posterior = condition(prior, states, targets, given)
    for i in range(25):
        rest = torch.arange(25) != i
        others = [rows[rest] for rows in states]
        without = condition(prior, others, targets[rest], given[rest])
        row = [rows[i : i + 1] for rows in states]
        assert posterior.left_out[i].item() == pytest.approx(without.mean(row).item(), rel=1e-8, abs=1e-10)
        cross = covariance(prior, others, row)
        full = covariance(prior, others) + torch.diag(prior.noise / given[rest])
        left = covariance(prior, row) - cross.T @ torch.linalg.solve(full, cross)
        assert posterior.left_out_variance[i].item() == pytest.approx(left.item() + prior.noise, rel=1e-7)
