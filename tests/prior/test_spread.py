"""The spread of a model that is not the posterior it was measured with."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from restt import prior
from restt.prior.kernels import JUMPING, SMOOTH, reshaped
from restt.prior.spread import LEVELS, _constant_part, _quantiles


@pytest.fixture(scope="module")
def fitted() -> prior.Fitted:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (80, 2))
    return prior.fit(x, np.sin(4 * x[:, 0]) + x[:, 1] + 0.3 * rng.standard_normal(80))


def test_a_saved_spread_knows_whether_functions_may_jump(fitted):
    smooth = fitted.spread.prior
    steps = replace(fitted.spread, prior=replace(smooth, kernels=reshaped(smooth.kernels, JUMPING)))
    assert ("may jump" in str(steps.prior), steps.prior.power) == (True, JUMPING)
    x = np.random.default_rng(2).uniform(-1, 1, (50, 2))
    config, tensors = json.loads(json.dumps(steps.to_config())), steps.tensors()
    states = steps.states(x)
    same = prior.Spread.from_config(config, tensors)
    assert np.array_equal(same.deviations(states), steps.deviations(states))
    # Models of versions in which none could, say nothing of it.
    del config["power"]
    assert prior.Spread.from_config(config, tensors).prior.power == SMOOTH


@pytest.mark.parametrize("average", [True, False])
def test_a_level_that_the_fit_did_not_see_has_an_effect_nonetheless(average):
    rng = np.random.default_rng(0)
    x, codes = rng.standard_normal((500, 1)), rng.integers(0, 20, 500)
    effects = rng.standard_normal(1000)
    model = prior.fit(
        np.column_stack([x[:100], codes[:100]]),
        x[:100, 0] + effects[codes[:100]] + 0.1 * rng.standard_normal(100),
        levels=[None, 20],
        average=average,
    )
    spread, fresh = model.spread, x[100:]
    unseen = spread.states(np.column_stack([fresh, np.full(400, -1.0 if average else 0.0)]))
    if not average:  # as an encoding of the estimators has it
        unseen[1][:] = spread.prior.kernels[1].mean
    seen = spread.states(np.column_stack([fresh, codes[100:]]))
    outputs = model.mixture.mean(unseen).numpy()
    low, high = spread.interval(outputs, unseen, model.target)[:, :, 0].T
    y = fresh[:, 0] + effects[100 : 100 + 400] + 0.1 * rng.standard_normal(400)
    assert ((low <= y) & (y <= high)).mean() > 0.8
    known = spread.prior.noise + spread.prior.scale * spread.prior.relevance[1]
    assert spread.deviations(unseen).min() > 0.9 * known**0.5 > 3 * np.median(spread.deviations(seen))


def test_a_value_missing_where_none_was_has_an_effect_nonetheless():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 2))
    model = prior.fit(x, x @ [1.0, 0.2] + 0.1 * rng.standard_normal(80))
    states = model.spread.states(rng.standard_normal((5, 2)))
    absent = [states[0].clone(), states[1]]
    absent[0][:] = model.spread.prior.kernels[0].mean
    assert model.spread.deviations(absent).min() > 2 * model.spread.deviations(states).max()


@pytest.mark.parametrize("rows", [4, 12, 1000])
def test_few_residuals_leave_their_own_size_open(rows):
    # Of a Gaussian whose size is known from so many residuals: what a new one's quantiles are on average.
    rng = np.random.default_rng(0)
    ends = np.array([_quantiles(rng.standard_normal((rows, 1)), np.ones(rows))[:, 0] for _ in range(500)])
    level = np.searchsorted(LEVELS, 0.95)
    assert 2 * norm.cdf(ends[:, level]).mean() - 1 == pytest.approx(0.9, abs=0.06 if rows < 10 else 0.025)


def test_other_residuals_set_the_width_of_intervals(fitted):
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (4000, 2))
    states, weights = fitted.spread.states(x), np.ones(2000)
    residuals = 0.1 + 0.05 * rng.standard_normal((4000, 1))  # far smaller than the noise that was learned, and biased
    spread = fitted.spread.recalibrated(residuals[:2000], [column[:2000] for column in states], weights)
    outputs = fitted.outputs(x[2000:])
    low, high = spread.interval(outputs, [column[2000:] for column in states], fitted.target).transpose(1, 0, 2)
    y = fitted.target.decode(outputs + residuals[2000:])
    assert ((low <= y) & (y <= high)).mean() == pytest.approx(0.9, abs=0.02)
    assert (fitted.target.decode(outputs) <= low).mean() > 0.9


def test_rows_of_no_weight_do_not_count(fitted):
    rng = np.random.default_rng(1)
    states = fitted.spread.states(rng.uniform(-1, 1, (600, 2)))
    residuals = rng.standard_normal((600, 1))
    residuals[::2] *= 1e3
    spread = fitted.spread.recalibrated(residuals, states, np.where(np.arange(600) % 2 == 0, 1e-9, 1.0))
    alone = fitted.spread.recalibrated(residuals[1::2], [column[1::2] for column in states], np.ones(300))
    widths = [
        np.diff(one.interval(np.zeros((600, 1)), states, fitted.target), axis=1).mean() for one in (spread, alone)
    ]
    assert widths[0] == pytest.approx(widths[1], rel=0.05)


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
