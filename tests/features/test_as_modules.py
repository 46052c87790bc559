"""Maps as torch modules: in containers, in state dicts, moved, copied; and what they say to values they cannot tell."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest
import safetensors.torch
import torch
from torch import nn

import restt
from restt.features import Affine, Hat, Identity, OneHot, Polynomial, RangeWarning, Trigonometric

ROWS = torch.tensor([[0.0, 0.25, 1.0], [1.0, 0.5, 0.0], [0.5, 0.75, 0.25]])
MAPS = [Identity(), Affine(), Polynomial(2), Trigonometric(), Hat(4), Hat(3, "quantile"), OneHot()]


def pipeline(feature_map, dtype=None):
    return nn.Sequential(feature_map, restt.ResTT(3, feature_map.widths, 4, 2, dtype=dtype))


@pytest.mark.parametrize("feature_map", MAPS, ids=repr)
def test_in_front_of_a_model(feature_map):
    feature_map = copy.deepcopy(feature_map).fit(ROWS)
    model = pipeline(feature_map)
    torch.testing.assert_close(model(ROWS), model[1](feature_map.transform(ROWS)), rtol=0, atol=0)
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in model[1].parameters())
    assert list(feature_map.parameters()) == []


def test_hats_in_a_graph_of_torchs_own_exporter(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    hat, file = Hat(4).fit(ROWS).eval(), tmp_path / "hat.onnx"
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(hat, (ROWS,), file, dynamo=True, verbose=False)
    session = runtime.InferenceSession(file)
    (found,) = session.run(None, {session.get_inputs()[0].name: ROWS.flip(0).numpy()})
    torch.testing.assert_close(torch.from_numpy(found), hat(ROWS.flip(0)))


def test_learns_with_the_model_behind_it():
    model = pipeline(Trigonometric().fit(ROWS))
    model(ROWS).square().sum().backward()
    assert model[1].chain.grad.abs().max() > 0


@pytest.mark.parametrize("feature_map", MAPS, ids=repr)
def test_what_was_learned_is_in_the_state_dict(feature_map):
    fitted = copy.deepcopy(feature_map).fit(ROWS)
    model = pipeline(fitted)
    saved = io.BytesIO()
    torch.save(model.state_dict(), saved)
    saved.seek(0)
    other = nn.Sequential(copy.deepcopy(feature_map), restt.ResTT(3, fitted.widths, 4, 2))
    other.load_state_dict(torch.load(saved, weights_only=True))
    assert other[0] == fitted
    assert torch.equal(other(ROWS), model(ROWS))
    tensors = safetensors.torch.load(safetensors.torch.save(model.state_dict()))
    again = nn.Sequential(copy.deepcopy(feature_map), restt.ResTT(3, fitted.widths, 4, 2))
    again.load_state_dict(tensors)
    assert again[0] == fitted


def test_a_state_of_an_unfitted_map_is_unfitted():
    hat = Hat(4).fit(ROWS)
    hat.load_state_dict(Hat(4).state_dict())
    assert hat == Hat(4)


def test_lower_precision_does_not_touch_what_was_learned():
    model = pipeline(Hat(4).fit(ROWS.double() / 3), dtype=torch.float64)
    knots = model[0].site_knots
    model.half()
    assert model[0].site_knots == knots
    assert model(ROWS.half()).dtype == torch.float16


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_independent(copied):
    model = pipeline(Hat(4).fit(ROWS))
    twin = copied(model)
    assert torch.equal(twin(ROWS), model(ROWS))
    twin[0].fit(ROWS * 2)
    assert twin[0] != model[0]


def test_equal_maps_have_equal_hashes_before_and_after_a_fit():
    first, second = Hat(4), Hat(4)
    assert first == second
    before = hash(first)
    assert before == hash(second)
    assert hash(first.fit(ROWS)) == before


def test_a_containers_text_names_the_map():
    assert "(0): Trigonometric(outside='extrapolate')" in str(pipeline(Trigonometric().fit(ROWS)))


@pytest.mark.parametrize("call", [lambda m, x: m(x), lambda m, x: m.fit(x), lambda m, x: nn.Sequential(m)(x)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_pixels_up_to_255_are_told_to_be_scaled(call, dtype):
    pixels = torch.tensor([[0, 128, 255]], dtype=dtype)
    expected = r"x has values from 0 to 255, but Trigonometric .*\[0, 1\].*period 4.*x / 255"
    with pytest.warns(RangeWarning, match=expected) as seen:
        call(Trigonometric(), pixels)
    assert seen[0].filename == __file__


@pytest.mark.parametrize("values", [[0.0, 1.0], [-0.5, 0.5], [-2.0, 2.0], [1.2, 0.0]])
def test_values_it_tells_apart_pass_in_silence(values):
    with warnings.catch_warnings(action="error"):
        vectors = Trigonometric()([values])
    assert vectors.shape == (1, 2, 2)


def test_clamped_values_pass_in_silence():
    clamped = Trigonometric(outside="clamp").fit([[0.0], [1.0]])
    with warnings.catch_warnings(action="error"):
        assert torch.equal(clamped([[300.0]]), clamped([[1.0]]))


def test_no_rows_have_no_range():
    assert Trigonometric()(torch.empty(0, 3)).shape == (0, 3, 2)


class TestWhereNoValueIsKnown:
    """Under torch's tracers and transforms, which cannot follow a check of the values."""

    FORMULAS = (Polynomial(2), Trigonometric("clamp"), Hat(4))

    @pytest.fixture(params=FORMULAS, ids=repr)
    def model(self, request):
        made = pipeline(copy.deepcopy(request.param).fit(ROWS))
        yield made
        torch.compiler.reset()

    def test_compiles_in_one_graph(self, model):
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(ROWS), model(ROWS))

    @pytest.mark.parametrize("strict", [False, True])
    def test_is_exported(self, model, strict):
        batch = torch.export.Dim("batch", min=2, max=64)
        program = torch.export.export(model, (ROWS,), dynamic_shapes=({0: batch},), strict=strict)
        more = torch.cat([ROWS, ROWS / 2])
        torch.testing.assert_close(program.module()(more), model(more))

    def test_vmap_over_samples(self, model):
        each = torch.func.vmap(lambda sample: model(sample[None])[0])(ROWS)
        torch.testing.assert_close(each, model(ROWS))

    def test_gradients_of_each_sample(self, model):
        each = torch.func.vmap(torch.func.grad(lambda sample: model(sample[None]).sum()))(ROWS)
        x = ROWS.clone().requires_grad_()
        model(x).sum().backward()
        torch.testing.assert_close(each, x.grad)

    def test_fake_tensors_have_the_shape_of_real_ones(self, model):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            assert model(mode.from_tensor(ROWS)).shape == (3, 2)

    def test_eager_calls_still_look(self, model):
        bad = ROWS.clone()
        bad[1, 2] = torch.nan
        with pytest.raises(ValueError, match=r"x must be finite, got 1 NaN .* nan at row 1, site 2"):
            model(bad)
        out = torch.compile(model, fullgraph=True, backend="aot_eager")(bad)
        assert out.shape == (3, 2)

    def test_a_map_that_refuses_values_says_that_it_cannot(self):
        refusing = Trigonometric("error").fit(ROWS)
        with pytest.raises(ValueError, match=r'outside="error" looks at every value.*use outside="clamp"'):
            torch.func.vmap(lambda sample: refusing(sample[None]))(ROWS)
