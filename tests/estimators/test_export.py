"""Exported graphs say what predict says."""

import numpy as np
import onnxruntime
import pytest
import torch

from restt import features
from restt.estimators import ResTTNetClassifier, ResTTNetRegressor
from tests.estimators.conftest import QUICK


def run_onnx(model, path, table):
    session = onnxruntime.InferenceSession(model.export(path, inputs="numbers"))
    dtype = {torch.float32: np.float32, torch.float64: np.float64}[model.module_.first.dtype]
    return session.run(None, {"x": table.astype(dtype)})[0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"runs": 3, "site_order": ["new", "colour", "size", "count"]},
        {"feature_map": "trigonometric"},
        {"feature_map": "onehot", "handle_unknown": "other"},
        {"feature_map": features.Hat(knots=4, outside="error")},
        {"topology": "volterra", "feature_map": "polynomial"},
    ],
)
def test_onnx_regression_of_a_mixed_table(mixed, options, tmp_path):
    frame, y = mixed
    model = ResTTNetRegressor(**QUICK, **options).fit(frame, y)
    found = run_onnx(model, tmp_path / "m.onnx", model.numbers(frame))
    np.testing.assert_allclose(found, model.predict(frame), rtol=0, atol=1e-5)


def test_onnx_float32_and_several_outputs(numbers, tmp_path):
    x, y = numbers
    x = x.astype(np.float32)
    model = ResTTNetRegressor(**QUICK, precision="float32").fit(x, np.column_stack([y, -y]))
    found = run_onnx(model, tmp_path / "m.onnx", x)
    assert found.shape == (60, 2)
    np.testing.assert_allclose(found, model.predict(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("loss", ["cross-entropy", "mse"])
def test_onnx_probabilities(numbers, loss, tmp_path):
    x, y = numbers
    model = ResTTNetClassifier(**QUICK, loss=loss, runs=2).fit(x, np.digitize(y, [-0.5, 0.5]))
    np.testing.assert_allclose(run_onnx(model, tmp_path / "m.onnx", x), model.predict_proba(x), rtol=0, atol=1e-5)


def test_probabilities_are_written_without_torchs_exporter(fitted_classifier, tmp_path, monkeypatch):
    """Which takes seconds, and a package of its own."""
    monkeypatch.setattr(torch.onnx, "export", None)
    assert fitted_classifier.export(tmp_path / "m.onnx").exists()


def test_torch_program(mixed, tmp_path):
    frame, y = mixed
    model = ResTTNetRegressor(**QUICK).fit(frame, y)
    program = torch.export.load(model.export(tmp_path / "m.pt2")).module()
    for rows in (1, 80):
        table = model.numbers(frame[:rows])
        found = program(torch.from_numpy(table)).numpy()
        np.testing.assert_allclose(found, model.predict(frame[:rows]), rtol=0, atol=1e-5)


def test_rows_that_predict_refuses_are_nan(mixed, tmp_path):
    frame, y = mixed
    known = frame.notna().all(axis=1)
    options = {**QUICK, "handle_unknown": "error", "handle_missing": "error"}
    model = ResTTNetRegressor(**options).fit(frame[known], y[known])
    table = model.numbers(frame[known][:6])
    table[0, 2] = np.nan  # count was never missing
    table[1, 1] = 3  # there are three colours, 0 to 2
    table[2, 1] = -1
    table[3, 0] = np.inf
    found = run_onnx(model, tmp_path / "m.onnx", table)
    assert np.isnan(found).tolist() == [True, True, True, True, False, False]


@pytest.mark.parametrize("feature_map", ["auto", "hat"])
def test_unseen_values_are_the_average_in_the_graph_too(mixed, tmp_path, feature_map):
    frame, y = mixed
    model = ResTTNetRegressor(**QUICK, feature_map=feature_map).fit(frame, y)
    new = frame[:5].assign(colour="violet", count=np.nan)
    with pytest.warns(UserWarning, match=r"'violet'|misses 5"):
        table, want = model.numbers(new), model.predict(new)
    assert table[:, 1].tolist() == [-1.0] * 5
    np.testing.assert_allclose(run_onnx(model, tmp_path / "m.onnx", table), want, rtol=0, atol=1e-5)
