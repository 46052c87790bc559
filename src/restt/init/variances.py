"""σ_w² per site, by the mean-field rule or the user's own, and from it the variance of every role (paper, Sec. IV)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_positive, shown
from restt.init.slopes import last_site, log_output, log_states, slopes
from restt.topology import Topology

INITS = ("balanced", "orthogonal", "paper")

# Weights of the last site beyond this scale leave the range of float32, as where σ² explodes or vanishes.
_LARGEST_LOG_VARIANCE = 80.0


def per_site(name: str, value: float | Sequence[float] | Tensor, sites: int) -> Tensor:  # (N,)
    """A positive scalar or one value per site, as a float64 tensor of length N."""
    is_array = isinstance(value, (Tensor, np.ndarray, Sequence)) and not isinstance(value, str)
    if not is_array or np.ndim(value) == 0:
        number = value.item() if isinstance(value, Tensor) else value
        return torch.full((sites,), check_positive(name, number), dtype=torch.float64)
    values = torch.as_tensor(value, dtype=torch.float64).flatten().cpu()
    if len(values) != sites:
        raise ValueError(f"{name} must be a number or one number for each of the {sites} sites, got {len(values)}")
    bad = ~(values.isfinite() & (values > 0))
    if bad.any():
        site = int(bad.nonzero()[0])
        raise ValueError(f"{name} must be finite and above 0, got {values[site].item()} at site {site + 1}")
    return values


def stable_sigma2_per_site(topology: Topology, second_moment: float | Sequence[float] | Tensor = 1.0) -> Tensor:  # (N,)
    """σ_w² per site under which signals and gradients neither explode nor vanish.

    With s(n) = σ²(n)·E Σ_i x(n,i)²: where a site has a full skip, the signal grows by 1 + s, so s = 1/(number of full
    skips) keeps the whole chain within a factor e (paper, Eq. 33: s ≪ 1). Where it has none, the signal is multiplied
    by s and s = 1 is the only stable choice (paper, Eq. 27). Site 1 has no skip
    and takes the value of sites with a full one, if any.
    """
    moments = per_site("second_moment", second_moment, topology.sites)
    relaxed = 1.0 / max(1, topology.full_skips)
    slopes = [relaxed if topology.full_skips else 1.0]
    for n, mode in enumerate(topology.skips, start=2):
        is_full = mode == "full" or (n == topology.sites and mode == "output")
        slopes.append(relaxed if is_full else 1.0)
    return torch.tensor(slopes, dtype=torch.float64) / moments


def resolve_sigma2(
    sigma2: str | float | Sequence[float] | Tensor,
    topology: Topology,
    second_moment: float | Sequence[float] | Tensor,
) -> Tensor:  # (N,)
    """``"auto"`` by the mean-field rule, or the user's value(s), per site."""
    if isinstance(sigma2, str):
        if sigma2 != "auto":
            raise ValueError(f'sigma2 must be "auto" or a number above 0, got {shown(sigma2)}')
        return stable_sigma2_per_site(topology, second_moment)
    return per_site("sigma2", sigma2, topology.sites)


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
