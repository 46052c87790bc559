"""A head or feature map that is someone's own torch module, as a piece of an ONNX graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from restt.interop.onnx_ops import OPSET
from restt.interop.quiet import quiet_exporters


def converted(module: nn.Module, shape: tuple[int | None, ...], dtype: torch.dtype) -> Any:
    """The ONNX graph of ``module`` for an input of this shape, None for the batch axis."""
    try:
        import onnxscript  # noqa: F401
    except ImportError as missing:
        raise ImportError("ONNX export of a torch module needs onnxscript: pip install restt[export]") from missing
    example = torch.zeros([2 if size is None else size for size in shape], dtype=dtype)
    batch = torch.export.Dim("batch", min=1)
    with quiet_exporters():
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=({axis: batch for axis, size in enumerate(shape) if size is None},),
            verbose=False,
        )
    assert program is not None
    graph = program.model_proto.graph
    if len(graph.output) != 1:
        raise ValueError(f"the torch module must return one tensor, got {len(graph.output)}")
    return graph
