from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from restt.features import OneHot


def test_levels_are_learned_per_column_in_order() -> None:
    hot = OneHot().fit(np.array([[3.0, 0.5], [1.0, 0.5], [2.0, 0.5]]))
    assert hot.site_levels == ((1, 2, 3), (0.5,))
    assert hot.widths == (3, 1)
    assert hot([[3.0, 0.5]]).tolist() == [[[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]]
    assert hot.second_moment == 1.0


def test_text_and_mixed_columns() -> None:
    x = np.array([["b", 2], ["a", "x"], ["b", 1]], dtype=object)
    hot = OneHot().fit(x)
    assert hot.site_levels == (("a", "b"), (1, 2, "x"))
    vectors = hot(x)
    assert vectors.dtype == torch.float32
    assert vectors.argmax(-1).tolist() == [[1, 1], [0, 2], [1, 0]]
    assert OneHot().fit(np.array([["u"], ["v"]])).site_levels == (("u", "v"),)


@pytest.mark.parametrize("levels", [3, [0, 1, 2], [[0, 1, 2]], np.arange(3), torch.arange(3)])
def test_given_levels_need_no_fit(levels: Any) -> None:
    assert OneHot(levels)([[2, 0]]).tolist() == [[[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]]
    assert OneHot(levels).width == 3
    assert OneHot(levels).fit([[0, 0]]).widths == (3, 3)


def test_given_order_is_kept_and_columns_may_differ() -> None:
    hot = OneHot([["lo", "hi"], [5, 1, 3]])
    assert hot.widths == (2, 3)
    assert hot(np.array([["hi", 5]], dtype=object)).argmax(-1).tolist() == [[1, 0]]
    with pytest.raises(ValueError, match="x must have 2 sites, one per list of levels, got 1"):
        hot([["hi"]])


def test_unknown_levels() -> None:
    x = [[0.0, 1.0], [1.0, 1.0]]
    with pytest.raises(ValueError, match=r"one of the levels \(0, 1\) at site 0, got 7 at row 1, site 0; unknown="):
        OneHot().fit(x)([[0.0, 1.0], [7.0, 1.0]])
    assert OneHot(unknown="zero").fit(x)([[7.0, 1.0]]).tolist() == [[[0.0, 0.0], [1.0, 0.0]]]
    with pytest.raises(ValueError, match="got 5 at row 0, site 0"):
        OneHot(3).fit([[5]])


def test_missing_values() -> None:
    x = [[0.0, 1.0], [float("nan"), 1.0]]
    with pytest.raises(ValueError, match=r"x has 1 missing value\(s\) .* at site 0, first at row 1, site 0"):
        OneHot().fit(x)
    hot = OneHot(missing="zero").fit(x)
    assert hot(x).tolist() == [[[1.0], [1.0]], [[0.0], [1.0]]]
    assert torch.as_tensor(hot.second_moment).tolist() == [0.5, 1.0]
    with pytest.raises(ValueError, match="x has 1 missing"):
        OneHot(["a"])(np.array([[None]], dtype=object))
    with pytest.raises(ValueError, match="only missing values at site 1"):
        OneHot(missing="zero").fit([[1.0, float("nan")]])
    with pytest.raises(ValueError, match="x must be finite, got inf at row 0, site 1"):
        OneHot().fit([[1.0, float("inf")]])


def test_large_whole_numbers_stay_apart() -> None:
    x = np.array([[2**24], [2**24 + 1], [2**60], [2**60 + 1]])
    assert torch.equal(OneHot().fit_transform(x).squeeze(1), torch.eye(4))
    assert torch.equal(OneHot().fit_transform(torch.tensor(x)).squeeze(1), torch.eye(4))


def test_levels_fitted_in_float64_are_found_in_lower_precision() -> None:
    hot = OneHot().fit([[0.1], [0.7]])
    for dtype in (torch.float32, torch.float16):
        assert hot(torch.tensor([[0.7]], dtype=dtype)).tolist() == [[[0.0, 1.0]]]


def test_rows_of_weight_zero_teach_no_levels() -> None:
    hot = OneHot(unknown="zero").fit([[0], [1], [2]], sample_weight=[1, 0, 3])
    assert hot.site_levels == ((0, 2),)
    assert hot.second_moment.tolist() == [1.0]


@pytest.mark.parametrize(
    ("levels", "error", "message"),
    [
        (0, ValueError, "levels must be at least 1"),
        (1.5, TypeError, "levels must be an integer"),
        ([], ValueError, "levels must be distinct values"),
        ([1, 1.0], ValueError, "levels must be distinct values"),
        ([1, None], ValueError, "none missing"),
        ([{}], TypeError, "a level must be a number or text"),
    ],
)
def test_bad_levels(levels: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        OneHot(levels)


def test_what_is_learned_needs_fit() -> None:
    for name in ("width", "site_levels", "widths"):
        with pytest.raises(ValueError, match=r"call fit\(x\) first"):
            getattr(OneHot(), name)
    with pytest.raises(ValueError, match=r"widths of .* call fit"):
        _ = OneHot(3).widths
    with pytest.raises(ValueError, match=r"second_moment of .* call fit"):
        _ = OneHot(3, unknown="zero").second_moment
    with pytest.raises(TypeError, match="x must hold numbers or text"):
        OneHot(3)(np.array([[1j]]))
