"""Second moments of a dense train under independent sites, by a transfer map on (r+1)×(r+1) matrices.

A whitened core is (left, 1+K, right): slice 0 is the absent site, the others multiply uncorrelated features of variance
1. ``README.md`` beside this file has the derivations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

# Directions of a site's covariance below this share of its largest are rounding: hats sum to one, so one always is.
LEAST_VARIANCE = 1e-12


def whitening(covariances: Tensor) -> tuple[list[Tensor], list[Tensor]]:  # (N, I, I) -> N of (I, K_n), of (I, K_n)
    """Maps with x - mean = ψ @ mix.T and ψ = (x - mean) @ unmix for uncorrelated ψ of variance 1."""
    mixes, unmixes = [], []
    for covariance in covariances:
        variances, directions = torch.linalg.eigh(covariance)
        kept = variances > LEAST_VARIANCE * variances.amax().clamp(min=torch.finfo(torch.float64).tiny)
        deviations, directions = variances[kept].sqrt(), directions[:, kept]
        mixes.append(directions * deviations)
        unmixes.append(directions / deviations)
    return mixes, unmixes


def whitened(
    cores: Sequence[Tensor],  # N of (left, 1+I, right), centred
    covariances: Tensor,  # (N, I, I)
) -> tuple[list[Tensor], list[Tensor]]:
    """The train over orthonormal features [1, ψ(n)], and the maps ψ = (x - mean) @ unmix (I, K_n) of its sites.

    Under independent sites the squared norm of its tensor is E f².
    """
    mixes, unmixes = whitening(covariances)
    white = [
        torch.cat([core[:, :1], torch.einsum("lir,ij->ljr", core[:, 1:], mix)], dim=1)
        for core, mix in zip(cores, mixes, strict=True)
    ]
    return white, unmixes


def transfer_left(
    moment: Tensor,  # (…, left, left)
    core: Tensor,  # (left, J, right): whitened, or any of its slices
) -> Tensor:  # (…, right, right)
    """E[state stateᵀ] through a site: Σ_j H_jᵀ E H_j."""
    left, width, right = core.shape
    half = (moment @ core.reshape(left, width * right)).unflatten(-1, (width, right)).flatten(-3, -2)
    return core.reshape(left * width, right).T @ half


def transfer_right(
    moment: Tensor,  # (…, right, right)
    core: Tensor,  # (left, J, right)
) -> Tensor:  # (…, left, left)
    """The adjoint of :func:`transfer_left`: Σ_j H_j F H_jᵀ."""
    return transfer_left(moment, core.transpose(0, 2))


def output_moments(core: Tensor) -> Tensor:  # (D, D, D)
    """For each output the moment F behind the last site that picks its square."""
    outputs = core.shape[-1]
    return torch.diag_embed(torch.eye(outputs, dtype=core.dtype, device=core.device))


def moment_sweeps(train: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """E[state stateᵀ] before each site and after the last, N+1 of (left, left); and their duals, (D, left, left)."""
    left, right = [train[0].new_ones(1, 1)], [output_moments(train[-1])]
    for core in train:
        left.append(transfer_left(left[-1], core))
    for core in reversed(train):
        right.append(transfer_right(right[-1], core))
    return left, right[::-1]


def absent_after(train: list[Tensor]) -> list[Tensor]:  # N of (right, D)
    """All sites behind each one, absent."""
    after = [torch.eye(train[-1].shape[-1], dtype=train[-1].dtype, device=train[-1].device)]
    for core in reversed(train[1:]):
        after.append(core[:, 0] @ after[-1])
    return after[::-1]


def total_variance(train: list[Tensor]) -> Tensor:  # (D,)
    """Var f: the terms whose last site is n, summed over n. Nothing is subtracted, so small variances stay exact."""
    moment, variance = train[0].new_ones(1, 1), train[-1].new_zeros(train[-1].shape[-1])
    for core, end in zip(train, absent_after(train), strict=True):
        variance = variance + torch.einsum("ab,ad,bd->d", transfer_left(moment, core[:, 1:]), end, end)
        moment = transfer_left(moment, core)
    return variance


def order_variances(train: list[Tensor], highest: int) -> Tensor:  # (highest+1, D)
    """E f_d² of the sum of all terms of each order d: the transfer map on matrices that are polynomials."""
    moments = train[0].new_ones(1, 1, 1)  # (orders, left, left)
    for n, core in enumerate(train):
        orders = min(n + 1, highest) + 1
        grown = transfer_left(moments, core[:, 1:])[: orders - 1]
        moments = transfer_left(moments, core[:, :1])
        moments = torch.cat([moments, moments.new_zeros(orders - len(moments), *moments.shape[1:])])
        moments[1:] += grown
    return moments.diagonal(dim1=1, dim2=2).clone()


def pair_variances(train: list[Tensor]) -> Tensor:  # (N, N, D)
    """The variance of every pair's term, of every single site's on the diagonal; exhaustive, O(N²)."""
    found = train[0].new_zeros(len(train), len(train), train[-1].shape[-1])
    before = train[0].new_ones(1, 1)  # all earlier sites absent
    travelling = train[0].new_zeros(0, 1)  # (entries of earlier sites, left)
    owners = torch.zeros(0, dtype=torch.long, device=found.device)
    for n, (core, after) in enumerate(zip(train, absent_after(train), strict=True)):
        behind = core[:, 1:] @ after  # (left, K, D)
        found[n, n] = torch.einsum("al,lkd->kd", before, behind).square().sum(dim=0)
        together = torch.einsum("el,lkd->ekd", travelling, behind).square().sum(dim=1)
        found[:, n] = found[:, n].index_add(0, owners, together)
        found[n, :n] = found[:n, n]
        own = torch.einsum("al,lkr->kr", before, core[:, 1:])
        travelling = torch.cat([travelling @ core[:, 0], own])
        owners = torch.cat([owners, owners.new_full((len(own),), n)])
        before = before @ core[:, 0]
    return found


@dataclass(frozen=True, eq=False)
class DenseMoments:
    """A train over orthonormal features of independent sites."""

    train: list[Tensor]  # N of (left, 1+K, right)

    @cached_property
    def pairs(self) -> Tensor:  # (N, N, D)
        """The variance of every pair's term, of every single site's on the diagonal."""
        return pair_variances(self.train)

    def variances(self, highest: int) -> tuple[Tensor, Tensor, Tensor]:  # (D,), (N, D), (highest+1, D)
        """The variance, that of all terms with each site, and that of all terms of each order; 0 for order 0."""
        left, right = moment_sweeps(self.train)
        totals = [
            torch.einsum("ab,dab->d", transfer_left(left[n], core[:, 1:]), right[n + 1])
            for n, core in enumerate(self.train)
        ]
        orders = order_variances(self.train, highest)
        orders[0] = 0.0
        return total_variance(self.train), torch.stack(totals), orders
