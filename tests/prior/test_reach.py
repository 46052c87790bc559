"""Predictions beyond every y of the fit: as far as the posterior is sure of them, and no further."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from restt import ResTTRegressor, load, prior
from restt.prior.reach import _SURE, Reach

RNG = np.random.default_rng(0)


def test_a_held_prediction_is_the_mode_of_posterior_and_tail():
    reach = Reach.fit(RNG.standard_normal((200, 1)), np.ones(200))
    grid = np.linspace(float(reach.high[0]), 12, 200_001)
    for output, variance in ((4.0, 0.3), (5.0, 0.9), (9.0, 20.0)):
        density = -((grid - output) ** 2) / (2 * variance) - (grid - reach.high) / reach.above
        held = reach.held(np.array([[output]]), np.array([variance + _SURE]))
        assert held[0, 0] == pytest.approx(grid[density.argmax()], abs=1e-4)


def test_what_is_sure_and_what_lies_within_stays():
    reach = Reach.fit(RNG.standard_normal((50, 2)), np.ones(50))
    outputs = 3 * RNG.standard_normal((100, 2))
    assert np.array_equal(reach.held(outputs, np.full(100, _SURE)), outputs)
    within = np.clip(outputs, reach.low, reach.high)
    assert np.array_equal(reach.held(within, np.full(100, 9.0)), within)
    assert np.allclose(reach.held(outputs, np.full(100, 1e6)), within)
    assert np.array_equal(reach.beyond(outputs), (outputs != within).any(axis=1))


def test_both_ends_are_alike_and_weights_are_repeated_rows():
    y = RNG.lognormal(size=(60, 1))
    weights = RNG.integers(1, 4, 60).astype(float)
    found = Reach.fit(y, weights)
    again = Reach.fit(np.repeat(y, weights.astype(int), axis=0), np.ones(int(weights.sum())))
    mirrored = Reach.fit(-y, weights)
    for name in ("low", "high", "below", "above"):
        np.testing.assert_allclose(getattr(found, name), getattr(again, name), rtol=1e-12)
    assert (mirrored.high, mirrored.above) == (-found.low, found.below)
    # Many equal values at an end, or a single row: a short tail, none at all would be a division by 0.
    assert Reach.fit(np.ones((9, 1)), np.ones(9)).above > 0
    assert Reach.fit(np.ones((1, 1)), np.ones(1)).below > 0


def test_a_reach_that_was_tampered_with_is_refused():
    config = Reach.fit(RNG.standard_normal((20, 1)), np.ones(20)).to_config()
    assert Reach.from_config(json.loads(json.dumps(config))).to_config() == config
    for change in ({"above": [0.0]}, {"low": [9.0]}, {"below": [0.1, 0.2]}, {"high": [float("nan")]}):
        with pytest.raises(ValueError, match="reach of y"):
            Reach.from_config({**config, **change})


def houses(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sizes with long tails that go together, and a price that has a sum of them and their products."""
    rng = np.random.default_rng(seed)
    size = rng.lognormal(0, 0.5, rows)
    x = np.column_stack([size * rng.lognormal(0, 0.2, rows) for _ in range(4)] + [rng.standard_normal(rows)])
    return x, x[:, :4].sum(axis=1) + 0.3 * x[:, 0] * x[:, 1] + 0.5 * rng.standard_normal(rows)


def test_far_out_predictions_are_held_and_intervals_go_with_them(tmp_path):
    x, y = houses(150, 0)
    model = ResTTRegressor(random_state=0).fit(x, y)
    far = np.full((1, 5), 30.0) * np.array([[1, 1, 1, 1, 0]])
    plain, held = model.target_.decode(_raw(model, far)), model.predict(far)
    assert plain[0] > 1.5 * y.max()
    assert y.max() <= held[0] < plain[0]
    low, high = model.predict_interval(far)[0]
    assert low <= held[0] <= high
    # Not within the range, nor row by row, nor after it was saved.
    assert np.array_equal(model.predict(x), model.target_.decode(_raw(model, x)))
    both = model.predict(np.vstack([x[:3], far]))
    assert np.array_equal(both[3:], held)
    assert np.array_equal(both[:3], model.predict(x[:3]))
    model.save(tmp_path / "model.restt")
    assert np.array_equal(load(tmp_path / "model.restt").predict(far), held)


def _raw(model: ResTTRegressor, x: np.ndarray) -> np.ndarray:
    kept = model.spread_
    model.spread_ = replace(kept, reach=None)  # as a model of a version without one
    try:
        return model._outputs_and_numbers(x)[0]
    finally:
        model.spread_ = kept


def test_lines_go_on():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (60, 3))
    truth = np.array([3.0, -2.0, 1.0])
    fitted = prior.fit(x, x @ truth + 0.01 * rng.standard_normal(60))
    corner = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]])
    assert fitted.spread.reach.beyond(fitted.outputs(corner)).all()
    np.testing.assert_allclose(fitted.predict(corner)[:, 0], corner @ truth, rtol=0.02)
