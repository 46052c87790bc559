"""The spread of a model that is not the posterior it was measured with."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from restt import prior
from restt.prior.kernels import JUMPING, SMOOTH, jumping
from restt.prior.spread import _constant_part


@pytest.fixture(scope="module")
def fitted() -> prior.Fitted:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (80, 2))
    return prior.fit(x, np.sin(4 * x[:, 0]) + x[:, 1] + 0.3 * rng.standard_normal(80))


def test_a_saved_spread_knows_whether_functions_may_jump(fitted):
    smooth = fitted.spread.prior
    steps = replace(fitted.spread, prior=replace(smooth, kernels=jumping(smooth.kernels)))
    assert ("may jump" in str(steps.prior), steps.prior.power) == (True, JUMPING)
    x = np.random.default_rng(2).uniform(-1, 1, (50, 2))
    config, tensors = json.loads(json.dumps(steps.to_config())), steps.tensors()
    states = steps.states(x)
    same = prior.Spread.from_config(config, tensors)
    assert np.array_equal(same.deviations(states), steps.deviations(states))
    # Models of versions in which none could, say nothing of it.
    del config["power"]
    assert prior.Spread.from_config(config, tensors).prior.power == SMOOTH


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
