import math

import pytest

from restt.train.schedules import rate_factor


def factors(schedule, steps=10, warmup=0.0):
    return [rate_factor(schedule, step, steps, warmup) for step in range(steps)]


def test_constant_and_plateau_keep_the_rate():
    assert factors("constant") == factors("plateau") == [1.0] * 10


def test_cosine_falls_from_one_along_the_cosine():
    assert factors("cosine") == pytest.approx([0.5 * (1 + math.cos(math.pi * t / 10)) for t in range(10)])


def test_warmup_rises_in_a_line_and_stays():
    assert factors("warmup", warmup=4.0) == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 1])


def test_warmup_then_cosine_reaches_one_and_falls_over_the_rest():
    found = factors("warmup-cosine", warmup=2.0)
    assert found[:2] == [0.5, 1.0]
    assert found[2:] == pytest.approx([0.5 * (1 + math.cos(math.pi * t / 8)) for t in range(8)])


def test_warmup_longer_than_the_training_never_reaches_one():
    assert factors("warmup-cosine", steps=3, warmup=6.0) == pytest.approx([1 / 6, 2 / 6, 3 / 6])
