"""The tensors of a chain, and the recurrence as einsum, straight from the equations: the truth of every other path.

Legend, used in all of restt (the paper's symbols in brackets):

    S  runs, independent models side by side
    B  batch
    N  sites                                   [N]
    I  feature width of a site, index i        [I_n, i_n]
    R  bond dimension, indices k (in), l (out) [r; v_{n-1}, v_n]
    O  outputs, index o                        [O]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from restt.topology import Topology


class ChainWeights(NamedTuple):
    """Weights of a chain: one stacked tensor per role, each with the runs axis S in front.

    A single model may leave the axis out, of every role and of x and the output alike: six views less a call.
    A role that no site of the topology uses is None. Where only some sites use a role, the others' slices are ignored
    by every backend and get a zero gradient. Ragged feature widths are padded to one I; the caller zeroes the padding
    of x, so padded weights neither act nor get a gradient.

    What is traced names the fields and uses :func:`role_tensors`: torch 2.7's compiler follows neither slices of a
    named tuple nor ``_make`` and ``_replace``.
    """

    first: Tensor  # (S, I, R), W(1); (S, I, O) when N = 1
    chain: Tensor | None  # (S, N-2, I, R, R), W(n,1) of sites 2…N-1, indexed [s, n-2, i, v_{n-1}, v_n]
    linear: Tensor | None  # (S, N-2, I, R), W(n,2) of sites 2…N-1
    last_chain: Tensor | None  # (S, I, R, O), W(N,1)
    last_linear: Tensor | None  # (S, I, O), W(N,2)
    last_skip: Tensor | None  # (S, R, O), W(N,3)
    outputs: int  # O: no tensor has this size where nothing reaches the output


ROLES = ChainWeights._fields[:-1]
_Tensors = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def role_tensors(weights: ChainWeights) -> _Tensors:
    """The tensors in the order of ``ROLES``."""
    first, inner, linear, last_chain, last_linear, last_skip, _ = weights
    return first, inner, linear, last_chain, last_linear, last_skip


def with_runs(
    x: Tensor,  # (B, …)
    weights: ChainWeights,  # of one model, without the runs axis
) -> tuple[Tensor, ChainWeights]:
    """Add a runs axis, S = 1, to x and the weights."""
    first, *others = role_tensors(weights)
    inner, linear, last_chain, last_linear, last_skip = [None if role is None else role.unsqueeze(0) for role in others]
    first = first.unsqueeze(0)
    return x.unsqueeze(0), ChainWeights(first, inner, linear, last_chain, last_linear, last_skip, weights.outputs)


def has_runs(weights: ChainWeights) -> bool:
    """Whether the tensors have the runs axis in front; the fused backends take them without it too."""
    return weights.first.dim() == 3


def role_shapes(topology: Topology, width: int, bond: int, outputs: int) -> dict[str, tuple[int, ...] | None]:
    """Shape of each role's tensor without the runs axis; None where the topology does not use the role.

    >>> role_shapes(Topology.plain(4), width=2, bond=3, outputs=1)["chain"]
    (2, 2, 3, 3)
    """
    inner = topology.sites - 2
    if topology.sites == 1:
        return {"first": (width, outputs), **dict.fromkeys(ROLES[1:])}
    return {
        "first": (width, bond),
        "chain": (inner, width, bond, bond) if topology.has_chain else None,
        "linear": (inner, width, bond) if topology.has_linear else None,
        "last_chain": (width, bond, outputs) if topology.chains[-1] else None,
        "last_linear": (width, outputs) if topology.linears[-1] else None,
        "last_skip": (bond, outputs) if topology.has_skip_head else None,
    }


def used_entries(role: str, topology: Topology, widths: Sequence[int]) -> Tensor:
    """Mask of a role's entries that are no padding and of no absent connection, to broadcast against one run.

    >>> used_entries("linear", Topology.residual(4).without_linear(3), [1, 1, 2, 2]).flatten(1)
    tensor([[ True, False],
            [False, False]])
    """
    with torch.device("cpu"):
        real = torch.arange(max(widths)) < torch.tensor(widths)[:, None]  # (N, I)
        if role in ("chain", "linear"):
            kept = torch.tensor((topology.chains if role == "chain" else topology.linears)[:-1], dtype=torch.bool)
            inner = real[1:-1] & kept[:, None]
            return inner[..., None, None] if role == "chain" else inner[..., None]
        if role == "last_skip":
            return torch.ones(1, 1, dtype=torch.bool)
        end = real[0 if role == "first" else -1]
        return end[:, None, None] if role == "last_chain" else end[:, None]


def contract(
    x: Tensor,  # (S or 1, B, N, I)
    weights: ChainWeights,
    topology: Topology,
) -> Tensor:  # (S, B, O)
    """The output Y(N) of Algorithm 1, for every topology.

    Sites 2…N-1 follow Eq. 11, y(n) = C[y(n-1), W(n,1), x(n)] + y(n-1) + C[x(n), W(n,2)], each addend only where the
    topology keeps it; the last site follows Eq. 13.
    """
    site = x.unbind(dim=2)
    y = torch.einsum("sbi,sil->sbl", site[0], weights.first)
    if topology.sites == 1:
        return y
    to_output = torch.zeros_like(y)
    for n in range(2, topology.sites):
        chain, linear, skip = topology.chains[n - 2], topology.linears[n - 2], topology.skips[n - 2]
        previous, y = y, torch.zeros_like(y)
        if chain:
            assert weights.chain is not None
            y = y + torch.einsum("sbk,sbi,sikl->sbl", previous, site[n - 1], weights.chain[:, n - 2])
        if linear:
            assert weights.linear is not None
            y = y + torch.einsum("sbi,sil->sbl", site[n - 1], weights.linear[:, n - 2])
        if skip == "full":
            y = y + previous
        elif skip == "output":
            to_output = to_output + previous
    if topology.ends_with_skip:
        to_output = to_output + y
    terms = []
    if topology.chains[-1]:
        assert weights.last_chain is not None
        terms.append(torch.einsum("sbk,sbi,siko->sbo", y, site[-1], weights.last_chain))
    if topology.linears[-1]:
        assert weights.last_linear is not None
        terms.append(torch.einsum("sbi,sio->sbo", site[-1], weights.last_linear))
    if topology.has_skip_head:
        assert weights.last_skip is not None
        terms.append(torch.einsum("sbk,sko->sbo", to_output, weights.last_skip))
    if not terms:
        return disconnected_output(y, weights.outputs)
    return torch.stack(terms).sum(dim=0)


def disconnected_output(
    y: Tensor,  # (S, B, R), as the output maybe without S
    outputs: int,
) -> Tensor:  # (S, B, O)
    """Zeros that still belong to the graph, for a topology whose last site has no connection: all gradients are 0."""
    return (y[..., :1] * 0).expand(*y.shape[:-1], outputs)
