"""Trading time for memory on long chains: keep every √N-th state and recompute the others in the backward pass.

Training otherwise keeps all states, B·N·R numbers. With segments of L sites it keeps B·R·(N/L + L), at the price of a
second forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from restt._common.errors import check_int
from restt.chain.setting import Setting
from restt.chain.sweep import Sweep
from restt.topology import Topology

_AUTO = 0
_segments: Setting[int | None] = Setting("segments", None)


@contextmanager
def recompute(segments: int | None = None) -> Iterator[None]:
    """Recompute states in the backward pass of what is contracted inside a ``with`` block.

    Parameters
    ----------
    segments : int, optional
        How many segments the inner sites are cut into, whose first states are kept; by default about √N.

    Backends that keep all states by their nature (``reference`` and ``tree``) ignore it. Compiled modules on the GPU
    refuse it: leave the module uncompiled there.

    >>> import restt, torch
    >>> model = restt.ResTT(sites=50, feature_dim=2, bond_dim=4, outputs=1)
    >>> x = torch.rand(5, 50, 2)
    >>> with restt.chain.recompute():
    ...     output = model(x)
    >>> output.sum().backward()
    >>> torch.allclose(output, model(x))
    True
    """
    with _segments.set_to(_AUTO if segments is None else check_int("segments", segments, minimum=1)):
        yield


def segment_length(sites: int) -> int:
    """One in how many states of this many inner sites is kept here and now; 1 where nothing is recomputed.

    >>> segment_length(10_000)
    1
    >>> with recompute():
    ...     segment_length(10_000)
    100
    """
    segments = _segments.get()
    if segments is None or sites < 2:
        return 1
    if segments == _AUTO:
        return square_root_length(sites)
    return -(-sites // min(segments, sites))


def square_root_length(sites: int) -> int:
    """The length of segments that keeps the least of this many inner sites' states.

    >>> square_root_length(101)
    11
    """
    return math.isqrt(max(0, sites - 1)) + 1


def recomputing() -> bool:
    """Whether states are to be recomputed here and now."""
    return _segments.get() is not None


def in_segments(sweep: Sweep) -> Sweep:
    """The sweep, cut into segments that are computed again in the backward pass."""
    return partial(_swept_in_segments, sweep)


def _swept_in_segments(
    sweep: Sweep,
    y: Tensor,  # (S, B, R)
    x: Tensor,  # (N-2, S or 1, B, I)
    chain: Tensor | None,  # (S, N-2, I, R, R)
    linear: Tensor | None,  # (S, N-2, I, R)
    topology: Topology,
) -> tuple[Tensor, Tensor | None]:
    sites = len(x)
    length = segment_length(sites)
    if length == 1 or not torch.is_grad_enabled():
        return sweep(y, x, chain, linear, topology)
    # Split, not slices: the gradient of a split is one concatenation, that of a slice a full-size tensor of zeros.
    count = -(-sites // length)
    chains = [None] * count if chain is None else chain.split(length, dim=1)
    linears = [None] * count if linear is None else linear.split(length, dim=1)
    leaving: Tensor | None = None
    for part, xs, cores, entries in zip(range(count), x.split(length), chains, linears, strict=True):
        segment = _segment(topology, part * length, len(xs))
        y, left = checkpoint(sweep, y, xs, cores, entries, segment, use_reentrant=False, preserve_rng_state=False)
        if left is not None:
            leaving = left if leaving is None else leaving + left
    return y, leaving


def _segment(topology: Topology, start: int, length: int) -> Topology:
    """Some inner sites as a topology of their own; its last site is not swept, so its connections do not matter."""
    stop = start + length
    return replace(
        topology,
        sites=length + 2,
        chains=(*topology.chains[start:stop], False),
        linears=(*topology.linears[start:stop], False),
        skips=(*topology.skips[start:stop], "none"),
    )
