"""The covariance of two inputs' outputs over random weights: Section IV of the paper for two inputs instead of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int, shown
from restt.init.variances import INITS, per_site, resolve_sigma2, weight_variances
from restt.topology import Topology

# A bond so large that 1/r is lost in float64 beside 1: what is left is the limit.
_INFINITE_BOND = 2**60


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
