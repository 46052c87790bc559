"""Functionals of the function: covariances against those of rows, deviations and draws against a dense posterior."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import factorial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import gamma

from restt import ResTTRegressor
from restt.explain.sweeps import legendre
from restt.prior import Predictive, Warp
from restt.prior.functionals import (
    Joint,
    path_deviations,
    posterior_draws,
    prior_covariances,
    product_covariance,
    surprise,
    with_centre,
)
from restt.prior.gp import Process
from restt.prior.settings import learned_components
from restt.prior.sites import rows_of


@pytest.fixture(scope="module")
def posterior() -> Predictive:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((14, 3))
    x[3, 1] = np.nan
    y = x[:, 0] + np.nan_to_num(x[:, 1]) * x[:, 2] + 0.3 * rng.standard_normal(14)
    found = ResTTRegressor(random_state=0).fit(x, y).spread_
    assert len(found.numbers) == found.rows  # every row is an inducing one, so that the root is exact
    assert (found.weights > 0).sum() > 1
    return found


@pytest.fixture(scope="module")
def fresh() -> np.ndarray:
    rows = np.random.default_rng(1).standard_normal((5, 3))
    rows[2, 1] = np.nan
    rows[4] = [9.0, -9.0, 0.0]
    return rows


def test_products_of_rows_have_the_covariance_of_rows(posterior, fresh):
    rows = rows_of(posterior.kernel.sites, fresh)
    vectors, seen = posterior.kernel.vectors(rows), posterior.kernel.vectors(posterior.inducing)
    for _, process, _, _ in posterior.members:
        torch.testing.assert_close(
            product_covariance(process, vectors, seen), process.covariance(rows, posterior.inducing)
        )


def dense(posterior: Predictive, process: Process, root: torch.Tensor, vectors: list[torch.Tensor]) -> torch.Tensor:
    """Posterior covariance of the function at site vectors, by the kernel's formula, number by number."""

    def kernel(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
        table = [
            np.einsum("i,ijk,j->k", a.numpy(), t[:-1, :-1].numpy(), b.numpy())
            for a, t, b in zip(ours, process.tables, theirs, strict=True)
        ]
        scale = process.scale.numpy()
        products = sum(scale[k] * np.prod([one[k] for one in table]) for k in range(3))
        return float(products + scale[3] * sum(one[3] for one in table) + process.settings.constant)

    seen = posterior.kernel.vectors(posterior.inducing)
    points = [[v[a] for v in vectors] for a in range(len(vectors[0]))]
    rows = [[v[a] for v in seen] for a in range(len(seen[0]))]
    own = torch.tensor([[kernel(a, b) for b in points] for a in points], dtype=torch.float64)
    cross = torch.tensor([[kernel(a, b) for b in rows] for a in points], dtype=torch.float64)
    return own - cross @ root.T @ root @ cross.T


def coalitions(means: list[torch.Tensor], row: list[torch.Tensor]) -> tuple[list[tuple[bool, ...]], list[torch.Tensor]]:
    """All subsets of columns, and the site vectors of a row with the other columns at their means."""
    subsets = list(product([False, True], repeat=len(row)))
    vectors = [
        torch.stack([x if kept[n] else mean for kept in subsets])
        for n, (x, mean) in enumerate(zip(row, means, strict=True))
    ]
    return subsets, vectors


def shapley_weights(subsets: list[tuple[bool, ...]], column: int) -> np.ndarray:
    count = len(subsets[0])
    return np.array(
        [
            (1 if kept[column] else -1)
            * factorial(sum(kept) - kept[column])
            * factorial(count - 1 - sum(kept) + kept[column])
            / factorial(count)
            for kept in subsets
        ]
    )


def test_deviations_of_shapley_values_are_those_of_the_dense_posterior(posterior, fresh):
    means = list(posterior.kernel.means)
    at = posterior.kernel.vectors(rows_of(posterior.kernel.sites, fresh))
    nodes, weights = legendre(2, torch.zeros((), dtype=torch.float64))
    way = [x - mean for x, mean in zip(at, means, strict=True)]
    found = path_deviations(posterior, means, way, nodes, weights.expand(len(fresh), -1))
    shares = posterior.weights
    seen = posterior.kernel.vectors(posterior.inducing)
    for b in range(len(fresh)):
        subsets, vectors = coalitions(means, [x[b] for x in at])
        for n in range(3):
            weight = torch.from_numpy(shapley_weights(subsets, n))
            within, middles = [], []
            for _, process, root, mean in posterior.members:
                within.append(float(weight @ dense(posterior, process, root, vectors) @ weight))
                middles.append(float(weight @ product_covariance(process, vectors, seen) @ mean[:, 0]))
            between = shares @ (np.array(middles) - shares @ np.array(middles)) ** 2
            assert float(found[b, n]) == pytest.approx(np.sqrt(shares @ np.array(within) + between), rel=1e-6)


def test_a_path_with_levels_is_the_sum_of_its_parts(posterior, fresh):
    """Levels count the function itself: with slopes 0 and one node at the end it is the function at the row."""
    means = list(posterior.kernel.means)
    rows = rows_of(posterior.kernel.sites, fresh[:2])
    way = [x - mean for x, mean in zip(posterior.kernel.vectors(rows), means, strict=True)]
    ones = torch.ones(2, 1, 3, dtype=torch.float64)
    found = path_deviations(posterior, means, way, torch.ones(1, dtype=torch.float64), 0 * ones[..., 0], ones)
    variances = posterior._variance(rows, torch.zeros(2, dtype=torch.float64))
    for weight, process, _, _ in posterior.members:
        variances = variances - weight * process.noise(rows, torch.zeros(2, dtype=torch.float64))
    torch.testing.assert_close(found, variances.sqrt()[:, None].expand(-1, 3))
    mixed = path_deviations(posterior, means, way, torch.ones(1, dtype=torch.float64), -ones[..., 0], ones)
    # f(row) less its slope along a column at the row is f with that column at its mean: affine in each site.
    for n in range(3):
        moved = [means[m].expand(2, -1) if m == n else means[m] + way[m] for m in range(3)]
        expected = path_deviations(
            posterior,
            [means[m] * 0 for m in range(3)],
            moved,
            torch.ones(1, dtype=torch.float64),
            0 * ones[..., 0],
            ones,
        )
        torch.testing.assert_close(mixed[:, n], expected[:, n])


@pytest.mark.parametrize("most", [5, 3])
def test_surprise_is_a_two_sided_gamma_test_of_whitened_residuals(posterior, fresh, most):
    model = replace(posterior, extra=0.05)
    warp = Warp.fit(np.random.default_rng(2).standard_normal((20, 1)) * 3 + 1, np.ones(20))
    weights = np.array([1.0, 2.0, 0.5, 1.0, 4.0])
    some = [0, 2, 4] if most == 3 else range(5)
    rows = rows_of(model.kernel.sites, fresh[some])
    vectors, seen = model.kernel.vectors(rows), model.kernel.vectors(model.inducing)
    shares = model.weights
    means = np.stack(
        [(product_covariance(process, vectors, seen) @ mean).numpy()[:, 0] for _, process, _, mean in model.members]
    )
    middle = shares @ means
    matrix = sum(share * np.outer(mean - middle, mean - middle) for share, mean in zip(shares, means, strict=True))
    noise = 0.0
    for share, process, root, _ in model.members:
        matrix = matrix + share * dense(model, process, root, vectors).numpy()
        noise = noise + share * process.noise(rows, torch.from_numpy(middle)).numpy()
    matrix += np.diag(noise / weights[some] + 0.05)
    usual = np.stack([model.quantile(level) for level in (np.arange(400) + 0.5) / 400]) ** 2
    mean, variance = len(some) * usual.mean(), len(some) * usual.var()
    for away in (0.3, 1.2):  # less and more than is expected
        targets = warp.decode(middle[:, None] + away * np.array([1.0, -1.0, 1.0, 1.0, -1.0])[: len(some), None])
        y = np.zeros((5, 1))
        y[some] = targets
        residual = warp.encode(targets)[:, 0] - middle
        below = gamma.cdf(residual @ np.linalg.solve(matrix, residual), mean**2 / variance, scale=variance / mean)
        assert (below < 0.5) == (away < 1)
        found = surprise(model, warp, fresh, y, weights, most)
        assert found == pytest.approx(2 * min(below, 1 - below), rel=1e-6)
    assert surprise(model, warp, fresh[:0], y[:0], weights[:0], most) == 1
    assert surprise(replace(model, quantiles=0 * model.quantiles), warp, fresh, y, weights, most) == 1


def test_the_centre_of_the_hyper_prior_counts_as_in_the_stacking_of_members(posterior, fresh):
    whole = with_centre(posterior)
    *members, centre = (SimpleNamespace(weight=w, process=p, root=r, mean=m) for w, p, r, m in whole.members)
    share = 60 / (60 + 14)
    assert (centre.weight, centre.mean) == (pytest.approx(share), None)
    assert [one.weight for one in members] == pytest.approx((1 - share) * posterior.weights)
    seen, at = posterior.inducing, torch.zeros(14, dtype=torch.float64)
    own = centre.process.covariance(seen) + torch.diag(centre.process.noise(seen, at))
    torch.testing.assert_close(centre.root.T @ centre.root, torch.linalg.inv(own))
    names, theta = posterior.kernel.layout.names, centre.process.theta.tolist()
    densities = learned_components()[0].densities
    assert dict(zip(names, theta, strict=True)) == pytest.approx(
        {name: densities[name].centre + densities[name].per_log_column * np.log(3) for name in names}
    )
    joint, others = Joint(whole, fresh), Joint(whole, fresh[1:4] / 2)
    rows = [rows_of(posterior.kernel.sites, part) for part in (fresh, fresh[1:4] / 2)]
    means = [[one.process.covariance(seen, part).T @ one.mean for one in members] for part in rows]
    middles = [sum(w * m for w, m in zip(posterior.weights, part, strict=True)) for part in means]
    expected = centre.weight * centre.process.covariance(*rows)
    expected -= (
        centre.weight
        * centre.process.covariance(rows[0], seen)
        @ torch.linalg.inv(own)
        @ (centre.process.covariance(seen, rows[1]))
    )
    for one, ours, theirs in zip(members, *means, strict=True):
        known = one.process.covariance(rows[0], seen) @ one.root.T @ one.root @ one.process.covariance(seen, rows[1])
        away = (ours - middles[0]) @ (theirs - middles[1]).T
        expected += one.weight * (one.process.covariance(*rows) - known + away)
    torch.testing.assert_close(joint.mean, middles[0])
    torch.testing.assert_close(joint.covariance(others), expected)
    torch.testing.assert_close(joint.covariance(others, [2, 0]), expected[:, [2, 0]])
    torch.testing.assert_close(others.covariance(others).diagonal(), others.variance())  # of states that the fit saw
    level = torch.linspace(-1, 1, 5, dtype=torch.float64)
    noises = [one.weight * one.process.noise(rows[0], level) for one in (*members, centre)]
    torch.testing.assert_close(joint.noise(level), sum(noises))


def test_draws_have_the_posterior_mean_and_covariance(posterior, fresh):
    products = posterior.kernel.vectors(rows_of(posterior.kernel.sites, fresh[:3]))
    centre = torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.float64)
    draws = posterior_draws(posterior, prior_covariances(posterior, products), centre, 20_000, 0)[..., 0]
    shares = torch.from_numpy(posterior.weights)
    seen = posterior.kernel.vectors(posterior.inducing)
    within = sum(w * dense(posterior, process, root, products) for w, process, root, _ in posterior.members)
    middles = torch.stack(
        [product_covariance(process, products, seen) @ mean[:, 0] for _, process, _, mean in posterior.members]
    )
    away = middles - shares @ middles
    expected = within + torch.einsum("s,sa,sb->ab", shares, away, away)
    error = expected.diagonal().sqrt() / 20_000**0.5
    assert ((draws.mean(0) - centre[:, 0]).abs() < 5 * error).all()
    torch.testing.assert_close(draws.T.cov(correction=0), expected, rtol=0.06, atol=0.03 * float(expected.max()))
    again = posterior_draws(posterior, prior_covariances(posterior, products), centre, 5, 0)
    torch.testing.assert_close(
        again, posterior_draws(posterior, prior_covariances(posterior, products), centre, 5, 0), rtol=0, atol=0
    )
