"""How large the gradient of each site's weights starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from restt.module import ResTT


def site_gradients(
    module: ResTT,
    x: Tensor,  # (B, N, I) or, with runs, (S, B, N, I)
) -> Tensor:  # (S, N)
    """Root mean square of the entries of each site's weight gradient, for the loss ½ Σ_o output² averaged over B.

    All tensors of a site count together, padding and absent connections not at all; a site without weights gets nan.
    The module's own gradients are not touched. Where these are even along the chain, no site learns long before
    another.

    Examples
    --------
    >>> import torch, restt
    >>> model = restt.ResTT(sites=100, feature_dim=2, bond_dim=8, outputs=2, runs=3)
    >>> model.reset_parameters(seed=0)
    >>> x = restt.features.Trigonometric()(torch.linspace(0, 1, 400).view(4, 100))
    >>> rms = restt.meanfield.site_gradients(model, x)
    >>> rms.shape, bool((rms.amax(1) / rms.amin(1) < 100).all())
    (torch.Size([3, 100]), True)
    """
    roles = [role for role in _SITES_OF if getattr(module, role) is not None]
    output = module(x)
    loss = output.square().sum() / (2 * output.shape[-2])
    gradients = torch.autograd.grad(loss, [getattr(module, role) for role in roles])
    runs = module.runs or 1
    squares = torch.zeros(runs, module.sites, dtype=torch.float64)
    counts = torch.zeros(module.sites, dtype=torch.float64)
    for role, gradient in zip(roles, gradients, strict=True):
        per_run = gradient if module.runs is not None else gradient.unsqueeze(0)
        used = module.used(role)
        assert used is not None
        sites = _SITES_OF[role]
        per_site = per_run.double().cpu() if role in _STACKED else per_run.double().cpu().unsqueeze(1)
        masks = used.expand(per_run.shape[1:]) if role in _STACKED else used.expand(per_run.shape[1:]).unsqueeze(0)
        squares[:, sites] += per_site.square().where(masks, 0).flatten(2).sum(dim=2)
        counts[sites] += masks.flatten(1).sum(dim=1)
    return (squares / counts).sqrt()


_STACKED = ("chain", "linear")  # roles whose tensors hold one slice per site 2…N-1
_SITES_OF = {
    "first": slice(0, 1),
    "chain": slice(1, -1),
    "linear": slice(1, -1),
    "last_chain": slice(-1, None),
    "last_linear": slice(-1, None),
    "last_skip": slice(-1, None),
}
