"""One step of the mean-field recursions, per site (paper, Sec. IV and Appendix B), in natural logarithms.

All weights are independent with zero mean, so every product of two different paths averages to zero and only squares
are left. That holds for the states that leave for the output as well: y(b) after a state y(a) left contains a weight
of a later site in each of its terms, hence E y(a) y(b) = 0 and their variances add.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from restt.topology import Topology

_DEAD = -math.inf


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
