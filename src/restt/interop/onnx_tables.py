"""A raw table as the inputs of an ONNX graph, one for each column, and what the graph says about itself.

A category is given as it stands in the table. Text goes through ONNX's own ``LabelEncoder``; ONNX has no missing text,
so some texts stand for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from restt.features.levels import Level
from restt.interop.onnx_graph import Node, OnnxGraph

# The domain of ONNX's encoders.
ENCODERS = "ai.onnx.ml"
# Texts that mean a missing value where they are no level: the empty one, and what onnxruntime for Python makes of None,
# of NaN and of pandas' NA.
MISSING_TEXTS = ("", "None", "nan", "<NA>")
OUTPUTS = ("output", "label")


@dataclass(frozen=True)
class ColumnInput:
    """One column (B,) of a raw table, under its name.

    ``levels`` is None for a column of numbers, which come in the graph's dtype. Levels of text make the input one of
    strings, levels that are numbers one of doubles; ``unseen`` is the number that any other category becomes.
    """

    name: str
    levels: tuple[Level, ...] | None = None
    unseen: float = math.nan
    is_text: bool = False
    missing_texts: tuple[str, ...] = ()

    def declared(self, graph: OnnxGraph) -> Any:
        """The input as the graph declares it."""
        types = graph.onnx.TensorProto
        kind = graph.float_type if self.levels is None else types.STRING if self.is_text else types.DOUBLE
        return graph.declared(self.name, int(kind), (None,))

    def numbers(self, graph: OnnxGraph) -> Node:  # (B, 1)
        """The column as numbers: NaN is missing, a category is the number of its level."""
        column = Node(graph, self.name)
        if self.levels is None:
            return column.unsqueeze(-1)
        return self._coded_text(column, self.levels) if self.is_text else self._coded_numbers(column, self.levels)

    def _coded_text(self, column: Node, levels: tuple[Level, ...]) -> Node:
        codes = column.graph.node(
            "LabelEncoder",
            column,
            domain=ENCODERS,
            keys_strings=[*map(str, levels), *self.missing_texts],
            values_floats=[*map(float, range(len(levels))), *[math.nan] * len(self.missing_texts)],
            default_float=self.unseen,
        )
        return codes.to(column.graph.dtype).unsqueeze(-1)

    def _coded_numbers(self, column: Node, levels: tuple[Level, ...]) -> Node:
        dtype, column = column.graph.dtype, column.unsqueeze(-1)
        # Compared as doubles, whatever the graph's dtype: two levels may be one in float32. NaN is equal to nothing.
        known = torch.tensor(levels or (math.nan,), dtype=torch.float64)
        place = column.eq(known).to(dtype) @ torch.arange(1, len(known) + 1, dtype=dtype)[:, None]
        code = (place < 0.5).where(self.unseen, place - 1.0)
        return column.isnan().where(math.nan, code)


@dataclass(frozen=True)
class Interface:
    """How a graph meets its users: the ``columns`` it takes, the classes it names, and ``notes`` in its metadata.

    Without ``columns`` it takes one matrix ``x``, without ``classes`` it has no output ``label``. ``bounds`` are the
    names of what it returns beside ``output``.
    """

    columns: Sequence[ColumnInput] = ()
    classes: Sequence[str] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    bounds: Sequence[str] = ()

    def __post_init__(self) -> None:
        outputs = (*OUTPUTS, *self.bounds)
        for name, count in Counter(column.name for column in self.columns).items():
            if not name or name in outputs or count > 1:
                why = "is the name of an output" if name in outputs else "names no single column"
                raise ValueError(f"each column must have a name of its own in a graph, and {name!r} {why}: rename it")

    def new_graph(self, dtype: torch.dtype) -> OnnxGraph:
        """An empty graph whose values leave the columns' names alone."""
        return OnnxGraph(dtype, taken=frozenset(column.name for column in self.columns))

    def table(self, graph: OnnxGraph) -> Node:  # (B, C)
        """The columns side by side."""
        return graph.write("cat", [column.numbers(graph) for column in self.columns], -1)

    def label(self, probabilities: Node) -> Node:  # (B, K) -> (B,)
        """The text of the most probable class; none where the row was refused."""
        graph = probabilities.graph
        # Not ArgMax, which onnxruntime gives a wrong shape for an empty batch.
        _, order = graph.nodes_of("TopK", probabilities, torch.tensor([1]), outputs=2, axis=-1)
        names = graph.node("Gather", [str(name) for name in self.classes], order.select(-1, 0))
        return probabilities.select(-1, 0).isnan().where([""], names)
