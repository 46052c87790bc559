"""A trained module, with its feature map, as a graph that other runtimes run."""

from __future__ import annotations

import io
import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import shown
from restt._common.files import write_bytes_atomic
from restt.diagonal import DiagonalTT
from restt.features import FeatureMap
from restt.interop.graph_parts import ChainPart, DiagonalPart, MapPart, map_part
from restt.interop.onnx_graph import LARGEST_FILE, GraphPart, Interface, Node, OnnxGraph
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
    part = None if feature_map is None else map_part(feature_map, model)
    return write_graph(ModelGraph(model, part, average), path)


def write_graph(graph: ModelGraph, path: str | PathLike[str], interface: Interface | None = None) -> Path:
    """Write a graph in the format that the ending of ``path`` names; the ``interface`` is for ONNX."""
    onnx = checked_format(path) == "onnx"
    return write_bytes_atomic(Path(path), _onnx_bytes(graph, interface or Interface()) if onnx else _torch_bytes(graph))


def checked_format(path: str | PathLike[str]) -> str:
    """Return the format that the ending of ``path`` names."""
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise ValueError(f"path must end in {' or '.join(FORMATS)}, got {Path(path).name!r}")
    return FORMATS[ending]


class ModelGraph(GraphPart):
    """The whole graph: feature map, train, mean of the runs, and a head on the averaged outputs (B, O).

    A subclass may return a tuple: this output and others of its shape, named by the interface's ``bounds``.
    """

    def __init__(
        self, model: ResTT | DiagonalTT, part: MapPart | None, average: bool, head: GraphPart | None = None
    ) -> None:
        super().__init__()
        self.dtype = model.dtype
        if self.dtype not in DTYPES:
            raise TypeError(f"model must be in float32 or float64 to be exported, got {self.dtype}: use model.float()")
        if average and model.runs is None:
            raise ValueError("average=True needs a model with runs, got one with runs=None")
        self.average, self.runs = average, model.runs
        self.train_part = DiagonalPart(model) if isinstance(model, DiagonalTT) else ChainPart(model)
        self.map, self.head = part, head
        self.row_shape = (model.sites, model.feature_dim) if part is None else part.row_shape
        rows = torch.zeros(2, *self.row_shape, dtype=self.dtype)
        shape, wanted = tuple((rows if part is None else part(rows)).shape), (2, model.sites, model.feature_dim)
        if shape != wanted:
            raise ValueError(
                f"feature_map must turn rows of shape {self.row_shape} into the model's site features, for two rows "
                f"{wanted}, got {shape}; fit it first where a site is a patch of several values"
            )
        members = () if self.runs is None or average else (self.runs,)
        self.output_shape: tuple[int | None, ...] = (*members, None, model.outputs)
        if head is not None:
            self.output_shape = (None, *head(torch.zeros(2, model.outputs, dtype=self.dtype)).shape[1:])

    def forward(self, x: Tensor) -> Any:
        """Outputs of rows."""
        output = self.outputs(x if self.map is None else self.map(x))
        return output if self.head is None else self.head(output)

    def outputs(self, vectors: Tensor) -> Tensor:
        """Outputs of site vectors before the head."""
        output: Tensor = self.train_part(vectors)
        if self.average:
            return output.mean(dim=0)
        return output.select(0, 0) if self.runs is None else output


def _onnx_bytes(graph: ModelGraph, interface: Interface) -> bytes:
    size = sum(tensor.nbytes for tensor in graph.buffers())
    if size > LARGEST_FILE:
        raise ValueError(f"an ONNX file holds at most 2 GiB, the model's weights are {size / 2**30:.1f} GiB: use .pt2")
    written = OnnxGraph(graph.dtype, taken=frozenset(column.name for column in interface.columns))
    if interface.columns:
        inputs = [column.declared(written) for column in interface.columns]
        table = written.write("cat", [column.numbers(written) for column in interface.columns], -1)
    else:
        inputs = [written.declared("x", written.float_type, (None, *graph.row_shape))]
        table = Node(written, "x")
    built = graph(table)
    values = built if isinstance(built, tuple) else (built,)
    pairs = zip(("output", *interface.bounds), values, strict=True)
    outputs = {value: written.declared(name, written.float_type, graph.output_shape) for name, value in pairs}
    if interface.classes:
        outputs[interface.label(values[0])] = written.declared("label", int(written.types.STRING), (None,))
    return bytes(written.model(inputs, outputs, interface.notes).SerializeToString())


def _torch_bytes(graph: ModelGraph) -> bytes:
    example = torch.zeros(2, *graph.row_shape, dtype=graph.dtype)
    dynamic = ({0: torch.export.Dim("batch", min=1)},)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(graph.eval(), (example,), dynamic_shapes=dynamic, strict=False)
        torch.export.save(program, buffer)
    return buffer.getvalue()
