"""What a model saved by 0.8 holds, and is still read: its prior, spread, scale of y and reach."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from restt.features.base import tensor64
from restt.prior.kernels import BEND, JUMPING, SMOOTH, Number, reshaped
from restt.prior.learning import Prior
from restt.prior.posterior import covariance, variance
from restt.prior.reach import _SURE, Reach
from restt.prior.spread import LEVELS, Spread
from restt.prior.target import Target
from tests.prior.problems import bound, mixed_table, some_prior

RNG = np.random.default_rng(0)
SIZES = np.array([0.4, 0.1, 1.3])  # b_n


def prior_with_effects(rows: int) -> tuple[Prior, list[torch.Tensor], torch.Tensor]:
    """A prior with main effects of their own, site vectors of the rows and weights."""
    numbers, _ = mixed_table(rows)
    weights = np.random.default_rng(3).random(rows) + 0.5
    kernels, states = bound(numbers, weights)
    usual = some_prior(reshaped(kernels, bend=BEND))
    return replace(usual, theta=np.r_[usual.theta, np.log(SIZES)]), states, torch.from_numpy(weights)


def dense(found: Prior, states: list[torch.Tensor], others: list[torch.Tensor]) -> torch.Tensor:
    """The definition: s Π (1 + a k̃) + Σ b k̃ with kernels k̃ of mean variance 1."""
    tables = []
    for kernel, values in zip(found.kernels, found.parts, strict=True):
        states_of_its_own = torch.eye(kernel.site.width, dtype=torch.float64)
        tables.append(kernel.cross(states_of_its_own, np.r_[0.0, values[1:]]))
    units = [rows @ table @ cols.T for rows, table, cols in zip(states, tables, others, strict=True)]
    product = torch.ones_like(units[0])
    for unit, values in zip(units, found.parts, strict=True):
        product *= 1 + np.exp(values[0]) * unit
    return found.scale * product + sum(size * unit for size, unit in zip(SIZES, units, strict=True))


def spread_of(rows: int = 60, reach: Reach | None = None) -> Spread:
    found, _, weights = prior_with_effects(rows)
    quantiles = np.linspace(-2, 2, len(LEVELS))[:, None]
    return Spread(found, mixed_table(rows)[0], weights.numpy(), quantiles, 0.01, reach)


def test_the_covariance_is_a_product_and_main_effects_of_their_own():
    found, states, _ = prior_with_effects(90)  # more than a block
    fewer = [column[20:50] for column in states]
    expected = dense(found, states, states)
    torch.testing.assert_close(covariance(found, states), expected, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(covariance(found, states, fewer), expected[:, 20:50], rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(variance(found, states), expected.diagonal(), rtol=1e-11, atol=1e-12)


def test_parabolas_are_centred_and_apart_from_straight_lines():
    found, _, _ = prior_with_effects(90)
    for kernel in found.kernels:
        if isinstance(kernel, Number):
            assert float((kernel.measure * kernel.parabola).sum()) == pytest.approx(1)
            assert kernel.bend == 0.5
            value = torch.zeros(kernel.site.width, dtype=torch.float64)
            value[: len(kernel.site.values)] = tensor64(kernel.site.values).clamp(-2.5, 2.5)
            moments = kernel.parabola @ kernel.measure @ torch.stack([torch.ones_like(value), value], dim=1)
            assert moments.abs().max() < 1e-10


def test_deviations_are_those_of_whole_matrices():
    spread = spread_of()
    found, rows, states = (
        spread.prior,
        spread.states(spread.numbers),
        spread.states(np.nan_to_num(mixed_table(30, seed=1)[0])),
    )
    full = dense(found, rows, rows) + torch.diag(found.noise / torch.from_numpy(spread.weights))
    cross = dense(found, states, rows)
    known = dense(found, states, states).diagonal() - (cross * torch.linalg.solve(full, cross.T).T).sum(1)
    expected = (known + found.noise + 0.01).sqrt().numpy()
    np.testing.assert_allclose(spread.deviations(states), expected, rtol=1e-8)
    assert spread.deviations([column[:0] for column in states]).shape == (0,)


def test_intervals_are_quantiles_of_the_deviations():
    spread, numbers = spread_of(), np.nan_to_num(mixed_table(30, seed=1)[0])
    states, outputs = spread.states(numbers), RNG.standard_normal((30, 1))
    target = Target("identity", *(np.array([value]) for value in (3.0, 2.0, 0.0, 1.0, 0.0)))
    low, high = spread.interval(outputs, states, target, 0.9).transpose(1, 0, 2)
    size = spread.deviations(states)[:, None]
    ends = [np.interp(level, LEVELS, spread.quantiles[:, 0]) for level in (0.05, 0.95)]
    np.testing.assert_allclose(low, 3 + 2 * (outputs + size * ends[0]))
    np.testing.assert_allclose(high, 3 + 2 * (outputs + size * ends[1]))
    spread_of_quantiles = np.sqrt(np.mean(np.interp((np.arange(50) + 0.5) / 50, LEVELS, spread.quantiles[:, 0]) ** 2))
    np.testing.assert_allclose(spread.std(outputs, states, target), 2 * size * spread_of_quantiles)


def test_deviations_of_terms_add_up_to_that_of_a_function_of_one_column():
    spread = spread_of()
    means = [kernel.mean for kernel in spread.prior.kernels]
    points = torch.eye(spread.sites[0].width, dtype=torch.float64)[:5]
    found = spread.term_deviations({0: points}, means).numpy()
    rows = spread.states(spread.numbers)
    lifted = [points, *(mean.expand(5, -1) for mean in means[1:])]
    middle = [mean[None] for mean in means]
    prior_own, prior_cross = dense(spread.prior, lifted, lifted), dense(spread.prior, lifted, rows)
    base, base_cross = dense(spread.prior, middle, lifted), dense(spread.prior, middle, rows)
    full = dense(spread.prior, rows, rows) + torch.diag(spread.prior.noise / torch.from_numpy(spread.weights))
    cross = prior_cross - base_cross
    own = prior_own - base - base.T + dense(spread.prior, middle, middle)
    expected = (own - cross @ torch.linalg.solve(full, cross.T)).diagonal().clamp(min=0).sqrt()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_a_saved_spread_is_the_same_when_it_is_read():
    numbers = np.nan_to_num(mixed_table(30, seed=1)[0])
    spread = spread_of(reach=Reach.fit(RNG.standard_normal((50, 1)), np.ones(50)))
    config = json.loads(json.dumps(spread.to_config()))
    same = Spread.from_config(config, spread.tensors())
    np.testing.assert_array_equal(same.prior.theta, spread.prior.theta)
    np.testing.assert_array_equal(same.prior.apart, spread.prior.apart)
    np.testing.assert_array_equal(same.deviations(same.states(numbers)), spread.deviations(spread.states(numbers)))
    far = 9 * RNG.standard_normal((30, 1))

    def states_of(rows: np.ndarray) -> list[torch.Tensor]:
        return spread.states(numbers[rows])

    np.testing.assert_array_equal(same.held(far, states_of), spread.held(far, states_of))
    assert not np.array_equal(spread.held(far, states_of), far)
    # Models of versions before these were kept say nothing of them.
    for name in ("bend", "power"):
        del config[name]
    older = Spread.from_config(config, spread.tensors())
    assert (older.prior.bend, older.prior.power) == (0.0, SMOOTH)


def test_a_saved_spread_knows_whether_functions_may_jump():
    smooth = spread_of()
    steps = replace(smooth, prior=replace(smooth.prior, kernels=reshaped(smooth.prior.kernels, JUMPING)))
    same = Spread.from_config(json.loads(json.dumps(steps.to_config())), steps.tensors())
    assert same.prior.power == JUMPING
    states = steps.states(smooth.numbers)
    np.testing.assert_array_equal(same.deviations(states), steps.deviations(states))
    assert not np.allclose(smooth.deviations(states), steps.deviations(states))


@pytest.mark.parametrize(
    ("scale", "back"),
    [
        ("identity", lambda x: x),
        ("sqrt", lambda x: np.maximum(x, 0) ** 2),
        ("log", np.exp),
        ("asinh", lambda x: 5 + 2 * np.sinh(x)),
    ],
)
def test_a_saved_scale_of_y_is_the_same_when_it_is_read(scale, back):
    parts = {"mean": [0.5], "std": [2.0], "shift": [5.0], "width": [2.0], "lift": [0.0], "smear": 1.0}
    target = Target.from_config(json.loads(json.dumps({"scale": scale, **parts})))
    outputs = RNG.standard_normal((20, 1))
    np.testing.assert_allclose(target.decode(outputs), back(2 * outputs + 0.5))
    np.testing.assert_allclose(target.predict(outputs), target.decode(outputs))
    lifted = Target.from_config({"scale": scale, **parts, "lift": [3.0], "smear": 1.1})
    np.testing.assert_allclose(lifted.predict(outputs), 1.1 * target.decode(outputs) + 3)
    # A model of a version that multiplied the square by a factor.
    before = {name: value for name, value in parts.items() if name != "lift"}
    older = Target.from_config({"scale": scale, **before, "smear": 1.1})
    np.testing.assert_allclose(older.predict(outputs), 1.1 * target.decode(outputs))


def test_predictions_of_any_size_are_finite():
    far = np.array([[1e6], [-1e6]])
    for scale in ("identity", "sqrt", "log", "asinh"):
        target = Target(scale, *(np.array([value]) for value in (0.0, 3.0, 0.0, 1.0, 0.0)))
        assert np.isfinite(target.decode(far)).all()


def test_a_held_prediction_is_the_mode_of_posterior_and_tail():
    reach = Reach.fit(RNG.standard_normal((200, 1)), np.ones(200))
    grid = np.linspace(float(reach.high[0]), 12, 200_001)
    for output, known in ((4.0, 0.3), (5.0, 0.9), (9.0, 20.0)):
        density = -((grid - output) ** 2) / (2 * known) - (grid - reach.high) / reach.above
        held = reach.held(np.array([[output]]), np.array([known + _SURE]))
        assert held[0, 0] == pytest.approx(grid[density.argmax()], abs=1e-4)


def test_what_is_sure_and_what_lies_within_stays():
    reach = Reach.fit(RNG.standard_normal((50, 2)), np.ones(50))
    outputs = 3 * RNG.standard_normal((100, 2))
    assert np.array_equal(reach.held(outputs, np.full(100, _SURE)), outputs)
    within = np.clip(outputs, reach.low, reach.high)
    assert np.array_equal(reach.held(within, np.full(100, 9.0)), within)
    assert np.allclose(reach.held(outputs, np.full(100, 1e6)), within)
    assert np.array_equal(reach.beyond(outputs), (outputs != within).any(axis=1))


def test_a_reach_that_was_tampered_with_is_refused():
    config = Reach.fit(RNG.standard_normal((20, 1)), np.ones(20)).to_config()
    assert Reach.from_config(json.loads(json.dumps(config))).to_config() == config
    for change in ({"above": [0.0]}, {"low": [9.0]}, {"below": [0.1, 0.2]}, {"high": [float("nan")]}):
        with pytest.raises(ValueError, match="reach of y"):
            Reach.from_config({**config, **change})
