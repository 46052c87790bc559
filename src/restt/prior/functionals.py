"""The posterior of linear functionals of the function: Shapley values, terms of the expansion, what a column adds.

All of them are sums of products over columns: a site vector v_n for each column in place of a row's. The kernel is
bilinear in site vectors, so two such products have a covariance like two rows:

    Cov(L, L') = c Π_n |v_n||v'_n| + Σ_k s_k Π_n v_n T_nk v'_n + s_4 Σ_n v_n T_n4 v'_n Π_{m≠n} |v_m||v'_m|

with |v| the sum of v's entries. A row is a product of its site vectors, a term of columns T one of x - μ for n ∈ T and
of the means μ elsewhere. A Shapley value is an integral of products along the line from the means to the row,
∫ ∂f/∂x_n (μ + t z)·z_n dt, which Gauss–Legendre nodes give exactly (FANOVA-GP in closed form). The posterior is that of
:class:`Predictive`: the root of its variance over inducing rows, and the spread between members.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from restt.prior.gp import Process, Product, product_covariance, without_each
from restt.prior.predictive import Predictive, between

# Numbers of the largest array that is held at once, 64 MiB.
_NUMBERS = 2**23


@torch.no_grad()
def path_deviations(
    predictive: Predictive,
    start: Sequence[Tensor],  # N of (I_n,)
    way: Sequence[Tensor],  # N of (B, I_n)
    nodes: Tensor,  # (K,)
    slopes: Tensor,  # (B, K): what the derivative along a column counts at each node
    levels: Tensor | None = None,  # (B, K, N): what the function itself counts there
) -> Tensor:  # (B, N)
    """Posterior standard deviation of Σ_k slopes·∂f/∂x_n(start + t_k way)·way_n + levels·f(start + t_k way).

    With the weights of the nodes as slopes it is that of the Shapley values. In standard deviations of the warped
    target.
    """
    columns, inducing = len(start), predictive.kernel.vectors(predictive.inducing)
    each = columns * max(12 * len(inducing[0]), 16 * len(nodes) ** 2)
    step, parts = max(1, _NUMBERS // each), []
    for first in range(0, len(slopes), step):
        some = slice(first, first + step)
        part = [z[some] for z in way]
        given = slopes[some], None if levels is None else levels[some]
        within, means = torch.zeros(len(part[0]), columns, dtype=torch.float64), []
        for weight, process, root, mean in predictive.members:
            cross = _path_cross(process, inducing, start, part, nodes, *given)  # (B, N, M)
            known = _path_variance(process, start, part, nodes, *given)
            within += weight * (known - (cross @ root.T).square().sum(-1)).clamp(min=0)
            means.append((cross @ mean).flatten(0, 1))
        parts.append((within + between(means, predictive.weights).view_as(within)).sqrt())
    return torch.cat(parts)


def _path_cross(
    process: Process,
    rows: Product,  # N of (M, I_n)
    start: Sequence[Tensor],
    way: Sequence[Tensor],
    nodes: Tensor,
    slopes: Tensor,
    levels: Tensor | None,
) -> Tensor:  # (B, N, M)
    """Prior covariance with the function at rows."""
    at_start, along = [], []  # N of (M, 4), of (B, M, 4)
    for table, mean, z, x in zip(process.tables, start, way, rows, strict=True):
        seen = torch.einsum("ijk,mj->mik", table[:-1, :-1], x)
        at_start.append(torch.einsum("i,mik->mk", mean, seen))
        along.append(torch.einsum("bi,mik->bmk", z, seen))
    scale, constant = process.scale, process.settings.constant
    found = slopes.new_zeros(len(slopes), len(start), len(rows[0]))
    for k, t in enumerate(nodes):
        factors = [mean[..., :3] + t * z[..., :3] for mean, z in zip(at_start, along, strict=True)]
        for n, others in enumerate(without_each(factors)):
            moved = (along[n][..., :3] * others) @ scale[:3] + scale[3] * along[n][..., 3]
            found[:, n] += slopes[:, k, None] * moved
        if levels is not None:
            whole = torch.stack(factors).prod(0) @ scale[:3] + constant
            whole += scale[3] * sum(mean[..., 3] + t * z[..., 3] for mean, z in zip(at_start, along, strict=True))
            found += levels[:, k, :, None] * whole[:, None]
    return found


def _path_variance(
    process: Process,
    start: Sequence[Tensor],
    way: Sequence[Tensor],
    nodes: Tensor,
    slopes: Tensor,
    levels: Tensor | None,
) -> Tensor:  # (B, N)
    """Prior variance: a double integral over pairs of nodes."""
    ours, theirs = nodes[:, None, None], nodes[None, :, None]  # (K, 1, 1), (1, K, 1)
    squares, sides, factors = [], [], []  # z T z (B, 1, 1, 4), z T v(t) and v(s) T v(t) (B, K, K, 4)
    for table, mean, z in zip(process.tables, start, way, strict=True):
        inner = table[:-1, :-1]
        moved = torch.einsum("bi,ijk->bjk", z, inner)
        square = torch.einsum("bjk,bj->bk", moved, z)[:, None, None]
        side = torch.einsum("bjk,j->bk", moved, mean)[:, None, None]
        still = torch.einsum("i,ijk,j->k", mean, inner, mean)
        squares.append(square)
        sides.append(side + theirs * square)
        factors.append(still + (ours + theirs) * side + ours * theirs * square)
    scale, constant = process.scale, process.settings.constant
    both = slopes[:, :, None] * slopes[:, None, :]
    found = []
    for n, others in enumerate(without_each([factor[..., :3] for factor in factors])):
        moved = (squares[n][..., :3] * others) @ scale[:3] + scale[3] * squares[n][..., 3]
        variance = (both * moved).sum((1, 2))
        if levels is not None:
            level = levels[:, :, n]
            mixed = (sides[n][..., :3] * others) @ scale[:3] + scale[3] * sides[n][..., 3]
            variance += 2 * (slopes[:, :, None] * level[:, None, :] * mixed).sum((1, 2))
            whole = (factors[n][..., :3] * others) @ scale[:3] + constant
            whole = whole + scale[3] * sum(factor[..., 3] for factor in factors)
            variance += (level[:, :, None] * level[:, None, :] * whole).sum((1, 2))
        found.append(variance)
    return torch.stack(found, 1)


@torch.no_grad()
def posterior_draws(
    predictive: Predictive,
    products: Product,  # N of (A, I_n)
    centre: Tensor,  # (A, O): the posterior mean of the products
    count: int,
    seed: int,
) -> Tensor:  # (count, A, O)
    """Draws of products from their joint posterior, a member by its weight for each, about ``centre``.

    Members differ by their own means and covariances; the mean over members is put at ``centre``, so that draws are
    about the train that predicts and not about its approximation by the inducing rows.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(predictive.weights), count, p=predictive.weights / predictive.weights.sum())
    normal = torch.from_numpy(rng.standard_normal((count, *centre.shape)))
    inducing = predictive.kernel.vectors(predictive.inducing)
    roots, means = [], []
    for _, process, root, mean in predictive.members:
        cross = product_covariance(process, inducing, products)
        known = root @ cross
        variances, directions = torch.linalg.eigh(product_covariance(process, products, products) - known.T @ known)
        roots.append(directions * variances.clamp(min=0).sqrt())
        means.append(cross.T @ mean)
    shares = torch.from_numpy(predictive.weights / predictive.weights.sum())
    middle = torch.einsum("s,sao->ao", shares, torch.stack(means))
    found = torch.empty_like(normal)
    for member, (root, mean) in enumerate(zip(roots, means, strict=True)):
        own = torch.from_numpy(chosen == member)
        found[own] = centre + mean - middle + torch.einsum("ab,cbo->cao", root, normal[own])
    return found
