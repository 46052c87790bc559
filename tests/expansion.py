"""The expansion of Appendix A by brute force: every subset of sites, two independent ways."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

import restt
from restt.chain import reference
from restt.module import ROLES


def subsets(sites: int) -> list[tuple[int, ...]]:
    """Every non-empty subset of the 1-based sites."""
    numbers = range(1, sites + 1)
    return [members for order in numbers for members in combinations(numbers, order)]


def generic_module(topology: restt.Topology, *, bond: int = 2, outputs: int = 1, width: int = 1) -> restt.ResTT:
    """Weights in general position, so that a term vanishes only where the topology drops it."""
    module = restt.ResTT(topology.sites, width, bond, outputs, topology, dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for role in ROLES:
            parameter = getattr(module, role)
            if parameter is not None:
                parameter.copy_(0.5 + torch.rand(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def terms_by_inclusion_exclusion(module: restt.ResTT, x: Tensor) -> dict[tuple[int, ...], Tensor]:
    """Each interaction's value from outputs alone: f is multilinear without a constant, so absent sites are zeros.

    term(T) = Σ_{U ⊆ T} (-1)^{|T|-|U|} f(x on U, 0 elsewhere), for x (N, I).
    """
    sites = module.sites
    masks = torch.arange(2**sites)[:, None] >> torch.arange(sites) & 1  # (2^N, N)
    with torch.no_grad():
        values = reference.contract((x[None] * masks[..., None])[None], module.weights(), module.topology)[
            0
        ]  # (2^N, O)
    found = values.clone()
    for bit in range(sites):  # Möbius transform over subsets
        has = masks[:, bit] == 1
        found[has] -= found[torch.arange(2**sites)[has] ^ (1 << bit)]
    index = {members: sum(1 << (site - 1) for site in members) for members in subsets(sites)}
    return {members: found[position] for members, position in index.items()}


def term_by_path(module: restt.ResTT, x: Tensor, members: tuple[int, ...]) -> Tensor:
    """Each interaction's value as the product of the tensors on its path (Appendix A), for x (N, I)."""
    last_site = module.sites
    with torch.no_grad():
        if last_site == 1:
            return x[0] @ module.first
        state = None
        for site in members:
            features = x[site - 1]
            if site == 1:
                state = features @ module.first
            elif state is None:
                entry = module.last_linear if site == last_site else module.linear[site - 2]
                state = features @ entry
            else:
                core = module.last_chain if site == last_site else module.chain[site - 2]
                state = torch.einsum("k,i,ikl->l", state, features, core)
        return state if members[-1] == last_site else state @ module.last_skip
