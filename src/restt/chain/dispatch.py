"""Picks the implementation of the contraction."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

from restt._errors import check_choice
from restt.chain.weights import ChainWeights
from restt.topology import Topology

Contract = Callable[[Tensor, ChainWeights, Topology], Tensor]

# Backend name -> the module under restt.chain whose `contract` it is. Imported when first used.
BACKENDS = ("reference", "eager")

_forced: ContextVar[str | None] = ContextVar("restt_chain_backend", default=None)


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Force one implementation inside a ``with`` block; ``"auto"`` gives the choice back.

    >>> import restt, torch
    >>> model = restt.ResTT(sites=3, feature_dim=2, bond_dim=4, outputs=1)
    >>> x = torch.rand(5, 3, 2)
    >>> with restt.chain.backend("reference"):
    ...     slow = model(x)
    >>> torch.allclose(slow, model(x), atol=1e-6)
    True
    """
    check_choice("backend", name, ("auto", *BACKENDS))
    token = _forced.set(None if name == "auto" else name)
    try:
        yield
    finally:
        _forced.reset(token)


def contract(
    x: Tensor,  # (S or 1, B, N, I)
    weights: ChainWeights,
    topology: Topology,
) -> Tensor:  # (S, B, O)
    """The output of the chain, by the forced backend or the one chosen for these sizes."""
    return implementation(_forced.get() or "eager")(x, weights, topology)


def implementation(name: str) -> Contract:
    """The ``contract`` function of one backend."""
    module = importlib.import_module(f"restt.chain.{name}")
    return module.contract  # type: ignore[no-any-return]
