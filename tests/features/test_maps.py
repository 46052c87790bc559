"""What holds for every map."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from restt import features
from restt.features import Affine, FeatureMap, Hat, Identity, OneHot, Polynomial, Trigonometric

MAPS = [
    Identity(),
    Affine(outside="clamp"),
    Trigonometric(),
    Polynomial(degree=3),
    Polynomial(degree=2, include_bias=False),
    Hat(knots=4),
    Hat(knots=5, placement="quantile"),
    Hat(knots=[0.0, 1.0, 3.0], outside="extrapolate"),
    OneHot(),
    OneHot(unknown="zero", missing="zero"),
]
# Values of any size on purpose; test_as_modules.py has what Trigonometric says to them.
pytestmark = pytest.mark.filterwarnings("ignore::restt.features.RangeWarning")
NUMERIC = [m for m in MAPS if not isinstance(m, OneHot)]
STATELESS = [Identity(), Affine(), Trigonometric(), Polynomial(3), Hat([0.0, 1.0]), OneHot(5)]

# Every property runs once per map, so few examples of each make many in all.
FEW = settings(max_examples=20, deadline=None)

tables = arrays(
    np.float64,
    st.tuples(st.integers(1, 12), st.integers(1, 4)),
    elements=st.one_of(st.integers(-3, 3).map(float), st.floats(-50, 50)),
)


def fresh(feature_map: FeatureMap) -> Any:
    return features.from_config(feature_map.to_config())


@pytest.mark.parametrize("feature_map", MAPS, ids=repr)
@FEW
@given(x=tables)
def test_shape_width_and_finite_values(feature_map: FeatureMap, x: np.ndarray) -> None:
    fitted = fresh(feature_map)
    vectors = fitted.fit_transform(x)
    assert vectors.shape == (*x.shape, fitted.width)
    assert len(fitted.widths) == x.shape[1]
    assert max(fitted.widths) == fitted.width
    assert torch.isfinite(vectors).all()
    for site, width in enumerate(fitted.widths):
        assert (vectors[:, site, width:] == 0).all()


@pytest.mark.parametrize("feature_map", MAPS, ids=repr)
@FEW
@given(x=tables, data=st.data())
def test_second_moment_is_the_weighted_mean_square(feature_map: FeatureMap, x: np.ndarray, data: st.DataObject) -> None:
    weights = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(x), max_size=len(x))), dtype=float)
    weights[0] = 1.0
    fitted = fresh(feature_map).fit(x, sample_weight=weights)
    kept = weights > 0
    squares = fitted(x[kept]).square().sum(-1).numpy()
    expected = np.average(squares, axis=0, weights=weights[kept])
    moment = torch.as_tensor(fitted.second_moment, dtype=torch.float64).expand(x.shape[1])
    np.testing.assert_allclose(moment.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("feature_map", MAPS, ids=repr)
@FEW
@given(x=tables, data=st.data())
def test_weights_count_as_repeated_rows(feature_map: FeatureMap, x: np.ndarray, data: st.DataObject) -> None:
    weights = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(x), max_size=len(x))))
    weights[0] = 2
    weighted = fresh(feature_map).fit(x, sample_weight=weights)
    repeated = fresh(feature_map).fit(np.repeat(x, weights, axis=0))
    rows = x[weights > 0]
    torch.testing.assert_close(weighted(rows), repeated(rows), rtol=0, atol=0)


@pytest.mark.parametrize("feature_map", MAPS, ids=repr)
@FEW
@given(x=tables)
def test_json_pickle_and_equality(feature_map: FeatureMap, x: np.ndarray) -> None:
    fitted = fresh(feature_map)
    assert fitted == feature_map
    fitted.fit(x)
    assert fitted != feature_map
    for copy in (features.from_config(json.loads(json.dumps(fitted.to_config()))), pickle.loads(pickle.dumps(fitted))):
        assert copy == fitted
        assert torch.equal(copy(x), fitted(x))
        assert copy.widths == fitted.widths


@pytest.mark.parametrize("feature_map", MAPS, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_float_dtype_is_kept(feature_map: FeatureMap, dtype: torch.dtype) -> None:
    x = torch.tensor([[0.0, 1.0], [1.0, 3.0], [2.0, 3.0]], dtype=dtype)
    assert fresh(feature_map).fit_transform(x).dtype == dtype


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("feature_map", MAPS, ids=repr)
def test_device_is_kept(feature_map: FeatureMap) -> None:
    x = torch.tensor([[0.0, 1.0], [1.0, 3.0], [2.0, 3.0]], device="cuda")
    fitted = fresh(feature_map).fit(x, sample_weight=torch.ones(3, device="cuda"))
    assert fitted(x).device == x.device
    torch.testing.assert_close(fitted(x).cpu(), fitted(x.cpu()))


@pytest.mark.parametrize("feature_map", MAPS, ids=repr)
def test_array_dtypes(feature_map: FeatureMap) -> None:
    x = np.array([[0, 1], [1, 3], [2, 3]])
    fitted = fresh(feature_map).fit(x)
    assert fitted(x).dtype == fitted(x.tolist()).dtype == fitted(torch.tensor(x)).dtype == torch.float32
    assert fitted(x.astype(np.float32)).dtype == torch.float32
    assert fitted(x.astype(np.float64)).dtype == torch.float64
    assert torch.equal(fitted(x.astype(">f8")), fitted(x.astype(np.float64)))
    frozen = x.astype(np.float64)[::-1]
    frozen.flags.writeable = False
    assert torch.equal(fitted(frozen), fitted(x.astype(np.float64)).flip(0))


@pytest.mark.parametrize("feature_map", NUMERIC, ids=repr)
def test_gradients_reach_x(feature_map: FeatureMap) -> None:
    x = torch.tensor([[0.3, 1.4], [1.2, 2.7], [2.1, 0.2], [0.1, 1.1]], dtype=torch.float64)
    fitted = fresh(feature_map).fit(torch.cat([x - 1, x + 1]))
    assert torch.autograd.gradcheck(fitted.transform, x.requires_grad_())


@pytest.mark.parametrize("feature_map", STATELESS, ids=repr)
def test_maps_with_nothing_to_learn_work_without_fit(feature_map: FeatureMap) -> None:
    x = np.array([[0.0, 1.0], [1.0, 0.0]])
    before = feature_map(x)
    assert before.shape == (2, 2, feature_map.width)
    assert torch.equal(before, fresh(feature_map).fit_transform(x))


@pytest.mark.parametrize("feature_map", MAPS, ids=repr)
def test_an_empty_batch_passes_a_fitted_map(feature_map: FeatureMap) -> None:
    fitted = fresh(feature_map).fit([[0.0, 1.0], [1.0, 2.0]])
    assert fitted(np.zeros((0, 2))).shape == (0, 2, fitted.width)


@pytest.mark.parametrize("feature_map", MAPS, ids=repr)
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros(3), r"x must have shape \(B, N\)"),
        (np.zeros((2, 2, 2, 2)), r"x must have shape \(B, N\)"),
        (np.zeros((2, 0)), "at least one site"),
        (np.zeros((2, 3)), "x must have 2 sites"),
    ],
)
def test_wrong_shapes_are_named(feature_map: FeatureMap, x: np.ndarray, message: str) -> None:
    fitted = fresh(feature_map).fit([[0.0, 1.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match=message):
        fitted.transform(x)


@pytest.mark.parametrize("feature_map", NUMERIC, ids=repr)
@pytest.mark.parametrize("method", ["fit", "transform"])
def test_nan_and_inf_are_counted_and_located(feature_map: FeatureMap, method: str) -> None:
    fitted = fresh(feature_map).fit([[0.0, 1.0], [1.0, 2.0]])
    x = [[0.0, 1.0], [1.0, float("inf")], [float("nan"), 1.0]]
    with pytest.raises(ValueError, match=r"x must be finite, got 2 .* first is inf at row 1, site 1"):
        getattr(fitted, method)(x)


@pytest.mark.parametrize("feature_map", MAPS, ids=repr)
@pytest.mark.parametrize(
    ("weights", "error"),
    [
        ([1.0], ValueError),
        ([1.0, -1.0], ValueError),
        ([0.0, 0.0], ValueError),
        ([1.0, np.nan], ValueError),
        (["a", "b"], TypeError),
    ],
)
def test_bad_sample_weight(feature_map: FeatureMap, weights: list[Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="sample_weight must"):
        fresh(feature_map).fit([[0.0], [1.0]], sample_weight=weights)


@pytest.mark.parametrize("feature_map", MAPS, ids=repr)
def test_fit_needs_rows(feature_map: FeatureMap) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        fresh(feature_map).fit(np.zeros((0, 2)))


@pytest.mark.parametrize("feature_map", NUMERIC, ids=repr)
@pytest.mark.parametrize("x", [[["a", "b"]], np.array([[1j]]), torch.zeros(1, 1, dtype=torch.complex64), [[None, {}]]])
def test_x_must_hold_numbers(feature_map: FeatureMap, x: Any) -> None:
    with pytest.raises(TypeError, match="x must hold"):
        fresh(feature_map).fit(x)


@pytest.mark.parametrize("name", features.available())
def test_make_by_name(name: str) -> None:
    assert features.make(name).name == name


def test_make_and_from_config_refuse_what_they_do_not_know() -> None:
    with pytest.raises(ValueError, match="name must be one of"):
        features.make("fourier")
    with pytest.raises(TypeError, match=r"polynomial takes the parameters .* got \['deg'\]"):
        features.make("polynomial", deg=2)
    with pytest.raises(ValueError, match="config must be a dict"):
        features.from_config({"name": "hat"})


@pytest.mark.parametrize("feature_map", MAPS, ids=repr)
def test_masked_values_are_missing_ones(feature_map: FeatureMap):
    x = np.array([[0.0, 1.0], [1.0, 0.0], [3.0, 3.0]])
    fitted = features.from_config(feature_map.to_config()).fit(x)
    hidden = np.ma.masked_equal(x, 3.0)
    if isinstance(fitted, OneHot) and fitted.missing == "zero":
        assert fitted(hidden)[2].abs().max() == 0
    else:
        with pytest.raises(ValueError, match=r"x must be finite|missing|NaN"):
            fitted(hidden)
