"""Running exported graphs."""

from __future__ import annotations

import onnx
import onnxruntime
import torch

from restt import interop


def run_onnx(path, x):
    """The graph's output for a tensor, in a session of its own."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x.numpy()})
    return torch.from_numpy(found)


def all_nodes(graph):
    """The nodes of an ONNX graph and of the loop bodies in it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)


def assert_same(found, expected, tolerance=1e-5):
    expected = expected.detach()
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if expected.numel():
        scale = max(1.0, expected.abs().max().item())
        assert (found - expected).abs().max().item() <= tolerance * scale


def assert_onnx_agrees(folder, module, x, feature_map=None, tolerance=1e-5):
    """Export, check the file by ONNX's own rules, run it, compare with the module."""
    path = interop.export(module, folder / "model.onnx", feature_map=feature_map)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    assert_same(run_onnx(path, x), module(x if feature_map is None else feature_map(x)), tolerance)
