"""Torch operations written down as ONNX nodes.

The parts of an exported graph are plain functions. Called with tensors they compute, which ``torch.export`` records;
called with a :class:`Node` they write the graph, one ONNX node for each torch operation. torch's own ONNX exporter
takes 100 times as long (20 s for ten columns with a coverage), rounds the numbers of a float64 graph to float32, and
reads no text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.compat_torch import scan_operator
from restt._common.version import __version__

# The oldest set in which every reduction takes its axes as an input; runtimes of 2023 read it.
OPSET, IR_VERSION = 18, 8
# Domain and version of the encoders that map text to numbers.
ENCODERS = ("ai.onnx.ml", 3)
# Protocol buffers cannot be larger.
LARGEST_FILE = 2**31 - 1
# Torch operations of tensors and numbers alone that are one node of ONNX.
SINGLE_NODES = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "truediv": "Div", "pow": "Pow", "matmul": "MatMul",
    "minimum": "Min", "maximum": "Max", "sin": "Sin", "cos": "Cos", "tanh": "Tanh", "exp": "Exp", "abs": "Abs",
    "where": "Where", "isnan": "IsNaN", "lt": "Less", "gt": "Greater", "eq": "Equal", "logical_not": "Not",
    "or": "Or", "and": "And",
}  # fmt: skip

# (carried values, slices of one step) -> the values carried on
Step = Callable[[list[Any], list[Any]], list[Any]]
# None is unknown, in a shape the batch.
Shape = Sequence[int | None] | None


def _operator(operation: str) -> Callable[[Any, Any], Any]:
    return lambda value, other: value.graph.write(operation, value, other)


class Node:
    """A value of an ONNX graph that is being written; torch's functions and operators write on."""

    def __init__(self, graph: OnnxGraph, name: str) -> None:
        self.graph, self.name = graph, name

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Node:
        given = args[0] if isinstance(args[0], (list, tuple)) else args
        first = next(value for value in given if isinstance(value, Node))
        return first.graph.write(function.__name__.strip("_"), *args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Callable[..., Node]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **options: self.graph.write(name, self, *args, **options)

    def __rsub__(self, other: Any) -> Node:
        return self.graph.write("sub", other, self)

    def __rtruediv__(self, other: Any) -> Node:
        return self.graph.write("truediv", other, self)

    def __invert__(self) -> Node:
        return self.graph.write("logical_not", self)

    __add__, __sub__, __mul__, __truediv__, __pow__, __matmul__, __lt__, __gt__, __or__, __and__ = map(
        _operator, ("add", "sub", "mul", "truediv", "pow", "matmul", "lt", "gt", "or", "and")
    )


class OnnxGraph:
    """Inputs, nodes, constants and outputs of a graph; without an ``outer`` one it is not the body of a loop."""

    def __init__(self, dtype: torch.dtype, outer: OnnxGraph | None = None) -> None:
        try:
            import onnx
        except ImportError as missing:
            raise ImportError("ONNX export needs onnx: pip install restt[export]") from missing
        self.helper, self.from_array = onnx.helper, onnx.numpy_helper.from_array
        self.dtype, self.size = dtype, 0
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.numbering: Iterator[int] = count() if outer is None else outer.numbering
        self.taken: set[str] = set() if outer is None else outer.taken
        self._constants: dict[int, tuple[str, Tensor]] = {}  # with the tensor, so that its id is not used again

    def input(self, name: str, dtype: torch.dtype | None, shape: Shape = (None,)) -> Node:
        """Declare an input, text without a dtype."""
        self.taken.add(name)
        self.inputs.append(self._declared(name, dtype, shape))
        return Node(self, name)

    def output(self, name: str, value: Node, shape: Shape, dtype: torch.dtype | None) -> None:
        """Declare an output, text without a dtype."""
        self.nodes.append(self.helper.make_node("Identity", [value.name], [name]))
        self.outputs.append(self._declared(name, dtype, shape))

    def serialized(self, notes: Mapping[str, str]) -> bytes:
        """The bytes of the file, with metadata."""
        opsets = [("", OPSET), *([ENCODERS] if any(node.domain for node in self.nodes) else [])]
        model = self.helper.make_model(
            self.helper.make_graph(self.nodes, "restt", self.inputs, self.outputs, self.initializers),
            producer_name="restt",
            producer_version=__version__,
            ir_version=IR_VERSION,
            opset_imports=[self.helper.make_opsetid(*opset) for opset in opsets],
        )
        self.helper.set_model_props(model, dict(notes))
        return bytes(model.SerializeToString())

    def write(self, operation: str, *args: Any, **options: Any) -> Node:
        """Write one of torch's operations, by its name."""
        if operation in SINGLE_NODES and not options:
            return self.node(SINGLE_NODES[operation], *args)
        written: Node = getattr(self, f"_{operation}")(*args, **options)
        return written

    def node(self, operator: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Node:
        """Append a node and return its last output; inputs are values, tensors, numbers or lists of texts."""
        return self._nodes(operator, *inputs, outputs=outputs, **attributes)[-1]

    def scan(self, step: Step, carried: Sequence[Node], scanned: Sequence[Any]) -> list[Node]:
        """Apply ``step`` along the first axis of all ``scanned``."""
        inner = OnnxGraph(self.dtype, self)
        states, slices = (
            [inner.input(self._fresh("scanned"), self.dtype, None) for _ in part] for part in (carried, scanned)
        )
        for value in step(states, slices):
            inner.output(self._fresh("carried"), value, None, self.dtype)
        body = self.helper.make_graph(inner.nodes, "one_step", inner.inputs, inner.outputs, inner.initializers)
        return self._nodes("Scan", *carried, *scanned, outputs=len(carried), body=body, num_scan_inputs=len(scanned))

    def _nodes(self, operator: str, *inputs: Any, outputs: int, **attributes: Any) -> list[Node]:
        names = [self._fresh(operator) for _ in range(outputs)]
        self.nodes.append(
            self.helper.make_node(operator, [self._name_of(value) for value in inputs], names, **attributes)
        )
        return [Node(self, name) for name in names]

    def _fresh(self, stem: str) -> str:
        return next(name for name in (f"{stem.lower()}_{n}" for n in self.numbering) if name not in self.taken)

    def _name_of(self, value: Any) -> str:
        """The name of a value; tensors, each once, numbers and lists of texts become constants."""
        if isinstance(value, Node):
            return value.name
        if id(value) in self._constants:
            return self._constants[id(value)][0]
        if isinstance(value, Tensor):
            array = value.detach().contiguous().numpy()
        else:
            array = np.array(value, dtype=object if isinstance(value, list) else str(self.dtype).split(".")[1])
        self.size += array.nbytes
        if self.size > LARGEST_FILE:
            raise ValueError("an ONNX file holds at most 2 GiB, and the model's weights are more: use .pt2")
        name = self._fresh("constant")
        self.initializers.append(self.from_array(array, name))
        if isinstance(value, Tensor):
            self._constants[id(value)] = name, value
        return name

    def _declared(self, name: str, dtype: torch.dtype | None, shape: Shape) -> Any:
        sizes = None if shape is None else ["batch" if size is None else size for size in shape]
        return self.helper.make_tensor_value_info(name, self._type(dtype), sizes)

    def _type(self, dtype: torch.dtype | None) -> int:
        kind = np.dtype(object) if dtype is None else torch.empty(0, dtype=dtype).numpy().dtype
        return int(self.helper.np_dtype_to_tensor_dtype(kind))

    def _isfinite(self, a: Node) -> Node:
        return a.abs() < math.inf

    def _clamp(self, a: Node, low: float, high: float | None = None) -> Node:
        a = self.node("Max", a, low)
        return a if high is None else self.node("Min", a, high)

    def _to(self, a: Node, dtype: torch.dtype) -> Node:
        return self.node("Cast", a, to=self._type(dtype))

    def _mean(self, a: Node, dim: int) -> Node:
        return self.node("ReduceMean", a, torch.tensor([dim]), keepdims=0)

    def _softmax(self, a: Node, dim: int) -> Node:
        return self.node("Softmax", a, axis=dim)

    def _cat(self, values: Sequence[Any], dim: int) -> Node:
        return self.node("Concat", *values, axis=dim)

    def _unsqueeze(self, a: Node, dim: int) -> Node:
        return self.node("Unsqueeze", a, torch.tensor([dim]))

    def _select(self, a: Node, dim: int, index: int) -> Node:
        return self.node("Gather", a, torch.tensor(index), axis=dim)

    def _index_select(self, a: Node, dim: int, index: Any) -> Node:
        return self.node("Gather", a, index, axis=dim)

    def _narrow(self, a: Node, dim: int, start: int, length: int) -> Node:
        return self.node("Slice", a, torch.tensor([start]), torch.tensor([start + length]), torch.tensor([dim]))

    def _transpose(self, a: Node, first: int, second: int) -> Node:  # of three axes
        axes = [0, 1, 2]
        axes[first], axes[second] = second, first
        return self.node("Transpose", a, perm=axes)

    def _reshape(self, a: Node, *shape: int) -> Node:
        """Reshape; -1 stands for an axis that stays as it is."""
        return self.node("Reshape", a, torch.tensor([max(size, 0) for size in shape]))


def scan(step: Step, carried: Sequence[Any], scanned: Sequence[Any]) -> list[Any]:
    """Apply ``step`` along the first axis of all ``scanned``: one loop of the graph, whatever that axis' length."""
    if isinstance(carried[0], Node):
        return list(carried[0].graph.scan(step, carried, scanned))
    # Plain Python would unroll the loop in the exported program; torch's own scan is still private.
    states = len(carried)

    def with_output(*given: Tensor) -> list[Tensor]:
        following = step(list(given[:states]), list(given[states:]))
        return [*following, given[0].new_zeros(0)]  # torch 2.7 runs no scan without something to stack

    return list(scan_operator()(with_output, list(carried), list(scanned), ()))[:states]
