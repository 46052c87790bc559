"""The mean-field recursions for q and χ (paper, Sec. IV and Appendix B), and for the covariance of two inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int, shown
from restt.init.variances import (
    INITS,
    LastSite,
    Slopes,
    last_site,
    log,
    log_jacobians,
    log_output,
    log_states,
    per_site,
    resolve_sigma2,
    slopes,
    weight_variances,
)
from restt.meanfield.profile import Profile
from restt.topology import Topology

CONVENTIONS = ("derived", "paper")
# A bond so large that 1/r is lost in float64 beside 1: the limit r → ∞.
_INFINITE_BOND = 2**60


def predict(
    topology: Topology,
    second_moment: float | Sequence[float] | Tensor,
    sigma2: str | float | Sequence[float] | Tensor,
    bond_dim: int,
    init: str = "paper",
    convention: str = "derived",
) -> Profile:
    """Predict q and χ of freshly drawn weights, before any training.

    With s(k) = σ²(k)·E Σ_i x(k,i)² and all weights N(0, σ²/r) (``init="paper"``)

        TT     q(k) = s q(k-1)              χ(k) = s χ(k+1)          q(1) = s/r    χ(N) = s/r
        ResTT  q(k) = (1+s) q(k-1) + s/r    χ(k) = (1+s) χ(k+1)      q(1) = s/r    χ(N) = (s + σ²)/r

    for k < N (paper, Eqs. for q and χ in Sec. IV); the last site has no identity but W(N,3), so a ResTT's output has
    q(N) = (s + σ²) q(N-1) + s/r. A state y(k-1) that leaves for the output adds σ² q(k-1) to q(N) and σ²/r to χ(k).
    The recursions run in log space, so chains of any length neither overflow nor vanish.

    They are exact in the mean over weights when the squared lengths Σ_i x(k,i)² of different sites are uncorrelated,
    which holds for any data under the trigonometric map (the length is 1).

    Parameters
    ----------
    topology : Topology
        The connections of each site.
    second_moment : float or N of them
        E Σ_i x(n,i)²; feature maps report theirs as ``second_moment``.
    sigma2 : "auto", float or N of them
        σ_w².
    bond_dim : int
        r.
    init : {"paper", "balanced", "orthogonal"}
        As in :class:`restt.ResTT`; orthogonal cores have the same mean squares as Gaussian ones.
    convention : {"derived", "paper"}
        ``"paper"`` takes the paper's q(k) = (1+s) q(k-1) + s word for word: the linear entry counts r times too much,
        and the last skip is taken for an identity. For comparison only; χ is the same.

    Returns
    -------
    Profile
        ``q`` (N,), ``chi`` (N-1,) and their logarithms.

    Examples
    --------
    >>> from restt import Topology, meanfield
    >>> meanfield.predict(Topology.plain(4), 1.0, sigma2=0.5, bond_dim=2).q.round(decimals=6).tolist()
    [0.25, 0.125, 0.0625, 0.03125]
    >>> residual = meanfield.predict(Topology.residual(3), 1.0, sigma2=0.5, bond_dim=2)
    >>> residual.q.round(decimals=6).tolist(), residual.chi.round(decimals=6).tolist()
    ([0.25, 0.625, 0.875], [0.75, 0.5])
    """
    if not isinstance(topology, Topology):
        raise TypeError(f"topology must be a Topology, got {shown(topology)}")
    bond_dim = check_int("bond_dim", bond_dim, minimum=1)
    check_choice("init", init, INITS)
    check_choice("convention", convention, CONVENTIONS)
    moments = per_site("second_moment", second_moment, topology.sites)
    sigmas = resolve_sigma2(sigma2, topology, moments)
    variances = weight_variances(topology, bond_dim, sigmas, moments, init)
    log_first = log(variances.first * float(moments[0]))
    if topology.sites == 1:
        return _profile([log_first], [])
    site = slopes(topology, bond_dim, variances.chain, variances.linear, moments)
    last = last_site(topology, bond_dim, variances.last, float(moments[-1]))
    jacobians = log_jacobians(topology, bond_dim, site, last)
    if convention == "paper":
        site, last = paper_convention(site, last, bond_dim)
    states = log_states(log_first, site)
    return _profile([*states, log_output(topology, states, last)], jacobians)


def paper_convention(site: Slopes, last: LastSite, bond_dim: int) -> tuple[Slopes, LastSite]:
    """The forward slopes as the paper has them: the linear entry adds s, not s/r, and the last skip is an identity."""
    log_bond = math.log(bond_dim)
    entries = tuple(entry + log_bond for entry in site.log_entry)
    return Slopes(site.log_gain, entries), LastSite(last.log_gain, last.log_entry + log_bond, log_head=0.0)


def _profile(log_q: list[float], log_chi: list[float]) -> Profile:
    return Profile(torch.tensor(log_q, dtype=torch.float64), torch.tensor(log_chi, dtype=torch.float64))


@torch.no_grad()
def covariance(
    topology: Topology,
    x: Tensor,  # (B, N, I)
    x2: Tensor | None = None,  # (B2, N, I)
    sigma2: str | float | Sequence[float] | Tensor = "auto",
    bond_dim: int | None = None,
    init: str = "paper",
    second_moment: float | Sequence[float] | Tensor = 1.0,
) -> Tensor:  # (B, B2)
    """E f(x) f(x') of one output over freshly drawn weights, exactly; their mean is 0.

    All weights are independent with zero mean, so two different paths through the chain average to zero and the
    recursion is the one of the variance (:func:`restt.meanfield.predict`) with k(n) = x(n)·x'(n) in the place of the
    squared length. Under ``init="paper"``, with a(n) = σ²(n) k(n),

        TT     C(n) = a(n) C(n-1)                       C(1) = a(1)/r
        ResTT  C(n) = (1 + a(n)) C(n-1) + a(n)/r        out: (a(N) + σ²(N)) C(N-1) + a(N)/r

    which with σ²(N) = 1 is the closed form (Π_n (1 + a(n)) - 1)/r. As r grows the outputs become Gaussian, so this is
    the covariance of a Gaussian process: the prior of :mod:`restt.prior`.

    Parameters
    ----------
    topology : Topology
        The connections of each site.
    x, x2 : tensors (B, N, I), (B2, N, I)
        Site vectors; ``x2=None`` takes ``x`` again. Padding of ragged sites must be 0.
    sigma2, init, second_moment
        As in :class:`restt.ResTT`, with the same defaults there; ``init="paper"`` here.
    bond_dim : int, optional
        r. ``None``: the limit of r·Cov for ``"paper"`` (its outputs shrink with r; the product is the same at every
        r), of Cov itself for the other inits.

    Returns
    -------
    Tensor (B, B2), float64

    Examples
    --------
    >>> import torch
    >>> from restt import Topology, meanfield
    >>> x = torch.tensor([[[0.5], [2.0]], [[1.0], [-1.0]]])
    >>> meanfield.covariance(Topology.residual(2), x, sigma2=1.0).tolist()
    [[5.25, -2.5], [-2.5, 3.0]]
    """
    if not isinstance(topology, Topology):
        raise TypeError(f"topology must be a Topology, got {shown(topology)}")
    check_choice("init", init, INITS)
    left = _site_vectors("x", x, topology.sites)
    right = left if x2 is None else _site_vectors("x2", x2, topology.sites)
    if left.shape[2] != right.shape[2]:
        raise ValueError(f"x2 must have the feature width {left.shape[2]} of x, got {right.shape[2]}")
    paper_limit = bond_dim is None and init == "paper"
    if bond_dim is None:
        bond = 1 if paper_limit else _INFINITE_BOND
    else:
        bond = check_int("bond_dim", bond_dim, minimum=1)
    moments = per_site("second_moment", second_moment, topology.sites)
    variances = weight_variances(topology, bond, resolve_sigma2(sigma2, topology, moments), moments, init)
    products = torch.einsum("ani,bni->nab", left, right)
    state = variances.first * products[0]
    if topology.sites == 1:
        return state
    leaving: Any = 0.0
    for n in range(topology.sites - 2):
        chain, linear = float(variances.chain[n]), float(variances.linear[n])
        if topology.skips[n] == "output":
            leaving = leaving + state
        gain = (topology.skips[n] == "full") + topology.chains[n] * bond * chain * products[n + 1]
        state = gain * state + topology.linears[n] * linear * products[n + 1]
    if topology.ends_with_skip:
        leaving = leaving + state
    last = variances.last * products[-1]
    return topology.chains[-1] * bond * last * state + topology.linears[-1] * last + bond * variances.last * leaving


def _site_vectors(name: str, x: Any, sites: int) -> Tensor:
    if not isinstance(x, Tensor) or not x.dtype.is_floating_point:
        raise TypeError(f"{name} must be a floating point tensor, got {shown(x)}")
    if x.dim() != 3 or x.shape[1] != sites:
        raise ValueError(f"{name} must have shape (B, {sites}, I), got {tuple(x.shape)}")
    return x.double()
