import sys

import pytest
import torch

import restt
from restt import Topology, features, interop

MODEL = restt.ResTT(4, 2, 3, 2)


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("model.bin", {}, ValueError, r"path must end in \.onnx or \.pt2.*'model\.bin'"),
        ("model.onnx", {"format": "tflite"}, ValueError, r"format must be one of \['onnx', 'torch'\], got 'tflite'"),
        ("model.onnx", {"average": True}, ValueError, "average=True needs a model with runs"),
        ("model.onnx", {"head": 3}, TypeError, "head must be a torch module or a function of a tensor, got 3"),
        ("model.onnx", {"head": lambda y: (y, y)}, TypeError, "head must return a tensor"),
        ("model.onnx", {"head": lambda y: y.to(torch.complex64)}, TypeError, "head must return one of .*complex64"),
        ("model.onnx", {"feature_map": "hat"}, TypeError, "feature_map has no graph form: expected Identity.*'hat'"),
        ("model.onnx", {"feature_map": features.Polynomial(2)}, ValueError, r"feature_map must .* got \(2, 4, 3\)"),
        ("model.onnx", {"feature_map": features.Hat(2)}, ValueError, r"call fit\(x\) first"),
        ("model.onnx", {"feature_map": features.Affine().fit([[1.0]])}, ValueError, "fitted with 1 sites.* has 4"),
        ("model.onnx", {"feature_map": features.OneHot(["a", "b"])}, ValueError, "text level 'a' at site 0"),
        ("model.onnx", {"feature_map": features.OneHot([[1, 2]] * 3)}, ValueError, "fitted with 3 sites.* has 4"),
        ("model.onnx", {"row_shape": (4,)}, ValueError, "row_shape is only for"),
        ("model.onnx", {"feature_map": torch.nn.Identity()}, ValueError, r"feature_map must .* got \(2, 4\)"),
    ],
)
def test_bad_arguments(tmp_path, name, options, error, message):
    with pytest.raises(error, match=message):
        interop.export(MODEL, tmp_path / name, **options)
    assert list(tmp_path.iterdir()) == []


def test_bad_models(tmp_path):
    with pytest.raises(TypeError, match=r"model must be a restt\.ResTT"):
        interop.export(torch.nn.Linear(2, 2), tmp_path / "model.onnx")
    with pytest.raises(TypeError, match=r"float32 or float64.*bfloat16"):
        interop.export(restt.ResTT(4, 2, 3, 2, dtype=torch.bfloat16), tmp_path / "model.onnx")


def test_format_beats_the_ending(tmp_path):
    named = interop.export(MODEL, tmp_path / "model.bin", format="onnx")
    plain = interop.export(MODEL, tmp_path / "model.onnx")
    shouted = interop.export(MODEL, tmp_path / "MODEL.ONNX")
    assert named.read_bytes() == plain.read_bytes() == shouted.read_bytes()


@pytest.mark.parametrize(("package", "options"), [("onnx", {}), ("onnxscript", {"head": torch.exp})])
def test_missing_package_names_the_extra(tmp_path, monkeypatch, package, options):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs {package}: pip install restt\[export\]"):
        interop.export(MODEL, tmp_path / "model.onnx", **options)


def test_a_failed_export_keeps_the_old_file(tmp_path):
    path = interop.export(MODEL, tmp_path / "model.onnx")
    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="not today"):
        interop.export(MODEL, path, head=_refusing)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def _refusing(y):
    raise RuntimeError("not today")


def test_too_large_for_onnx_is_said_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("restt.interop.exporting.LARGEST_FILE", 100)
    with pytest.raises(ValueError, match=r"at most 2 GiB.*use \.pt2"):
        interop.export(restt.ResTT(20, 2, 8, 2, Topology.residual(20)), tmp_path / "model.onnx")
