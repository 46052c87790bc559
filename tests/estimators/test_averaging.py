"""Which candidates are averaged, and how."""

from __future__ import annotations

import numpy as np
import pytest

from restt.estimators.averaging import DOUBT, MOST_LOSS, doubts, fitted_temperature, greedy_weights, log_loss


def noisy_logits(rng: np.random.Generator, numbers: np.ndarray, noise: float) -> np.ndarray:
    return 2.0 * np.eye(2)[numbers] + noise * rng.standard_normal((len(numbers), 2))


def test_log_loss_is_the_weighted_mean():
    logits = np.log([[0.8, 0.2], [0.4, 0.6]])
    expected = -(3 * np.log(0.8) + np.log(0.6)) / 4
    assert float(log_loss(logits, np.array([0, 1]), np.array([3.0, 1.0]))) == pytest.approx(expected)


def test_candidates_that_err_apart_are_averaged():
    rng = np.random.default_rng(0)
    numbers, weights = rng.integers(0, 2, 300), np.ones(300)
    logits = np.stack([noisy_logits(rng, numbers, noise) for noise in (1.5, 1.5, 1.6)])
    found = greedy_weights(logits, numbers, weights)
    assert found.sum() == pytest.approx(1.0)
    assert (found > 0.1).all()
    alone = log_loss(logits, numbers, weights)
    assert float(log_loss(np.tensordot(found, logits, 1), numbers, weights)) < alone.min()


def test_a_candidate_that_is_far_off_somewhere_takes_no_part():
    rng = np.random.default_rng(0)
    numbers, weights = rng.integers(0, 2, 200), np.ones(200)
    good = noisy_logits(rng, numbers, 1.0)
    wild = 3 * noisy_logits(rng, numbers, 0.5)
    wild[0] = [1000.0, 0.0] if numbers[0] else [0.0, 1000.0]
    assert log_loss(wild, numbers, weights) > MOST_LOSS * log_loss(good, numbers, weights)
    assert greedy_weights(np.stack([good, wild]), numbers, weights).tolist() == [1.0, 0.0]


def test_doubt_bounds_the_logits_of_rows_without_an_error():
    sure = np.array([[[5.0, 0.0], [0.0, 5.0]], [[50.0, 0.0], [0.0, 50.0]]])
    numbers, weights = np.array([0, 1]), np.ones(2)
    assert greedy_weights(sure, numbers, weights).tolist() == [0.0, 1.0]
    assert greedy_weights(sure, numbers, weights, doubt=0.01).tolist() == [1.0, 0.0]


def test_doubt_falls_on_the_rows_that_are_least_sure():
    rng = np.random.default_rng(0)
    numbers, margins = rng.integers(0, 2, 80), np.linspace(0.1, 9.0, 80)[rng.permutation(80)]
    found = doubts(margins[:, None] * np.eye(2)[numbers], numbers)
    assert found.sum() == pytest.approx(DOUBT)
    assert (found > 0).sum() == 20
    assert margins[found > 0].max() < margins[found == 0].min()


def test_a_sharp_border_is_not_doubted_far_from_it():
    """Logits that grow with the distance from a border: doubt everywhere would have them flat."""
    margins = np.concatenate([np.linspace(0.2, 5, 30), np.linspace(10, 40, 70)])
    steep = np.column_stack([np.zeros(100), margins])
    candidates, numbers, weights = np.stack([steep, steep / 8]), np.ones(100, dtype=int), np.ones(100)
    assert greedy_weights(candidates, numbers, weights, doubt=DOUBT / 100).argmax() == 1
    assert greedy_weights(candidates, numbers, weights, doubt=doubts(steep, numbers)).argmax() == 0


def test_rows_count_by_weight():
    logits = np.array([[[2.0, 0.0], [2.0, 0.0]], [[0.0, 2.0], [0.0, 2.0]]])
    numbers = np.array([0, 1])
    assert greedy_weights(logits, numbers, np.array([5.0, 1.0])).argmax() == 0
    assert greedy_weights(logits, numbers, np.array([1.0, 5.0])).argmax() == 1


def test_temperature_stays_within_its_bounds():
    scores = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert fitted_temperature(scores, np.array([1, 0]), np.ones(2), (0.5, 2.0)) == pytest.approx(0.5, rel=1e-3)
    assert fitted_temperature(scores, np.array([0, 1]), np.ones(2), (0.5, 2.0)) == pytest.approx(2.0, rel=1e-3)


def test_costs_count_less_with_more_rows():
    logits = np.stack([np.tile([1.0, 0.0], (40, 1)), np.tile([1.5, 0.0], (40, 1))])
    labels, costs = np.zeros(40, dtype=int), np.array([0.0, 3.0])
    assert greedy_weights(logits, labels, np.ones(40), costs=costs).argmax() == 1
    assert greedy_weights(logits[:, :10], labels[:10], np.ones(10), costs=costs).argmax() == 0
