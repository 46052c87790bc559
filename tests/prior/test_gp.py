"""The posterior against textbook formulas on whole matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from restt.prior import Settings
from restt.prior.gp import (
    Data,
    Posterior,
    Process,
    cholesky,
    condition,
    condition_iteratively,
    product_covariance,
)
from restt.prior.pairs import Rows
from restt.prior.sites import rows_of
from tests.prior.problems import dense_covariance, random_problem

COMPONENTS = Settings().components


def made(seed: int, **shape) -> tuple[Process, Data, torch.Tensor, Rows]:
    """A process, its rows with targets of up to three outputs, and other rows, some with states the fit did not see."""
    rng = np.random.default_rng(1000 + seed)
    shape = {
        "rows": int(rng.integers(2, 30)),
        "numbers": int(rng.integers(1, 4)),
        "categories": int(rng.integers(0, 3)),
        "outputs": int(rng.integers(1, 4)),
        **shape,
    }
    kernel, table, data, theta = random_problem(seed, **shape)
    new = rng.standard_normal((9, table.shape[1])) * 2
    new[:, shape["numbers"] :] = rng.integers(-1, 4, (9, shape["categories"]))
    new[:2, 0] = np.nan
    process = Process(kernel, theta, COMPONENTS[seed % len(COMPONENTS)], Settings())
    targets = torch.from_numpy(rng.standard_normal((len(table), shape["outputs"])))
    return process, data, targets, rows_of(kernel.sites, new)


def own_noise(process: Process, data: Data) -> torch.Tensor:
    """Variance of each row's noise, written out."""
    h = process.kernel.layout.split(process.theta)
    features = process.kernel.noise_features(data.rows)
    slope = features @ h["number.noise"] + h["noise_mean"] * data.level.clamp(-2.5, 2.5)
    log = h["noise"] + 0.7 * torch.tanh(slope / 0.7)
    return log.exp() + process.settings.least_noise


@pytest.mark.parametrize("seed", range(31))
def test_mean_variance_and_leave_one_out_are_those_of_the_textbook(seed):
    process, data, targets, new = made(seed)
    posterior = condition(process, data, targets)
    noise = own_noise(process, data)
    own = noise / (data.weights * data.precision)
    full = dense_covariance(process, data.rows, data.rows) + torch.diag(own)
    cross = dense_covariance(process, new, data.rows)
    torch.testing.assert_close(posterior.mean(new), cross @ torch.linalg.solve(full, targets), rtol=1e-8, atol=1e-8)
    for i in range(len(targets)):
        rest = torch.arange(len(targets)) != i
        at = full[i, rest]
        solved = torch.linalg.solve(full[rest][:, rest], torch.cat([targets[rest], at[:, None]], 1))
        known = full[i, i] - own[i] - at @ solved[:, -1]
        torch.testing.assert_close(posterior.loo_mean[i], at @ solved[:, :-1], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(posterior.loo_variance[i], known + noise[i], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_the_variance_of_a_row_is_its_covariance_with_itself(seed):
    process, data, _, _ = made(seed, rows=20, numbers=2, categories=2)
    torch.testing.assert_close(
        process.variance(data.rows), process.covariance(data.rows).diagonal(), rtol=1e-10, atol=1e-10
    )
    table = np.column_stack([np.zeros((1, 2)), np.full((1, 2), -1.0)])
    unseen = rows_of(process.kernel.sites, table)
    # A level that the fit did not see is no average of the others: it is as uncertain as they are.
    levels = np.array([[0.0, 0, a, b] for a in range(4) for b in range(4)])
    shares = [process.kernel.means[n][:4] for n in (2, 3)]
    missing = process.kernel.means[3][4:]
    assert float(process.variance(unseen)) > float(process.covariance(unseen))
    factors = []
    for n in (2, 3):
        diagonal = process.tables[n].diagonal().T[:-1]
        factors.append(torch.cat([shares[n - 2], missing[: len(diagonal) - 4]]) @ diagonal)
    others = process.tables[:2]
    states = [unseen.vectors(n, len(table)) for n, table in enumerate(others)]
    factors += [torch.einsum("bi,ijk,bj->k", x, t, x) for x, t in zip(states, others, strict=True)]
    products = torch.stack(factors)
    expected = products[:, :3].prod(0) @ process.scale[:3] + products[:, 3].sum() * process.scale[3]
    assert float(process.variance(unseen)) == pytest.approx(float(expected) + process.settings.constant)
    assert process.variance(rows_of(process.kernel.sites, levels)).isfinite().all()


@pytest.mark.parametrize("seed", range(6))
def test_conjugate_gradients_find_the_exact_posterior_and_held_out_predictions(seed):
    process, data, targets, new = made(seed, rows=60)
    inducing, rest = data.rows.take(slice(10)), torch.arange(45)
    exact, without = condition(process, data, targets), condition(process, data.take(rest), targets[rest])
    found, held = condition_iteratively(process, inducing, data, targets, 15, 1e-4, 200)
    size = float(own_noise(process, data).mean()) ** 0.5
    for rows in (data.rows, new):
        torch.testing.assert_close(found.mean(rows), exact.mean(rows), rtol=0, atol=2e-3 * size)
    torch.testing.assert_close(held, without.mean(data.rows.take(slice(45, 60))), rtol=0, atol=2e-3 * size)
    begun, _ = condition_iteratively(process, inducing, data, targets, 15, 1e-4, 1)
    assert (begun.mean(data.rows) - exact.mean(data.rows)).abs().max() > 1e-2 * size


@pytest.mark.parametrize("seed", range(6))
def test_products_and_effects_add_up_to_the_mean(seed):
    process, data, targets, _ = made(seed, rows=20)
    posterior = condition(process, data, targets)
    coefficients, factors = posterior.products()
    values = torch.ones(len(data.rows), len(coefficients), dtype=torch.float64)
    total = torch.zeros_like(targets)
    for n, (factor, effect) in enumerate(zip(factors, posterior.effects(), strict=True)):
        vectors = data.rows.vectors(n, factor.shape[1])
        values *= vectors @ factor.T
        total += vectors @ effect.T
    expected = posterior.mean(data.rows)
    torch.testing.assert_close(values @ coefficients + total, expected, rtol=1e-9, atol=1e-9)


def all_states(process: Process) -> tuple[Rows, list[tuple[int, ...]]]:
    """A row for every combination of states."""
    widths = [len(mean) for mean in process.kernel.means]
    places = list(np.ndindex(*widths))
    code = torch.tensor(places, dtype=torch.int32)
    return Rows(code, torch.zeros(len(places), len(widths), dtype=torch.float64)), places


@pytest.mark.parametrize("chosen", [(0,), (2,), (0, 1), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("seed", [0, 1])
def test_terms_have_the_covariance_of_the_linear_map_that_they_are(seed, chosen):
    process, data, _, _ = made(seed, rows=10, numbers=2, categories=1)
    process = Process(process.kernel, process.theta, COMPONENTS[0], Settings())
    rng = np.random.default_rng(seed)
    widths = [len(mean) for mean in process.kernel.means]
    means = [torch.from_numpy(rng.dirichlet(np.ones(w))) for w in widths]
    points = {n: torch.from_numpy(rng.dirichlet(np.ones(widths[n]), 3)) for n in chosen}
    term = [points[n] - mean if n in points else mean.expand(3, -1) for n, mean in enumerate(means)]
    seen = [data.rows.vectors(n, width) for n, width in enumerate(widths)]
    variance = product_covariance(process, term, term).diagonal()
    cross = product_covariance(process, term, seen)
    everywhere, places = all_states(process)
    # The function is multilinear in the site vectors, so a term is a weighted sum of its values at all states.
    weights = torch.ones(3, len(places), dtype=torch.float64)
    for n in range(3):
        weights *= term[n][:, everywhere.code[:, n].long()]
    own = dense_covariance(process, everywhere, everywhere)
    torch.testing.assert_close(variance, (weights @ own * weights).sum(1), rtol=1e-8, atol=1e-8)
    expected = weights @ dense_covariance(process, everywhere, data.rows)
    torch.testing.assert_close(cross, expected, rtol=1e-8, atol=1e-8)


def test_a_covariance_without_a_factor_is_an_error_that_says_so():
    with pytest.raises(ValueError, match="no Cholesky factor"):
        cholesky(-torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))
    singular = torch.ones(5, 5, dtype=torch.float64)
    assert cholesky(singular, torch.zeros(5, dtype=torch.float64)).isfinite().all()
    good = torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close(cholesky(good.clone(), torch.full((4,), 3.0).double()).tril(), 2 * good)


def test_many_rows_are_predicted_a_part_at_a_time(monkeypatch):
    process, data, targets, new = made(2)
    posterior = condition(process, data, targets)
    whole = posterior.mean(new)
    monkeypatch.setattr("restt.prior.gp._ROWS_AT_ONCE", 4)
    assert isinstance(posterior, Posterior)
    torch.testing.assert_close(posterior.mean(new), whole, rtol=1e-12, atol=1e-12)
