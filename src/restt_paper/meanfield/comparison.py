"""The theory against measurement, site by site, on this module and these features, with well-behaved errors.

A chain's signal is a product of N random factors: nearly log-normal, so that a few large runs carry its mean and the
standard error of a measured q(N) says little. But given the state before it, each single step has an expectation that
the theory states, with a well-behaved error:

    E[ q(k) of a run | its q(k-1) ] = gain(k) q(k-1) + entry(k)

so the ratio of the two sides has mean 1 at every site, and the deviations of different sites are uncorrelated. For more
runs than memory holds, the same over blocks of freshly drawn ones.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from restt.init.stability import StabilityWarning
from restt.init.variances import LastSite, Slopes, last_site, log, slopes, weight_variances
from restt.meanfield.measure import measure
from restt.meanfield.profile import Profile
from restt.module import ResTT
from restt.topology import SKIP_MODES, Topology

# Sites whose weights a tensor of the module holds; stacked ones have an axis of sites.
_SITES_OF = {
    "first": slice(0, 1),
    "chain": slice(1, -1),
    "linear": slice(1, -1),
    "last_chain": slice(-1, None),
    "last_linear": slice(-1, None),
    "last_skip": slice(-1, None),
}
_STACKED = ("chain", "linear")
_BLOCK_WEIGHTS = 40_000_000  # weights held at once, over the runs of a block


@dataclass(frozen=True)
class StepRatios:
    """Measured over expected one-step values of every run and site; their mean is 1 where the theory is right."""

    values: Tensor  # (S, K)

    @property
    def mean(self) -> Tensor:  # (K,)
        """Mean over the runs."""
        return self.values.mean(dim=0)

    @property
    def error(self) -> Tensor:  # (K,)
        """Standard error of the mean."""
        return self.values.std(dim=0) / math.sqrt(len(self.values))

    @property
    def z(self) -> Tensor:  # (K,)
        """Each site's deviation in standard errors; 0 for a signal that is dead as predicted."""
        return _in_errors(self.mean - 1, self.error)

    @property
    def profile_z(self) -> Tensor:  # (K,)
        """Deviation of the whole profile up to each site, all steps added up, in standard errors."""
        return _in_errors((self.mean - 1).cumsum(0), self.error.square().cumsum(0).sqrt())


def _in_errors(deviation: Tensor, error: Tensor) -> Tensor:
    return (deviation / error).where(deviation != 0, 0)


@dataclass(frozen=True)
class Comparison:
    """The measured profile, and its steps against the theory's: ``q`` over sites 1…N, ``chi`` from site N back to 2."""

    profile: Profile
    q: StepRatios  # (S, N)
    chi: StepRatios  # (S, N-1), in the order of the backward recursion


def compare(module: ResTT, x: Tensor) -> Comparison:  # x (B, N, I) or, with runs, (S, B, N, I)
    """Measure a freshly drawn module with ``runs`` and compare every step of q and χ with the theory's.

    The theory needs Σ_i x(n,i)² = ``module.second_moment`` in the mean, independent of the other sites.

    Examples
    --------
    >>> import torch, restt
    >>> model = restt.ResTT(sites=30, feature_dim=2, bond_dim=16, outputs=3, runs=50, init="paper")
    >>> model.reset_parameters(seed=0)
    >>> x = restt.features.Trigonometric()(torch.linspace(0, 1, 90).view(3, 30))
    >>> compare(model, x).q.profile_z.abs().max().item() < 4
    True
    """
    profile = measure(module, x)
    log_q, log_chi = profile.run_log_q, profile.run_log_chi
    assert log_q is not None
    assert log_chi is not None
    topology, bond, moments = module.topology, module.bond_dim, module.second_moment
    variances = weight_variances(topology, bond, module.sigma2, moments, module.init)
    expected_q = torch.full_like(log_q, log(variances.first * float(moments[0])))
    expected_chi = torch.empty_like(log_chi)
    if topology.sites > 1:
        site = slopes(topology, bond, variances.chain, variances.linear, moments)
        last = last_site(topology, bond, variances.last, float(moments[-1]))
        expected_chi = _expected_chi(module, log_chi, site, last)
        expected_q[:, 1:] = _expected_q(topology, log_q, site, last)
    return Comparison(profile, StepRatios(_ratio(log_q, expected_q)), StepRatios(_ratio(log_chi, expected_chi).flip(1)))


def _expected_q(topology: Topology, log_q: Tensor, site: Slopes, last: LastSite) -> Tensor:  # (S, N-1), sites 2…N
    inner = torch.logaddexp(log_q[:, :-2] + _row(site.log_gain), _row(site.log_entry))
    leaving = [n for n, skip in enumerate(topology.skips[:-1]) if skip == "output"]
    leaving += [topology.sites - 2] * topology.ends_with_skip
    entry = torch.full_like(log_q[:, :1], last.log_entry)
    paths = torch.cat([log_q[:, -2:-1] + last.log_gain, entry, log_q[:, leaving] + last.log_head], dim=1)
    return torch.cat([inner, paths.logsumexp(dim=1, keepdim=True)], dim=1)


def _expected_chi(module: ResTT, log_chi: Tensor, site: Slopes, last: LastSite) -> Tensor:  # (S, N-1), χ(2)…χ(N)
    topology = module.topology
    expected = torch.empty_like(log_chi)
    straight = math.exp(last.log_gain) + math.exp(last.log_head) * topology.ends_with_skip
    expected[:, -1] = log(straight / module.bond_dim)
    # χ(k+1) holds the very W(N,3) through which y(k-1) leaves, so the step's expectation is given that draw of it.
    head = torch.full((len(log_chi), 1), -torch.inf, dtype=torch.float64)
    if module.last_skip is not None:
        weights = module.last_skip.detach().double().cpu()
        head = weights.square().mean(dim=(-2, -1)).log().view(-1, 1)
    leaves = torch.tensor([skip == "output" for skip in topology.skips[:-1]])
    expected[:, :-1] = torch.logaddexp(log_chi[:, 1:] + _row(site.log_gain), head.where(leaves, -torch.inf))
    return expected


def _row(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _ratio(measured: Tensor, expected: Tensor) -> Tensor:
    return (measured - expected).where(measured != expected, 0).exp()


def site_gradients(module: ResTT, x: Tensor) -> Tensor:  # (B, N, I) or (S, B, N, I) -> (S, N)
    """Root mean square of the entries of each site's weight gradient, for the loss ½ Σ_o output² averaged over B.

    All tensors of a site count together, padding and absent connections not at all; a site without weights gets nan.
    Where these are even along the chain, no site learns long before another.

    Examples
    --------
    >>> import torch, restt
    >>> model = restt.ResTT(sites=100, feature_dim=2, bond_dim=8, outputs=2, runs=3)
    >>> model.reset_parameters(seed=0)
    >>> x = restt.features.Trigonometric()(torch.linspace(0, 1, 400).view(4, 100))
    >>> rms = site_gradients(model, x)
    >>> rms.shape, bool((rms.amax(1) / rms.amin(1) < 100).all())
    (torch.Size([3, 100]), True)
    """
    roles = [role for role in _SITES_OF if getattr(module, role) is not None]
    output = module(x)
    loss = output.square().sum() / (2 * output.shape[-2])
    gradients = torch.autograd.grad(loss, [getattr(module, role) for role in roles])
    squares = torch.zeros(module.runs or 1, module.sites, dtype=torch.float64)
    counts = torch.zeros(module.sites, dtype=torch.float64)
    for role, gradient in zip(roles, gradients, strict=True):
        values = (gradient if module.runs is not None else gradient.unsqueeze(0)).double().cpu()
        used = module.used(role)
        assert used is not None
        mask = used.expand(values.shape[1:])
        if role not in _STACKED:
            values, mask = values.unsqueeze(1), mask.unsqueeze(0)
        squares[:, _SITES_OF[role]] += values.square().where(mask, 0).flatten(2).sum(dim=2)
        counts[_SITES_OF[role]] += mask.flatten(1).sum(dim=1)
    return (squares / counts).sqrt()


def compare_in_blocks(topology: Topology, x: Tensor, *, runs: int, seed: int = 0, **options: Any) -> Comparison:
    """Theory against measurement over ``runs`` fresh draws; ``options`` are bond_dim, outputs, sigma2 and init."""
    parts = [compare(module, x) for module in _blocks(topology, x, runs, seed, **options)]
    profile = Profile.pooled([part.profile for part in parts])
    q = StepRatios(torch.cat([part.q.values for part in parts]))
    return Comparison(profile, q, StepRatios(torch.cat([part.chi.values for part in parts])))


def gradients_in_blocks(topology: Topology, x: Tensor, *, runs: int, seed: int = 0, **options: Any) -> Tensor:  # (S, N)
    """:func:`site_gradients` over ``runs`` fresh draws; ``options`` are bond_dim, outputs, sigma2 and init."""
    return torch.cat([site_gradients(module, x) for module in _blocks(topology, x, runs, seed, **options)])


def gradient_spread(gradients: Tensor) -> float:  # (S, N)
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
    topology: Topology,
    x: Tensor,
    runs: int,
    seed: int,
    *,
    bond_dim: int,
    outputs: int,
    sigma2: float | str = "auto",
    init: str = "paper",
) -> Iterator[ResTT]:
    """Modules of as many runs as memory holds, redrawn until all runs have been drawn."""
    width = x.shape[-1]
    size = min(runs, max(1, _BLOCK_WEIGHTS // max(1, topology.sites * width * bond_dim * bond_dim)))
    sizes = topology.sites, width, bond_dim, outputs, topology, sigma2
    module = None
    for start in range(0, runs, size):
        ids = range(start, min(runs, start + size))
        if module is None or module.runs != len(ids):
            with warnings.catch_warnings(action="ignore", category=StabilityWarning):  # unstable on purpose
                module = ResTT(*sizes, init=init, runs=len(ids), dtype=x.dtype, device=x.device)
        module.reset_parameters(seed=seed, run_ids=ids)
        yield module
