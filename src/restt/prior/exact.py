"""The posterior mean as it is: a residual train with diagonal cores, one state per row and product of the kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from restt.diagonal import DiagonalTT
from restt.prior.gp import Posterior


@torch.no_grad()
def diagonal_module(
    posteriors: Sequence[Posterior],
    weights: np.ndarray,  # (members,)
    order: Sequence[int],
) -> DiagonalTT:
    """The members' weighted mean, on the CPU; its sites are the columns in ``order``.

    Members are conditioned on the same rows, so they share codes; each product term of each member is a group.
    """
    rows, sites = posteriors[0].rows, posteriors[0].process.kernel.sites
    groups = [
        (float(weight) * float(scale) * one.alpha, one.process.tables, term)
        for weight, one in zip(weights, posteriors, strict=True)
        for term, scale in enumerate(one.process.scale[:3])
        if float(scale) > 0
    ]
    if not groups:  # main effects alone
        groups = [(0 * posteriors[0].alpha, posteriors[0].process.tables, 0)]
    shares = [float(weight) * one.alpha for weight, one in zip(weights, posteriors, strict=True)]
    tables, effects = [], []
    for n in order:
        width = sites[n].width
        tables.append(torch.stack([table[n][:, :width, term] for _, table, term in groups]))
        states = rows.vectors(n, len(posteriors[0].process.tables[n]))
        effect = shares[0].new_zeros(shares[0].shape[1], width)
        for share, one in zip(shares, posteriors, strict=True):
            effect += one.process.scale[3] * share.T @ (states @ one.process.tables[n][:, :width, 3])
        effects.append(effect)
    constants = [one.process.settings.constant * share.sum(0) for share, one in zip(shares, posteriors, strict=True)]
    constant = torch.stack(constants).sum(0)
    place = torch.tensor(order, device=rows.code.device)
    coefficients = torch.stack([part for part, _, _ in groups])
    return DiagonalTT(tables, rows.code[:, place], rows.share[:, place], coefficients, effects, constant).cpu()
