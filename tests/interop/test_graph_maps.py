"""Every feature map inside a graph: the same vectors as the map itself, and NaN where the map would raise."""

import math

import pytest
import torch

import restt
from restt import features, interop
from restt.interop.graph_parts import map_part
from tests.interop.helpers import assert_onnx_agrees, assert_same, run_onnx

# Values far beyond [0, 1] on purpose: the graph must agree with the map there too.
pytestmark = pytest.mark.filterwarnings("ignore::restt.features.RangeWarning")

SITES = 4
TABLE = torch.rand(40, SITES, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3 - 1
BEYOND = torch.cat([TABLE, TABLE * 4])
CODES = torch.randint(0, 3, (30, SITES), generator=torch.Generator().manual_seed(1)).double() * 7
PATCHES = torch.rand(20, SITES, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
TIED = TABLE.clone()
TIED[:30, 1], TIED[:, 2], TIED[4:, 3] = 0.25, 2.0, -1.0

MAPS = [
    (features.Identity(), BEYOND),
    (features.Identity("clamp").fit(TABLE), BEYOND),
    (features.Identity().fit(PATCHES), PATCHES),
    (features.Affine(), BEYOND),
    (features.Affine("clamp").fit(TABLE), BEYOND),
    (features.Affine("clamp").fit(PATCHES), PATCHES * 2),
    (features.Trigonometric(), BEYOND),
    (features.Trigonometric("clamp").fit(TABLE), BEYOND),
    (features.Trigonometric("error").fit(PATCHES), PATCHES),
    (features.Polynomial(3), BEYOND),
    (features.Polynomial(4, include_bias=False, outside="clamp").fit(TABLE), BEYOND),
    (features.Polynomial(2, outside="error").fit(TABLE), TABLE),
    (features.Hat(5).fit(TABLE), BEYOND),
    (features.Hat(5, outside="extrapolate").fit(TABLE), BEYOND),
    (features.Hat(5, outside="error").fit(TABLE), TABLE),
    (features.Hat(6, placement="quantile", outside="extrapolate").fit(TIED), torch.cat([TIED, BEYOND])),
    (features.Hat([0.0, 0.5, 1.0]), torch.cat([BEYOND, torch.full((1, SITES), 0.5)])),
    (features.Hat([[0.0], [0.0, 1.0], [0.0, 0.5, 2.0], [-1.0, 1.0]], outside="extrapolate"), BEYOND),
    (features.OneHot().fit(CODES), CODES),
    (features.OneHot(levels=15), CODES),
    (features.OneHot([[0, 7, 14], [14, 7], [0.0], [3.5, 7]], unknown="zero"), CODES),
    (features.OneHot([0, 7], unknown="zero", missing="zero"), torch.where(CODES == 14, math.nan, CODES)),
]


def module_for(feature_map, x, dtype):
    width = feature_map(x).shape[-1]
    module = restt.ResTT(SITES, width, 3, 2, dtype=dtype)
    module.reset_parameters(seed=4)
    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("feature_map", "x"), MAPS, ids=lambda value: repr(value) if not torch.is_tensor(value) else ""
)
def test_agrees_with_the_map(tmp_path, feature_map, x, dtype):
    x = x.to(dtype)
    if getattr(feature_map, "outside", None) == "error":  # rounding may move an end of the range by one step
        x = x.clamp(*(end.to(dtype) for end in feature_map._range()))
    module = module_for(feature_map, x, dtype)
    vectors = map_part(feature_map, module).vectors(x)
    assert_same(vectors, feature_map(x), tolerance=1e-6 if dtype == torch.float32 else 1e-14)
    assert_onnx_agrees(tmp_path, module, x, feature_map, tolerance=1e-5 if dtype == torch.float32 else 1e-12)


def test_knots_that_float32_cannot_tell_apart(tmp_path):
    x = torch.tensor([-1.0, 0.5, 1.0, 1.5, 2.5, 3.0]).repeat(SITES, 1).T.contiguous()
    for knots in (
        [0, 1, 1 + 1e-12, 2],
        [1, 1 + 1e-12, 2],
        [0, 1, 1 + 1e-12],
        [1, 1 + 1e-12],
        [0, 1, 1 + 1e-12, 1 + 2e-12],
    ):
        hat = features.Hat(knots, outside="extrapolate")
        assert_onnx_agrees(tmp_path, module_for(hat, x, torch.float32), x, hat)


def test_levels_that_float32_cannot_tell_apart(tmp_path):
    onehot = features.OneHot([1.0, 2.0, 2 + 1e-12])
    x = torch.tensor([1.0, 2.0]).repeat(SITES, 1).T.contiguous()
    assert_onnx_agrees(tmp_path, module_for(onehot, x, torch.float32), x, onehot)


REFUSED = [
    (features.Identity(), TABLE, [math.nan, math.inf, -math.inf]),
    (features.Affine("clamp").fit(TABLE), TABLE, [math.nan, math.inf, -math.inf]),
    (features.Trigonometric().fit(PATCHES), PATCHES, [math.nan]),
    (features.Polynomial(2, outside="error").fit(TABLE), TABLE, [math.nan, 5.0, -5.0]),
    (features.Hat(4).fit(TABLE), TABLE, [math.nan, math.inf]),
    (features.OneHot().fit(CODES), CODES, [math.nan, math.inf, 3.0]),
    (features.OneHot([0, 7, 14], unknown="zero"), CODES, [math.nan, -math.inf]),
    (features.OneHot([0, 7, 14], missing="zero"), CODES, [math.inf, 3.0]),
]


@pytest.mark.parametrize(("feature_map", "x", "values"), REFUSED)
def test_refused_rows_are_nan_and_only_they(tmp_path, feature_map, x, values):
    module = module_for(feature_map, x, torch.float64)
    path = interop.export(module, tmp_path / "model.onnx", feature_map=feature_map)
    expected = module(feature_map(x))
    for value in values:
        spoilt = x.clone()
        spoilt[3].view(-1)[-1] = value
        with pytest.raises(ValueError, match="x "):
            feature_map(spoilt)
        found = run_onnx(path, spoilt)
        assert found[3].isnan().all()
        rest = torch.arange(len(x)) != 3
        assert_same(found[rest], expected[rest], tolerance=1e-12)


def test_a_dead_site_is_still_refused(tmp_path):
    module = restt.ResTT(SITES, 1, 3, 2, restt.Topology.volterra(SITES).without_chain(SITES))
    path = interop.export(module, tmp_path / "model.onnx", feature_map=features.Identity())
    x = torch.ones(2, SITES)
    x[1, 0] = math.nan
    assert run_onnx(path, x).isnan().any(dim=1).tolist() == [False, True]
