"""The mean-field recursions for q and χ (paper, Sec. IV and Appendix B), for every topology and init."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int, shown
from restt.init.slopes import LastSite, Slopes, last_site, log, log_jacobians, log_output, log_states, slopes
from restt.init.variances import INITS, per_site, resolve_sigma2, weight_variances
from restt.meanfield.profile import Profile
from restt.topology import Topology

CONVENTIONS = ("derived", "paper")


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
