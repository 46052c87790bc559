"""Shapley values and pair indices, exact, by quadrature along the line from the background to the row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int
from restt.explain.subject import Subject
from restt.explain.sweeps import legendre

MODES = ("marginal", "joint")
INDICES = ("SII", "STII")


def shapley_values(
    model: Any, x: Any, background: Any = None, background_mode: str = "marginal"
) -> Tensor:  # (B, N, O)
    """Exact Shapley values of every site for each prediction: ⌈N/2⌉ forward and backward passes, no sampling.

    The game of row x: sites in a coalition have x's vectors, the others are absent. Since the output is affine in each
    site, φ_n = ∫₀¹ ∂f/∂x(n) · (x(n) - absent(n)) dt along the line from absent to x, a polynomial that Gauss–Legendre
    nodes integrate without error. Rows are streamed, so memory does not grow with their number.

    Parameters
    ----------
    model : restt.ResTT or fitted estimator
    x : (B, N, I) site vectors for a module, a table for an estimator
    background : the same
        What absence means. An estimator's is by default the rows of its fit.
    background_mode : {"marginal", "joint"}
        ``"marginal"``: an absent site is at its mean vector, which is the expectation under independent sites.
        ``"joint"``: absent sites have the values of a background row, averaged over rows; costs as many times more.

    Returns
    -------
    (B, N, O) float64, columns in the table's order for an estimator, whose decision scale it is. Over sites they sum
    to the prediction minus that of the background.

    Examples
    --------
    >>> import restt, torch
    >>> model = restt.ResTT(sites=6, feature_dim=2, bond_dim=3, outputs=2, dtype=torch.float64)
    >>> x, background = torch.rand(2, 10, 6, 2, dtype=torch.float64)
    >>> values = shapley_values(model, x, background)
    >>> gap = model(x) - model(background.mean(0, keepdim=True))
    >>> values.shape, torch.allclose(values.sum(1), gap)
    (torch.Size([10, 6, 2]), True)
    """
    subject = Subject.of(model)
    quick = getattr(subject, "against_rows", None)  # of trees
    values = _over_games(subject, x, background, background_mode, partial(along_paths, subject), quick)
    return subject.in_columns(values, 1)


def _over_games(
    subject: Subject,
    x: Any,
    background: Any,
    mode: str,
    index: Callable[[Tensor, Tensor], Tensor],  # of the games between two points, (B, N, I) each
    against_rows: Callable[[Tensor, Tensor], Tensor] | None = None,  # averaged over starts, where there is a quick way
) -> Tensor:
    """An index of the game of each row: against the background's means, or averaged over its rows."""
    check_choice("background_mode", mode, MODES)
    vectors = subject.vectors(x)
    if mode == "marginal":
        return index(vectors, subject.means(background).expand_as(vectors))
    if background is None:
        raise ValueError('background must be given with background_mode="joint": it averages over its rows')
    rows = subject.vectors(background, "background")
    if against_rows is not None:
        return against_rows(vectors, rows)
    return torch.stack([index(row.expand_as(rows), rows).mean(dim=0) for row in vectors])


def along_paths(
    subject: Subject,
    ends: Tensor,  # (B, N, I)
    starts: Tensor,  # (B, N, I)
) -> Tensor:  # (B, N, D)
    """Shapley values of the games between two points: ∫ ∂f/∂x(n) · (end - start)(n) over the line between them."""
    return subject.path_slopes(starts, ends - starts, *legendre(subject.nodes, ends))


@torch.no_grad()
def interaction_index(
    model: Any,
    x: Any,
    background: Any = None,
    index: str = "SII",
    order: int = 2,
    background_mode: str = "marginal",
) -> Tensor:
    """Exact pair interaction indices of every prediction, in the games of :func:`shapley_values`.

    Both average the mixed difference of a pair over coalitions, ∫₀¹ w(t) ∂²f/∂x(i)∂x(j) dt: the Shapley interaction
    index with w = 1, the Shapley–Taylor index with w = 2(1 - t).

    Parameters
    ----------
    model, x, background, background_mode
        As in :func:`shapley_values`.
    index : {"SII", "STII"}
    order : {1, 2}
        1 gives single sites, which for both indices are the Shapley values.

    Returns
    -------
    (B, N, N, O) float64, symmetric, a pair's index at both places. On the diagonal is the index of the site alone: its
    Shapley value for ``"SII"``; what it does by itself in an empty coalition for ``"STII"``, so that diagonal and upper
    triangle sum to the prediction minus the background's. With ``order=1`` (B, N, O).

    Examples
    --------
    >>> import restt, torch
    >>> model = restt.ResTT(sites=4, feature_dim=1, bond_dim=3, outputs=1, dtype=torch.float64)
    >>> x, background = torch.rand(2, 10, 4, 1, dtype=torch.float64)
    >>> pairs = interaction_index(model, x, background, index="STII")
    >>> total = torch.triu(pairs[..., 0]).sum((1, 2))
    >>> torch.allclose(total, (model(x) - model(background.mean(0, keepdim=True)))[:, 0])
    True
    """
    check_choice("index", index, INDICES)
    if check_int("order", order, minimum=1, maximum=2) == 1:
        return shapley_values(model, x, background, background_mode)
    subject = Subject.of(model)
    values = _over_games(subject, x, background, background_mode, partial(_pair_indices, subject, index=index))
    return subject.in_columns(subject.in_columns(values, 1), 2)


def _pair_indices(
    subject: Subject,
    ends: Tensor,  # (B, N, I)
    starts: Tensor,  # (B, N, I)
    index: str,
) -> Tensor:  # (B, N, N, D)
    """The indices of the games between two points.

    Mixed derivatives are differences of slopes, exact since the decision is affine in each site.
    """
    way, sites = ends - starts, ends.shape[1]
    nodes, weights = legendre(subject.nodes, way)
    if index == "SII":
        pair_weights = single_weights = weights
    else:  # one more node, t = 0, for what a site does alone
        nodes = torch.cat([nodes, nodes.new_zeros(1)])
        pair_weights = torch.cat([2 * (1 - nodes[:-1]) * weights, nodes.new_zeros(1)])
        single_weights = torch.cat([torch.zeros_like(weights), nodes.new_ones(1)])
    slopes = subject.path_slopes(starts, way, nodes, pair_weights)
    indices = way.new_empty(len(way), sites, sites, slopes.shape[-1])
    for n in range(sites):
        moved = starts.clone()
        moved[:, n] += way[:, n]
        indices[:, n] = subject.path_slopes(moved, way, nodes, pair_weights) - slopes
    indices = (indices + indices.transpose(1, 2)) / 2  # equal but for rounding
    alone = subject.path_slopes(starts, way, nodes, single_weights)
    indices.diagonal(dim1=1, dim2=2).copy_(alone.transpose(1, 2))
    return indices
