"""Rows of a fit: checked, plausible, and in an order that depends on what they hold alone."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from restt.prior.rows import (
    FitRows,
    checked,
    content_order,
    drop_implausible_targets,
    ordinary_range,
    tail_precision,
    weighted_quantile,
)

RNG = np.random.default_rng(0)


def tables() -> tuple[np.ndarray, np.ndarray]:
    table = np.column_stack([RNG.standard_normal(60), RNG.integers(0, 9, 60), RNG.lognormal(size=60)]).astype(float)
    table[RNG.random(60) < 0.3, 2] = np.nan
    return table, RNG.standard_normal((60, 2))


@pytest.mark.parametrize("seed", [0, 7])
def test_the_order_of_rows_is_that_of_their_content(seed):
    table, y = tables()
    order = content_order(table, y, seed)
    assert sorted(order) == list(range(60))
    assert not (order == np.arange(60)).all()
    shuffled = RNG.permutation(60)
    again = content_order(table[shuffled], y[shuffled], seed)
    np.testing.assert_array_equal(shuffled[again], order)


@pytest.mark.parametrize(
    "change",
    [
        lambda x, y: (x[:, [2, 0, 1]], y),
        lambda x, y: (x * [1e9, 1e-9, 3], y),
        lambda x, y: (x + 5, y - 3),
        lambda x, y: (-x, y),
        lambda x, y: (x * [1, -2, -1], -7 * y),
        lambda x, y: (np.column_stack([x, np.full(60, 4.0)]), y),
        lambda x, y: (np.column_stack([np.full(60, np.nan), x]), y),
    ],
    ids=["columns", "units", "zeros", "signs", "signs of some", "a constant column", "an empty column"],
)
def test_the_way_it_is_written_does_not_matter(change):
    table, y = tables()
    np.testing.assert_array_equal(content_order(*change(table, y), 0), content_order(table, y, 0))


def test_a_seed_is_the_same_order_in_every_version():
    """With it the samples of a long table, and so its model; columns skewed, even, with missing values and constant."""
    k = np.arange(12)
    table = np.column_stack([k, k * k % 11, k % 3, np.where(k % 4 == 1, np.nan, k // 2), np.full(12, 5.0)])
    y = np.column_stack([k**2 % 7, k % 5]).astype(float)
    assert content_order(table, y, 0).tolist() == [11, 4, 10, 8, 3, 5, 9, 1, 0, 2, 7, 6]
    assert content_order(table, y, 1).tolist() == [9, 5, 4, 10, 1, 3, 6, 2, 8, 11, 0, 7]
    assert content_order(table, y, 2**63 + 1).tolist() == [9, 5, 4, 10, 1, 3, 6, 2, 8, 11, 0, 7]
    even = np.column_stack([k * k, k % 4, -k]).astype(float)  # of the middle one the ends are alike
    assert content_order(even, np.ones((12, 1)), 0).tolist() == [5, 6, 3, 8, 2, 9, 1, 10, 4, 7, 0, 11]


def test_rows_without_weight_are_left_out():
    table, y = tables()
    weights = np.arange(60) % 3 * 0.5
    found, targets, used = checked(table.tolist(), y.tolist(), weights)
    np.testing.assert_array_equal(found, table[weights > 0])
    np.testing.assert_array_equal(targets, y[weights > 0])
    np.testing.assert_array_equal(used, weights[weights > 0])
    assert checked(table, y[:, 0], None)[1].shape == (60, 1)


def test_an_implausible_target_is_dropped_with_a_warning():
    _, y = tables()
    y[7, 1] = 1e12
    with pytest.warns(UserWarning, match=r"1 row\(s\) are left out of the fit: their y, such as 1e\+12"):
        keep = drop_implausible_targets(y, np.ones(60))
    np.testing.assert_array_equal(np.flatnonzero(~keep), [7])


@pytest.mark.parametrize("sign", [1, -1])
def test_a_target_is_implausible_beyond_ten_thousand_widths(sign):
    y = np.repeat([-0.5, 0.0, 0.5], [40, 20, 40])  # nine tenths of them are 1 wide
    far = sign * np.array([[1e4], [1e4 + 1]])
    assert drop_implausible_targets(np.r_[y, far[0]][:, None], np.ones(101)).all()
    with pytest.warns(UserWarning, match=rf"^1 row\(s\) are left out of the fit: their y, such as {sign * 10001}, is"):
        kept = drop_implausible_targets(np.r_[y, far[1]][:, None], np.ones(101))
    assert kept.tolist() == [True] * 100 + [False]


@pytest.mark.parametrize("y", [np.ones(60), np.r_[np.zeros(59), 1e30], RNG.standard_cauchy(60), RNG.lognormal(size=60)])
def test_plausible_targets_are_kept_in_silence(y):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert drop_implausible_targets(y[:, None], np.ones(60)).all()
    low, high = ordinary_range(y[:, None], np.ones(60))
    assert (low <= y.min()).all()
    assert (high >= y.max()).all()


def test_quantiles_are_where_the_weights_reach_a_level():
    values = np.array([30.0, 10.0, 20.0, 40.0])
    assert weighted_quantile(values, np.ones(4), (0.0, 0.25, 0.26, 0.5, 1.0)).tolist() == [10, 10, 20, 20, 40]
    weighted = weighted_quantile(values, np.array([2.0, 4, 2, 8]), (0.0, 0.25, 0.26, 0.5, 0.51, 1.0))
    assert weighted.tolist() == [10, 10, 20, 30, 40, 40]
    # Ten thousand widths of the middle nine tenths, 90, on either side of the median.
    low, high = ordinary_range(np.column_stack([np.arange(100.0), np.ones(100)]), np.ones(100))
    assert low.tolist() == [49 - 90e4, -np.inf]
    assert high.tolist() == [49 + 90e4, np.inf]
    column = np.r_[48 - 90e4, 49 - 90e4, np.arange(2.0, 98.0), 49 + 90e4, 50 + 90e4]
    with pytest.warns(UserWarning, match=r"2 row\(s\) .* such as 900050, is more than 10000 times"):
        keep = drop_implausible_targets(column[:, None], np.ones(100))
    assert np.flatnonzero(~keep).tolist() == [0, 99]


def test_precision_of_a_residual_is_that_of_students_noise():
    # (ν + 1)/(ν - 2 + r²) with ν = 5.
    assert tail_precision(np.array([0.0, 1.0, 9.0]), 0.2).tolist() == pytest.approx([2, 1.5, 0.5])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"numbers": torch.zeros(3)}, "do not fit each other"),
        ({"targets": torch.zeros(3)}, "do not fit each other"),
        ({"targets": torch.zeros(2, 1)}, "do not fit each other"),
        ({"weights": torch.ones(2)}, "do not fit each other"),
        ({name: torch.zeros(0, 1) for name in ("numbers", "targets")} | {"weights": torch.zeros(0)}, "do not fit each"),
        ({"numbers": torch.full((3, 2), torch.inf)}, "rows must be finite"),
        ({"targets": torch.full((3, 1), torch.nan)}, "rows must be finite"),
        ({"weights": torch.tensor([1.0, 0.0, 1.0])}, "their weights above 0"),
        ({"weights": torch.tensor([1.0, torch.inf, 1.0])}, "their weights above 0"),
        ({"tail": 0.5}, "the noise of the rows"),
        ({"tail": -0.1}, "the noise of the rows"),
        ({"seed": 0.5}, "the noise of the rows"),
    ],
)
def test_saved_rows_are_read_or_refused(change, message):
    rows = FitRows.of(np.array([[1.0, np.nan], [2.0, 0.0], [0.0, 0.0]]), np.arange(3.0)[:, None], np.ones(3), 7, 0.25)
    config, tensors = rows.to_config(), rows.tensors()
    same = FitRows.from_config({**config, "tail": 0.0}, tensors)
    np.testing.assert_array_equal(same.numbers, rows.numbers)
    assert (same.tail, same.seed, same.weights.tolist()) == (0, 7, [1, 1, 1])
    np.testing.assert_array_equal(same.targets, rows.targets)
    plain = {name: change.get(name, value) for name, value in config.items()}
    with pytest.raises(ValueError, match=message):
        FitRows.from_config(plain, {name: change.get(name, tensor) for name, tensor in tensors.items()})


def test_copies_are_one_row_of_their_weight():
    table, y = tables()
    again = np.r_[np.arange(60), 3, 7, 3, 59]
    weights = RNG.random(64)
    found, order = FitRows.of(table[again], y[again], weights, seed=0), content_order(table, y, 0)
    np.testing.assert_array_equal(found.numbers, table[order])
    np.testing.assert_array_equal(found.targets, y[order])
    expected = weights[:60].copy()
    np.add.at(expected, again[60:], weights[60:])
    np.testing.assert_allclose(found.weights, expected[order])
    # Another y is another row, and so is another missing value; the sign of 0 is none.
    other = np.array([[0.0, np.nan], [-0.0, np.nan], [0.0, 1.0], [0.0, np.nan]])
    merged = FitRows.of(other, np.array([[1.0], [1.0], [1.0], [2.0]]), np.ones(4), seed=0)
    assert sorted(merged.weights.tolist()) == [1, 1, 2]


def test_a_sample_of_a_table_of_categories_is_random():
    """Boards of three marks whose rows are permutations and mirror images of each other: no two have the same place."""
    rng = np.random.default_rng(0)
    board = np.array([0.0, 0, 0, 0, 1, 1, 1, 2, 2])
    table = np.unique([rng.permutation(board) for _ in range(600)], axis=0)
    y = (table[:, 4] == 0).astype(float)[:, None]
    order = content_order(table, y, 0)
    shuffled = rng.permutation(len(table))
    columns = rng.permutation(9)
    again = content_order(-table[shuffled][:, columns], y[shuffled], 0)
    np.testing.assert_array_equal(shuffled[again], order)
    # Sorted as bytes, the first half of the table would have one mark in the first column.
    half = table[order[: len(table) // 2]]
    np.testing.assert_allclose(half.mean(0), table.mean(0), atol=0.15)
