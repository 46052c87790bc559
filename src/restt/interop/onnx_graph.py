"""Torch operations written down as ONNX nodes.

The parts of an exported graph are plain torch modules. Called with tensors they compute, which ``torch.export``
records; called with a :class:`Node` they write the graph, one ONNX node for each torch operation. torch's own ONNX
exporter takes seconds instead of milliseconds, and reads neither text nor writes labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from restt._common.compat_torch import scan_operator
from restt._common.version import __version__

# The oldest set in which every reduction takes its axes as an input; runtimes of 2023 read it.
OPSET = 18
# Of other domains: the encoders' that maps text to any number.
OPSETS = {"ai.onnx.ml": 3}
IR_VERSION = 8
BATCH = "batch"
# Element types by ONNX's names.
TYPES = {torch.float32: "FLOAT", torch.float64: "DOUBLE", torch.int64: "INT64"}
# Protocol buffers cannot be larger.
LARGEST_FILE = 2**31 - 1
# Torch operations of tensors and numbers alone that are one node of ONNX.
SINGLE_NODES = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "truediv": "Div", "pow": "Pow", "matmul": "MatMul",
    "minimum": "Min", "maximum": "Max", "sin": "Sin", "exp": "Exp", "abs": "Abs", "where": "Where", "isnan": "IsNaN",
    "lt": "Less", "gt": "Greater", "eq": "Equal", "logical_not": "Not", "or": "Or", "and": "And",
}  # fmt: skip

# (carried values, slices of one step) -> the values carried on
Step = Callable[[list[Any], list[Any]], list[Any]]


class GraphPart(nn.Module):
    """A torch module made of operations that a :class:`Node` knows. Its constants are buffers."""


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
        first = next(each for each in given if isinstance(each, Node))
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
    """Nodes and constants of a graph; ``taken`` are names that no value of it may have."""

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
        self._constants: dict[Any, tuple[str, Any]] = {}  # what a constant was made of is held, so that its id stays

    def write(self, operation: str, *args: Any, **options: Any) -> Node:
        """Write one of torch's operations, by its name."""
        if operation in SINGLE_NODES and not options:
            return self.node(SINGLE_NODES[operation], *args)
        written: Node = getattr(self, f"_{operation}")(*args, **options)
        return written

    def node(self, operator: str, *inputs: Any, **attributes: Any) -> Node:
        """Append a node with one output; inputs are values, tensors or numbers."""
        return self.nodes_of(operator, *inputs, outputs=1, **attributes)[0]

    def nodes_of(self, operator: str, *inputs: Any, outputs: int, **attributes: Any) -> list[Node]:
        """Append a node with several outputs."""
        names = [self.fresh(operator) for _ in range(outputs)]
        given = [self.name_of(each) for each in inputs]
        self.nodes.append(self.onnx.helper.make_node(operator, given, names, **attributes))
        return [Node(self, name) for name in names]

    def fresh(self, stem: str) -> str:
        """A name that no value has."""
        return next(name for name in (f"{stem.lower()}_{n}" for n in self.numbering) if name not in self.taken)

    def name_of(self, value: Any) -> str:
        """The name of a value; tensors, numbers and lists of texts become constants, each once."""
        if isinstance(value, Node):
            return value.name
        key = id(value) if isinstance(value, Tensor) else repr(value)
        if key not in self._constants:
            if isinstance(value, Tensor):
                array = value.detach().contiguous().numpy()
            elif isinstance(value, list):
                array = np.array(value, dtype=object)
            else:
                array = torch.tensor(value, dtype=self.dtype).numpy()
            name = self.fresh("constant")
            self.initializers.append(self.onnx.numpy_helper.from_array(array, name))
            self._constants[key] = name, value
        return self._constants[key][0]

    def scan(self, step: Step, carried: Sequence[Node], scanned: Sequence[Any]) -> list[Node]:
        """Apply ``step`` along the first axis of all ``scanned``."""
        inner = OnnxGraph(self.dtype, self.numbering, self.taken)
        states = [Node(inner, inner.fresh("carried")) for _ in carried]
        slices = [Node(inner, inner.fresh("site")) for _ in scanned]
        results = step(list(states), list(slices))
        declare = self.onnx.helper.make_tensor_value_info
        body = self.onnx.helper.make_graph(
            inner.nodes,
            "one_step",
            [declare(value.name, self.float_type, None) for value in [*states, *slices]],
            [declare(value.name, self.float_type, None) for value in results],
            inner.initializers,
        )
        return self.nodes_of("Scan", *carried, *scanned, outputs=len(carried), body=body, num_scan_inputs=len(scanned))

    def declared(self, name: str, kind: int, shape: Sequence[int | None]) -> Any:
        """An input or output of this element type and shape; None is the batch."""
        sizes = [BATCH if size is None else size for size in shape]
        return self.onnx.helper.make_tensor_value_info(name, kind, sizes)

    def model(self, inputs: Sequence[Any], outputs: Mapping[Node, Any], notes: Mapping[str, str]) -> Any:
        """The finished model: declared inputs, values with the declared outputs that they are, and its metadata."""
        helper = self.onnx.helper
        for value, declared in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value.name], [declared.name]))
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

    def _integers(self, *integers: int) -> Tensor:
        return torch.tensor(integers, dtype=torch.int64)

    def _cos(self, a: Node) -> Node:
        # onnxruntime before 1.29 has no cosine in float64, but a sine.
        return (a + math.pi / 2).sin() if self.dtype == torch.float64 else self.node("Cos", a)

    def _isfinite(self, a: Node) -> Node:
        return a.abs() < math.inf

    def _isinf(self, a: Node) -> Node:
        return self.node("Equal", a.abs(), math.inf)

    def _clamp(self, a: Node, low: float | None = None, high: float | None = None) -> Node:
        a = a if low is None else self.node("Max", a, low)
        return a if high is None else self.node("Min", a, high)

    def _to(self, a: Node, dtype: torch.dtype) -> Node:
        return self.node("Cast", a, to=int(getattr(self.onnx.TensorProto, TYPES[dtype])))

    def _long(self, a: Node) -> Node:
        return self._to(a, torch.int64)

    def _mean(self, a: Node, dim: int) -> Node:
        return self.node("ReduceMean", a, self._integers(dim), keepdims=0)

    def _softmax(self, a: Node, dim: int) -> Node:
        return self.node("Softmax", a, axis=dim)

    def _cat(self, values: Sequence[Any], dim: int) -> Node:
        return self.node("Concat", *values, axis=dim)

    def _unsqueeze(self, a: Node, dim: int) -> Node:
        return self.node("Unsqueeze", a, self._integers(dim))

    def _select(self, a: Node, dim: int, index: int) -> Node:
        return self.node("Gather", a, torch.tensor(index), axis=dim)

    def _index_select(self, a: Node, dim: int, index: Any) -> Node:
        return self.node("Gather", a, index, axis=dim)

    def _narrow(self, a: Node, dim: int, start: int, length: int) -> Node:
        return self.node("Slice", a, self._integers(start), self._integers(start + length), self._integers(dim))

    def _transpose(self, a: Node, first: int, second: int) -> Node:  # of three axes
        axes = [0, 1, 2]
        axes[first], axes[second] = second, first
        return self.node("Transpose", a, perm=axes)

    def _reshape(self, a: Node, *shape: int) -> Node:
        """-1 stands for an axis that stays as it is."""
        return self.node("Reshape", a, self._integers(*(max(size, 0) for size in shape)))

    def _zeros_like(self, a: Node) -> Node:
        zero = self.onnx.numpy_helper.from_array(torch.zeros(1, dtype=self.dtype).numpy())
        return self.node("ConstantOfShape", self.node("Shape", a), value=zero)


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


def any_last(a: Any, size: int, dtype: torch.dtype, keep: bool = False) -> Any:
    """Logical or over the ``size`` booleans of the last axis; ``keep`` leaves an axis of length 1."""
    # A product, because onnxruntime's reductions return a wrong shape for an empty batch.
    found = a.to(dtype) @ torch.ones(size, 1, dtype=dtype) > 0.0
    return found if keep else found.select(-1, 0)


def import_onnx() -> Any:
    """The onnx package, or an ImportError that says what to install."""
    try:
        import onnx
    except ImportError as missing:
        raise ImportError("ONNX export needs onnx: pip install restt[export]") from missing
    return onnx
