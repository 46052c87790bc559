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
from restt.interop.onnx_graph import OnnxOps

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

    def declared(self, ops: OnnxOps) -> Any:
        """The input as the graph declares it."""
        types = ops.onnx.TensorProto
        kind = ops.float_type if self.levels is None else types.STRING if self.is_text else types.DOUBLE
        return ops.declared(self.name, int(kind), (None,))

    def build(self, ops: OnnxOps) -> str:  # (B, 1)
        """The column as numbers: NaN is missing, a category is the number of its level."""
        if self.levels is None:
            return str(ops.insert_axis(self.name, -1))
        return self._coded_text(ops, self.levels) if self.is_text else self._coded_numbers(ops, self.levels)

    def _coded_text(self, ops: OnnxOps, levels: tuple[Level, ...]) -> str:
        codes = ops.node(
            "LabelEncoder",
            self.name,
            domain=ENCODERS,
            keys_strings=[*map(str, levels), *self.missing_texts],
            values_floats=[*map(float, range(len(levels))), *[math.nan] * len(self.missing_texts)],
            default_float=self.unseen,
        )
        return str(ops.insert_axis(ops.as_float(codes), -1))

    def _coded_numbers(self, ops: OnnxOps, levels: tuple[Level, ...]) -> str:
        column = ops.insert_axis(self.name, -1)
        # Compared as doubles, whatever the graph's dtype: two levels may be one in float32. NaN is equal to nothing.
        known = torch.tensor(levels or (math.nan,), dtype=torch.float64)
        places = torch.arange(1, len(known) + 1, dtype=ops.dtype)[:, None]
        place = ops.matmul(ops.as_float(ops.equal(column, ops.constant(known))), ops.constant(places))
        code = ops.subtract(place, ops.number(1.0))
        code = ops.where(ops.less(place, ops.number(0.5)), ops.number(self.unseen), code)
        return str(ops.where(ops.is_nan(column), ops.number(math.nan), code))


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

    def operations(self, dtype: torch.dtype) -> OnnxOps:
        """The graph's operations, whose names leave the columns' alone."""
        return OnnxOps(dtype, taken=frozenset(column.name for column in self.columns))

    def table(self, ops: OnnxOps) -> str:  # (B, C)
        """The columns side by side."""
        return str(ops.join([column.build(ops) for column in self.columns]))

    def label(self, ops: OnnxOps, probabilities: str) -> str:  # (B, K) -> (B,)
        """The text of the most probable class; none where the row was refused."""
        # Not ArgMax, which onnxruntime gives a wrong shape for an empty batch.
        _, order = ops.node("TopK", probabilities, ops.integers(1), outputs=2, axis=-1)
        names = ops.node("Gather", ops.texts(self.classes), ops.take(order, -1, 0))
        refused = ops.is_nan(ops.take(probabilities, -1, 0))
        return str(ops.where(refused, ops.texts([""]), names))
