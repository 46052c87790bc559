"""A trained module, with its feature map, as a graph that other runtimes run."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from restt._common.errors import shown
from restt._common.files import write_bytes_atomic
from restt.diagonal import DiagonalTT
from restt.features import FeatureMap
from restt.interop.graph_parts import Function, map_part, train_part
from restt.interop.onnx_graph import Node, OnnxGraph
from restt.module import ResTT

FORMATS = {".onnx": "onnx", ".pt2": "torch"}
DTYPES = (torch.float32, torch.float64)


def export(
    model: ResTT | DiagonalTT,
    path: str | PathLike[str],
    *,
    feature_map: FeatureMap | None = None,
    average: bool = False,
) -> Path:
    """Write ``model(feature_map(x))`` as one graph with a dynamic batch; its number of nodes does not grow with N.

    A fitted estimator has a method ``export`` of its own.

    Parameters
    ----------
    model : ResTT or DiagonalTT
        In float32 or float64; the graph has the same dtype, for its input too, and is made for the CPU.
    path : path
        Ending in ``.onnx`` (ONNX, opset 18; input ``x``, output ``output``) or ``.pt2`` (a ``torch.export`` program:
        ``torch.export.load(path).module()(x)``). Written whole or not at all.
    feature_map : FeatureMap, optional
        Becomes part of the graph, which then takes the raw table (B, N), or patches (B, N, P) if the map was fitted to
        some. Without one it takes site features (B, N, I). A graph cannot raise: a row with a value that the map
        refuses has output NaN.
    average : bool
        Average the runs: (S, B, O) -> (B, O). Only for a model with runs.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import onnxruntime, restt, torch
    >>> from restt import features, interop
    >>> model = restt.ResTT(sites=5, feature_dim=2, bond_dim=3, outputs=1)
    >>> path = interop.export(model, getfixture("tmp_path") / "model.onnx", feature_map=features.Trigonometric())
    >>> session = onnxruntime.InferenceSession(path)
    >>> table = torch.rand(7, 5)
    >>> (output,) = session.run(None, {"x": table.numpy()})
    >>> torch.allclose(torch.from_numpy(output), model(features.Trigonometric()(table)), atol=1e-5)
    True
    """
    if not isinstance(model, (ResTT, DiagonalTT)):
        raise TypeError(f"model must be a restt.ResTT or restt.DiagonalTT, got {shown(model)}")
    checked_format(path)
    if average and model.runs is None:
        raise ValueError("average=True needs a model with runs, got one with runs=None")
    outputs = model_outputs(model, average)
    shape = (*(() if average or model.runs is None else (model.runs,)), None, model.outputs)
    if feature_map is None:
        return write_graph(path, outputs, (model.sites, model.feature_dim), model.dtype, shape)
    row_shape, vectors = map_part(feature_map, model)
    found = tuple(vectors(torch.zeros(2, *row_shape, dtype=model.dtype)).shape)
    wanted = (2, model.sites, model.feature_dim)
    if found != wanted:
        raise ValueError(
            f"feature_map must turn rows of shape {row_shape} into the model's site features, for two rows {wanted}, "
            f"got {found}; fit it first where a site is a patch of several values"
        )
    return write_graph(path, lambda x: outputs(vectors(x)), row_shape, model.dtype, shape)


def model_outputs(model: ResTT | DiagonalTT, average: bool) -> Function:
    """Site vectors -> outputs of a model, or the mean of its runs."""
    if model.dtype not in DTYPES:
        raise TypeError(f"model must be in float32 or float64 to be exported, got {model.dtype}: use model.float()")
    train, has_runs = train_part(model), model.runs is not None

    def outputs(vectors: Any) -> Any:
        output = train(vectors)
        if average:
            return output.mean(dim=0)
        return output if has_runs else output.select(0, 0)

    return outputs


def checked_format(path: str | PathLike[str]) -> str:
    """Return the format that the ending of ``path`` names."""
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise ValueError(f"path must end in {' or '.join(FORMATS)}, got {Path(path).name!r}")
    return FORMATS[ending]


def write_graph(
    path: str | PathLike[str],
    function: Function,
    row_shape: Sequence[int],
    dtype: torch.dtype,
    shape: Sequence[int | None],
    *,
    names: Sequence[str] = ("output",),
    table: Callable[[OnnxGraph], Node] | None = None,
    label: Callable[[Node], Node] | None = None,
    notes: Mapping[str, str] | None = None,
) -> Path:
    """Write ``function`` of rows in the format that the ending of ``path`` names.

    It returns one value for each of ``names``, all of this ``shape``, where None is the batch. The others are for ONNX:
    ``table`` declares inputs that are not one matrix ``x`` and writes the matrix, ``label`` writes one more output.
    """
    if checked_format(path) == "torch":
        return write_bytes_atomic(Path(path), _torch_bytes(function, row_shape, dtype))
    graph = OnnxGraph(dtype)
    values = function(graph.input("x", dtype, (None, *row_shape)) if table is None else table(graph))
    values = values if isinstance(values, tuple) else (values,)
    for name, value in zip(names, values, strict=True):
        graph.output(name, value, shape, dtype)
    if label is not None:
        graph.output("label", label(values[0]), (None,), None)
    return write_bytes_atomic(Path(path), graph.serialized(notes or {}))


class _Program(nn.Module):
    """A function as the module that torch exports."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        """Call the function."""
        return self.function(x)


def _torch_bytes(function: Function, row_shape: Sequence[int], dtype: torch.dtype) -> bytes:
    example = torch.zeros(2, *row_shape, dtype=dtype)
    dynamic = ({0: torch.export.Dim("batch", min=1)},)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(_Program(function), (example,), dynamic_shapes=dynamic, strict=False)
        torch.export.save(program, buffer)
    return buffer.getvalue()
