"""The few operations an exported graph is made of, so that each part of it is written once for every format.

A :class:`GraphPart` describes itself in terms of :class:`Ops`. ``TorchOps`` carries the operations out, which
``torch.export`` records; ``OnnxOps`` writes them down as ONNX nodes. A *value* is a tensor to the one and the name of
a tensor to the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Value = Any
# (carried values, one site's slices) -> the values carried on
Body = Callable[["Ops", list[Value], list[Value]], list[Value]]


class Ops(ABC):
    """What a graph may do with its values. Binary operations broadcast as numpy's do."""

    dtype: torch.dtype

    def any_last(self, a: Value, size: int, keep: bool = False) -> Value:
        """Whether any of the ``size`` booleans of the last axis holds; ``keep`` leaves an axis of length 1."""
        # A product, because onnxruntime's reductions return a wrong shape for an empty batch.
        hits = self.matmul(self.as_float(a), self.constant(torch.ones(size, 1, dtype=self.dtype)))
        found = self.less(self.number(0.0), hits)
        return found if keep else self.take(found, -1, 0)

    @abstractmethod
    def constant(self, tensor: Tensor) -> Value: ...

    @abstractmethod
    def number(self, number: float) -> Value:
        """A scalar in the graph's dtype, to be combined with a value that is not one."""

    @abstractmethod
    def add(self, a: Value, b: Value) -> Value: ...

    @abstractmethod
    def subtract(self, a: Value, b: Value) -> Value: ...

    @abstractmethod
    def multiply(self, a: Value, b: Value) -> Value: ...

    @abstractmethod
    def divide(self, a: Value, b: Value) -> Value: ...

    @abstractmethod
    def power(self, a: Value, b: Value) -> Value: ...

    @abstractmethod
    def matmul(self, a: Value, b: Value) -> Value: ...

    @abstractmethod
    def minimum(self, a: Value, b: Value) -> Value: ...

    @abstractmethod
    def maximum(self, a: Value, b: Value) -> Value: ...

    @abstractmethod
    def cosine(self, a: Value) -> Value: ...

    @abstractmethod
    def sine(self, a: Value) -> Value: ...

    @abstractmethod
    def absolute(self, a: Value) -> Value: ...

    @abstractmethod
    def less(self, a: Value, b: Value) -> Value: ...

    @abstractmethod
    def equal(self, a: Value, b: Value) -> Value: ...

    @abstractmethod
    def is_nan(self, a: Value) -> Value: ...

    @abstractmethod
    def negate(self, a: Value) -> Value:
        """Not, of a boolean value."""

    @abstractmethod
    def either(self, a: Value, b: Value) -> Value:
        """Or, of boolean values."""

    @abstractmethod
    def both(self, a: Value, b: Value) -> Value:
        """And, of boolean values."""

    @abstractmethod
    def as_float(self, a: Value) -> Value:
        """0 and 1 in the graph's dtype, of a boolean value."""

    @abstractmethod
    def where(self, condition: Value, a: Value, b: Value) -> Value: ...

    @abstractmethod
    def mean_first(self, a: Value) -> Value:
        """(S, …) -> (…): the mean of the first axis."""

    @abstractmethod
    def join(self, values: Sequence[Value]) -> Value:
        """Concatenate along the last axis."""

    @abstractmethod
    def insert_axis(self, a: Value, axis: int) -> Value: ...

    @abstractmethod
    def take(self, a: Value, axis: int, index: int) -> Value:
        """One entry of an axis, which goes."""

    @abstractmethod
    def cut(self, a: Value, axis: int, start: int, stop: int) -> Value:
        """``start:stop`` of an axis, with Python's meaning of negative numbers."""

    @abstractmethod
    def swap_first_two(self, a: Value) -> Value:
        """(P, Q, I) -> (Q, P, I)."""

    @abstractmethod
    def merge_last_two(self, a: Value, size: int) -> Value:
        """(S, B, P, Q) -> (S, B, size) with size = P·Q."""

    @abstractmethod
    def zeros_like(self, a: Value) -> Value: ...

    @abstractmethod
    def scan(self, body: Body, carried: Sequence[Value], scanned: Sequence[Value]) -> list[Value]:
        """Apply ``body`` along the first axis of all ``scanned``; one loop, whatever that axis' length."""

    @abstractmethod
    def call(self, module: nn.Module, a: Value, shape: tuple[int | None, ...]) -> Value:
        """Someone else's torch module on a value of this shape, None for the batch axis."""


class GraphPart(nn.Module, ABC):
    """A piece of an exported graph. Its constants are buffers."""

    @abstractmethod
    def build(self, ops: Ops, x: Value) -> Value:
        """Describe the piece, applied to ``x``."""
