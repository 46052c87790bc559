"""From a table to a residual train: what is learned, kept, reported and refused."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import restt
from restt import prior
from restt.chain.cpu import build
from restt.prior import Settings, model
from restt.prior.model import _relative_error
from restt.prior.sites import rows_of
from tests.prior.problems import LEVELS, mixed_table

QUICK = Settings(first_iterations=2, iterations=5, last_iterations=5)
MIDDLING = Settings(first_iterations=6, iterations=20, last_iterations=20)


def r2(y: np.ndarray, predicted: np.ndarray) -> float:
    return 1 - ((y - predicted) ** 2).mean() / y.var()


@pytest.fixture(scope="module")
def fitted() -> prior.Fitted:
    numbers, y = mixed_table(120)
    return prior.fit(numbers, y, levels=LEVELS, names=["a", "b", "c"])


def posterior_mean(fitted: prior.Fitted, numbers: np.ndarray) -> np.ndarray:
    """The members' mean, every row an inducing one, without a train."""
    found = fitted.predictive
    assert len(found.numbers) == found.rows
    rows = rows_of(found.kernel.sites, numbers)
    means = [(process.covariance(found.inducing, rows).T @ mean).numpy() for _, process, _, mean in found.members]
    return np.tensordot(found.weights, means, 1)


def test_numbers_categories_and_missing_values_are_learned(fitted):
    numbers, y = mixed_table(400, seed=1)
    # What a row tells without noise: its missing values are worth their mean, 0.
    known = np.sin(numbers[:, 0]) + np.nan_to_num(numbers[:, 1]) * (numbers[:, 2] == 2)
    assert r2(y, fitted.predict(numbers)[:, 0]) > r2(y, known) - 0.08


def test_the_train_is_an_ordinary_residual_module_near_the_exact_posterior(fitted):
    assert isinstance(fitted.module, restt.ResTT)
    assert fitted.module.topology == restt.Topology.residual(3)
    numbers, _ = mixed_table(120)
    distance = np.sqrt(((fitted.outputs(numbers) - posterior_mean(fitted, numbers)) ** 2).mean())
    assert fitted.rounding.distance == pytest.approx(distance, rel=1e-3)
    assert distance <= fitted.tolerance < 0.05 * fitted.prior.noise**0.5
    new, _ = mixed_table(200, seed=7)
    away = fitted.outputs(new) - posterior_mean(fitted, new)
    assert np.sqrt((away**2).mean()) < 0.1 * fitted.prior.noise**0.5


def test_columns_that_go_together_are_within_the_tolerance_too():
    # Over independent columns, what the rows never are counts as much as what they are.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 1)) + 0.3 * rng.standard_normal((120, 6))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + np.abs(x[:, 3]) * x[:, 4] + 0.1 * rng.standard_normal(120)
    found = prior.fit(x, y, settings=MIDDLING)
    assert found.rounding.distance <= found.tolerance
    assert found.rounding.bond_dim < Settings().largest_bond


def test_a_given_bond_is_kept():
    numbers, y = mixed_table(50)
    large = prior.fit(numbers, y, levels=LEVELS, bond_dim=40, settings=QUICK)
    assert large.rounding.distance < 1e-6
    small = prior.fit(numbers, y, levels=LEVELS, bond_dim=2, settings=QUICK)
    assert small.module.bond_dim == 2
    np.testing.assert_allclose(posterior_mean(small, numbers), large.outputs(numbers), atol=1e-5)


def test_unknown_levels_are_the_average_of_the_others(fitted):
    rows = np.array([[0.3, 0.2, level] for level in (-1, 0, 1, 2, 3)], dtype=float)
    outputs = fitted.outputs(rows)[:, 0]
    share = fitted.predictive.kernel.means[2].numpy()
    assert outputs[0] == pytest.approx(share @ outputs[1:], abs=1e-9)
    np.testing.assert_allclose(outputs[0], posterior_mean(fitted, rows)[0], atol=0.02)


def test_what_is_kept_goes_with_the_outputs(fitted):
    numbers, y = mixed_table(120)
    outputs = fitted.module(fitted.vectors(numbers)).detach().numpy()
    np.testing.assert_array_equal(fitted.outputs(numbers), outputs)
    np.testing.assert_array_equal(fitted.predict(numbers), fitted.warp.predict(outputs))
    held_out = fitted.loo_error * y.var()
    assert ((fitted.predict(numbers)[:, 0] - y) ** 2).mean() < held_out < 0.1 * y.var()
    assert fitted.evaluations > 20


def test_residuals_give_the_distribution_the_mean_and_the_error(monkeypatch):
    """Leave-one-out residuals, inflated for the distribution, centred by precision for the mean of y."""
    numbers, y = mixed_table(80)
    y[[3, 17, 30, 44]] += 9.0, -9.0, 8.0, -8.0  # rows of less precision
    kept: dict[str, Any] = {}
    for name in ("fit_members", "fit_predictive"):
        inner = getattr(model, name)

        def watched(*given, name=name, inner=inner):
            kept[name] = given, inner(*given)
            return kept[name][1]

        monkeypatch.setattr(model, name, watched)
    weights = np.random.default_rng(0).random(80) + 0.5
    found = prior.fit(numbers, np.stack([y, y + numbers[:, 0]], 1), weights, LEVELS, settings=QUICK, bond_dim=1)
    members, rows = kept["fit_members"][1], found.rows
    precision = members.data.precision.numpy()
    assert precision.min() < 0.5 < 1 < precision.max()
    residuals = (members.targets - members.loo_mean).numpy()
    centred = residuals - np.average(residuals, axis=0, weights=rows.weights * precision)
    warp = members.warp.smeared(centred, rows.weights)
    np.testing.assert_allclose(found.warp.residuals, warp.residuals, rtol=1e-9, atol=1e-12)
    predicted, targets = warp.predict(members.loo_mean.numpy()), rows.targets
    spread = np.average(
        (targets - np.average(targets, axis=0, weights=rows.weights)) ** 2, axis=0, weights=rows.weights
    )
    errors = np.average((predicted - targets) ** 2, axis=0, weights=rows.weights)
    assert found.loo_error == pytest.approx((errors / spread).mean(), rel=1e-9)
    # Fitted to 16 rows, and 0.8 more for each of the three columns; the train of bond 1 is off by more.
    moved = found.outputs(rows.numbers) - posterior_mean(found, rows.numbers)
    given = kept["fit_predictive"][0][3]
    np.testing.assert_allclose(given, residuals * (1 + 18.4 / 80) ** 0.5 - moved, rtol=0, atol=1e-6)
    noises = [float(one.process.noise(members.data.rows, members.data.level).mean()) for one in members.posteriors]
    assert found.tolerance == pytest.approx(0.03 * (members.weights @ noises) ** 0.5)
    assert found.spread_error == 0  # of few rows all are inducing ones
    assert (np.diff(found.prior.relevance[list(found.order)]) <= 0).all()
    # Of a constant output the error is that of predictions themselves.
    constant = _relative_error(np.array([[1.0, 5.0], [0.0, 7.0]]), np.array([[0.0, 3.0], [1.0, 3.0]]), np.ones(2))
    assert constant == (1 / 0.25 + (4 + 16) / 2) / 2


def test_the_prior_prints_a_line_per_column(fitted):
    text = str(fitted.prior).splitlines()
    assert text[0].startswith("Prior: noise 0.0")
    assert all(name in text[0] for name in fitted.prior.members)
    assert [line.split()[0] for line in text[2:]] == ["a", "b", "c"]
    assert text[4].split()[2:] == ["–", "–"]
    assert fitted.prior.plot().get_xlabel() == "relevance"


def test_a_saved_prior_is_the_same(fitted):
    config = json.loads(json.dumps(fitted.prior.to_config()))
    same = prior.Prior.from_config(config)
    assert str(same) == str(fitted.prior)
    np.testing.assert_array_equal(same.length, fitted.prior.length)
    for name in ("relevance", "length", "line"):
        with pytest.raises(ValueError, match=f"{name} must have 3 entries"):
            prior.Prior.from_config({**config, name: [1.0]})


def test_relevances_tell_the_columns_that_matter():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((100, 4))
    x[:, 3] = 7
    found = prior.fit(x, np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(100), settings=MIDDLING).prior
    assert found.relevance[0] > 5 * found.relevance[1:].max()
    assert found.relevance[3] == 0
    assert found.noise == pytest.approx(0.01 / 0.5, rel=0.6)
    assert sum(found.members.values()) == pytest.approx(1)


def test_a_prior_of_nothing_can_be_shown():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    found = prior.fit(np.ones((30, 2)), np.random.default_rng(0).standard_normal(30), settings=QUICK)
    assert not found.prior.relevance.any()
    axes = found.prior.plot(figure.subplots())
    assert [bar.get_width() for bar in axes.patches] == [0, 0]


def test_several_outputs_share_one_kernel():
    numbers, y = mixed_table(60)
    both = prior.fit(numbers, np.stack([y, -2 * y + 3], axis=1), levels=LEVELS, settings=QUICK)
    predicted = both.predict(numbers)
    assert predicted.shape == (60, 2)
    np.testing.assert_allclose(predicted[:, 1], -2 * predicted[:, 0] + 3, atol=1e-6)
    assert both.predict_interval(numbers).shape == (60, 2, 2)
    assert both.predict_std(numbers).shape == (60, 2)
    assert r2(y, predicted[:, 0]) > 0.8


def test_rows_of_weight_two_are_repeated_rows():
    numbers, y = mixed_table(40)
    weights = np.ones(40)
    weights[:5] = 2
    once = prior.fit(numbers, y, weights, LEVELS, settings=QUICK)
    twice = prior.fit(np.vstack([numbers, numbers[:5]]), np.append(y, y[:5]), levels=LEVELS, settings=QUICK)
    np.testing.assert_allclose(twice.predict(numbers), once.predict(numbers), rtol=1e-9)
    np.testing.assert_allclose(twice.predict_interval(numbers), once.predict_interval(numbers), rtol=1e-9)
    plain = prior.fit(numbers, y, levels=LEVELS, settings=QUICK)
    assert not np.allclose(plain.predict(numbers), once.predict(numbers), rtol=1e-3)


def test_rows_of_no_weight_are_not_there():
    numbers, y = mixed_table(40)
    more, most = np.vstack([numbers, numbers[:5] * [9, 9, 1]]), np.append(y, y[:5] - 9)
    found = prior.fit(more, most, np.r_[np.ones(40), np.zeros(5)], LEVELS, settings=QUICK)
    expected = prior.fit(numbers, y, levels=LEVELS, settings=QUICK)
    np.testing.assert_allclose(found.predict(numbers), expected.predict(numbers), rtol=1e-12)


def test_the_same_table_gives_the_same_model_with_and_without_a_compiler(monkeypatch):
    numbers, y = mixed_table(40)
    first, second = (prior.fit(numbers, y, levels=LEVELS, settings=QUICK) for _ in range(2))
    np.testing.assert_array_equal(first.predict(numbers), second.predict(numbers))
    monkeypatch.setenv(build.DISABLE_VARIABLE, "1")
    plain = prior.fit(numbers, y, levels=LEVELS, settings=QUICK)
    np.testing.assert_allclose(plain.predict(numbers), first.predict(numbers), rtol=1e-6, atol=1e-8)


def test_new_rows_beyond_the_ends_of_a_column_are_predicted_nearly_as_well_as_others():
    # 80 rows of 12 columns leave one new row of four outside of one of them, and lines are known to a hundredth.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1080, 12))
    y = x @ rng.standard_normal(12) / 12**0.5 + 0.01 * rng.standard_normal(1080)
    found, new, truth = prior.fit(x[:80], y[:80], settings=MIDDLING), x[80:], y[80:]
    outside = ((new < x[:80].min(0)) | (new > x[:80].max(0))).any(axis=1)
    assert 0.15 < outside.mean() < 0.4
    errors = np.abs(found.predict(new)[:, 0] - truth)
    # Where lines end with the columns of the fit, it is four times.
    assert np.median(errors[outside]) < 2 * np.median(errors[~outside])
    low, high = found.predict_interval(new)[:, :, 0].T
    assert ((low <= truth) & (truth <= high))[outside].mean() > 0.8
    away = (found.outputs(new) - posterior_mean(found, new))[outside]
    assert np.sqrt((away**2).mean()) < 0.1 * found.prior.noise**0.5


def test_a_skewed_y_is_transformed_and_its_mean_predicted():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1100, 2))
    y = np.exp(1.5 * x[:, 0] + 0.5 * x[:, 1] + 0.4 * rng.standard_normal(1100))
    model = prior.fit(x[:120], y[:120], settings=MIDDLING)
    assert model.warp.power < 0.6
    predicted = model.predict(x)[:, 0]
    assert abs(predicted[:120].mean() - y[:120].mean()) < y[:120].std() / 120**0.5
    usual = np.abs(x).max(axis=1) < 1.5
    truth = np.exp(1.5 * x[:, 0] + 0.5 * x[:, 1] + 0.08)
    assert predicted[usual].mean() == pytest.approx(truth[usual].mean(), rel=0.1)
    assert model.warp.decode(model.outputs(x))[usual].mean() < 0.95 * predicted[usual].mean()
    low, high = model.predict_interval(x)[:, :, 0].T
    middle = model.warp.decode(model.outputs(x))[:, 0]
    assert ((high - middle) > (middle - low)).mean() > 0.95


def test_normal_y_is_left_as_it_is():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 2))
    model = prior.fit(x, x @ [1.0, 0.5] + 0.3 * rng.standard_normal(150), settings=MIDDLING)
    assert model.warp.power == pytest.approx(1, abs=0.35)
    assert model.prior.degrees > 20


@pytest.mark.parametrize("seed", [0, 1])
def test_a_few_outliers_do_not_spoil_the_rest(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1150, 3))
    truth = x[:, 0] + np.sin(2 * x[:, 1])
    outlier = rng.random(1150) < 0.03
    y = truth + 0.2 * rng.standard_normal(1150) + outlier * rng.choice([-1, 1], 1150) * rng.uniform(10, 30, 1150)
    model = prior.fit(x[:150], y[:150], settings=MIDDLING)
    assert model.prior.degrees < 10
    assert np.mean((model.predict(x[150:])[:, 0] - truth[150:]) ** 2) < 0.1 * truth.var()
    ends = model.predict_interval(x[150:])[..., 0]
    assert 0.8 < np.mean((ends[:, 0] <= y[150:]) & (y[150:] <= ends[:, 1])) < 0.98


def hard_tables():
    rng = np.random.default_rng(0)
    x, noise = rng.standard_normal((60, 3)), 0.1 * rng.standard_normal(60)
    y = x[:, 0] + noise
    constant, missing, both = x.copy(), x.copy(), np.column_stack([x, x[:, 0]])
    constant[:, 1], missing[:, 1] = 5.0, np.nan
    half = x.copy()
    half[::2, 0] = np.nan
    yield "constant column", constant, y, 0.9
    yield "missing column", missing, y, 0.9
    yield "duplicate column", both, y, 0.9
    yield "half missing", half, y, 0.3
    yield "one row", x[:1], y[:1], None
    yield "two rows", x[:2], y[:2], None
    yield "three equal rows", np.repeat(x[:1], 3, axis=0), y[:3], None
    yield "more columns than rows", rng.standard_normal((8, 30)), y[:8], None
    yield "columns of 1e30", x * 1e30, y, 0.9
    yield "columns of 1e-300", x * 1e-300, y, 0.9
    yield "a value of 1e30", np.vstack([x, [[1e30, 0, 0]]]), np.append(y, 0.0), 0.9
    yield "constant y", x, np.full(60, 3.0), None
    yield "y of 1e-200", x, y * 1e-200, 0.9
    yield "y of 1e150", x, y * 1e150, 0.9
    yield "integer y", x, np.round(y), 0.5
    yield "two values of y", x, np.sign(y), 0.5
    yield "one column", x[:, :1], y, 0.9
    yield "exact line", x, x[:, 0], 0.999


@pytest.mark.parametrize(("numbers", "y", "least"), [pytest.param(*row[1:], id=row[0]) for row in hard_tables()])
def test_hard_tables_give_a_good_model_never_nan(numbers, y, least):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = prior.fit(numbers, y, settings=Settings(first_iterations=4, iterations=12, last_iterations=12))
        predicted, interval = model.predict(numbers), model.predict_interval(numbers)
        std = model.predict_std(numbers)
    for values in (predicted, interval, std):
        assert np.isfinite(values).all()
    assert (interval[:, 1] >= interval[:, 0]).all()
    if least is not None:
        assert r2(y / np.abs(y).max(), predicted[:, 0] / np.abs(y).max()) > least
    elif np.ptp(y) == 0:
        np.testing.assert_allclose(predicted[:, 0], y, atol=1e-6)


@pytest.mark.parametrize("offset", [1e15, -1e15, 1e12])
def test_small_differences_of_large_numbers_are_fitted(offset):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 3))
    y = offset + x[:, 0] + 0.3 * rng.standard_normal(60)
    model = prior.fit(x, y, settings=MIDDLING)
    assert r2(y - offset, model.predict(x)[:, 0] - offset) > 0.9
    assert model.loo_error < 0.2


def test_one_y_beyond_all_measure_is_left_out_with_a_warning():
    numbers, y = mixed_table(80)
    y[7] = 1e12
    with pytest.warns(UserWarning, match=r"1 row.* left out of the fit: their y, such as 1e"):
        model = prior.fit(numbers, y, levels=LEVELS, settings=MIDDLING)
    fresh, truth = mixed_table(200, seed=9)
    assert r2(truth, model.predict(fresh)[:, 0]) > 0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"numbers": np.zeros(5)}, r"numbers must have shape \(B, C\) .* got \(5,\)"),
        ({"numbers": np.zeros((0, 2)), "y": np.zeros(0)}, r"at least one row and column, got \(0, 2\)"),
        ({"numbers": np.full((5, 2), np.inf)}, "numbers must be finite or NaN, got inf in row 0, column 0"),
        ({"y": np.array([0, 1, 2, 3, np.nan])}, "y must be finite, got nan"),
        ({"y": np.zeros(4)}, r"y must have shape \(5,\) or \(5, O\), got \(4,\)"),
        ({"y": np.zeros((5, 0))}, r"y must have shape"),
        ({"weights": -np.ones(5)}, "weights must be 5 finite numbers of at least 0"),
        ({"weights": np.zeros(5)}, "weights must be 5 finite numbers of at least 0, not all 0"),
        ({"weights": np.ones(4)}, "weights must be 5 finite numbers"),
        ({"levels": [None]}, "levels must have one entry for each of the 2 columns, got 1"),
        (
            {"levels": [None, 2], "numbers": np.full((5, 2), 3.0)},
            "column 1 of numbers must hold levels 0…1 or NaN, got 3",
        ),
        (
            {"levels": [1, None], "numbers": np.full((5, 2), -1.0)},
            "column 0 of numbers must hold levels 0…0 or NaN, got -1",
        ),
        ({"levels": [2, None]}, r"column 0 of numbers must hold levels 0…1 or NaN, got 0\.\d"),
        ({"bond_dim": 0}, "bond_dim must be at least 1"),
        ({"numbers": np.arange(31_000.0)[:, None], "y": np.arange(31_000.0)}, "at most 30000 rows, got 31000"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    given = {"numbers": np.random.default_rng(0).random((5, 2)), "y": np.arange(5.0), **arguments}
    with pytest.raises(ValueError, match=message):
        prior.fit(**given, settings=Settings(first_iterations=2, iterations=2, last_iterations=2))


def test_more_levels_than_rows_are_learned():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 400, 200)
    numbers = np.column_stack([codes % 40, codes, rng.standard_normal(200)]).astype(float)
    y = rng.standard_normal(40)[codes % 40] + numbers[:, 2]
    model = prior.fit(numbers, y, levels=[40, 400, None], bond_dim=3, settings=QUICK)
    assert model.sites[model.order.index(1)].width == 400
    assert np.isfinite(model.predict(np.array([[39.0, 399.0, 0.0], [-1.0, -1.0, 0.5]]))).all()
    assert model.loo_error < 0.6


def long_table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1400, 3))
    clean = x[:, 0] + x[:, 1] * x[:, 2]
    return x, clean + rng.standard_normal(1400), clean


def test_all_rows_of_a_long_table_take_part():
    x, y, clean = long_table()
    sizes = {
        "first_rows": 100,
        "scale_rows": 150,
        "first_iterations": 3,
        "iterations": 10,
        "last_iterations": 10,
        "inducing_rows": 80,
    }
    whole = prior.fit(x[:900], y[:900], settings=Settings(**sizes))
    few = prior.fit(x[:120], y[:120], settings=Settings(**sizes))
    errors = [np.mean((one.predict(x[900:])[:, 0] - clean[900:]) ** 2) for one in (whole, few)]
    assert errors[0] < 0.4 * errors[1]
    assert len(whole.predictive.numbers) <= 80
    low, high = whole.predict_interval(x[900:])[:, :, 0].T
    assert 0.8 < ((low <= y[900:]) & (y[900:] <= high)).mean() < 0.98


def test_a_long_table_keeps_the_states_of_all_its_rows():
    numbers, y = mixed_table(200)
    numbers[:, 1] = np.nan_to_num(numbers[:, 1])
    numbers[3, 1], numbers[5, 0] = np.nan, 50.0
    knots = {"fewest_knots": 5, "most_knots": 5}
    steps = {"first_iterations": 2, "iterations": 4, "last_iterations": 4}
    settings = Settings(**knots, first_rows=30, scale_rows=40, **steps)
    model = prior.fit(numbers, y, levels=LEVELS, settings=settings)
    assert model.predictive.rows == 40
    sites = model.predictive.kernel.sites
    assert sites[1].missing
    assert np.isfinite(model.predict(numbers)).all()
    assert sites[0].knots[-1] * sites[0].scale + sites[0].shift == pytest.approx(50)


def test_outliers_of_a_long_table_are_weighed_down_too():
    x, _, clean = long_table()
    rng = np.random.default_rng(4)
    y = clean + 0.2 * rng.standard_normal(1400) + (rng.random(1400) < 0.03) * rng.choice([-1, 1], 1400) * 20
    sizes = {"first_rows": 200, "scale_rows": 330, "first_iterations": 10, "iterations": 30, "last_iterations": 20}
    model = prior.fit(x[:700], y[:700], settings=Settings(**sizes))
    assert np.mean((model.predict(x[700:])[:, 0] - clean[700:]) ** 2) < 0.05 * clean.var()


def test_a_seed_chooses_the_sample_of_a_long_table():
    x, y, _ = long_table()
    settings = Settings(first_rows=30, scale_rows=40, first_iterations=2, iterations=3, last_iterations=3)
    found = [prior.fit(x[:300], y[:300], seed=seed, settings=settings).predictive.numbers for seed in (0, 0, 1)]
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_torch_keeps_its_gradients_off():
    numbers, y = mixed_table(30)
    with torch.no_grad():
        model = prior.fit(numbers, y, levels=LEVELS, settings=QUICK)
    assert torch.is_grad_enabled()
    assert not model.predictive.thetas.requires_grad
    assert model.module(model.vectors(numbers)).requires_grad


def test_a_long_table_without_noise_is_solved():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1400, 4))
    y = x[:, 0] * x[:, 1] + np.sin(x[:, 2])
    settings = Settings(first_rows=100, scale_rows=200, iterations=12, components=Settings().components[:1])
    model = prior.fit(x[:1200], y[:1200], settings=settings)
    assert np.mean((model.predict(x[1200:])[:, 0] - y[1200:]) ** 2) < 1e-3 * y.var()


def test_a_model_of_main_effects_alone_is_rounded():
    rng = np.random.default_rng(0)
    table = rng.standard_normal((60, 4))
    y = np.sin(table[:, 0]) + table[:, 1] + 0.1 * rng.standard_normal(60)
    linear = next(one for one in Settings().components if one.terms == ("sum",))
    fitted = prior.fit(table[:50], y[:50], settings=replace(MIDDLING, components=(linear,)))
    assert fitted.rounding.bond_dim == 2
    assert np.corrcoef(fitted.predict(table[50:])[:, 0], y[50:])[0, 1] > 0.9


def test_one_column_has_bond_1_and_the_deviations_of_its_function():
    x = np.random.default_rng(0).standard_normal((40, 1))
    spread = prior.fit(x, np.sin(2 * x[:, 0]) + 0.1 * x[::-1, 0], settings=QUICK).predictive
    rows, level = spread.inducing, torch.zeros(len(spread.numbers), dtype=torch.float64)
    noise = sum(weight * process.noise(rows, level) for weight, process, _, _ in spread.members)
    expected = (spread._variance(rows, level) - noise).sqrt()
    torch.testing.assert_close(spread.product_deviations(spread.kernel.vectors(rows)), expected)
