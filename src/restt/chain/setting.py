"""Settings that ``torch.compile`` can follow: values of a ``with`` block, and functions that are not traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


def untraced(function: F) -> F:
    """Have a compiler call the function while it traces and take the result for a constant.

    ``torch.compiler.assume_constant_result`` does the same, but imports the compiler, which takes a second.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


class Setting(Generic[T]):
    """One value, ``default`` outside every block.

    ``torch.compile`` cannot follow a context variable, but it guards every attribute it reads: what was set last is
    therefore also an attribute, and a compiled module is traced anew where a block asks for something else.

    >>> depth = Setting("depth", 0)
    >>> with depth.set_to(2):
    ...     depth.get()
    2
    >>> depth.get()
    0
    """

    def __init__(self, name: str, default: T) -> None:
        self._variable: ContextVar[T] = ContextVar(f"restt_chain_{name}", default=default)
        self.latest = default

    def get(self) -> T:
        """The value here and now."""
        return self.latest if torch.compiler.is_compiling() else self._variable.get()

    @contextmanager
    def set_to(self, value: T) -> Iterator[None]:
        """Hold this value inside a ``with`` block."""
        before, self.latest = self.get(), value
        token = None if torch.compiler.is_compiling() else self._variable.set(value)
        try:
            yield
        finally:
            if token is not None:
                self._variable.reset(token)
            self.latest = before
