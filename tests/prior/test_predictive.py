"""The predictive distribution: against whole matrices, saved and read, and as often right as it says."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import trapezoid
from scipy.stats import norm
from scipy.stats import t as student

from restt import prior
from restt.prior import Predictive, Settings, Warp
from restt.prior.calibration import root_of
from restt.prior.distribution import LEVELS, Distribution, standard_quantile
from restt.prior.gp import Process
from restt.prior.predictive import _constant_part, residual_quantiles
from restt.prior.sites import rows_of
from tests.prior.problems import LEVELS as CATEGORIES
from tests.prior.problems import dense_covariance, mixed_table, random_problem

QUICK = Settings(first_iterations=2, iterations=6, last_iterations=6)


@pytest.fixture(scope="module")
def fitted() -> prior.Fitted:
    numbers, y = mixed_table(70)
    return prior.fit(numbers, y, levels=CATEGORIES, settings=QUICK)


def made(seed: int, outputs: int = 1, extra: float = 0.02) -> Predictive:
    """Three members with hyper-parameters of their own; every row is an inducing one."""
    kernel, table, data, theta = random_problem(seed, rows=20, outputs=outputs)
    rng = np.random.default_rng(seed)
    thetas = torch.stack([theta + 0.2 * torch.from_numpy(rng.standard_normal(len(theta))) for _ in range(3)])
    weights, settings, roots = np.array([0.5, 0.3, 0.2]), Settings(), []
    for theta, component in zip(thetas, settings.components, strict=True):
        process = Process(kernel, theta, component, settings)
        own = process.noise(data.rows, data.level) / (data.weights * data.precision)
        roots.append(root_of(process.covariance(data.rows), 20, own, data.z))
    arrays = (np.stack([getattr(one, name) for one in roots]) for name in ("root", "mean"))
    quantiles = residual_quantiles(rng.standard_normal((60, outputs)), np.ones(60))
    slopes = 0.1 * rng.standard_normal(kernel.layout.numbers + 1)
    held = (table, *arrays, 20, quantiles, slopes, extra)
    return Predictive(kernel, thetas, settings.components, weights, settings, *held)


def by_definition(found: Predictive, seed: int, new: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Variance of an observation: of each member, of its noise, and between the members."""
    seen, rows = rows_of(found.kernel.sites, found.numbers), rows_of(found.kernel.sites, new)
    _, _, data, _ = random_problem(seed, rows=20, outputs=found.means.shape[2])
    within, means = np.zeros(len(new)), []
    for weight, theta, component in zip(found.weights, found.thetas, found.components, strict=True):
        process = Process(found.kernel, theta, component, found.settings)
        own = (process.noise(seen, data.level) / (data.weights * data.precision)).numpy()
        full = dense_covariance(process, seen, seen).numpy() + np.diag(own)
        cross = dense_covariance(process, rows, seen).numpy()
        prior_variance = dense_covariance(process, rows, rows).numpy().diagonal()
        known = prior_variance - (cross * np.linalg.solve(full, cross.T).T).sum(1)
        within += weight * (known + process.noise(rows, torch.from_numpy(level)).numpy())
        means.append(cross @ np.linalg.solve(full, data.z.numpy()))
    middle = np.tensordot(found.weights, means, 1)
    between = sum(w * ((mean - middle) ** 2).mean(1) for w, mean in zip(found.weights, means, strict=True))
    growth = found.features(rows, torch.from_numpy(level)) @ found.slopes
    return np.sqrt((within + between + found.extra) * np.exp(growth))


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_deviations_are_those_of_whole_matrices(seed, outputs, monkeypatch):
    found = made(seed, outputs)
    rng = np.random.default_rng(seed)
    new = np.column_stack([rng.standard_normal((9, 2)), rng.integers(0, 4, 9)])
    given = rng.standard_normal((9, outputs))
    expected = by_definition(found, seed, new, given.mean(1))
    np.testing.assert_allclose(found.deviations(new, given), expected, rtol=1e-8)
    monkeypatch.setattr("restt.prior.predictive._ROWS_AT_ONCE", 4)
    np.testing.assert_allclose(found.deviations(new, given), expected, rtol=1e-8)
    assert found.deviations(new[:0], given[:0]).shape == (0,)


def test_quantiles_between_and_beyond_the_levels():
    table = made(0, outputs=2).quantiles
    levels = np.array([1e-12, 1e-6, 1e-4, 0.0005, 0.1, 0.2525, 0.9, 0.999, 0.9995, 0.9999, 0.999999, 1 - 1e-12])
    found = standard_quantile(table, 19, levels)
    assert (np.diff(found, axis=0) > 0).all()
    inside = (levels >= LEVELS[0]) & (levels <= LEVELS[-1])
    expected = np.stack([np.interp(levels[inside], LEVELS, column) for column in table.T], axis=1)
    np.testing.assert_allclose(found[inside], expected)
    # Beyond them, in proportion to Student's.
    np.testing.assert_allclose(found[-1] / found[-2], student.ppf(levels[-1], 19) / student.ppf(levels[-2], 19))


def test_wider_intervals_hold_narrower_ones(fitted):
    numbers, _ = mixed_table(20, seed=3)
    ends = [fitted.predict_interval(numbers, coverage)[..., 0] for coverage in (0.1, 0.5, 0.9, 0.999, 0.999999)]
    for narrow, wide in pairwise(ends):
        assert (wide[:, 0] < narrow[:, 0]).all()
        assert (wide[:, 1] > narrow[:, 1]).all()
    for coverage in (0.0, 1.0, -1.0, 2.0, float("nan")):
        with pytest.raises(ValueError, match="coverage"):
            fitted.predict_interval(numbers, coverage)


@pytest.mark.parametrize("power", [0.2, 1.0, 1.6])
def test_the_std_is_the_root_mean_square_about_the_prediction(power):
    found, rng = made(2), np.random.default_rng(0)
    y = rng.lognormal(size=(200, 1))
    warp = Warp.fit(y, np.ones(200)).with_power(np.array([power]), y, np.ones(200))
    warp = warp.smeared(0.3 * rng.standard_normal((100, 1)), np.ones(100))
    outputs, numbers = rng.standard_normal((5, 1)), found.numbers[:5]
    deviations, degrees = found.deviations(numbers, outputs)[:, None], len(found.numbers) - 1
    quantiles = standard_quantile(found.quantiles, degrees, rng.random(2000))
    draws = np.stack([warp.decode(outputs + deviations * quantile) for quantile in quantiles])
    expected = np.sqrt(((draws - warp.predict(outputs)) ** 2).mean(0))
    np.testing.assert_allclose(found.std(outputs, numbers, warp), expected, rtol=0.05)
    # Of numbers whose squares are beyond float64, too.
    large = replace(warp, shift=warp.shift * 1e200, width=warp.width * 1e200)
    np.testing.assert_allclose(found.std(outputs, numbers, large), 1e200 * found.std(outputs, numbers, warp), rtol=1e-6)


@pytest.mark.parametrize("rows", [4, 12, 1000])
def test_few_residuals_leave_their_own_size_open(rows):
    # Of a normal distribution whose size is known from so many residuals: what a new one's quantiles are on average.
    rng = np.random.default_rng(0)
    ends = np.array([residual_quantiles(rng.standard_normal((rows, 1)), np.ones(rows))[:, 0] for _ in range(400)])
    level = np.searchsorted(LEVELS, 0.95)
    assert 2 * norm.cdf(ends[:, level]).mean() - 1 == pytest.approx(0.9, abs=0.06 if rows < 10 else 0.03)


def test_other_residuals_set_the_width_of_intervals(fitted):
    rng = np.random.default_rng(1)
    numbers, _ = mixed_table(6000, seed=5)
    outputs = fitted.outputs(numbers)
    residuals = 0.05 * rng.standard_normal((6000, 1))  # far smaller than the noise that was learned
    found = fitted.predictive.recalibrated(residuals[:3000], numbers[:3000], outputs[:3000], np.ones(3000))
    low, high = found.interval(outputs[3000:], numbers[3000:], fitted.warp).transpose(1, 0, 2)
    y = fitted.warp.decode(outputs + residuals)[3000:]
    assert ((low <= y) & (y <= high)).mean() == pytest.approx(0.9, abs=0.02)


def test_rows_of_no_weight_do_not_count(fitted):
    rng = np.random.default_rng(1)
    numbers, _ = mixed_table(400, seed=6)
    outputs, residuals = np.zeros((400, 1)), rng.standard_normal((400, 1))
    residuals[::2] *= 1e3
    odd = np.arange(400) % 2 == 1
    weighted = fitted.predictive.recalibrated(residuals, numbers, outputs, np.where(odd, 1.0, 1e-9))
    alone = fitted.predictive.recalibrated(residuals[odd], numbers[odd], outputs[odd], np.ones(200))
    widths = [np.diff(one.interval(outputs, numbers, fitted.warp), axis=1).mean() for one in (weighted, alone)]
    assert widths[0] == pytest.approx(widths[1], rel=0.05)


@pytest.mark.parametrize("extra", [0.02, -0.01])
def test_recalibrated_quantiles_are_those_of_residuals_over_their_new_deviations(extra):
    found, rng = made(3, outputs=2, extra=extra), np.random.default_rng(0)
    numbers = np.column_stack([rng.standard_normal((50, 2)), rng.integers(0, 4, 50)])
    outputs, residuals, weights = rng.standard_normal((50, 2)), rng.standard_normal((50, 2)), rng.random(50) + 0.5
    new = found.recalibrated(residuals, numbers, outputs, weights)
    expected = residual_quantiles(residuals / new.deviations(numbers, outputs)[:, None], weights)
    np.testing.assert_allclose(new.quantiles, expected, rtol=1e-9)
    # Squares are in proportion to the variances without the part that all rows have, and a constant.
    plain = replace(found, slopes=0 * found.slopes, extra=0.0).deviations(numbers, outputs) ** 2
    constant = _constant_part(plain - plain.min(), (residuals**2).mean(1), weights)
    assert new.extra == pytest.approx(constant - plain.min(), rel=1e-9)
    assert (new.slopes != found.slopes).all()


def test_the_constant_part_is_that_of_a_line_through_the_halves():
    variances, weights = np.array([4.0, 1.0, 2.0, 3.0]), np.array([1.0, 1.0, 3.0, 3.0])
    # Small ones have the mean 1.75, large ones 3.25; squares of 2 (variance + c).
    for constant, found in ((0.5, 0.5), (0.0, 0.05 * 3.25), (1e9, 3.25e3)):
        squares = 2 * (variances + constant)
        assert _constant_part(variances, squares, weights) == pytest.approx(found, rel=1e-6)
    assert _constant_part(variances, -variances, weights) == 3.25e3  # they fall
    assert _constant_part(np.ones(3), np.array([1.0, 2.0, 9.0]), np.array([1.0, 1.0, 2.0])) == 21 / 4
    assert _constant_part(np.ones(3), np.zeros(3), np.ones(3)) == 1e-12


@pytest.mark.parametrize(("rows", "degrees"), [(3, 3), (30, 29)])
def test_quantiles_of_residuals_are_drawn_towards_students_of_their_size(rows, degrees):
    rng = np.random.default_rng(0)
    scaled, weights = rng.standard_normal((rows, 2)), rng.random(rows) + 0.5
    order = np.argsort(scaled[:, 1])
    share = weights[order] / weights.sum()
    own = np.interp(LEVELS, np.cumsum(share) - share / 2, scaled[order, 1])
    normal = student.ppf(LEVELS, degrees) * np.sqrt(np.average(scaled[:, 1] ** 2, weights=weights))
    found = residual_quantiles(scaled, weights)[:, 1]
    np.testing.assert_allclose(found, (rows * own + 20 * normal) / (rows + 20), rtol=1e-12)


@pytest.mark.parametrize("constant", [0.02, 0.5, 3.0])
def test_what_is_the_same_everywhere_is_found(constant):
    rng = np.random.default_rng(0)
    variances = rng.exponential(size=100_000)
    squares = 7.0 * (variances + constant) * rng.standard_normal(100_000) ** 2
    found = _constant_part(variances, squares, np.ones(100_000))
    assert found == pytest.approx(max(constant, 0.05 * variances[variances > np.median(variances)].mean()), rel=0.15)


def test_residuals_that_do_not_depend_on_the_row():
    variances, squares = np.linspace(0.1, 1, 100), np.linspace(2, 1, 100)
    assert _constant_part(variances, squares, np.ones(100)) > 100
    assert _constant_part(np.ones(5), np.ones(5), np.ones(5)) > 0


def test_deviations_of_terms_are_those_of_draws_of_the_function():
    found = made(4, extra=0.0)
    rng = np.random.default_rng(0)
    widths = [len(mean) for mean in found.kernel.means]
    means = [torch.from_numpy(rng.dirichlet(np.ones(width))) for width in widths]
    away = {n: torch.eye(widths[n], dtype=torch.float64) - means[n] for n in (0, 2)}
    grid = list(np.ndindex(widths[0], widths[2]))
    first, second = np.array(grid).T
    products = [away[0][first], means[1].expand(len(grid), -1), away[2][second]]
    assert found.product_deviations(products).shape == (len(grid),)
    parts = {name: getattr(found, name)[:1] for name in ("thetas", "components", "roots", "means")}
    one = replace(found, **parts, weights=np.ones(1))
    (process,), seen = one.processes, rows_of(one.kernel.sites, one.numbers)
    _, _, data, _ = random_problem(4, rows=20, outputs=1)
    own = process.noise(seen, data.level) / (data.weights * data.precision)
    full = dense_covariance(process, seen, seen) + torch.diag(own)
    # The term at a point is a combination of the function at rows: site 1 at its mean, the others less theirs.
    places = list(np.ndindex(*widths))
    code = torch.tensor(places, dtype=torch.int32)
    states = type(seen)(code, torch.zeros(code.shape, dtype=torch.float64))
    prior_own, cross = dense_covariance(process, states, states), dense_covariance(process, states, seen)
    posterior = prior_own - cross @ torch.linalg.solve(full, cross.T)
    for i, j in ((0, 0), (1, 2), (3, 1)):
        weight = away[0][i][code[:, 0].long()] * means[1][code[:, 1].long()] * away[2][j][code[:, 2].long()]
        expected = float(weight @ posterior @ weight) ** 0.5
        assert float(one.product_deviations(products)[grid.index((i, j))]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("power", [0.3, 1.7])
def test_distributions_are_quantiles_and_their_inverse(power):
    found, rng = made(5, outputs=2), np.random.default_rng(0)
    y = rng.lognormal(size=(200, 2))
    warp = Warp.fit(y, np.ones(200)).with_power(np.full(2, power), y, np.ones(200))
    outputs, numbers = rng.standard_normal((4, 2)), found.numbers[:4]
    at = found.at(outputs, numbers, warp)
    for level in (1e-5, 0.03, 0.5, 0.8, 0.9999):
        np.testing.assert_allclose(at.cdf(at.quantile(level)), np.full((4, 2), level), rtol=1e-6)
    # The standard deviation is that of 200 quantiles about the prediction, the density a difference quotient of the
    # distribution, a quarter of the standard deviation of q on either side, and Student's beyond the levels.
    middles = (np.arange(200) + 0.5) / 200
    squares = [(at.quantile(level) - at.mean) ** 2 for level in middles]
    np.testing.assert_allclose(at.std, np.sqrt(np.mean(squares, axis=0)), rtol=1e-10)
    plain = Distribution(outputs, at.measure, at.table, at.degrees, replace(warp, power=np.ones(2)))
    size = np.stack([np.interp(middles, LEVELS, column) for column in at.table.T], axis=1)
    width = 0.25 * np.sqrt((size**2).mean(axis=0))
    places = np.stack([0 * width - 0.5, 0 * width + 1, at.table[0] - width / 2, at.table[-1] + width / 2])
    step, t = width * at.deviations, outputs + places * at.deviations
    y, above, below = (plain.warp.decode(t + sign * step) for sign in (0, 1, -1))
    quotient = (plain.cdf(above) - plain.cdf(below)) / (above - below)
    np.testing.assert_allclose(np.exp(plain.log_density(y)), quotient, rtol=1e-8)
    for level, sign in ((0.0005, -1), (0.9995, 1)):
        end = plain.table[0 if sign < 0 else -1]
        far = outputs + (end + sign * 9) * at.deviations
        inner = student.ppf(level, 19) / end  # of Student's q where this one is 1
        expected = student.logpdf((end + sign * 9) * inner, 19) + np.log(inner / at.deviations)
        scale = np.log(plain.warp.std * plain.warp.width)
        np.testing.assert_allclose(plain.log_density(plain.warp.decode(far)), expected - scale, rtol=1e-9)
    several = at.quantile([0.05, 0.95])
    np.testing.assert_allclose(several, found.interval(outputs, numbers, warp), rtol=1e-12)
    np.testing.assert_array_equal(at.mean, warp.predict(outputs))
    # The density integrates to 1, and its integral is the distribution up to the smoothing.
    ends = at.quantile([1e-6, 1 - 1e-6])
    for row in range(4):
        grid = np.linspace(ends[row, 0], ends[row, 1], 20_001)
        density = np.exp(found.at(outputs[[row]], numbers[[row]], warp).log_density(grid))
        assert trapezoid(density, grid, axis=0) == pytest.approx([1, 1], abs=0.02)
    for wrong in (0.0, 1.0, [0.5, 2.0], np.nan, [[0.5]]):
        with pytest.raises(ValueError, match="q must be a number between 0 and 1"):
            at.quantile(wrong)


def test_a_saved_distribution_is_the_same(fitted):
    numbers, _ = mixed_table(30, seed=4)
    config = json.loads(json.dumps(fitted.predictive.to_config()))
    tensors = {name: value.clone() for name, value in fitted.predictive.tensors().items()}
    same, outputs = Predictive.from_config(config, tensors), fitted.outputs(numbers)
    np.testing.assert_array_equal(same.interval(outputs, numbers, fitted.warp), fitted.predict_interval(numbers))
    np.testing.assert_array_equal(same.std(outputs, numbers, fitted.warp), fitted.predict_std(numbers))
    assert same.to_config() == fitted.predictive.to_config()
    for name, value in same.tensors().items():
        torch.testing.assert_close(value, tensors[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"thetas": lambda x: x[:, :-1]}, "members do not fit"),
        ({"thetas": lambda x: x * torch.nan}, "hyper-parameters must be finite"),
        ({"numbers": lambda x: x[:, :1]}, "numbers must have shape"),
        ({"roots": lambda x: x[:, :-1]}, "roots must have shape"),
        ({"means": lambda x: x[:-1]}, "members do not fit"),
        ({"means": lambda x: x * torch.inf}, "means must be finite"),
        ({"quantiles": lambda x: x[1:]}, "quantiles must have shape"),
        ({"mean.0": lambda x: x[1:]}, "column 0 has states"),
        ({"moment.2": lambda x: torch.eye(2)}, "column 2 has states"),
    ],
)
def test_a_distribution_that_was_tampered_with_is_refused(fitted, change, message):
    tensors = dict(fitted.predictive.tensors())
    for name, changed in change.items():
        tensors[name] = changed(tensors[name])
    with pytest.raises(ValueError, match=message):
        Predictive.from_config(fitted.predictive.to_config(), tensors)


def test_a_distribution_may_have_members_of_no_weight_and_no_constant_but_not_less(fitted):
    config, tensors = fitted.predictive.to_config(), fitted.predictive.tensors()
    alone = [1.0] + [0.0] * (len(config["weights"]) - 1)
    found = Predictive.from_config(
        {**config, "weights": alone, "constant": 0.0, "rows": len(tensors["numbers"])}, tensors
    )
    assert (found.weights.tolist(), found.settings.constant) == (alone, 0.0)
    for name, value, message in (
        ("constant", -1e-9, "must not be below 0"),
        ("least_noise", 0.0, "must not be below 0"),
        ("rows", len(tensors["numbers"]) - 1, "inducing rows are more than"),
    ):
        with pytest.raises(ValueError, match=message):
            Predictive.from_config({**config, name: value}, tensors)


def test_weights_of_members_that_do_not_fit_are_refused(fitted):
    config, tensors = fitted.predictive.to_config(), fitted.predictive.tensors()
    for weights in ([1.0] * 7, [-1.0] * len(config["weights"])):
        with pytest.raises(ValueError, match=r"members do not fit|not below 0"):
            Predictive.from_config({**config, "weights": weights}, tensors)


def normal(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return np.sin(4 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * rng.standard_normal(len(x))


def uneven(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return x[:, 0] + 0.3 * np.exp(2 * x[:, 1]) * rng.standard_normal(len(x))


def skew(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return np.exp(2 * x[:, 0] + 0.5 * rng.standard_normal(len(x)))


def tailed(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return 3 * x[:, 0] + 0.3 * rng.standard_t(3, len(x))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("draw", [normal, uneven, skew, tailed])
def test_intervals_cover_as_often_as_they_say(draw, seed):
    rng = np.random.default_rng(seed)
    x, fresh = rng.random((120, 3)), rng.random((1500, 3))
    model = prior.fit(x, draw(rng, x), settings=Settings(first_iterations=5, iterations=15, last_iterations=15))
    y = draw(rng, fresh)
    low, high = model.predict_interval(fresh)[:, :, 0].T
    assert 0.8 < np.mean((y >= low) & (y <= high)) < 0.97
    predicted = model.predict(fresh)[:, 0]
    assert ((low <= predicted) & (predicted <= high)).all()
    std = np.sqrt((model.predict_std(fresh) ** 2).mean())
    # Of few rows with long tails, whose own luck it depends on.
    assert 0.7 < std / np.sqrt(((y - predicted) ** 2).mean()) < 1.5


def test_noise_that_grows_with_a_column_is_seen():
    rng = np.random.default_rng(0)
    x = rng.random((200, 3))
    model = prior.fit(x, uneven(rng, x), settings=Settings(first_iterations=5, iterations=15, last_iterations=15))
    ends = np.array([[0.5, 0.1, 0.5], [0.5, 0.9, 0.5]])
    small, large = model.predict_std(ends)[:, 0]
    assert large / small == pytest.approx(np.exp(1.6), rel=0.35)


def test_a_level_that_the_fit_did_not_see_has_an_effect_nonetheless():
    rng = np.random.default_rng(0)
    x, codes, effects = rng.standard_normal(500), rng.integers(0, 20, 500), rng.standard_normal(1000)
    y = x[:100] + effects[codes[:100]] + 0.1 * rng.standard_normal(100)
    model = prior.fit(np.column_stack([x, codes])[:100], y, levels=[None, 20])
    unseen, seen = np.column_stack([x, np.full(500, -1.0)])[100:], np.column_stack([x, codes])[100:]
    low, high = model.predict_interval(unseen)[:, :, 0].T
    truth = x[100:] + effects[100:500] + 0.1 * rng.standard_normal(400)
    assert ((low <= truth) & (truth <= high)).mean() > 0.8
    assert model.predict_std(unseen).min() > 2 * np.median(model.predict_std(seen))
