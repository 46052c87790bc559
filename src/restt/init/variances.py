"""Variances per role and site from the mean-field rule (paper, Sec. IV)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from restt.init.slopes import last_site, log_output, log_states, slopes
from restt.topology import Topology

INITS = ("balanced", "orthogonal", "paper")

# Weights of the last site beyond this scale would not survive float32; only a σ² that explodes or vanishes asks for it.
_LARGEST_LOG_VARIANCE = 80.0


@dataclass(frozen=True)
class WeightVariances:
    """Variance of each role's weights; the per-site ones are float64 tensors over sites 2…N-1."""

    first: float
    chain: Tensor  # (N-2,)
    linear: Tensor  # (N-2,)
    last: float


def weight_variances(
    topology: Topology,
    bond_dim: int,
    sigma2: Tensor,  # (N,)
    second_moment: Tensor,  # (N,)
    init: str,
) -> WeightVariances:
    """Variances of all weights.

    ``"paper"``: everything N(0, σ²/r). ``"balanced"`` and ``"orthogonal"``: the same for sites 2…N-1, but W(1) starts
    the state at unit variance and the last site's tensors share one variance under which the outputs have unit
    variance.
    """
    uniform = sigma2 / bond_dim
    inner = uniform[1:-1]
    if init == "paper":
        return WeightVariances(float(uniform[0]), inner, inner, float(uniform[-1]))
    first = 1.0 / float(second_moment[0])
    if topology.sites == 1:
        return WeightVariances(first, inner, inner, first)
    states = log_states(0.0, slopes(topology, bond_dim, inner, inner, second_moment))
    per_unit = log_output(topology, states, last_site(topology, bond_dim, 1.0, float(second_moment[-1])))
    if per_unit == -math.inf:
        return WeightVariances(first, inner, inner, 1.0)
    bounded = min(max(-per_unit, -_LARGEST_LOG_VARIANCE), _LARGEST_LOG_VARIANCE)
    return WeightVariances(first, inner, inner, math.exp(bounded))
