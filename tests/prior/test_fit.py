from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch

import restt
from restt import prior
from restt.prior.fit import LARGEST_BOND
from restt.prior.kernels import JUMPING, reshaped
from restt.prior.posterior import condition, condition_on_more
from restt.prior.target import candidate_scales
from tests.prior.problems import LEVELS, bound, mixed_table, some_prior


def r2(y: np.ndarray, predicted: np.ndarray) -> float:
    return 1 - ((y - predicted) ** 2).mean() / y.var()


@pytest.fixture(scope="module")
def fitted():
    numbers, y = mixed_table(120)
    return prior.fit(numbers, y, levels=LEVELS, names=["a", "b", "c"])


def test_numbers_categories_and_missing_values_are_learned(fitted):
    numbers, y = mixed_table(400, seed=1)
    # What a row tells without noise: its missing values are worth their mean, 0.
    known = np.sin(numbers[:, 0]) + np.nan_to_num(numbers[:, 1]) * (numbers[:, 2] == 2)
    assert r2(y, fitted.predict(numbers)[:, 0]) > r2(y, known) - 0.08
    assert fitted.target.scale == "identity"


def test_the_train_is_an_ordinary_residual_module_near_the_exact_posterior(fitted):
    assert isinstance(fitted.module, restt.ResTT)
    assert fitted.module.topology == restt.Topology.residual(3)
    numbers, _ = mixed_table(120)
    states = fitted.spread.states(numbers)
    exact = fitted.mixture.mean(states)
    distance = (torch.from_numpy(fitted.outputs(numbers)) - exact).square().mean().sqrt().item()
    assert fitted.rounding.distance == pytest.approx(distance)
    assert distance < 0.3 * fitted.prior.noise**0.5


def test_columns_that_go_together_are_within_a_tenth_of_the_noise_too():
    # Over independent columns, what the rows never are counts as much as what they are.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 1)) + 0.3 * rng.standard_normal((150, 8))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + np.abs(x[:, 3]) * x[:, 4] + 0.1 * rng.standard_normal(150)
    found = prior.fit(x, y)
    assert found.rounding.distance <= 0.1 * min(one.prior.noise for one in found.mixture.posteriors) ** 0.5
    assert found.rounding.bond_dim < LARGEST_BOND


@pytest.mark.usefixtures("hasty")
def test_a_given_bond_and_order_are_kept():
    numbers, y = mixed_table(60)
    large = prior.fit(numbers, y, levels=LEVELS, bond_dim=33, site_order=[2, 0, 1])
    assert large.order == (2, 0, 1)
    assert large.rounding.distance < 1e-6
    assert prior.fit(numbers, y, levels=LEVELS, bond_dim=2).module.bond_dim == 2


def test_unknown_levels_are_the_average_of_the_others(fitted):
    rows = np.array([[0.3, 0.2, level] for level in (-1, 0, 1, 2, 3)], dtype=float)
    outputs = fitted.outputs(rows)[:, 0]
    share = fitted.prior.kernels[2].measure[:4].numpy()
    assert outputs[0] == pytest.approx(share @ outputs[1:], abs=1e-9)


def test_the_prior_prints_a_line_per_column(fitted):
    text = str(fitted.prior).splitlines()
    assert [line.split()[0] for line in text[2:]] == ["a", "b", "c"]
    assert text[4].split()[2:] == ["–", "–"]
    assert fitted.prior.plot().get_xlabel() == "relevance"


@pytest.mark.usefixtures("hasty")
def test_several_outputs_share_one_prior():
    numbers, y = mixed_table(100)
    both = prior.fit(numbers, np.stack([y, -2 * y + 3], axis=1), levels=LEVELS)
    predicted = both.predict(numbers)
    assert predicted.shape == (100, 2)
    assert np.allclose(predicted[:, 1], -2 * predicted[:, 0] + 3, atol=1e-6)
    assert both.predict_interval(numbers).shape == (100, 2, 2)


@pytest.mark.usefixtures("hasty")
def test_rows_of_weight_two_are_repeated_rows():
    numbers, y = mixed_table(40)
    weights = np.ones(40)
    weights[:5] = 2
    once = prior.fit(numbers, y, weights, LEVELS, scale="identity")
    twice = prior.fit(np.vstack([numbers, numbers[:5]]), np.append(y, y[:5]), levels=LEVELS, scale="identity")
    exact = [one.mixture.posteriors[0].mean(one.spread.states(numbers)) for one in (once, twice)]
    assert torch.allclose(*exact, atol=2e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_intervals_cover_as_often_as_they_say(seed):
    rng = np.random.default_rng(seed)
    x, fresh = rng.random((300, 3)), rng.random((2000, 3))

    def noisy(x):
        return np.sin(4 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * rng.standard_normal(len(x))

    model = prior.fit(x, noisy(x))
    y = noisy(fresh)
    for coverage in (0.5, 0.9):
        low, high = model.predict_interval(fresh, coverage)[:, :, 0].T
        # A 90 % interval from 300 residuals has a standard error of about 2 %.
        assert np.mean((y >= low) & (y <= high)) == pytest.approx(coverage, abs=0.06)
    std = model.predict_std(fresh)[:, 0]
    assert std.mean() == pytest.approx((y - model.predict(fresh)[:, 0]).std(), rel=0.15)


def test_new_rows_beyond_the_ends_of_a_column_are_predicted_as_well_as_others():
    # 80 rows of 20 columns leave four new rows of ten outside of one of them, and lines are known to a hundredth.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1080, 20))
    y = x @ rng.standard_normal(20) / 20**0.5 + 0.01 * rng.standard_normal(1080)
    found, new, truth = prior.fit(x[:80], y[:80]), x[80:], y[80:]
    outside = ((new < x[:80].min(0)) | (new > x[:80].max(0))).any(axis=1)
    assert 0.3 < outside.mean() < 0.5
    errors = np.abs(found.predict(new)[:, 0] - truth)
    assert np.median(errors[outside]) < 1.3 * np.median(errors[~outside])
    low, high = found.predict_interval(new)[:, :, 0].T
    assert ((low <= truth) & (truth <= high))[outside].mean() > 0.85
    # The train is near the posterior there, too, where no row of the fit is.
    exact = found.mixture.mean(found.spread.states(new)).numpy()
    assert np.sqrt(((found.outputs(new) - exact)[outside] ** 2).mean()) < 0.1 * found.prior.noise**0.5


def test_the_logarithm_is_taken_where_left_out_errors_say_so():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 2))
    y = np.exp(2 * x[:, 0] + x[:, 1] + 0.2 * rng.standard_normal(200))
    model = prior.fit(x, y)
    assert model.target.scale == "log"
    assert model.scale_errors["log"] < model.scale_errors["identity"]
    low, high = model.predict_interval(x)[:, :, 0].T
    middle = model.target.decode(model.outputs(x))[:, 0]
    assert (low > 0).all()
    assert ((high - middle) > (middle - low)).mean() > 0.95


def test_the_root_is_the_usual_scale_of_a_skewed_y():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((150, 3))
    y = rng.gamma(2.0, 1 + np.exp(0.7 * x[:, 0]))
    assert candidate_scales(y[:, None], np.ones(150)) == ("sqrt", "identity", "log")
    model = prior.fit(x, y)
    errors = model.scale_errors
    # Long tails leave it open which scale is best: neither of the others is clearly better.
    assert min(errors["identity"], errors["log"]) > 0.95 * errors["sqrt"]
    assert model.target.scale == "sqrt"


def test_a_skewed_y_is_taken_as_it_is_where_that_is_clearly_better():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 3))
    y = 1 + x[:, 0] ** 2 + 2 * np.abs(x[:, 1]) + 0.1 * rng.random(150)
    model = prior.fit(x, y)
    assert model.scale_errors["identity"] < 0.95 * model.scale_errors["sqrt"]
    assert model.target.scale == "identity"


def test_the_root_of_counts_is_never_negative():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 3))
    y = rng.poisson(np.exp(x[:, 0])).astype(float)
    assert candidate_scales(y[:, None], np.ones(150)) == ("sqrt", "identity")
    model = prior.fit(x, y, scale="sqrt")
    assert (model.predict(10 * x) >= 0).all()
    assert model.predict(x)[:, 0].mean() == pytest.approx(y.mean(), rel=0.15)
    # The root of a count has a variance of about a quarter whatever its mean.
    assert model.target.lift == pytest.approx(0.25, abs=0.1)


def test_squares_are_lifted_by_the_variance_of_the_root_wherever_they_are():
    rng = np.random.default_rng(0)
    roots = np.linspace(1, 6, 20_000)[:, None]
    y = (roots + 0.6 * rng.standard_normal(roots.shape)) ** 2
    empty = prior.Target.fit(y, np.ones(len(y)), "sqrt")
    outputs = (roots - empty.mean) / empty.std
    target = empty.smeared(outputs, y, np.ones(len(y)))
    # One factor for all squares would leave the small ones too small and the large ones too large.
    np.testing.assert_allclose(target.predict(outputs), roots**2 + 0.36, atol=0.02)


def test_what_lifts_a_root_is_kept_for_each_output():
    rng = np.random.default_rng(0)
    y = rng.gamma(2.0, size=(40, 2))
    empty = prior.Target.fit(y, np.ones(40), "sqrt")
    target = empty.smeared(np.zeros((40, 2)), y, np.ones(40))
    np.testing.assert_allclose(target.predict(np.zeros((1, 2)))[0], y.mean(axis=0))
    config = json.loads(json.dumps(target.to_config()))
    np.testing.assert_array_equal(prior.Target.from_config(config).predict(y), target.predict(y))
    # A model of a version that multiplied the square by a factor.
    del config["lift"]
    before = prior.Target.from_config({**config, "smear": 1.1})
    np.testing.assert_allclose(before.predict(y), 1.1 * target.decode(y))


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5])
def test_predictions_of_a_logarithm_lie_in_their_intervals(noise):
    # A factor of least squares would be that of the one or two largest y.
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((40, 1))
        fitted = prior.fit(x, np.exp(3 * x[:, 0] + noise * rng.standard_normal(40)), scale="log")
        low, high = fitted.predict_interval(x)[:, :, 0].T
        predicted = fitted.predict(x)[:, 0]
        assert ((low <= predicted) & (predicted <= high)).all()


def test_the_factor_of_an_exponential_is_the_mean_of_what_is_left():
    rng = np.random.default_rng(0)
    mean = rng.standard_normal((5000, 1))
    y = np.exp(mean + 0.6 * rng.standard_normal((5000, 1)))
    empty = prior.Target.fit(y, np.ones(5000), "log")
    target = empty.smeared((mean - empty.mean) / empty.std, y, np.ones(5000))
    assert target.smear == pytest.approx(np.exp(0.18), rel=0.02)
    twice = empty.smeared((mean[:9] - empty.mean) / empty.std, y[:9], np.arange(1.0, 10))
    rows = np.repeat(np.arange(9), np.arange(1, 10))
    same = empty.smeared((mean[rows] - empty.mean) / empty.std, y[rows], np.ones(45))
    assert twice.smear == pytest.approx(same.smear)


def test_a_prior_of_nothing_can_be_shown():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    fitted = prior.fit(np.ones((30, 2)), np.random.default_rng(0).standard_normal(30))
    assert not fitted.prior.relevance.any()
    axes = fitted.prior.plot(figure.subplots())
    assert [bar.get_width() for bar in axes.patches] == [0, 0]


def test_a_column_of_one_value_has_no_relevance():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 3))
    x[:, 1] = 7
    fitted = prior.fit(x, x[:, 0] + 0.1 * rng.standard_normal(60))
    assert fitted.prior.relevance[1] == 0 < fitted.prior.relevance[2] < fitted.prior.relevance[0]
    # What is told is a prior that takes part, and the one whose variance intervals have.
    assert fitted.prior in fitted.mixture.column_priors
    assert fitted.prior is fitted.spread.prior


def test_scales_are_tried_only_where_they_may_help():
    rng = np.random.default_rng(0)
    heavy = rng.standard_t(1.2, (300, 1))
    assert candidate_scales(heavy, np.ones(300)) == ("identity", "asinh")
    assert candidate_scales(1e6 + rng.random((300, 1)), np.ones(300)) == ("identity",)


def test_a_saved_spread_gives_the_same_intervals(fitted):
    numbers, _ = mixed_table(30, seed=4)
    config = json.loads(json.dumps(fitted.spread.to_config()))
    same = prior.Spread.from_config(config, fitted.spread.tensors())
    outputs = fitted.outputs(numbers)
    target = prior.Target.from_config(json.loads(json.dumps(fitted.target.to_config())))
    assert np.array_equal(same.interval(outputs, same.states(numbers), target), fitted.predict_interval(numbers))
    assert np.array_equal(same.std(outputs, same.states(numbers), target), fitted.predict_std(numbers))


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
    yield "y of 1e200", x, y * 1e150, 0.9
    yield "integer y", x, np.round(y), 0.5
    yield "one column", x[:, :1], y, 0.9
    yield "exact line", x, x[:, 0], 0.999


@pytest.mark.parametrize(("numbers", "y", "least"), [pytest.param(*row[1:], id=row[0]) for row in hard_tables()])
def test_hard_tables_give_a_good_model_never_nan(numbers, y, least):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = prior.fit(numbers, y)
        predicted, interval = model.predict(numbers), model.predict_interval(numbers)
        std = model.predict_std(numbers)
    assert np.isfinite(predicted).all()
    assert np.isfinite(interval).all()
    assert np.isfinite(std).all()
    assert (interval[:, 1] >= interval[:, 0]).all()
    if least is not None:
        assert r2(y / np.abs(y).max(), predicted[:, 0] / np.abs(y).max()) > least
    elif np.ptp(y) == 0:
        assert np.allclose(predicted, y[0], atol=1e-6)


def test_one_y_beyond_all_measure_is_left_out_with_a_warning():
    numbers, y = mixed_table(80)
    y[7] = 1e12
    with pytest.warns(UserWarning, match="1 row.* left out of the fit: their y, such as 1e"):
        model = prior.fit(numbers, y, levels=LEVELS)
    fresh, truth = mixed_table(200, seed=9)
    assert r2(truth, model.predict(fresh)[:, 0]) > 0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"numbers": np.zeros(5)}, r"numbers must have shape \(B, C\)"),
        ({"numbers": np.full((5, 2), np.inf)}, "numbers must be finite or NaN, got inf in row 0, column 0"),
        ({"y": np.array([0, 1, 2, 3, np.nan])}, "y must be finite"),
        ({"y": np.zeros(4)}, "y must have shape"),
        ({"weights": -np.ones(5)}, "weights must be 5 finite numbers"),
        ({"levels": [None]}, "levels must have one entry for each of the 2 columns"),
        ({"scale": "square"}, "scale must be one of"),
        ({"bond_dim": 0}, "bond_dim must be at least 1"),
        ({"site_order": [0, 0]}, "site_order must be"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    given = {"numbers": np.random.default_rng(0).random((5, 2)), "y": np.arange(5.0), **arguments}
    with pytest.raises(ValueError, match=message):
        prior.fit(**given)


@pytest.mark.usefixtures("hasty")
def test_thousands_of_levels_are_learned():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 1000, 300)
    numbers = np.column_stack([codes % 100, codes, rng.standard_normal(300)]).astype(float)
    y = rng.standard_normal(100)[codes % 100] + numbers[:, 2]
    model = prior.fit(numbers, y, levels=[100, 1000, None], bond_dim=3)
    assert model.sites[model.order.index(1)].width == 1001
    assert np.isfinite(model.predict(np.array([[99.0, 999.0, 0.0], [-1.0, -1.0, 0.5]]))).all()
    assert model.left_out_error < 0.6


@pytest.mark.usefixtures("hasty")
def test_a_long_table_keeps_the_states_of_all_its_rows():
    numbers, y = mixed_table(200)
    numbers[:, 1] = np.nan_to_num(numbers[:, 1])
    numbers[3, 1], numbers[5, 0] = np.nan, 50.0
    model = prior.fit(numbers, y, levels=LEVELS, max_rows=40)
    assert len(model.mixture.posteriors[0].alpha) == 40
    assert model.spread.sites[1].missing
    assert np.isfinite(model.predict(numbers)).all()
    assert model.spread.sites[0].vectors(np.array([50.0]))[0, -1] == 1


def test_all_rows_of_a_long_table_take_part(monkeypatch):
    monkeypatch.setattr("restt.prior.kinds.FEW_ROWS", 50)  # as the part of a table that is cut has
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2600, 3))
    clean = x[:, 0] + x[:, 1] * x[:, 2]
    y = clean + rng.standard_normal(2600)
    whole, few = prior.fit(x[:2000], y[:2000]), prior.fit(x[:100], y[:100])
    through_few = prior.fit(x[:2000], y[:2000], max_rows=100)
    errors = [np.mean((one.predict(x[2000:])[:, 0] - clean[2000:]) ** 2) for one in (through_few, whole, few)]
    assert errors[0] < 2 * errors[1]
    assert errors[0] < 0.3 * errors[2]


def test_conditioning_on_its_own_rows_changes_nothing():
    numbers, y = mixed_table(80)
    weights = torch.from_numpy(np.random.default_rng(0).random(80) + 0.5)
    kernels, states = bound(numbers, weights.numpy())
    # Functions that may jump differ in every row: with smooth ones the rows' covariance is singular, up to rounding.
    one = condition(some_prior(reshaped(kernels, JUMPING)), states, torch.from_numpy(y[:, None]), weights)
    order = np.lexsort(numbers.T)
    given = [column[order] for column in states], torch.from_numpy(y[order, None]), weights[order]
    again = condition_on_more(one, *given)
    torch.testing.assert_close(again.mean(states), one.mean(states), rtol=1e-6, atol=1e-6)
