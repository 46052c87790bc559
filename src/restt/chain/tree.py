"""The sweep as a product of small matrices in log₂ N rounds, for a few samples of a long chain.

With the state [y, 1] every inner site is one matrix per sample (see augmented.py), and matrices may be multiplied in
any order: pairs, pairs of pairs, and so on. That is r times the arithmetic of walking along the chain and B·N·r² of
memory, but 2 log₂ N steps one after the other instead of N. Plain autograd, so it can also be differentiated twice.
"""

from __future__ import annotations

import torch
from torch import Tensor

from restt.chain.augmented import augmented_bond
from restt.chain.reference import ChainWeights
from restt.chain.sweep import contract_with
from restt.topology import Topology


def contract(x: Tensor, weights: ChainWeights, topology: Topology) -> Tensor:
    """The output (S,B,O) for x (S or 1, B, N, I)."""
    return contract_with(sweep, x, weights, topology)


def unsupported(x: Tensor, weights: ChainWeights, topology: Topology) -> str | None:
    """None: it takes everything."""
    return None


def sweep(
    y: Tensor,  # (S, B, R)
    x: Tensor,  # (N-2, S or 1, B, I)
    chain: Tensor | None,  # (S, N-2, I, R, R)
    linear: Tensor | None,  # (S, N-2, I, R)
    topology: Topology,
) -> tuple[Tensor, Tensor | None]:
    """y(N-1) and the sum of the states that leave for the output."""
    runs, batch, bond = y.shape
    whole = _product(_site_matrices(y, x, chain, linear, topology))
    start = torch.cat([y, y.new_zeros(runs, batch, whole.shape[-1] - bond - 1), y.new_ones(runs, batch, 1)], dim=-1)
    end = (start.unsqueeze(-2) @ whole).squeeze(-2)
    return end[..., :bond], end[..., bond:-1] if topology.has_output_skip else None


def _product(
    matrices: Tensor,  # (n, S, B, W, W)
) -> Tensor:  # (S, B, W, W)
    """The product of all, first to last."""
    while len(matrices) > 1:
        count = len(matrices)
        pairs = matrices[0 : count - 1 : 2] @ matrices[1:count:2]
        matrices = torch.cat([pairs, matrices[-1:]]) if count % 2 else pairs
    return matrices[0]


def _site_matrices(
    y: Tensor,  # (S, B, R), for sizes, dtype and device
    x: Tensor,  # (N-2, S or 1, B, I)
    chain: Tensor | None,
    linear: Tensor | None,
    topology: Topology,
) -> Tensor:  # (N-2, S, B, W, W)
    """The matrix of every inner site and sample: [y(n-1), left, 1] times it is [y(n), left, 1]."""
    runs, batch, bond = y.shape
    leading = (len(x), runs, batch)
    rest = augmented_bond(bond, topology) - bond
    eye = torch.eye(bond, dtype=y.dtype, device=y.device)
    step = eye.where(_sites_with(topology.skips, "full", y), 0)
    if chain is not None:
        used = chain.transpose(0, 1).where(_sites_with(topology.chains, True, y), 0)
        step = step + (x @ used.flatten(-2)).unflatten(-1, (bond, bond))
    entry = y.new_zeros(1, bond)
    if linear is not None:
        used = linear.transpose(0, 1).where(_sites_with(topology.linears, True, y)[..., 0], 0)
        entry = (x @ used).unsqueeze(-2)
    beside_state, beside_entry = y.new_zeros(bond, rest), eye.new_zeros(1, rest)
    beside_entry[0, -1] = 1
    rows = [[step, beside_state], [entry, beside_entry]]
    if topology.has_output_skip:
        leaves = eye.where(_sites_with(topology.skips, "output", y), 0)
        stays = torch.cat([torch.zeros_like(eye), eye], dim=-1)
        rows = [[step, leaves, y.new_zeros(bond, 1)], [stays, y.new_zeros(bond, 1)], [entry, beside_entry]]
    return torch.cat([_beside(blocks, leading) for blocks in rows], dim=-2)


def _beside(blocks: list[Tensor], leading: tuple[int, ...]) -> Tensor:
    return torch.cat([block.expand(*leading, *block.shape[-2:]) for block in blocks], dim=-1)


def _sites_with(modes: tuple[object, ...], wanted: object, like: Tensor) -> Tensor:  # (N-2, 1, 1, 1, 1)
    """Which of the sites 2…N-1 have this mode."""
    return torch.tensor([mode == wanted for mode in modes[:-1]], device=like.device).view(-1, 1, 1, 1, 1)
