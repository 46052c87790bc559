"""The one rule for ties, against scipy where it has the test, and against the paper it is from."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from scipy.stats import t as student
from scipy.stats import ttest_1samp, ttest_ind

from restt_paper.verdict import CHANCE, Claim, compare_spreads, larger, larger_on_splits


def draws(count, shift, seed):
    return (shift + np.random.default_rng(seed).normal(size=count)).tolist()


@pytest.mark.parametrize("seed", range(20))
def test_means_are_compared_by_welchs_test(seed):
    first, second = draws(5, 3.0, seed), [3 * value for value in draws(8, 0.0, seed + 100)]
    chance = ttest_ind(first, second, equal_var=False).pvalue
    ahead = "yes" if statistics.fmean(first) > statistics.fmean(second) else "no"
    assert larger(first, second) == (ahead if chance < CHANCE else "tie")
    chance = ttest_1samp(first, 0.3).pvalue
    ahead = "yes" if statistics.fmean(first) > 0.3 else "no"
    assert larger(first, 0.3) == (ahead if chance < CHANCE else "tie")


def test_both_outcomes_occur_among_those():
    found = {larger(draws(5, 3.0, seed), [3 * value for value in draws(8, 0.0, seed + 100)]) for seed in range(20)}
    assert found == {"yes", "tie"}


@pytest.mark.parametrize(("second", "expected"), [([1.0] * 3, "tie"), ([0.9] * 3, "yes"), (1.1, "no"), ([2.0], "tie")])
def test_seeds_that_do_not_differ_need_no_test_and_one_seed_tells_nothing(second, expected):
    assert larger([1.0] * 4, second) == expected


def test_splits_that_share_rows_count_for_less_than_independent_ones():
    first = [0.80 + 0.01 * k for k in range(20)]
    second = [value - 0.02 - 0.03 * (-1) ** k for k, value in enumerate(first)]
    assert larger([ours - theirs for ours, theirs in zip(first, second, strict=True)], 0.0) == "yes"
    assert larger_on_splits(first, second, test_share=0.3) == "tie"
    differences = [ours - theirs for ours, theirs in zip(first, second, strict=True)]
    error = math.sqrt(statistics.variance(differences) * (1 / 20 + 0.3 / 0.7))
    assert 2 * student.sf(statistics.fmean(differences) / error, 19) > CHANCE


def test_with_ten_seeds_each_twice_the_spread_is_clear():
    calm = [90.0 + value for value in np.linspace(-1, 1, 10)]
    wide, less = ([factor * value for value in calm] for factor in (2.1, 1.9))
    pairs = ((calm, wide), (calm, less), (wide, calm), (calm, [5.0]), (calm, calm))
    assert [compare_spreads("", *pair, 0.0).outcome for pair in pairs] == ["yes", "tie", "no", "tie", "tie"]


@pytest.mark.parametrize(("mean", "outcome"), [(19.9, "not comparable"), (60.0, "yes")])
def test_a_model_that_has_not_trained_has_no_spread_to_compare(mean, outcome):
    calm = [95.0 + value / 10 for value in np.linspace(-1, 1, 10)]
    wild = [mean + value for value in np.linspace(-5, 5, 10)]
    assert compare_spreads("here", calm, wild, untrained=20.0).outcome == outcome


def test_what_cannot_be_compared_leaves_a_claim_open():
    assert Claim("text", "measured", None, "open").row() == ("text", "measured", "open")
