"""The operations of a graph carried out by torch, for ``torch.export`` to record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from restt.interop.ops import Body, GraphPart, Ops


class TorchOps(Ops):
    """Values are tensors."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def constant(self, tensor: Tensor) -> Tensor:
        return tensor

    def number(self, number: float) -> float:
        return number

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

    def as_float(self, a: Tensor) -> Tensor:
        return a.to(self.dtype)

    def mean_first(self, a: Tensor) -> Tensor:
        return a.mean(dim=0)

    def join(self, values: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(values), dim=-1)

    def cut(self, a: Tensor, axis: int, start: int, stop: int) -> Tensor:
        index = [slice(None)] * a.dim()
        index[axis] = slice(start, stop)
        return a[tuple(index)]

    def swap_first_two(self, a: Tensor) -> Tensor:
        return a.transpose(0, 1)

    def merge_last_two(self, a: Tensor, size: int) -> Tensor:
        return a.flatten(2)

    def scan(self, body: Body, carried: Sequence[Tensor], scanned: Sequence[Tensor]) -> list[Tensor]:
        # Plain Python would unroll the loop in the exported program; torch's own scan is still private.
        from torch._higher_order_ops.scan import scan

        def step(carry: list[Tensor], slices: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            return body(self, carry, slices), []

        final, _ = scan(step, list(carried), list(scanned))
        return list(final)

    def call(self, module: nn.Module, a: Tensor, shape: tuple[int | None, ...]) -> Tensor:
        return cast(Tensor, module.build(self, a) if isinstance(module, GraphPart) else module(a))
