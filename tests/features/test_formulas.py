"""Identity, Affine, Trigonometric, Polynomial: values, ranges, patches."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from restt.features import Affine, FeatureMap, Identity, Polynomial, Trigonometric

# Values of any size on purpose; test_as_modules.py has what Trigonometric says to them.
pytestmark = pytest.mark.filterwarnings("ignore::restt.features.RangeWarning")


def test_values_of_each_formula() -> None:
    x = torch.tensor([[0.25, 3.0]], dtype=torch.float64)
    assert Identity()(x).tolist() == [[[0.25], [3.0]]]
    assert Affine()(x).tolist() == [[[1.0, 0.25], [1.0, 3.0]]]
    assert Polynomial(3)(x).tolist() == [[[1.0, 0.25, 0.0625, 0.015625], [1.0, 3.0, 9.0, 27.0]]]
    expected = [[[math.cos(math.pi / 8), math.sin(math.pi / 8)], [0.0, -1.0]]]
    torch.testing.assert_close(Trigonometric()(x), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-15)


def test_patches() -> None:
    x = torch.tensor([[[0.0, 1.0, 0.5, 0.25]]], dtype=torch.float64)
    assert torch.equal(Identity()(x), x)
    assert Affine()(x).tolist() == [[[1.0, 0.0, 1.0, 0.5, 0.25]]]
    angle = x * math.pi / 2
    torch.testing.assert_close(Trigonometric()(x), torch.cat([angle.cos(), angle.sin()], -1) / 2, rtol=0, atol=1e-15)
    for feature_map, width in ((Identity(), 4), (Affine(), 5), (Trigonometric(), 8)):
        assert feature_map.fit(x).width == width
        assert feature_map.widths == (width,)
    with pytest.raises(ValueError, match="x must have 1 sites of 4 values each"):
        Trigonometric().fit(x)(x[..., :2])
    with pytest.raises(ValueError, match=r"x must have shape \(B, N\), got"):
        Polynomial()(x)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), st.integers(1, 5))
def test_trigonometric_vectors_have_length_one(values: list[float], width: int) -> None:
    x = torch.tensor(values, dtype=torch.float64).view(-1, 1, 1).expand(-1, 2, width)
    torch.testing.assert_close(Trigonometric()(x).square().sum(-1), torch.ones(len(values), 2, dtype=torch.float64))
    assert Trigonometric().second_moment == 1.0


@pytest.mark.parametrize("kind", [Identity, Affine, Trigonometric, Polynomial])
def test_outside_the_fitted_range(kind: type[FeatureMap]) -> None:
    seen, beyond, ends = [[0.0, 5.0], [1.0, 7.0]], [[-3.0, 6.0], [0.5, 9.0]], [[0.0, 6.0], [0.5, 7.0]]
    free, clamped, strict = (kind(outside=how).fit(seen) for how in ("extrapolate", "clamp", "error"))
    assert torch.equal(free(beyond), kind()(beyond))
    assert torch.equal(clamped(beyond), kind()(ends))
    with pytest.raises(ValueError, match=r"got 2 value\(s\) outside; the first, at row 0, site 0, is -3 .* \[0, 1\]"):
        strict(beyond)
    assert torch.equal(strict(ends), kind()(ends))
    with pytest.raises(ValueError, match=r"needs of .* call fit\(x\) first"):
        kind(outside="clamp")(ends)


def test_range_ignores_rows_of_weight_zero() -> None:
    clamped = Identity(outside="clamp").fit([[0.0], [1.0], [99.0]], sample_weight=[1, 1, 0])
    assert clamped([[50.0]]).item() == 1.0


def test_second_moment_needs_data_where_it_depends_on_them() -> None:
    for feature_map in (Identity(), Affine(), Polynomial()):
        with pytest.raises(ValueError, match=r"second_moment of .* call fit"):
            _ = feature_map.second_moment


def test_second_moment_is_a_copy() -> None:
    affine = Affine().fit([[1.0], [2.0]])
    moment = affine.second_moment
    assert isinstance(moment, torch.Tensor)
    assert moment.tolist() == [1 + 2.5]
    moment.zero_()
    assert torch.as_tensor(affine.second_moment).tolist() == [1 + 2.5]


def test_second_moment_over_many_rows() -> None:
    x = np.random.default_rng(0).normal(size=(10_001, 2))
    moment = Identity().fit(x).second_moment
    np.testing.assert_allclose(moment, (x**2).mean(0), rtol=1e-12)


def test_bad_parameters() -> None:
    with pytest.raises(ValueError, match="degree must be at least 1, got 0"):
        Polynomial(degree=0)
    with pytest.raises(TypeError, match="include_bias must be True or False"):
        Polynomial(include_bias=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="outside must be one of"):
        Identity(outside="wrap")
