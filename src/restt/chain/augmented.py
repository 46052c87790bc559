"""A residual chain as a plain one: with the state [y, 1] the skip, the entry and the core are one matrix.

Over the features [1, x(n)] every inner site is the plain tensor-train core

    constant slice  [[full · I, 0], [0, 1]]        feature slice i  [[W(n,1)_i, 0], [W(n,2)_i, 0]]

Where some skip leaves for the output, the state is [y, z, 1] with z the sum of the states that have left.
"""

from __future__ import annotations

import torch
from torch import Tensor

from restt.chain.reference import ChainWeights
from restt.topology import Topology


def augmented_bond(bond_dim: int, topology: Topology) -> int:
    """Width of the augmented state: r + 1, or 2r + 1 where some skip goes to the output."""
    return bond_dim * (2 if topology.has_output_skip else 1) + 1


def augmented_first(first: Tensor, bond: int) -> Tensor:
    """W(1) (S, I, R) as the first core (S, 1+I, bond)."""
    runs, width, inner = first.shape
    core = first.new_zeros(runs, 1 + width, bond)
    core[:, 0, -1] = 1
    core[:, 1:, :inner] = first
    return core


def augmented_inner(
    chain: Tensor | None,  # (S, N-2, I, R, R)
    linear: Tensor | None,  # (S, N-2, I, R)
    topology: Topology,
    like: Tensor,  # (S, I, R), W(1), for sizes, dtype and device
) -> Tensor:  # (S, N-2, bond, 1+I, bond)
    """The cores of sites 2…N-1."""
    runs, width, inner = like.shape
    bond, sites = augmented_bond(inner, topology), topology.sites - 2
    core = like.new_zeros(runs, sites, bond, 1 + width, bond)
    state = slice(0, inner)
    left = slice(inner, 2 * inner)
    eye = torch.eye(inner, dtype=like.dtype, device=like.device)
    for n, skip in enumerate(topology.skips[:-1]):
        if skip == "full":
            core[:, n, state, 0, state] = eye
        elif skip == "output":
            core[:, n, state, 0, left] = eye
        if topology.chains[n]:
            assert chain is not None
            core[:, n, state, 1:, state] = chain[:, n].transpose(1, 2)
        if topology.linears[n]:
            assert linear is not None
            core[:, n, -1, 1:, state] = linear[:, n]
    if topology.has_output_skip:
        core[:, :, left, 0, left] = eye
    core[:, :, -1, 0, -1] = 1
    return core


def augmented_last(weights: ChainWeights, topology: Topology) -> Tensor:  # (S, bond, 1+I, O)
    """The core of site N."""
    runs, width, inner = weights.first.shape
    bond = augmented_bond(inner, topology)
    core = weights.first.new_zeros(runs, bond, 1 + width, weights.outputs)
    if topology.chains[-1]:
        assert weights.last_chain is not None
        core[:, :inner, 1:] = weights.last_chain.transpose(1, 2)
    if topology.linears[-1]:
        assert weights.last_linear is not None
        core[:, -1, 1:] = weights.last_linear
    if topology.ends_with_skip:
        assert weights.last_skip is not None
        core[:, :inner, 0] = weights.last_skip
    if topology.has_output_skip:
        assert weights.last_skip is not None
        core[:, inner:-1, 0] = weights.last_skip
    return core
