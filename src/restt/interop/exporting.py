"""A trained module, with its feature map, as a graph that other runtimes run."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from restt._common.errors import check_choice, shown
from restt._common.files import write_bytes_atomic
from restt.diagonal import DiagonalTT
from restt.features import FeatureMap
from restt.interop.graph_parts import ChainPart, DiagonalPart, MapPart, map_part
from restt.interop.onnx_graph import LARGEST_FILE, OUTPUT_TYPES, GraphPart, Node, call, quiet_exporters
from restt.interop.onnx_tables import Interface
from restt.module import ResTT

FORMATS = {".onnx": "onnx", ".pt2": "torch"}
DTYPES = (torch.float32, torch.float64)


@runtime_checkable
class SupportsExport(Protocol):
    """What knows how to export itself: a fitted estimator."""

    def export(self, path: str | PathLike[str]) -> Path: ...


def export(
    model: ResTT | DiagonalTT | SupportsExport,
    path: str | PathLike[str],
    *,
    feature_map: FeatureMap | nn.Module | None = None,
    format: str | None = None,
    average: bool = False,
    head: Callable[[Tensor], Tensor] | None = None,
    row_shape: tuple[int, ...] | None = None,
) -> Path:
    """Write ``head(model(feature_map(x)))`` as one graph with a dynamic batch.

    Its size does not grow with N, but with the states of diagonal cores.

    Parameters
    ----------
    model : ResTT, DiagonalTT or fitted estimator
        An estimator brings its own feature map and head; give it no other option. A module is in float32 or float64;
        the graph has the same dtype, for its input too, and is made for the CPU.
    path : path
        Ending in ``.onnx`` (ONNX, opset 18; input ``x``, output ``output``) or ``.pt2`` (a ``torch.export`` program:
        ``torch.export.load(path).module()(x)``). Written whole or not at all.
    feature_map : FeatureMap or torch module, optional
        Becomes part of the graph, which then takes the raw table (B, N), or patches (B, N, P). Without one it takes
        site features (B, N, I). A graph cannot raise: a row with a value that the map refuses has output NaN.
    format : {"onnx", "torch"}, optional
        When the ending does not say.
    average : bool
        Average the runs: (S, B, O) -> (B, O). Only for a model with runs.
    head : callable, optional
        A torch module or function applied to the outputs (B, O) or, with runs that are not averaged, (S, B, O): undo
        a target's scaling, softmax, …
    row_shape : tuple of int, optional
        Shape of one row of the input, for a ``feature_map`` that is a torch module; by default (N,).

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
    >>> (found,) = session.run(None, {"x": table.numpy()})
    >>> torch.allclose(torch.from_numpy(found), model(features.Trigonometric()(table)), atol=1e-5)
    True
    """
    target = Path(path)
    if isinstance(model, SupportsExport):
        given = (feature_map, format, head, row_shape)
        if average or any(option is not None for option in given):
            raise TypeError(f"{type(model).__name__} brings its own feature map, average and head: give only the path")
        return model.export(target)
    kind = checked_format(target, format)
    return write_graph(ModelGraph(model, feature_map, average, head, row_shape), target, kind)


def write_graph(graph: ModelGraph, path: Path, kind: str, interface: Interface | None = None) -> Path:
    """Write a graph in the format ``kind``; the ``interface`` is for ONNX."""
    made = _onnx_bytes(graph, interface or Interface()) if kind == "onnx" else _torch_bytes(graph)
    return write_bytes_atomic(path, made)


class ModelGraph(GraphPart):
    """The whole graph: feature map, chain, mean of the runs, head.

    A subclass may return a tuple: this output and others of its shape, named by the interface's ``bounds``.
    """

    def __init__(
        self,
        model: ResTT | DiagonalTT,
        feature_map: FeatureMap | nn.Module | None,
        average: bool,
        head: Callable[[Tensor], Tensor] | None,
        row_shape: tuple[int, ...] | None,
    ) -> None:
        super().__init__()
        if not isinstance(model, (ResTT, DiagonalTT)):
            raise TypeError(f"model must be a restt.ResTT or restt.DiagonalTT, got {shown(model)}")
        self.dtype = model.dtype
        if self.dtype not in DTYPES:
            raise TypeError(f"model must be in float32 or float64 to be exported, got {self.dtype}: use model.float()")
        if average and model.runs is None:
            raise ValueError("average=True needs a model with runs, got one with runs=None")
        self.average, self.runs = average, model.runs
        self.chain = DiagonalPart(model) if isinstance(model, DiagonalTT) else ChainPart(model)
        self.map, self.row_shape = _read_map(feature_map, model, row_shape)
        self._check_width(model)
        self.head = None if head is None else _as_module(head)
        members = () if self.runs is None or average else (self.runs,)
        self.raw_shape: tuple[int | None, ...] = (*members, None, model.outputs)
        # A buffer, because torch 2.7 writes a program's own numbers as JSON, which knows no NaN.
        self.nan = nn.Buffer(torch.tensor(math.nan, dtype=self.dtype))
        self.output_shape, self.output_dtype = self._outcome()

    def forward(self, x: Tensor) -> Any:
        """The outputs of rows."""
        output = self.outputs(*self._vectors(x))
        return output if self.head is None else call(self.head, output, self.raw_shape)

    def outputs(self, vectors: Tensor, refused: Tensor | None) -> Tensor:
        """The model's outputs before the head, NaN for refused rows."""
        output: Tensor = self.chain(vectors)
        if refused is not None:
            output = torch.where(refused, self.nan, output)
        if self.average:
            return output.mean(dim=0)
        return output.select(0, 0) if self.runs is None else output

    def _vectors(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        if isinstance(self.map, MapPart):
            vectors, refused = self.map(x)
            return vectors, refused
        return x if self.map is None else call(self.map, x, (None, *self.row_shape)), None

    def _check_width(self, model: ResTT | DiagonalTT) -> None:
        rows = torch.zeros(2, *self.row_shape, dtype=self.dtype)
        vectors, _ = self._vectors(rows)
        wanted = (2, model.sites, model.feature_dim)
        if not isinstance(vectors, Tensor) or tuple(vectors.shape) != wanted or vectors.dtype != self.dtype:
            got = f"{tuple(vectors.shape)} in {vectors.dtype}" if isinstance(vectors, Tensor) else shown(vectors)
            raise ValueError(
                f"feature_map must turn rows of shape {self.row_shape} into the model's site features, for two rows "
                f"{wanted} in {self.dtype}, got {got}"
            )

    def _outcome(self) -> tuple[tuple[int | None, ...], torch.dtype]:
        """Shape of the output, None where it follows the batch, and its dtype."""
        if self.head is None:
            return self.raw_shape, self.dtype
        shapes = []
        for batch in (2, 3):
            raw = torch.zeros([batch if size is None else size for size in self.raw_shape], dtype=self.dtype)
            found = self.head(raw)
            if not isinstance(found, Tensor):
                raise TypeError(f"head must return a tensor, got {shown(found)}")
            if found.dtype not in OUTPUT_TYPES:
                raise TypeError(f"head must return one of {[*map(str, OUTPUT_TYPES)]}, got a tensor of {found.dtype}")
            shapes.append(found.shape)
        sizes = zip(*shapes, strict=True)
        return tuple(size if size == other else None for size, other in sizes), found.dtype


def checked_format(path: Path, format: str | None = None) -> str:
    """The format that was asked for, or that the ending of ``path`` names."""
    if format is not None:
        return check_choice("format", format, FORMATS.values())
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"path must end in {' or '.join(FORMATS)}, or format be given, got {path.name!r}")
    return FORMATS[path.suffix.lower()]


def _read_map(
    feature_map: FeatureMap | nn.Module | None, model: ResTT | DiagonalTT, row_shape: tuple[int, ...] | None
) -> tuple[nn.Module | None, tuple[int, ...]]:
    if isinstance(feature_map, nn.Module) and not isinstance(feature_map, FeatureMap):
        return _as_module(feature_map), (model.sites,) if row_shape is None else tuple(row_shape)
    if row_shape is not None:
        raise ValueError("row_shape is only for a feature_map that is a torch module; others know their shape")
    if feature_map is None:
        return None, (model.sites, model.feature_dim)
    part = map_part(feature_map, model)
    return part, part.row_shape


class _Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _as_module(function: Callable[[Tensor], Tensor]) -> nn.Module:
    if isinstance(function, nn.Module):
        return copy.deepcopy(function).cpu().eval().requires_grad_(False)
    if not callable(function):
        raise TypeError(f"head must be a torch module or a function of a tensor, got {shown(function)}")
    return _Function(function)


def _onnx_bytes(graph: ModelGraph, interface: Interface) -> bytes:
    size = sum(tensor.nbytes for tensor in graph.buffers())
    if size > LARGEST_FILE:
        raise ValueError(f"an ONNX file holds at most 2 GiB, the model's weights are {size / 2**30:.1f} GiB: use .pt2")
    written = interface.new_graph(graph.dtype)
    types = written.onnx.TensorProto
    if interface.columns:
        inputs = [column.declared(written) for column in interface.columns]
        built = graph(interface.table(written))
    else:
        inputs = [written.declared("x", written.float_type, (None, *graph.row_shape))]
        built = graph(Node(written, "x"))
    values = built if isinstance(built, tuple) else (built,)
    kind = getattr(types, OUTPUT_TYPES[graph.output_dtype])
    names = ("output", *interface.bounds)
    pairs = zip(names, values, strict=True)
    outputs = {value: written.declared(name, kind, graph.output_shape) for name, value in pairs}
    if interface.classes:
        outputs[interface.label(values[0])] = written.declared("label", types.STRING, (None,))
    return bytes(written.model(inputs, outputs, interface.notes).SerializeToString())


def _torch_bytes(graph: ModelGraph) -> bytes:
    example = torch.zeros(2, *graph.row_shape, dtype=graph.dtype)
    dynamic = ({0: torch.export.Dim("batch", min=1)},)
    buffer = io.BytesIO()
    with quiet_exporters():
        program = torch.export.export(graph.eval(), (example,), dynamic_shapes=dynamic, strict=False)
        torch.export.save(program, buffer)
    return buffer.getvalue()
