"""σ_w² per site, the variance of every role, and one step of the mean-field recursions (paper, Sec. IV and Appendix B).

Recursions are in natural logarithms. All weights are independent with zero mean, so every product of two different
paths averages to zero and only squares are left. That holds for the states that leave for the output as well: y(b)
after a state y(a) left contains a weight of a later site in each of its terms, hence E y(a) y(b) = 0 and their
variances add.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_positive, shown
from restt.topology import Topology

INITS = ("balanced", "orthogonal", "paper")

# Weights of the last site beyond this scale leave the range of float32, as where σ² explodes or vanishes.
_LARGEST_LOG_VARIANCE = 80.0
_DEAD = -math.inf


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
    stable = [relaxed if topology.full_skips else 1.0]
    for n, mode in enumerate(topology.skips, start=2):
        is_full = mode == "full" or (n == topology.sites and mode == "output")
        stable.append(relaxed if is_full else 1.0)
    return torch.tensor(stable, dtype=torch.float64) / moments


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
    if per_unit == _DEAD:
        return WeightVariances(first, inner, inner, 1.0)
    bounded = min(max(-per_unit, -_LARGEST_LOG_VARIANCE), _LARGEST_LOG_VARIANCE)
    return WeightVariances(first, inner, inner, math.exp(bounded))


@dataclass(frozen=True)
class Slopes:
    """Effect of site n = 2…N-1 on the variance of the state: q(n) = gain(n) q(n-1) + entry(n)."""

    log_gain: tuple[float, ...]  # [full skip] + [chain] s(n)
    log_entry: tuple[float, ...]  # [linear] s(n)/r


@dataclass(frozen=True)
class LastSite:
    """The output's variance: q(N) = gain q(N-1) + entry + head · (variance of what W(N,3) leads to the output)."""

    log_gain: float
    log_entry: float
    log_head: float


def slopes(
    topology: Topology,
    bond_dim: int,
    chain: Tensor,  # (N-2,), variance of W(n,1)
    linear: Tensor,  # (N-2,), variance of W(n,2)
    second_moment: Tensor,  # (N,)
) -> Slopes:
    """The slopes of sites 2…N-1 for these weight variances."""
    moments = second_moment[1:-1]
    gains = (bond_dim * chain * moments).tolist()
    entries = (linear * moments).tolist()
    inner = range(topology.sites - 2)
    return Slopes(
        tuple(log((topology.skips[n] == "full") + topology.chains[n] * gains[n]) for n in inner),
        tuple(log(topology.linears[n] * entries[n]) for n in inner),
    )


def last_site(topology: Topology, bond_dim: int, variance: float, second_moment: float) -> LastSite:
    """The last site's slopes where W(N,1), W(N,2) and W(N,3) have this variance."""
    return LastSite(
        log(topology.chains[-1] * bond_dim * variance * second_moment),
        log(topology.linears[-1] * variance * second_moment),
        log(bond_dim * variance),
    )


def log_states(
    log_first: float,  # log q(1)
    site: Slopes,
) -> list[float]:  # log q(1) … log q(N-1)
    """The variances of the states, by the forward recursion."""
    states = [log_first]
    for gain, entry in zip(site.log_gain, site.log_entry, strict=True):
        states.append(log_add(states[-1] + gain, entry))
    return states


def log_output(
    topology: Topology,
    states: list[float],  # log q(1) … log q(N-1)
    last: LastSite,
) -> float:
    """Output variance log q(N), with the states that left for the output."""
    head = states[-1] if topology.ends_with_skip else _DEAD
    for n, skip in enumerate(topology.skips[:-1]):
        if skip == "output":
            head = log_add(head, states[n])
    return log_add(log_add(states[-1] + last.log_gain, last.log_entry), head + last.log_head)


def log_jacobians(
    topology: Topology,
    bond_dim: int,
    site: Slopes,
    last: LastSite,
) -> list[float]:  # log χ(2) … log χ(N)
    """The mean squared Jacobians, by the backward recursion χ(k) = gain(k) χ(k+1) + [y(k-1) leaves] · head/r."""
    log_bond = math.log(bond_dim)
    straight = log_add(last.log_gain, last.log_head if topology.ends_with_skip else _DEAD)
    jacobians = [straight - log_bond]
    for gain, skip in zip(reversed(site.log_gain), reversed(topology.skips[:-1]), strict=True):
        leaves = last.log_head - log_bond if skip == "output" else _DEAD
        jacobians.append(log_add(jacobians[-1] + gain, leaves))
    return jacobians[::-1]


def log(value: float) -> float:
    """The natural logarithm, -inf at 0."""
    return math.log(value) if value > 0 else _DEAD


def log_add(a: float, b: float) -> float:
    """log(exp(a) + exp(b)) without leaving log space."""
    low, high = min(a, b), max(a, b)
    return high if low == _DEAD else high + math.log1p(math.exp(low - high))
