from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from restt.features import Hat
from restt.features.hat import quantile_knots, uniform_knots

columns = st.lists(st.one_of(st.integers(-2, 2).map(float), st.floats(-1e3, 1e3)), min_size=1, max_size=30)


@settings(max_examples=50, deadline=None)
@given(columns, columns, st.integers(2, 9), st.sampled_from(["uniform", "quantile"]), st.sampled_from([32, 64]))
def test_partition_of_unity(seen: list[float], new: list[float], knots: int, placement: str, bits: int) -> None:
    dtype = {32: torch.float32, 64: torch.float64}[bits]
    hat = Hat(knots, placement).fit(torch.tensor(seen, dtype=torch.float64).unsqueeze(1))
    vectors = hat(torch.tensor(new, dtype=dtype).unsqueeze(1))
    assert (vectors >= 0).all()
    torch.testing.assert_close(vectors.sum(-1), torch.ones(len(new), 1, dtype=dtype))
    assert ((vectors > 0).sum(-1) <= 2).all()


@settings(max_examples=50, deadline=None)
@given(columns, st.integers(2, 9))
def test_linear_functions_are_reproduced(seen: list[float], knots: int) -> None:
    x = torch.tensor(seen, dtype=torch.float64).unsqueeze(1)
    hat = Hat(knots, "quantile").fit(x)
    at_knots = torch.tensor(hat.site_knots[0], dtype=torch.float64)
    torch.testing.assert_close(hat(x) @ at_knots, x, rtol=1e-12, atol=1e-9)


def test_values_and_ends() -> None:
    x = [[-1.0], [0.0], [0.5], [1.0], [2.5], [4.0], [9.0]]
    assert Hat([0.0, 1.0, 4.0])(x).squeeze(1).tolist() == [
        [1.0, 0.0, 0.0],
        [1.0, 0.0, 0.0],
        [0.5, 0.5, 0.0],
        [0.0, 1.0, 0.0],
        [0.0, 0.5, 0.5],
        [0.0, 0.0, 1.0],
        [0.0, 0.0, 1.0],
    ]
    line = Hat([0.0, 1.0, 4.0], outside="extrapolate")([[-1.0], [7.0]]).squeeze(1)
    assert line.tolist() == [[2.0, -1.0, 0.0], [0.0, -1.0, 2.0]]
    with pytest.raises(ValueError, match=r"at row 1, site 0, is 7 and the range there is \[0, 4\]"):
        Hat([0.0, 1.0, 4.0], outside="error")([[4.0], [7.0]])


def test_uniform_and_quantile_placement() -> None:
    x = np.array([[0.0], [1.0], [2.0], [3.0], [100.0]])
    assert Hat(3).fit(x).site_knots == ((0.0, 50.0, 100.0),)
    assert Hat(3, "quantile").fit(x).site_knots == ((0.0, 2.0, 100.0),)
    assert Hat(3, "quantile").fit(x, sample_weight=[1, 1, 1, 20, 1]).site_knots == ((0.0, 3.0, 100.0),)


def test_few_distinct_values_make_ragged_widths() -> None:
    x = np.array([[7.0, 0.0, 0.0], [7.0, 1.0, 1.0], [7.0, 0.0, 2.0], [7.0, 1.0, 3.0], [7.0, 0.0, 4.0]])
    hat = Hat(4, "quantile").fit(x)
    assert hat.widths == (1, 2, 4)
    assert hat.width == 4
    vectors = hat([[8.0, 0.25, 4.0]])[0]
    assert vectors.tolist() == [[1.0, 0.0, 0.0, 0.0], [0.75, 0.25, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    assert Hat(4).fit(x).widths == (1, 4, 4)
    uneven = [[0.0], [0.0], [0.0], [0.0], [1.0], [9.0]]
    assert Hat(3, "quantile").fit(uneven).site_knots == ((0.0, 1.0, 9.0),)


def test_knots_that_meet_in_float32_stay_finite() -> None:
    hat = Hat([1.0, 1.0 + 1e-12, 2.0])
    x = torch.tensor([[1.0], [1.5], [2.0]], dtype=torch.float32, requires_grad=True)
    vectors = hat(x)
    torch.testing.assert_close(vectors.sum(-1), torch.ones(3, 1))
    vectors.square().sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_knots_per_site() -> None:
    hat = Hat([[0.0, 1.0], [0.0, 5.0, 10.0]])
    assert hat.widths == (2, 3)
    assert hat([[0.5, 7.5]]).tolist() == [[[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]]
    for call in (hat.transform, hat.fit):
        with pytest.raises(ValueError, match="x must have 2 sites, one per row of knots, got 3"):
            call(np.zeros((1, 3)))


def test_refit_forgets() -> None:
    hat = Hat(3).fit([[0.0, 1.0], [1.0, 2.0]])
    assert hat.fit([[0.0], [4.0]]).site_knots == ((0.0, 2.0, 4.0),)


@pytest.mark.parametrize(
    ("knots", "error"),
    [
        (1, ValueError),
        (2.5, TypeError),
        ("8", TypeError),
        ([], ValueError),
        ([1.0, 1.0], ValueError),
        ([2.0, 1.0], ValueError),
        ([0.0, float("nan")], ValueError),
        (["a"], TypeError),
        (np.zeros((1, 1, 1)), ValueError),
    ],
)
def test_bad_knots(knots: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="knots must be"):
        Hat(knots)


def test_unfitted_hat_says_so() -> None:
    assert Hat(6).width == 6
    with pytest.raises(ValueError, match=r"call fit\(x\) first"):
        Hat(6)([[0.0]])
    with pytest.raises(ValueError, match="placement must be one of"):
        Hat(6, placement="log")


@settings(max_examples=50, deadline=None)
@given(columns, st.integers(2, 9))
def test_knots_are_increasing_and_cover_the_range(seen: list[float], count: int) -> None:
    column = torch.tensor(seen, dtype=torch.float64)
    for knots in (uniform_knots(column, count), quantile_knots(column, torch.ones_like(column), count)):
        assert knots == sorted(set(knots))
        assert (knots[0], knots[-1]) == (min(seen), max(seen))
        assert len(knots) <= count


@pytest.mark.parametrize("rows", [3, 33, 400])
@pytest.mark.parametrize("hat", [Hat(8, placement="quantile"), Hat(5), Hat(60), Hat([-1.0, 0.0, 0.5])])
def test_numpys_way_has_the_same_bits_for_any_number_of_rows(hat: Hat, rows: int) -> None:
    x = torch.from_numpy(np.random.default_rng(rows).normal(size=(rows, 3)))
    x[:, 1] = x[:, 1].round()
    x[:, 2] = 2.0
    hat.fit(x)
    np.testing.assert_array_equal(hat.map(x), hat.map_few(x.numpy()))
