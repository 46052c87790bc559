"""Measurements over many freshly drawn runs, in blocks that fit into memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from random import Random

import torch
from torch import Tensor

from restt.meanfield.compare import Comparison, compare
from restt.meanfield.gradients import site_gradients
from restt.meanfield.rules import StabilityWarning
from restt.module import ResTT
from restt.topology import SKIP_MODES, Topology

_BLOCK_WEIGHTS = 40_000_000  # weights held at once, over the runs of a block


def compare_in_blocks(
    topology: Topology,
    x: Tensor,  # (B, N, I)
    *,
    sigma2: float | str,
    bond_dim: int,
    outputs: int,
    runs: int,
    init: str = "paper",
    seed: int = 0,
) -> Comparison:
    """Theory against measurement over ``runs`` fresh draws of the weights."""
    modules = _blocks(topology, x, runs, seed, bond_dim=bond_dim, outputs=outputs, sigma2=sigma2, init=init)
    return Comparison.pooled([compare(module, x) for module in modules])


def gradients_in_blocks(
    topology: Topology,
    x: Tensor,  # (B, N, I)
    *,
    bond_dim: int,
    outputs: int,
    runs: int,
    init: str,
    seed: int = 0,
) -> Tensor:  # (S, N)
    """Each site's gradient over ``runs`` fresh draws, at the default σ_w²; see :func:`site_gradients`."""
    modules = _blocks(topology, x, runs, seed, bond_dim=bond_dim, outputs=outputs, sigma2="auto", init=init)
    return torch.cat([site_gradients(module, x) for module in modules])


def gradient_spread(
    gradients: Tensor,  # (S, N)
) -> float:
    """Largest over smallest gradient across the sites of a run, median over the runs."""
    return float((gradients.amax(dim=1) / gradients.amin(dim=1)).median())


def mixed_topology(sites: int, seed: int) -> Topology:
    """A random topology of mostly residual sites, with chains, entries and skips missing or led to the output."""
    random = Random(seed)
    later = range(sites - 1)
    chains = tuple(random.random() < 0.85 for _ in later)
    linears = tuple(random.random() < 0.7 for _ in later)
    skips = tuple(random.choices(SKIP_MODES, weights=(0.7, 0.15, 0.15), k=sites - 1))
    return Topology(sites, chains, linears, skips)


def _blocks(
    topology: Topology, x: Tensor, runs: int, seed: int, *, bond_dim: int, outputs: int, sigma2: float | str, init: str
) -> Iterator[ResTT]:
    width = x.shape[-1]
    per_run = max(1, topology.sites * width * bond_dim * bond_dim)
    size = min(runs, max(1, _BLOCK_WEIGHTS // per_run))
    module = None
    for start in range(0, runs, size):
        ids = range(start, min(runs, start + size))
        if module is None or module.runs != len(ids):
            with warnings.catch_warnings(action="ignore", category=StabilityWarning):  # unstable on purpose
                module = ResTT(
                    topology.sites,
                    width,
                    bond_dim,
                    outputs,
                    topology,
                    sigma2,
                    init=init,
                    runs=len(ids),
                    dtype=x.dtype,
                    device=x.device,
                )
        module.reset_parameters(seed=seed, run_ids=ids)
        yield module
