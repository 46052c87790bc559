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
        ("model.onnx", {"average": True}, ValueError, "average=True needs a model with runs"),
        ("model.onnx", {"feature_map": "hat"}, TypeError, r"feature_map must be one of restt\.features .*'hat'"),
        ("model.onnx", {"feature_map": features.Polynomial(2)}, ValueError, r"feature_map must .* got \(2, 4, 3\)"),
        ("model.onnx", {"feature_map": features.Hat(2)}, ValueError, r"call fit\(x\) first"),
        ("model.onnx", {"feature_map": features.Affine().fit([[1.0]])}, ValueError, "fitted with 1 sites.* has 4"),
        ("model.onnx", {"feature_map": features.OneHot(["a", "b"])}, ValueError, "text level 'a' at site 0"),
        ("model.onnx", {"feature_map": features.OneHot([[1, 2]] * 3)}, ValueError, "fitted with 3 sites.* has 4"),
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


def test_missing_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"needs onnx: pip install restt\[export\]"):
        interop.export(MODEL, tmp_path / "model.onnx")


def test_a_failed_export_keeps_the_old_file(tmp_path, monkeypatch):
    path = interop.export(MODEL, tmp_path / "model.onnx")
    before = path.read_bytes()
    monkeypatch.setattr("restt.interop.onnx_graph.OnnxGraph.serialized", _refusing)
    with pytest.raises(RuntimeError, match="not today"):
        interop.export(MODEL, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def _refusing(*_):
    raise RuntimeError("not today")


def test_too_large_for_onnx_is_said_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("restt.interop.onnx_graph.LARGEST_FILE", 100)
    with pytest.raises(ValueError, match=r"at most 2 GiB.*use \.pt2"):
        interop.export(restt.ResTT(20, 2, 8, 2, Topology.residual(20)), tmp_path / "model.onnx")
