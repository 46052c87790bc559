from __future__ import annotations

import numpy as np
import pytest
import torch

from restt import prior
from restt.prior.evidence import cholesky
from restt.prior.joint import SCALES, JointEvidence, JointPrior, joint_hyper_prior, learn_joint, squared_distances
from restt.prior.posterior import condition, condition_on_more, covariance
from restt.prior.rounding import round_products, train_values
from tests.prior.problems import LEVELS, assert_gradient_matches_differences, bound, mixed_table

FIRST = 1 + len(SCALES)


def some_theta(columns: int = 3) -> np.ndarray:
    theta = joint_hyper_prior(columns, columns).centre
    return theta + np.random.default_rng(1).normal(0, 0.3, len(theta))


def objective(outputs: int = 1, rows: int = 30, trust: bool = False, ties: np.ndarray | None = None):
    numbers, y = mixed_table(rows)
    rng = np.random.default_rng(3)
    weights = torch.from_numpy(rng.random(rows) + 0.5)
    kernels, states = bound(numbers, weights.numpy())
    targets = torch.from_numpy(np.stack([y, y**2, -y], axis=1)[:, :outputs])
    trusted = torch.from_numpy(rng.random(rows) + 0.2) if trust else None
    hyper = joint_hyper_prior(3, 3 if ties is None else 2, some_theta() if ties is None else None)
    return JointEvidence(squared_distances(kernels, states), targets, weights, hyper, ties, trusted), kernels, states


def whole(squares: torch.Tensor, theta: np.ndarray, rows: int) -> torch.Tensor:
    """The covariance as it is written down."""
    first, second = torch.triu_indices(rows, rows, 1)
    distances = torch.zeros(len(squares), rows, rows, dtype=torch.float64)
    distances[:, first, second] = distances[:, second, first] = squares
    total = torch.einsum("nij,n->ij", distances, torch.from_numpy(np.exp(theta[FIRST:])))
    return 1 + sum(float(np.exp(w)) * torch.exp(-0.5 * s * total) for s, w in zip(SCALES, theta[1:FIRST], strict=True))


@pytest.mark.parametrize(("outputs", "trust"), [(1, False), (3, False), (1, True)])
def test_gradients_match_differences(outputs, trust):
    evidence, *_ = objective(outputs, trust=trust)
    assert_gradient_matches_differences(evidence, some_theta())


def test_gradients_of_shared_parameters_match_differences():
    ties = np.array([*range(FIRST), FIRST, FIRST, FIRST + 1])
    evidence, *_ = objective(ties=ties)
    assert_gradient_matches_differences(evidence, some_theta(2))


def test_the_value_is_the_gaussian_likelihood():
    numbers, y = mixed_table(20)
    kernels, states = bound(numbers, np.ones(20))
    hyper, theta, ones = joint_hyper_prior(3, 3), some_theta(), torch.ones(20, dtype=torch.float64)
    squares = squared_distances(kernels, states)
    full = whole(squares, theta, 20) + np.exp(theta[0]) * torch.eye(20, dtype=torch.float64)
    density = torch.distributions.MultivariateNormal(torch.zeros(20, dtype=torch.float64), full)
    expected = -density.log_prob(torch.from_numpy(y)).item() - 10 * np.log(2 * np.pi)
    evidence = JointEvidence(squares, torch.from_numpy(y[:, None]), ones, hyper)
    assert evidence(theta)[0] - hyper(theta)[0] == pytest.approx(expected, rel=1e-10)


def test_a_weight_of_two_is_a_repeated_row():
    numbers, y = mixed_table(25)
    weights = np.ones(25)
    weights[4] = 2
    kernels, states = bound(numbers, weights)
    again, twice = np.vstack([numbers, numbers[4:5]]), np.append(y, y[4])
    same, more = bound(again, np.ones(26))
    theta, hyper = some_theta(), joint_hyper_prior(3, 3)
    once = JointEvidence(
        squared_distances(kernels, states), torch.from_numpy(y[:, None]), torch.from_numpy(weights), hyper
    )
    ones = torch.ones(26, dtype=torch.float64)
    repeated = JointEvidence(squared_distances(same, more), torch.from_numpy(twice[:, None]), ones, hyper)
    shifted = theta + 0.1
    assert once(theta)[0] - once(shifted)[0] == pytest.approx(repeated(theta)[0] - repeated(shifted)[0], rel=1e-6)
    np.testing.assert_allclose(once(theta)[1], repeated(theta)[1], rtol=1e-5, atol=1e-6)


def test_the_tables_are_the_distances_at_the_knots():
    # As many distinct values as knots at most: every row is at one.
    numbers, _ = mixed_table(30)
    kernels, states = bound(numbers, np.ones(30))
    theta = some_theta()
    found = covariance(JointPrior(kernels, theta), states)
    torch.testing.assert_close(found, whole(squared_distances(kernels, states), theta, 30))
    # Two missing values are as one, which is apart from every number.
    absent = torch.from_numpy(np.isnan(numbers[:, 1]))
    first, second = torch.triu_indices(30, 30, 1)
    squares = squared_distances(kernels, states)[1]
    assert (squares[absent[first] & absent[second]] == 0).all()
    assert (squares[absent[first] != absent[second]] >= 1).all()


def test_between_knots_a_covariance_is_near_that_of_the_distance():
    numbers, _ = mixed_table(300)
    kernels, states = bound(numbers, np.ones(300))
    theta = some_theta()
    found = covariance(JointPrior(kernels, theta), states)
    expected = whole(squared_distances(kernels, states), theta, 300)
    assert (found - expected).abs().max() < 0.03 * expected.max()
    cholesky(found, torch.full((300,), 1e-6, dtype=torch.float64))


def test_an_unknown_level_is_the_average_of_the_others():
    numbers, y = mixed_table(60)
    kernels, states = bound(numbers, np.ones(60))
    ones = torch.ones(60, dtype=torch.float64)
    posterior = condition(JointPrior(kernels, some_theta()), states, torch.from_numpy(y[:, None]), ones)
    rows = np.array([[0.3, 0.2, level] for level in (-1, 0, 1, 2, 3)], dtype=float)
    found = posterior.mean(bound(rows, np.ones(5), kernels)[1])[:, 0]
    share = kernels[2].measure[:4]
    assert found[0].item() == pytest.approx((share @ found[1:]).item(), abs=1e-10)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_products_are_the_posterior_mean_and_round_to_a_train(outputs):
    numbers, y = mixed_table(60)
    kernels, states = bound(numbers, np.ones(60))
    targets = torch.from_numpy(np.stack([y, y**2], axis=1)[:, :outputs])
    posterior = condition(JointPrior(kernels, some_theta()), states, targets, torch.ones(60, dtype=torch.float64))
    coefficients, factors = posterior.products()
    rows = bound(mixed_table(40, seed=5)[0], np.ones(40), kernels)[1]
    terms = torch.ones(40, len(coefficients), dtype=torch.float64)
    for vectors, factor in zip(rows, factors, strict=True):
        terms *= vectors @ factor.T
    exact = posterior.mean(rows)
    torch.testing.assert_close(terms @ coefficients, exact)
    seen = [kernel.site.seen for kernel in kernels]
    cut = [factor[:, :size] for factor, size in zip(factors, seen, strict=True)]
    moments = [k.measure[(slice(size),) * k.measure.dim()] for k, size in zip(kernels, seen, strict=True)]
    vectors = [one[:, :size] for one, size in zip(rows, seen, strict=True)]
    cores, rounding = round_products(coefficients, cut, moments, 32, 0.0)
    torch.testing.assert_close(train_values(cores, vectors), exact, rtol=0, atol=1e-7)
    cores, rounding = round_products(coefficients, cut, moments, 32, 0.03)
    assert rounding.bond_dim <= 12
    assert (train_values(cores, vectors) - exact).square().mean().sqrt() < 0.06


def test_left_out_predictions_are_those_of_refits():
    numbers, y = mixed_table(20)
    weights = np.random.default_rng(5).random(20) + 0.5
    kernels, states = bound(numbers, weights)
    model, targets, given = JointPrior(kernels, some_theta()), torch.from_numpy(y[:, None]), torch.from_numpy(weights)
    posterior = condition(model, states, targets, given)
    for i in range(20):
        rest = torch.arange(20) != i
        without = condition(model, [rows[rest] for rows in states], targets[rest], given[rest])
        row = [rows[i : i + 1] for rows in states]
        assert posterior.left_out[i].item() == pytest.approx(without.mean(row).item(), rel=1e-8, abs=1e-10)


def test_more_rows_are_conditioned_on():
    numbers, y = mixed_table(200)
    kernels, states = bound(numbers, np.ones(200))
    targets, ones = torch.from_numpy(y[:, None]), torch.ones(200, dtype=torch.float64)
    model = JointPrior(kernels, some_theta())
    part = condition(model, [rows[:120] for rows in states], targets[:120], ones[:120])
    all_rows = condition(model, states, targets, ones)
    more = condition_on_more(part, states, targets, ones)
    away = [(one.mean(states) - all_rows.mean(states)).square().mean().sqrt().item() for one in (part, more)]
    assert away[1] < 0.6 * away[0]


def test_learning_finds_the_columns_that_matter():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 3))
    kernels, states = bound(np.column_stack([x[:, :2], rng.integers(0, 4, 150)]), np.ones(150))
    y = np.sin(2 * x[:, 0])
    targets, ones = torch.from_numpy(y[:, None] / y.std()), torch.ones(150, dtype=torch.float64)
    theta, evaluations = learn_joint(kernels, states, targets, ones)
    found = JointPrior(kernels, theta, evaluations)
    assert found.nearness[0] > 10 * max(found.nearness[1:])
    assert found.noise < 0.01


def radial(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 5))
    return x, np.sin(1.5 * np.linalg.norm(x[:, :4], axis=1)) + 0.1 * rng.standard_normal(rows)


def test_functions_of_all_columns_at_once_are_found(monkeypatch):
    x, y = radial(350, 0)
    other, wanted = radial(1000, 1)
    found = prior.fit(x, y)
    assert isinstance(found.mixture.posteriors[0].prior, JointPrior)
    assert found.rounding.distance < 0.1 * found.prior.noise**0.5
    # What is kept for intervals and shown has a covariance for each column.
    assert isinstance(found.spread.prior, prior.Prior)
    assert found.spread.prior in found.mixture.column_priors
    covered = found.predict_interval(other, 0.9)[..., 0]
    assert 0.84 < np.mean((covered[:, 0] < wanted) & (wanted < covered[:, 1])) < 0.96
    error = np.mean((found.predict(other)[:, 0] - wanted) ** 2)
    monkeypatch.setattr("restt.prior.kinds._FEWEST_JOINT_ROWS", 1000)
    without = prior.fit(x, y)
    assert error < 0.8 * np.mean((without.predict(other)[:, 0] - wanted) ** 2)


def test_products_are_left_to_the_other_priors():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((250, 6))
    found = prior.fit(x, x[:, 0] + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(250))
    joint = [
        w
        for w, one in zip(found.mixture.weights, found.mixture.posteriors, strict=True)
        if isinstance(one.prior, JointPrior)
    ]
    assert sum(joint) < 0.1


def test_every_kind_of_column_is_learned_by_a_table_of_many_rows():
    numbers, y = mixed_table(300)
    learned = prior.fit(numbers, y, levels=LEVELS)
    others, wanted = mixed_table(400, seed=1)
    assert 1 - np.mean((learned.predict(others)[:, 0] - wanted) ** 2) / wanted.var() > 0.75
