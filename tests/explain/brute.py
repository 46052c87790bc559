"""Everything by brute force over all 2^N coalitions, from module outputs alone."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import torch
from torch import Tensor

import restt
from restt.topology import SKIP_MODES
from tests.diagonals import random_diagonal


def random_topology(sites: int, seed: int) -> restt.Topology:
    """Each connection of each site on its own, output skips included; the last site lets something through."""
    rng = np.random.default_rng(seed)
    chains = [bool(flag) for flag in rng.random(sites - 1) < 0.8]
    linears = [bool(flag) for flag in rng.random(sites - 1) < 0.8]
    skips = [str(rng.choice(SKIP_MODES, p=[0.6, 0.25, 0.15])) for _ in range(sites - 1)]
    if sites > 1:
        chains[-1] = True
    return restt.Topology(sites, tuple(chains), tuple(linears), tuple(skips))


def random_module(
    sites: int,
    width: int | list[int] = 2,
    bond: int = 3,
    outputs: int = 2,
    topology: restt.Topology | str = "residual",
    runs: int | None = None,
    seed: int = 0,
    products: int = 0,
) -> restt.ResTT | restt.DiagonalTT:
    """Weights in general position and a bias; with ``products`` diagonal cores, twice as many of them."""
    if products:
        return random_diagonal([width] * sites if isinstance(width, int) else width, products, 2, outputs, runs, seed)
    module = restt.ResTT(sites, width, bond, outputs, topology, bias=True, runs=runs, dtype=torch.float64)
    module.reset_parameters(seed=seed)
    with torch.no_grad():
        module.bias.copy_(torch.randn(module.bias.shape, generator=torch.Generator().manual_seed(seed)))
    return module


def random_rows(
    module: restt.ResTT | restt.DiagonalTT, rows: int, seed: int = 0, scale: float = 1.0
) -> Tensor:  # (B, N, I)
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, module.sites, module.feature_dim)
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64) + 0.3


def predictions(module: restt.ResTT | restt.DiagonalTT, x: Tensor) -> Tensor:  # (B, O)
    """The members' mean, by the reference backend."""
    with torch.no_grad(), restt.chain.backend("reference"):
        output = module(x)
    return output if module.runs is None else output.mean(dim=0)


def game(module: restt.ResTT | restt.DiagonalTT, row: Tensor, means: Tensor) -> Tensor:  # (2^N, O)
    """v(T) for every coalition T, numbered by its bits: its sites at the row, the others at their means."""
    bits = coalitions(module.sites)
    return predictions(module, torch.where(bits[..., None], row, means))


def coalitions(sites: int) -> Tensor:  # (2^N, N) bool
    return (torch.arange(2**sites)[:, None] >> torch.arange(sites) & 1).bool()


def moebius(values: Tensor) -> Tensor:  # (2^N, O) -> (2^N, O)
    """The term of each coalition: inclusion and exclusion."""
    found = values.clone()
    bits = coalitions(int(math.log2(len(values))))
    for site in range(bits.shape[1]):
        has = bits[:, site]
        found[has] = found[has] - found[~has]
    return found


def shapley(values: Tensor) -> Tensor:  # (2^N, O) -> (N, O)
    """The definition: marginal contributions weighed by t!(N-1-t)!/N!."""
    bits = coalitions(int(math.log2(len(values))))
    sites, sizes = bits.shape[1], bits.sum(1)
    found = []
    for site in range(sites):
        without = torch.arange(len(bits))[~bits[:, site]]
        weights = [math.factorial(t) * math.factorial(sites - 1 - t) / math.factorial(sites) for t in range(sites)]
        share = torch.tensor(weights, dtype=torch.float64)[sizes[without]]
        found.append(share @ (values[without + 2**site] - values[without]))
    return torch.stack(found)


def pair_index(values: Tensor, index: str) -> Tensor:  # (2^N, O) -> (N, N, O)
    """The definitions of the Shapley and the Shapley-Taylor interaction index of pairs; 0 on the diagonal."""
    bits = coalitions(int(math.log2(len(values))))
    sites, sizes = bits.shape[1], bits.sum(1)
    found = torch.zeros(sites, sites, values.shape[1], dtype=torch.float64)
    for i, j in product(range(sites), repeat=2):
        if i == j:
            continue
        without = torch.arange(len(bits))[~bits[:, i] & ~bits[:, j]]
        if index == "SII":
            weights = [
                math.factorial(t) * math.factorial(sites - 2 - t) / math.factorial(sites - 1) for t in range(sites - 1)
            ]
        else:
            weights = [2 / sites / math.comb(sites - 1, t) for t in range(sites - 1)]
        share = torch.tensor(weights, dtype=torch.float64)[sizes[without]]
        mixed = values[without + 2**i + 2**j] - values[without + 2**i] - values[without + 2**j] + values[without]
        found[i, j] = share @ mixed
    return found
