"""The operations of a graph written down as ONNX nodes, and torch modules of others' as pieces of such a graph."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from restt._common.compat_torch import EXPORT_LOGGERS
from restt._common.version import __version__
from restt.interop.operations import Body, GraphPart, Ops

# The oldest set in which every reduction takes its axes as an input; runtimes of 2023 read it.
OPSET = 18
# Of other domains: the encoders' that maps text to any number.
OPSETS = {"ai.onnx.ml": 3}
IR_VERSION = 8
BATCH = "batch"
# What a graph may return, by ONNX's names.
OUTPUT_TYPES = {torch.float32: "FLOAT", torch.float64: "DOUBLE", torch.int64: "INT64", torch.bool: "BOOL"}
# Protocol buffers cannot be larger.
LARGEST_FILE = 2**31 - 1
# Loggers of exporters, which describe their own workings at length.
TALKATIVE = (*EXPORT_LOGGERS, "onnx_ir", "onnxscript")


def import_onnx() -> Any:
    """The onnx package, or an ImportError that says what to install."""
    try:
        import onnx
    except ImportError as missing:
        raise ImportError("ONNX export needs onnx: pip install restt[export]") from missing
    return onnx


class OnnxOps(Ops):
    """Values are names, other than those ``taken``. ``nodes`` and ``initializers`` collect the graph."""

    def __init__(
        self, dtype: torch.dtype, numbering: Iterator[int] | None = None, taken: frozenset[str] = frozenset()
    ) -> None:
        self.onnx = import_onnx()
        self.dtype = dtype
        self.float_type = int(self.onnx.TensorProto.DOUBLE if dtype == torch.float64 else self.onnx.TensorProto.FLOAT)
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.numbering = count() if numbering is None else numbering
        self.taken = taken

    def node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Append a node; its output's name, or the list of names when there are several outputs."""
        names = [self.fresh(operator) for _ in range(outputs)]
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def fresh(self, stem: str) -> str:
        return next(name for name in (f"{stem.lower()}_{n}" for n in self.numbering) if name not in self.taken)

    def constant(self, tensor: Tensor) -> str:
        name = self.fresh("constant")
        self.initializers.append(self.onnx.numpy_helper.from_array(tensor.contiguous().numpy(), name))
        return name

    def texts(self, texts: Sequence[str]) -> str:
        name = self.fresh("texts")
        self.initializers.append(self.onnx.numpy_helper.from_array(np.array(texts, dtype=object), name))
        return name

    def number(self, number: float) -> str:
        return self.constant(torch.tensor(number, dtype=self.dtype))

    def integers(self, *integers: int) -> str:
        return self.constant(torch.tensor(integers, dtype=torch.int64))

    def add(self, a: str, b: str) -> Any:
        return self.node("Add", a, b)

    def subtract(self, a: str, b: str) -> Any:
        return self.node("Sub", a, b)

    def multiply(self, a: str, b: str) -> Any:
        return self.node("Mul", a, b)

    def divide(self, a: str, b: str) -> Any:
        return self.node("Div", a, b)

    def power(self, a: str, b: str) -> Any:
        return self.node("Pow", a, b)

    def matmul(self, a: str, b: str) -> Any:
        return self.node("MatMul", a, b)

    def minimum(self, a: str, b: str) -> Any:
        return self.node("Min", a, b)

    def maximum(self, a: str, b: str) -> Any:
        return self.node("Max", a, b)

    def cosine(self, a: str) -> Any:
        # onnxruntime before 1.29 has no cosine in float64, but a sine.
        if self.dtype == torch.float64:
            return self.sine(self.add(a, self.number(math.pi / 2)))
        return self.node("Cos", a)

    def sine(self, a: str) -> Any:
        return self.node("Sin", a)

    def absolute(self, a: str) -> Any:
        return self.node("Abs", a)

    def less(self, a: str, b: str) -> Any:
        return self.node("Less", a, b)

    def equal(self, a: str, b: str) -> Any:
        return self.node("Equal", a, b)

    def is_nan(self, a: str) -> Any:
        return self.node("IsNaN", a)

    def negate(self, a: str) -> Any:
        return self.node("Not", a)

    def either(self, a: str, b: str) -> Any:
        return self.node("Or", a, b)

    def both(self, a: str, b: str) -> Any:
        return self.node("And", a, b)

    def as_float(self, a: str) -> Any:
        return self.node("Cast", a, to=self.float_type)

    def where(self, condition: str, a: str, b: str) -> Any:
        return self.node("Where", condition, a, b)

    def mean_first(self, a: str) -> Any:
        return self.node("ReduceMean", a, self.integers(0), keepdims=0)

    def softmax_last(self, a: str) -> Any:
        return self.node("Softmax", a, axis=-1)

    def join(self, values: Sequence[str]) -> Any:
        return self.node("Concat", *values, axis=-1)

    def insert_axis(self, a: str, axis: int) -> Any:
        return self.node("Unsqueeze", a, self.integers(axis))

    def take(self, a: str, axis: int, index: int) -> Any:
        return self.node("Gather", a, self.constant(torch.tensor(index)), axis=axis)

    def pick(self, a: str, index: str) -> Any:
        return self.node("Gather", a, self.node("Cast", index, to=int(self.onnx.TensorProto.INT64)), axis=-1)

    def cut(self, a: str, axis: int, start: int, stop: int) -> Any:
        return self.node("Slice", a, self.integers(start), self.integers(stop), self.integers(axis))

    def swap_first_two(self, a: str) -> Any:
        return self.node("Transpose", a, perm=[1, 0, 2])

    def merge_last_two(self, a: str, size: int) -> Any:
        return self.node("Reshape", a, self.integers(0, 0, size))  # 0 keeps an axis as it is

    def zeros_like(self, a: str) -> Any:
        zero = self.onnx.numpy_helper.from_array(torch.zeros(1, dtype=self.dtype).numpy())
        return self.node("ConstantOfShape", self.node("Shape", a), value=zero)

    def scan(self, body: Body, carried: Sequence[str], scanned: Sequence[str]) -> list[str]:
        inner = OnnxOps(self.dtype, self.numbering, self.taken)
        held = [inner.fresh("carried") for _ in carried]
        slices = [inner.fresh("site") for _ in scanned]
        results = body(inner, list(held), list(slices))
        declare = self.onnx.helper.make_tensor_value_info
        graph = self.onnx.helper.make_graph(
            inner.nodes,
            "one_site",
            [declare(name, self.float_type, None) for name in [*held, *slices]],
            [declare(name, self.float_type, None) for name in results],
            inner.initializers,
        )
        found = self.node("Scan", *carried, *scanned, outputs=len(carried), body=graph, num_scan_inputs=len(scanned))
        return found if isinstance(found, list) else [found]

    def call(self, module: nn.Module, a: str, shape: tuple[int | None, ...]) -> Any:
        if isinstance(module, GraphPart):
            return module.build(self, a)
        prefix = self.fresh("module")
        graph = self.onnx.compose.add_prefix_graph(converted(module, shape, self.dtype), f"{prefix}_")
        self.nodes.append(self.onnx.helper.make_node("Identity", [a], [graph.input[0].name]))
        self.nodes.extend(graph.node)
        self.initializers.extend(graph.initializer)
        return graph.output[0].name

    def declared(self, name: str, kind: int, shape: Sequence[int | None]) -> Any:
        """An input or output of this element type and shape; None is the batch."""
        sizes = [BATCH if size is None else size for size in shape]
        return self.onnx.helper.make_tensor_value_info(name, kind, sizes)

    def model(self, inputs: Sequence[Any], outputs: Mapping[str, Any], notes: Mapping[str, str]) -> Any:
        """The finished model: declared inputs, values with the declared outputs that they are, and its metadata."""
        helper = self.onnx.helper
        for value, declared in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [declared.name]))
        domains = {node.domain for node in self.nodes if node.domain}
        model = helper.make_model(
            helper.make_graph(self.nodes, "restt", inputs, [*outputs.values()], self.initializers),
            producer_name="restt",
            producer_version=__version__,
            ir_version=IR_VERSION,
            opset_imports=[
                helper.make_opsetid("", OPSET),
                *(helper.make_opsetid(domain, OPSETS[domain]) for domain in sorted(domains)),
            ],
        )
        helper.set_model_props(model, dict(notes))
        return model


def converted(module: nn.Module, shape: tuple[int | None, ...], dtype: torch.dtype) -> Any:
    """The ONNX graph of a head or feature map that is someone's own ``module``, for an input of this shape.

    None stands for the batch axis.
    """
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


@contextmanager
def quiet_exporters() -> Iterator[None]:
    """Hold back what torch's exporters say about their own workings; their errors still come through."""
    loggers = [logging.getLogger(name) for name in TALKATIVE]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
