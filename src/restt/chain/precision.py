"""How exactly the fused GPU kernels multiply; storage and sums are float32 whatever is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from restt._common.errors import check_choice

PRECISIONS = ("tf32", "float32", "bf16")

_precision: ContextVar[str] = ContextVar("restt_chain_precision", default="tf32")


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Choose the operands of the matrix products inside a ``with`` block; the backward pass follows its forward.

    ``"tf32"`` (default) rounds them to 10 mantissa bits, ``"bf16"`` to 7, and ``"float32"`` splits every product into
    three tf32 products, which is float32 to within its own rounding. Backends other than the fused GPU one ignore it.

    >>> import restt, torch
    >>> model = restt.ResTT(sites=3, feature_dim=2, bond_dim=4, outputs=1)
    >>> with restt.chain.precision("bf16"):
    ...     model(torch.rand(5, 3, 2)).shape
    torch.Size([5, 1])
    """
    token = _precision.set(check_choice("precision", name, PRECISIONS))
    try:
        yield
    finally:
        _precision.reset(token)


def current_precision() -> str:
    """The name that holds here and now.

    >>> current_precision()
    'tf32'
    """
    return _precision.get()
