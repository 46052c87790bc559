"""Torch operations written down as ONNX nodes, from the columns of a raw table to outputs and labels.

The parts of an exported graph are plain torch modules. Called with tensors they compute, which ``torch.export``
records; called with a :class:`Node` they write the graph, one ONNX node for each torch operation. torch's own ONNX
exporter takes 100 times as long (20 s for ten columns with a coverage), rounds the numbers of a float64 graph to
float32, and reads no text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from restt._common.compat_torch import scan_operator
from restt._common.version import __version__
from restt.features.levels import Level

# The oldest set in which every reduction takes its axes as an input; runtimes of 2023 read it.
OPSET, IR_VERSION = 18, 8
# Domain and version of the encoders that map text to numbers.
ENCODERS = ("ai.onnx.ml", 3)
# Texts that mean a missing value where they are no level: the empty one, and what onnxruntime for Python makes of None,
# of NaN and of pandas' NA.
MISSING_TEXTS = ("", "None", "nan", "<NA>")
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
    """Nodes and constants of a graph; ``taken`` are names that no value of it may have."""

    def __init__(
        self, dtype: torch.dtype, numbering: Iterator[int] | None = None, taken: frozenset[str] = frozenset()
    ) -> None:
        try:
            import onnx
        except ImportError as missing:
            raise ImportError("ONNX export needs onnx: pip install restt[export]") from missing
        self.helper, self.from_array, self.types = onnx.helper, onnx.numpy_helper.from_array, onnx.TensorProto
        self.dtype, self.taken = dtype, taken
        self.float_type = int(self.types.DOUBLE if dtype == torch.float64 else self.types.FLOAT)
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.numbering = count() if numbering is None else numbering
        self._constants: dict[Any, tuple[str, Any]] = {}  # with the value itself, so that its id is not used again

    def write(self, operation: str, *args: Any, **options: Any) -> Node:
        """Write one of torch's operations, by its name."""
        if operation in SINGLE_NODES and not options:
            return self.node(SINGLE_NODES[operation], *args)
        written: Node = getattr(self, f"_{operation}")(*args, **options)
        return written

    def node(self, operator: str, *inputs: Any, **attributes: Any) -> Node:
        """Append a node with one output; inputs are values, tensors, numbers or lists of texts."""
        return self.nodes_of(operator, *inputs, outputs=1, **attributes)[0]

    def nodes_of(self, operator: str, *inputs: Any, outputs: int, **attributes: Any) -> list[Node]:
        """Append a node with several outputs."""
        names = [self.fresh(operator) for _ in range(outputs)]
        self.nodes.append(
            self.helper.make_node(operator, [self.name_of(value) for value in inputs], names, **attributes)
        )
        return [Node(self, name) for name in names]

    def fresh(self, stem: str) -> str:
        """Return a name that no value has."""
        return next(name for name in (f"{stem.lower()}_{n}" for n in self.numbering) if name not in self.taken)

    def name_of(self, value: Any) -> str:
        """Return the name of a value; tensors, numbers and lists of texts become constants, each once."""
        if isinstance(value, Node):
            return value.name
        key = id(value) if isinstance(value, Tensor) else repr(value)
        if key not in self._constants:
            if isinstance(value, Tensor):
                array = value.detach().contiguous().numpy()
            else:
                array = np.array(value, dtype=object if isinstance(value, list) else str(self.dtype).split(".")[1])
            name = self.fresh("constant")
            self.initializers.append(self.from_array(array, name))
            self._constants[key] = name, value
        return self._constants[key][0]

    def scan(self, step: Step, carried: Sequence[Node], scanned: Sequence[Any]) -> list[Node]:
        """Apply ``step`` along the first axis of all ``scanned``."""
        inner = OnnxGraph(self.dtype, self.numbering, self.taken)
        states = [Node(inner, inner.fresh("carried")) for _ in carried]
        slices = [Node(inner, inner.fresh("site")) for _ in scanned]
        results = step(list(states), list(slices))
        given, returned = (
            [self.helper.make_tensor_value_info(value.name, self.float_type, None) for value in values]
            for values in ([*states, *slices], results)
        )
        body = self.helper.make_graph(inner.nodes, "one_step", given, returned, inner.initializers)
        return self.nodes_of("Scan", *carried, *scanned, outputs=len(carried), body=body, num_scan_inputs=len(scanned))

    def declared(self, name: str, kind: int, shape: Sequence[int | None]) -> Any:
        """Declare an input or output of this element type and shape; None is the batch."""
        return self.helper.make_tensor_value_info(name, kind, ["batch" if size is None else size for size in shape])

    def model(self, inputs: Sequence[Any], outputs: Mapping[Node, Any], notes: Mapping[str, str]) -> Any:
        """Finish the model: declared inputs, values with the declared outputs that they are, and its metadata."""
        for value, declared in outputs.items():
            self.nodes.append(self.helper.make_node("Identity", [value.name], [declared.name]))
        opsets = [("", OPSET), *([ENCODERS] if any(node.domain for node in self.nodes) else [])]
        model = self.helper.make_model(
            self.helper.make_graph(self.nodes, "restt", inputs, [*outputs.values()], self.initializers),
            producer_name="restt",
            producer_version=__version__,
            ir_version=IR_VERSION,
            opset_imports=[self.helper.make_opsetid(*opset) for opset in opsets],
        )
        self.helper.set_model_props(model, dict(notes))
        return model

    def _isfinite(self, a: Node) -> Node:
        return a.abs() < math.inf

    def _clamp(self, a: Node, low: float, high: float | None = None) -> Node:
        a = self.node("Max", a, low)
        return a if high is None else self.node("Min", a, high)

    def _to(self, a: Node, dtype: torch.dtype) -> Node:
        return self.node("Cast", a, to=int(self.types.INT64) if dtype == torch.int64 else self.float_type)

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


@dataclass(frozen=True)
class ColumnInput:
    """One column (B,) of a raw table as an input of a graph, under its name.

    ``levels`` is None for a column of numbers, which come in the graph's dtype. Levels of text make the input one of
    strings, levels that are numbers one of doubles; ``unseen`` is the number that any other category becomes. ONNX has
    no missing text, so ``missing_texts`` stand for it.
    """

    name: str
    levels: tuple[Level, ...] | None = None
    unseen: float = math.nan
    is_text: bool = False
    missing_texts: tuple[str, ...] = ()

    def declared(self, graph: OnnxGraph) -> Any:
        """Declare the input."""
        of_levels = graph.types.STRING if self.is_text else graph.types.DOUBLE
        return graph.declared(self.name, graph.float_type if self.levels is None else int(of_levels), (None,))

    def numbers(self, graph: OnnxGraph) -> Node:  # (B, 1)
        """Write the column as numbers: NaN is missing, a category is the number of its level."""
        column = Node(graph, self.name)
        if self.levels is None:
            return column.unsqueeze(-1)
        if self.is_text:
            codes = graph.node(
                "LabelEncoder",
                column,
                domain=ENCODERS[0],
                keys_strings=[*map(str, self.levels), *self.missing_texts],
                values_floats=[*map(float, range(len(self.levels))), *[math.nan] * len(self.missing_texts)],
                default_float=self.unseen,
            )
            return codes.to(graph.dtype).unsqueeze(-1)
        # Compared as doubles, whatever the graph's dtype: two levels may be one in float32. NaN is equal to nothing.
        known, column = torch.tensor(self.levels or (math.nan,), dtype=torch.float64), column.unsqueeze(-1)
        place = column.eq(known).to(graph.dtype) @ torch.arange(1, len(known) + 1, dtype=graph.dtype)[:, None]
        return column.isnan().where(math.nan, (place < 0.5).where(self.unseen, place - 1.0))


@dataclass(frozen=True)
class Interface:
    """Inputs, outputs and metadata of a graph.

    Without ``columns`` it takes one matrix ``x``, without ``classes`` it has no output ``label``. ``bounds`` are the
    names of what it returns beside ``output``, ``notes`` its metadata.
    """

    columns: Sequence[ColumnInput] = ()
    classes: Sequence[str] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    bounds: Sequence[str] = ()

    def __post_init__(self) -> None:
        outputs = ("output", "label", *self.bounds)
        for name, times in Counter(column.name for column in self.columns).items():
            if not name or name in outputs or times > 1:
                why = "is the name of an output" if name in outputs else "names no single column"
                raise ValueError(f"each column must have a name of its own in a graph, and {name!r} {why}: rename it")

    def label(self, probabilities: Node) -> Node:  # (B, K) -> (B,)
        """Write the text of the most probable class; none where the row was refused."""
        graph = probabilities.graph
        # Not ArgMax, which onnxruntime gives a wrong shape for an empty batch.
        _, order = graph.nodes_of("TopK", probabilities, torch.tensor([1]), outputs=2, axis=-1)
        names = graph.node("Gather", list(self.classes), order.select(-1, 0))
        return probabilities.select(-1, 0).isnan().where([""], names)
