"""The part of each order of interaction, and of one interaction, in a prediction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_int
from restt.explain.subject import Subject


@torch.no_grad()
def order_spectrum(model: Any, x: Any, background: Any = None, max_order: int | None = None) -> Tensor:  # (B, N+1, O)
    """The contribution of each order 0 … N of interaction to each prediction; they sum to it.

    With every site vector written as mean + t·(x - mean), the prediction is a polynomial in t whose coefficient of
    t^d is the sum of all interactions of exactly d sites. A chain whose states are polynomials gives them all.

    Parameters
    ----------
    model : restt.ResTT or fitted estimator
    x : (B, N, I) site vectors for a module, a table for an estimator
    background : the same, optional
        Rows whose mean site vectors stand for absence. Without it a module's orders are those of raw products (absent
        is 0), an estimator's are centred at the rows it was fitted on.
    max_order : int, optional
        Stop here: orders 0 … max_order only, at a cost that grows with them. What the sum then lacks of the prediction
        is the higher orders' part.

    Returns
    -------
    (B, N+1, O) or (B, max_order+1, O) float64, index = order; for estimators on the decision scale.

    Examples
    --------
    >>> import restt, torch
    >>> model = restt.ResTT(sites=5, feature_dim=2, bond_dim=3, outputs=1, dtype=torch.float64)
    >>> x = torch.rand(7, 5, 2, dtype=torch.float64)
    >>> spectrum = order_spectrum(model, x, background=x)
    >>> spectrum.shape, torch.allclose(spectrum.sum(1), model(x))
    (torch.Size([7, 6, 1]), True)
    """
    subject = Subject.of(model)
    sites = subject.module.sites
    highest = sites if max_order is None else min(sites, check_int("max_order", max_order, minimum=1))
    means = subject.means(background)
    return spectrum_of(subject, subject.vectors(x), means, highest)


def spectrum_of(
    subject: Subject,
    vectors: Tensor,  # (B, N, I)
    means: Tensor | None,  # (N, I)
    highest: int,
) -> Tensor:  # (B, highest+1, O)
    """:func:`order_spectrum` of site vectors."""
    return subject.train(means).spectrum(vectors if means is None else vectors - means, highest)


@torch.no_grad()
def interaction(model: Any, x: Any, sites: Any, background: Any = None) -> Tensor:  # (B, O)
    """One term of the expansion: what exactly these sites contribute together to each prediction.

    Parameters
    ----------
    model, x, background
        As in :func:`order_spectrum`: raw products for a module without a background, else centred (ANOVA) terms, of
        which the one of no site is the prediction at the means and all 2^N sum to the prediction.
    sites : sites from 0, or for an estimator columns by name or number; empty for the constant

    Returns
    -------
    (B, O) float64

    Examples
    --------
    >>> import restt, torch
    >>> model = restt.ResTT(sites=2, feature_dim=1, bond_dim=2, outputs=1, dtype=torch.float64)
    >>> x = torch.rand(4, 2, 1, dtype=torch.float64)
    >>> parts = [interaction(model, x, sites) for sites in ([], [0], [1], [0, 1])]
    >>> torch.allclose(sum(parts), model(x))
    True
    """
    subject = Subject.of(model)
    members, means, vectors = subject.sites(sites, "sites"), subject.means(background), subject.vectors(x)
    away = vectors if means is None else vectors - means
    term = subject.train(means).term({n: away[:, n] for n in members}).mean(dim=0)
    return term.expand(len(vectors), -1)
