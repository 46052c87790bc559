"""Rows of a fit: checked, plausible, and in an order that depends on what they hold alone."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from restt.prior.rows import FitRows, checked, content_order, drop_implausible_targets, ordinary_range

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


def test_another_seed_is_another_order():
    table, y = tables()
    assert not np.array_equal(content_order(table, y, 0), content_order(table, y, 1))


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


@pytest.mark.parametrize("y", [np.ones(60), np.r_[np.zeros(59), 1e30], RNG.standard_cauchy(60), RNG.lognormal(size=60)])
def test_plausible_targets_are_kept_in_silence(y):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert drop_implausible_targets(y[:, None], np.ones(60)).all()
    low, high = ordinary_range(y[:, None], np.ones(60))
    assert (low <= y.min()).all()
    assert (high >= y.max()).all()


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
