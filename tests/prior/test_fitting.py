"""Hyper-parameters: the search, Student's noise, and the average of members."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import t as student

from restt.prior import Settings, Warp
from restt.prior.fitting import (
    Members,
    Objective,
    _with_tails,
    climb,
    fit_members,
    one_sided,
    side_by_side,
    stacked,
    student_log_density,
    weighted,
)
from restt.prior.gp import Data, Posterior, Process, condition
from restt.prior.kernel import Kernel, Prior
from restt.prior.sites import fit_sites, rows_of
from tests.prior.problems import random_problem

FULL = Settings().components[0]
QUICK = Settings(first_iterations=2, iterations=6, last_iterations=6)


def problem(y: np.ndarray, x: np.ndarray) -> tuple[Kernel, Data, Warp]:
    ones = np.ones(len(x))
    sites = fit_sites(x, ones, knots=12, beyond=True)
    rows, weights = rows_of(sites, x), torch.from_numpy(ones)
    warp = Warp.fit(y[:, None], ones)
    z = torch.from_numpy(warp.standardised(y[:, None]))
    kernel = Kernel.measured(sites, rows, weights, 1)
    return kernel, Data(rows, z, weights, torch.ones_like(weights), torch.zeros_like(weights)), warp


def table(rows: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 3))
    return x, x[:, 0] + np.sin(2 * x[:, 1]) + 0.2 * rng.standard_normal(rows)


def members_of(x: np.ndarray, y: np.ndarray, settings: Settings = QUICK):
    kernel, data, warp = problem(y, x)
    return fit_members(kernel, data, warp, y[:, None], torch.arange(len(x)), settings)


# --- the search


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("iterations", [1, 3, 15])
def test_a_climb_never_ends_below_its_start(seed, iterations):
    kernel, _, data, theta = random_problem(seed, rows=15)
    objective = Objective(kernel, FULL, data, 0.25, 1e-8)
    found = climb(objective, theta, iterations)
    assert objective(objective.units(found))[0] <= objective(objective.units(theta))[0]


def test_a_climb_returns_the_best_that_it_saw():
    kernel, _, data, theta = random_problem(0, rows=20)
    objective, seen = Objective(kernel, FULL, data, 0.25, 1e-8), {}

    class Watched:
        def __getattr__(self, name):
            return getattr(objective, name)

        def __call__(self, units):
            found = objective(units)
            seen[units.tobytes()] = found[0]
            return found

    found = climb(Watched(), theta, 30)
    assert len(seen) > 5
    assert objective(objective.units(found))[0] == pytest.approx(min(seen.values()), rel=1e-12)
    assert min(seen.values()) < seen[objective.units(theta).tobytes()] - 5


def test_a_climb_from_where_there_is_no_likelihood_stays_there():
    kernel, _, data, theta = random_problem(0)
    objective = Objective(kernel, FULL, data, 0.25, 1e-8)
    nowhere = torch.full_like(theta, torch.nan)
    assert climb(objective, nowhere, 3).isnan().all()


def test_a_short_search_ends_near_a_long_one():
    x, y = table(60)
    kernel, data, _ = problem(y, x)
    objective = Objective(kernel, FULL, data, 0.25, 1e-8)
    found = climb(objective, objective.starts[1], Settings().iterations)
    spent = objective.evaluations
    units, value = objective.units(found), objective(objective.units(found))[0]
    best = minimize(objective, units, jac=True, method="L-BFGS-B", options={"maxiter": 400, "maxfun": 600}).fun
    assert spent <= 1.5 * Settings().iterations + 1
    assert best <= value < best + 0.5


@pytest.mark.parametrize("threads", [1, 2])
def test_searches_side_by_side_are_those_one_by_one_and_give_threads_back(threads):
    kernel, _, data, theta = random_problem(0, rows=15)
    starts = [theta, theta + 0.1, theta - 0.1]
    searches = [partial(climb, Objective(kernel, FULL, data, 0.25, 1e-8), start, 4) for start in starts]
    expected = [search() for search in searches]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = side_by_side(searches, threads)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    for one, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(one, wanted, rtol=1e-8, atol=1e-8)


def test_an_error_of_a_search_is_that_of_all_and_gives_threads_back():
    def fails() -> torch.Tensor:
        raise ValueError("no such search")

    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="no such search"):
        side_by_side([fails, fails], 2)
    assert torch.get_num_threads() == before


def test_members_found_on_two_threads_are_the_same():
    x, y = table(40)
    kernel, data, warp = problem(y, x)
    given = kernel, data, warp, y[:, None], torch.arange(40), QUICK
    alone, beside = (fit_members(*given, threads) for threads in (1, 2))
    np.testing.assert_allclose(beside.weights, alone.weights, rtol=1e-6)
    torch.testing.assert_close(beside.loo_mean, alone.loo_mean, rtol=1e-6, atol=1e-8)
    assert beside.evaluations == alone.evaluations


# --- Student's noise


@pytest.mark.parametrize("degrees", [2.3, 4.0, 30.0, 1e4])
def test_students_density_has_a_variance_of_1(degrees):
    x = np.linspace(-3, 3, 7)
    scale = np.sqrt((degrees - 2) / degrees)
    np.testing.assert_allclose(student_log_density(x**2, degrees), student.logpdf(x, degrees, scale=scale), rtol=1e-7)


def tails_of(noise: np.ndarray, expected: float = 0.02) -> tuple[np.ndarray, float]:
    """Precisions where leave-one-out residuals are like this noise."""
    x = np.random.default_rng(9).standard_normal((len(noise), 2))
    y = x[:, 0] + noise
    kernel, data, warp = problem(y, x)
    objective = Objective(kernel, FULL, data, 0.25, 1e-8)
    targets = torch.from_numpy(warp.encode(y[:, None]))
    begun = condition(Process(kernel, climb(objective, objective.centre, 10), FULL, Settings()), data, targets)
    found, tail = _with_tails(data, begun, targets, expected)
    assert torch.equal(found.level, begun.loo_mean.mean(1))
    return found.precision.numpy(), tail


def test_an_outlier_gets_little_precision():
    noise = 0.3 * np.random.default_rng(0).standard_normal(150)
    noise[[7, 70]] = 8.0, -9.0
    precision, tail = tails_of(noise)
    assert tail > 0.1
    assert precision[[7, 70]].max() < 0.05
    assert np.median(np.delete(precision, [7, 70])) > 0.8
    assert precision.mean() == pytest.approx(1)


def test_rare_values_on_one_side_are_signal():
    noise = 0.3 * np.random.default_rng(0).standard_normal(150)
    noise[::15] += 4.0
    precision, tail = tails_of(noise)
    assert tail == Settings.TAILS[0]
    assert (precision == 1).all()
    noise[::30] -= 8.0  # half of them on the other side
    precision, tail = tails_of(noise)
    assert tail > 0.1
    assert precision.min() < 0.3


@pytest.mark.parametrize("seed", range(3))
def test_normal_noise_leaves_all_rows_as_they_are(seed):
    precision, tail = tails_of(0.3 * np.random.default_rng(seed).standard_normal(150))
    assert tail < 0.05
    assert precision.min() > 0.6
    assert precision.max() < 1.2


def test_tails_are_found_and_the_prior_of_them_counts():
    noise = 0.3 * np.random.default_rng(3).standard_t(3, 400)
    _, tail = tails_of(noise)
    assert 1 / 6 < tail < 0.45
    assert tails_of(noise, expected=1e-4)[1] < 0.5 * tail


def leave_one_out(residuals: np.ndarray) -> tuple[Data, Posterior, torch.Tensor]:
    """Rows of two outputs with these residuals (B,), halved in the second, and predictions with a variance each."""
    kernel, _, data, theta = random_problem(0, rows=len(residuals), outputs=2)
    away = torch.from_numpy(np.stack([residuals, residuals / 2], 1))
    targets, variance = data.z, torch.linspace(0.5, 2, len(residuals), dtype=torch.float64)
    return data, Posterior(Process(kernel, theta, FULL, Settings()), data.rows, away, targets - away, variance), targets


def test_precisions_of_rows_are_expected_ones_given_their_residuals():
    residuals = np.array([0.5, -0.4, 3.0, -3.1, 0.1, 0.2, -0.3, 0.4, -0.2, 0.1])
    data, begun, targets = leave_one_out(residuals)
    squares, weights = residuals**2 * 1.25 / 2 / begun.loo_variance.numpy(), data.weights.numpy()
    squares /= np.average(squares, weights=weights)
    found, tail = _with_tails(data, begun, targets, 0.02, 0.25)
    expected = 5 / (2 + squares)  # of four degrees of freedom
    np.testing.assert_allclose(found.precision, expected / np.average(expected, weights=weights), rtol=1e-12)
    torch.testing.assert_close(found.level, begun.loo_mean.mean(1))
    assert tail == 0.25
    # Without one it is the likeliest, an exponential prior included.
    tails = np.linspace(*Settings.TAILS, 2000)
    logs = [weights @ student_log_density(squares, 1 / one) - one / 0.02 for one in tails]
    assert _with_tails(data, begun, targets, 0.02)[1] == pytest.approx(tails[int(np.argmax(logs))], abs=5e-4)
    # The least is normal noise, and so is that of rare values on one side.
    rare = leave_one_out(np.where(np.arange(40) % 7 == 0, 3.0, 0.1))
    for given in ((data, begun, targets, 0.02, Settings.TAILS[0]), (*rare, 0.02, 0.4)):
        normal, tail = _with_tails(*given)
        assert tail == 1e-4
        assert (normal.precision == 1).all()


def test_one_side_is_two_standard_errors_of_the_mean():
    residuals, weights = np.array([0.0, 1.0, 2.0, 5.0]), np.array([1.0, 2.0, 1.0, 1.0])
    mean = 9 / 5
    error = np.sqrt((mean**2 + 2 * (1 - mean) ** 2 + (2 - mean) ** 2 + (5 - mean) ** 2) / 5 / (25 / 7))
    # Of precision p in the last row the mean is (4 + 5 p)/(4 + p); two errors below it is reached at this one.
    edge = (4 * (mean - 2 * error) - 4) / (5 - (mean - 2 * error))
    for step, expected in ((-0.01, True), (0.01, False)):
        assert one_sided(residuals, weights, np.array([1, 1, 1, edge + step])) is expected


def test_the_reported_prior_is_the_average_over_the_members():
    kernel, _, data, theta = random_problem(3, rows=15, numbers=2, categories=1)
    processes = [
        Process(kernel, theta + step, one, Settings())
        for step, one in zip((0.0, 0.2), Settings().components, strict=False)
    ]
    weights = np.array([0.7, 0.3])
    posteriors = tuple(condition(one, data, data.z) for one in processes)
    warp = Warp.fit(data.z.numpy(), data.weights.numpy())
    found = Prior.of(Members(posteriors, weights, warp, data, data.z, 0.125, 0), ("a", "b", "c"))
    sizes, noises = np.zeros((2, 3, 3)), []
    for one, size in zip(processes, sizes, strict=True):
        h = {name: part.tolist() for name, part in kernel.layout.split(one.theta).items()}
        scale = dict(zip("ajr", one.scale[[0, 1, 3]].tolist(), strict=True)) | {"b": float(one.scale[3])}
        for n, (kind, k) in enumerate((("number", 0), ("number", 1), ("level", 0))):
            size[0, n] = sum(
                scale[q] * np.exp(h[q] + h[f"{kind}.relevance"][k] + h[f"{kind}.{q}"][k]) for q in ("a", "j", "b", "r")
            )
        size[1:, :2] = np.exp(h["number.length"]), 1 / (1 + np.exp(-np.array(h["number.line"])))
        size[1:, 2] = np.nan
        noises.append(float(one.noise(data.rows, data.level).mean()))
    np.testing.assert_allclose([found.relevance, found.length, found.line], np.tensordot(weights, sizes, 1), rtol=1e-10)
    assert found.noise == pytest.approx(weights @ noises, rel=1e-12)
    assert (found.degrees, found.power.tolist(), list(found.members.values())) == (8.0, [1.0], [0.7, 0.3])


# --- the average


def test_stacked_weights_are_those_of_least_squares():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((500, 2))
    predictions = np.stack([y + 0.5 * rng.standard_normal(y.shape), y + 1.0 * rng.standard_normal(y.shape)], -1)
    found = stacked(predictions, y, np.ones(500), np.array([0.5, 0.5]), 0.0)
    grid = np.linspace(0, 1, 1001)
    errors = [((predictions @ [w, 1 - w] - y) ** 2).mean() for w in grid]
    assert found.sum() == pytest.approx(1)
    assert found[0] == pytest.approx(grid[int(np.argmin(errors))], abs=2e-3)


@pytest.mark.parametrize("outputs", [1, 2])
def test_stacked_weights_of_two_members_in_closed_form(outputs):
    rng = np.random.default_rng(1)
    y, row_weights, share = rng.standard_normal((30, outputs)), rng.random(30) + 0.5, 0.2
    one, other = y + 0.5 * rng.standard_normal(y.shape), y + rng.standard_normal(y.shape)
    relative = (row_weights / row_weights.mean())[:, None]
    for _ in range(3):  # the usual weights, 0.2 and 0.8, count as 20 rows of the noise that weights leave
        noise = (relative * (share * one + (1 - share) * other - y) ** 2).mean()
        fit, pull = relative * (one - other), 20 * outputs * noise
        share = ((fit * (y - other)).sum() + 2 * pull * 0.2) / ((fit * (one - other)).sum() + 2 * pull)
    found = stacked(np.stack([one, other], -1), y, row_weights, np.array([0.2, 0.8]), 20.0)
    np.testing.assert_allclose(found, [share, 1 - share], rtol=1e-5)


def test_stacked_weights_begin_at_the_usual_ones():
    rng = np.random.default_rng(0)
    usual = np.array([0.5, 0.3, 0.2])
    y = rng.standard_normal((40, 1))
    predictions = np.stack([y + scale * rng.standard_normal(y.shape) for scale in (0.5, 0.6, 0.7)], -1)
    few, many = (stacked(predictions, y, np.ones(40), usual, rows) for rows in (1.0, 1e6))
    assert np.abs(many - usual).max() < 1e-3
    assert np.abs(few - usual).max() > 0.02
    # Members that say the same are as good as each other.
    same = np.repeat(predictions[..., :1], 3, -1)
    np.testing.assert_allclose(stacked(same, y, np.ones(40), usual, 5.0), usual, atol=1e-6)


def test_stacked_weights_are_never_below_0_and_rows_count_by_their_weight():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((100, 1))
    predictions = np.stack([y, y + 1, -y], -1)
    found = stacked(predictions, y, np.ones(100), np.full(3, 1 / 3), 1.0)
    assert found.min() >= 0
    assert found[0] > 0.99
    mixed = np.where(np.arange(100)[:, None, None] < 50, np.stack([y, 0 * y], -1), np.stack([0 * y, y], -1))
    weights = np.where(np.arange(100) < 50, 1.0, 1e-6)
    assert stacked(mixed, y, weights, np.array([0.5, 0.5]), 1.0)[0] > 0.95
    twice = np.arange(100).repeat(np.where(np.arange(100) < 30, 2, 1))
    noisy = predictions + rng.standard_normal(predictions.shape)
    once = stacked(noisy, y, np.where(np.arange(100) < 30, 2.0, 1.0), np.full(3, 1 / 3), 0.0)
    np.testing.assert_allclose(once, stacked(noisy[twice], y[twice], np.ones(130), np.full(3, 1 / 3), 0.0), atol=1e-6)


def test_members_are_averaged_with_weights_of_sum_1():
    x, y = table(50)
    members = members_of(x, y)
    assert members.weights.sum() == pytest.approx(1)
    assert members.weights.min() >= 0.02
    assert list(members.weights) == sorted(members.weights, reverse=True)
    torch.testing.assert_close(
        members.loo_mean, weighted([one.loo_mean for one in members.posteriors], members.weights)
    )
    within = sum(w * one.loo_variance for w, one in zip(members.weights, members.posteriors, strict=True))
    between = sum(
        w * (one.loo_mean - members.loo_mean).square().mean(1)
        for w, one in zip(members.weights, members.posteriors, strict=True)
    )
    torch.testing.assert_close(members.loo_variance, within + between)
    # One transform of y for all of them.
    np.testing.assert_allclose(members.warp.encode(y[:, None]), members.targets)
    assert members.evaluations > 10


def test_members_that_predict_worse_count_less():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (150, 2))
    steps = np.sign(np.sin(9 * x[:, 0])) + 0.1 * rng.standard_normal(150)
    members = members_of(x, steps, Settings(first_iterations=6, iterations=20, last_iterations=20))
    names = {one.process.component.name: w for one, w in zip(members.posteriors, members.weights, strict=True)}
    assert names.get("linear", 0.0) < 0.05
    assert names["rough"] + names["full"] > 0.9
