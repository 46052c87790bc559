"""The tensors of one (residual) tensor train, one stacked tensor per role."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class ChainWeights(NamedTuple):
    """What the chain contracts with; every tensor has the runs axis S in front.

    A role that no site of the topology uses is None. Where only some sites use a role, the others' slices are ignored
    by every backend and get a zero gradient. Ragged feature widths are padded to one I; the caller zeroes the padding
    of x, so padded weights neither act nor get a gradient.
    """

    first: Tensor  # (S, I, R), W(1); (S, I, O) when N = 1
    chain: Tensor | None  # (S, N-2, I, R, R), W(n,1) of sites 2…N-1, indexed [s, n-2, i, v_{n-1}, v_n]
    linear: Tensor | None  # (S, N-2, I, R), W(n,2) of sites 2…N-1
    last_chain: Tensor | None  # (S, I, R, O), W(N,1)
    last_linear: Tensor | None  # (S, I, O), W(N,2)
    last_skip: Tensor | None  # (S, R, O), W(N,3)
    outputs: int  # O, which no tensor tells where nothing reaches the output
