"""The few operations an exported graph is made of, so that each part of it is written once for every format.

A :class:`GraphPart` describes itself in terms of :class:`Ops`. ``TorchOps`` carries the operations out, which
``torch.export`` records; ``OnnxOps`` writes them down as ONNX nodes. A *value* is a tensor to the one and the name of
a tensor to the other.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from restt._common.compat_torch import scan_operator

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

    def at_least(self, a: Value, number: float) -> Value:
        """The values, or the number where they are less."""
        return self.maximum(a, self.constant(torch.tensor(number, dtype=self.dtype)))

    def at_most(self, a: Value, number: float) -> Value:
        """The values, or the number where they are more."""
        return self.minimum(a, self.constant(torch.tensor(number, dtype=self.dtype)))

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
    def softmax_last(self, a: Value) -> Value:
        """Along the last axis."""

    @abstractmethod
    def join(self, values: Sequence[Value]) -> Value:
        """Concatenate along the last axis."""

    @abstractmethod
    def insert_axis(self, a: Value, axis: int) -> Value: ...

    @abstractmethod
    def take(self, a: Value, axis: int, index: int) -> Value:
        """One entry of an axis, which goes."""

    @abstractmethod
    def pick(self, a: Value, index: Value) -> Value:
        """Entries of the last axis whose numbers (J,) are given as floats."""

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


class TorchOps(Ops):
    """The operations carried out by torch, for ``torch.export`` to record. Values are tensors."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def constant(self, tensor: Tensor) -> Tensor:
        return tensor

    def number(self, number: float) -> float | Tensor:
        if math.isfinite(number):
            return number
        # torch 2.7 writes a program's own numbers as JSON, which knows no infinity and no NaN: they are computed.
        zero = torch.zeros((), dtype=self.dtype)
        return zero / zero if math.isnan(number) else math.copysign(1.0, number) / zero

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.add(a, b)

    def subtract(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.sub(a, b)

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.mul(a, b)

    def divide(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.div(a, b)

    def power(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.pow(a, b)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.matmul(a, b)

    def minimum(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.minimum(a, b)

    def maximum(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.maximum(a, b)

    def cosine(self, a: Tensor) -> Tensor:
        return torch.cos(a)

    def sine(self, a: Tensor) -> Tensor:
        return torch.sin(a)

    def absolute(self, a: Tensor) -> Tensor:
        return torch.abs(a)

    def less(self, a: Tensor, b: Tensor) -> Tensor:
        return a < b

    def equal(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.eq(a, b)

    def is_nan(self, a: Tensor) -> Tensor:
        return torch.isnan(a)

    def negate(self, a: Tensor) -> Tensor:
        return torch.logical_not(a)

    def either(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.logical_or(a, b)

    def both(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.logical_and(a, b)

    def zeros_like(self, a: Tensor) -> Tensor:
        return torch.zeros_like(a)

    def where(self, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch.where(condition, a, b)

    def insert_axis(self, a: Tensor, axis: int) -> Tensor:
        return a.unsqueeze(axis)

    def take(self, a: Tensor, axis: int, index: int) -> Tensor:
        return a.select(axis, index)

    def pick(self, a: Tensor, index: Tensor) -> Tensor:
        return a.index_select(-1, index.long())

    def as_float(self, a: Tensor) -> Tensor:
        return a.to(self.dtype)

    def mean_first(self, a: Tensor) -> Tensor:
        return a.mean(dim=0)

    def softmax_last(self, a: Tensor) -> Tensor:
        return torch.softmax(a, dim=-1)

    def join(self, values: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(values), dim=-1)

    def cut(self, a: Tensor, axis: int, start: int, stop: int) -> Tensor:
        # Of this axis alone: torch 2.7 exports a full slice of the batch as a condition on its size.
        return a.narrow(axis, start, range(a.shape[axis])[stop] - start if stop < 0 else stop - start)

    def swap_first_two(self, a: Tensor) -> Tensor:
        return a.transpose(0, 1)

    def merge_last_two(self, a: Tensor, size: int) -> Tensor:
        return a.flatten(2)

    def scan(self, body: Body, carried: Sequence[Tensor], scanned: Sequence[Tensor]) -> list[Tensor]:
        # Plain Python would unroll the loop in the exported program; torch's own scan is still private.
        count = len(carried)

        def step(*given: Tensor) -> list[Tensor]:
            following = body(self, list(given[:count]), list(given[count:]))
            return [*following, given[0].new_zeros(0)]  # torch 2.7 runs no scan without something to stack

        return list(scan_operator()(step, list(carried), list(scanned), ()))[:count]

    def call(self, module: nn.Module, a: Tensor, shape: tuple[int | None, ...]) -> Tensor:
        return cast(Tensor, module.build(self, a) if isinstance(module, GraphPart) else module(a))
