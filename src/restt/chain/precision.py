"""Settings of a ``with`` block that ``torch.compile`` can follow, and the precision of the GPU kernels' products.

Products of the fused GPU kernels follow torch, which multiplies float32 in full unless set otherwise: rounded to tf32,
errors of 1e-2 of the largest output were measured at N = 196. Storage and sums are float32 whatever is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

import torch

from restt._common.compat_torch import is_any_autocast_enabled
from restt._common.errors import check_choice

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
    therefore also an attribute, and a compiled module is traced again where a block sets another value.

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


PRECISIONS = ("float32", "tf32", "bf16")
_NARROW = "fp16"  # small gradients underflow unless the loss is scaled, which restt's own training does not do
_OF_AUTOCAST = {torch.bfloat16: "bf16", torch.float16: _NARROW}
_AS_TORCH = "auto"

_precision: Setting[str] = Setting("precision", _AS_TORCH)


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Choose the operands of the matrix products inside a ``with`` block; the backward pass follows its forward.

    ``"float32"`` splits every product into three tf32 products, which is float32 to within its own rounding;
    ``"tf32"`` rounds operands to 10 mantissa bits, ``"bf16"`` to 7, ``"fp16"`` to 10 within a range that
    needs a ``torch.amp.GradScaler``.
    ``"auto"`` (default) does as torch does on the GPU: ``"float32"``, or ``"tf32"`` after
    ``torch.set_float32_matmul_precision("high")`` (or ``"medium"``, which there is the same), or the type of a
    surrounding ``torch.autocast``. Backends other than the fused GPU one ignore it.

    >>> import restt, torch
    >>> model = restt.ResTT(sites=3, feature_dim=2, bond_dim=4, outputs=1)
    >>> with restt.chain.precision("bf16"):
    ...     model(torch.rand(5, 3, 2)).shape
    torch.Size([5, 1])
    """
    with _precision.set_to(check_choice("precision", name, (_AS_TORCH, *PRECISIONS, _NARROW))):
        yield


def current_precision(device: str = "cuda") -> str:
    """The precision that holds here and now, for tensors on this type of device.

    >>> current_precision()
    'float32'
    >>> with precision("tf32"):
    ...     current_precision()
    'tf32'
    """
    chosen = _precision.get()
    if chosen != _AS_TORCH:
        return chosen
    lowered = autocast_dtype(device)
    return _of_torch() if lowered is None else _OF_AUTOCAST.get(lowered, "float32")


@untraced  # a compiler that traces inside of one has entered it
def any_autocast() -> bool:
    """Whether there may be a surrounding ``torch.autocast``, of whatever device: cheaper to ask than which.

    >>> with torch.autocast("cpu", dtype=torch.bfloat16):
    ...     any_autocast()
    True
    """
    return is_any_autocast_enabled()


@untraced  # a compiler that traces inside of one has entered it
def autocast_dtype(device: str) -> torch.dtype | None:
    """The type that a surrounding ``torch.autocast`` multiplies in on this type of device; None without one.

    >>> with torch.autocast("cpu", dtype=torch.bfloat16):
    ...     autocast_dtype("cpu"), autocast_dtype("meta")
    (torch.bfloat16, None)
    """
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return None


@untraced  # torch itself traces again where its setting changes
def _of_torch() -> str:
    # From 2.9 on torch keeps a setting per kind of device and refuses to name a common one where they differ.
    on_gpu = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    if on_gpu is not None:
        return "tf32" if on_gpu == "tf32" else "float32"
    return "float32" if torch.get_float32_matmul_precision() == "highest" else "tf32"
