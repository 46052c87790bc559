"""A train with dense cores, centred at means: the sweeps behind every explanation. README.md has the derivations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from restt.explain.trains import (
    absent,
    centred,
    mean_sweeps,
    merged,
    output_moments,
    present,
    row_chunks,
    transfer_left,
    transfer_right,
    whitened,
)


class Dense:
    """The decision of a train with dense cores, centred; members have a leading axis."""

    def __init__(self, cores: list[Tensor], means: Tensor | None) -> None:  # N of (S, left, 1+I, right), (N, I)
        self.cores = centred(cores, means)
        self._bond = max(core.shape[-1] for core in cores)
        self._runs = cores[0].shape[0]

    def spectrum(self, x: Tensor, highest: int) -> Tensor:  # (B, N, I), centred -> (B, highest+1, D)
        """The sum of all terms of each order."""
        numbers = self._runs * self._bond * (highest + 1) * (2 + x.shape[-1])
        parts = []
        for rows in row_chunks(len(x), numbers, x.device):
            chunk = x[rows]
            state = chunk.new_ones(self._runs, 1, len(chunk), 1)  # (S, orders, B, left)
            for n, core in enumerate(self.cores):
                orders = min(n + 1, highest) + 1
                grown = present(state, core, chunk[:, n])[:, : orders - 1]
                state = absent(state, core)
                state = torch.cat(
                    [state, state.new_zeros(self._runs, orders - state.shape[1], *state.shape[2:])], dim=1
                )
                state[:, 1:] += grown
            parts.append(state.mean(dim=0).transpose(0, 1))
        return torch.cat(parts)

    def term(self, x: Tensor, members: set[int]) -> Tensor:  # (B, N, I), centred -> (B, D)
        """What exactly these sites contribute together."""
        state = x.new_ones(self._runs, len(x), 1)
        for n, core in enumerate(self.cores):
            state = present(state, core, x[:, n]) if n in members else absent(state, core)
        return state.mean(dim=0)

    def member_terms(self, points: dict[int, Tensor]) -> Tensor:  # site -> (G, I), centred -> (S, G, D), (S, G, H, D)
        """The term of one or two sites at all points of their grids, of each member."""
        before, after = mean_sweeps(self.cores)
        first, last = min(points), max(points)
        state = torch.einsum("sl,slir,gi->sgr", before[first], self.cores[first][:, :, 1:], points[first])
        if len(points) == 1:
            return state @ after[first]
        for core in self.cores[first + 1 : last]:
            state = state @ core[:, :, 0]
        reached = torch.einsum("slir,srd,hi->slhd", self.cores[last][:, :, 1:], after[last], points[last])
        surface = torch.einsum("sgl,slhd->sghd", state, reached)
        return surface if next(iter(points)) == first else surface.transpose(1, 2)

    def pair_indices(
        self,
        way: Tensor,  # (B, N, I)
        nodes: Tensor,  # (K,)
        pair_weights: Tensor,  # (K,)
        single_weights: Tensor,  # (K,)
    ) -> Tensor:  # (B, N, N, D)
        """∫ of the second derivative along the way from the means, and on the diagonal that of the first."""
        sites, outputs, bond = way.shape[1], self.cores[-1].shape[-1], self._bond
        numbers = self._runs * bond * (len(nodes) * (sites * (3 + outputs) + bond) + sites * bond)
        parts = [
            _pair_indices(self.cores, way[rows], nodes, pair_weights, single_weights)
            for rows in row_chunks(len(way), numbers, way.device)
        ]
        return torch.cat(parts)

    def tensor(self, widths: Sequence[int]) -> Tensor:  # (Π(1 + I_n), D)
        """Coefficients of all products of entries of [1, x(n) - mean(n)], the last site's fastest."""
        found = self.cores[0].new_ones(1, 1)  # (products so far, bond)
        for core, width in zip(merged(self.cores), widths, strict=True):
            found = torch.einsum("pl,lir->pir", found, core[:, : 1 + width]).flatten(0, 1)
        return found

    def moments(self, covariances: Tensor) -> DenseMoments:  # (N, I, I)
        """Variances under independent sites of these covariances."""
        return DenseMoments(whitened(merged(self.cores), covariances)[0])


@dataclass(frozen=True, eq=False)
class DenseMoments:
    """A train over orthonormal features of independent sites."""

    train: list[Tensor]  # N of (left, 1+K, right)

    def mean(self) -> Tensor:  # (D,)
        before, after = mean_sweeps([core[None] for core in self.train])
        return torch.einsum("l,lr,rd->d", before[-1][0], self.train[-1][:, 0], after[-1][0])

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


def moment_sweeps(train: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """E[state stateᵀ] before each site and after the last, N+1 of (left, left); and their duals, (D, left, left)."""
    left, right = [train[0].new_ones(1, 1)], [output_moments(train[-1])]
    for core in train:
        left.append(transfer_left(left[-1], core))
    for core in reversed(train):
        right.append(transfer_right(right[-1], core))
    return left, right[::-1]


def total_variance(train: list[Tensor]) -> Tensor:  # (D,)
    """Var f: the terms whose last site is n, summed over n. Nothing is subtracted, so small variances stay exact."""
    _, after = mean_sweeps([core[None] for core in train])
    moment, variance = train[0].new_ones(1, 1), train[-1].new_zeros(train[-1].shape[-1])
    for core, end in zip(train, after, strict=True):
        variance = variance + torch.einsum("ab,ad,bd->d", transfer_left(moment, core[:, 1:]), end[0], end[0])
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
    before, after = mean_sweeps([core[None] for core in train])
    sites, outputs = len(train), train[-1].shape[-1]
    found = train[0].new_zeros(sites, sites, outputs)
    travelling = train[0].new_zeros(0, 1)  # (entries of earlier sites, left)
    owners = torch.zeros(0, dtype=torch.long, device=found.device)
    for n, core in enumerate(train):
        reached = core[:, 1:] @ after[n][0]  # (left, J, D)
        alone = torch.einsum("l,ljd->jd", before[n][0], reached)
        found[n, n] = alone.square().sum(dim=0)
        if n:
            together = torch.einsum("el,ljd->ejd", travelling, reached).square().sum(dim=1)
            found[:, n] = found[:, n].index_add(0, owners, together)
            found[n, :n] = found[:n, n]
            travelling = travelling @ core[:, 0]
        own = torch.einsum("l,ljr->jr", before[n][0], core[:, 1:])
        travelling = torch.cat([travelling, own]) if n else own
        owners = torch.cat([owners, owners.new_full((len(own),), n)])
    return found


def _pair_indices(
    cores: list[Tensor],  # centred
    way: Tensor,  # (B, N, I)
    nodes: Tensor,  # (K,)
    pair_weights: Tensor,  # (K,)
    single_weights: Tensor,  # (K,)
) -> Tensor:  # (B, N, N, D)
    """All pairs at once: the states in which site i was replaced by its derivative travel on together.

    At time t a site is the matrix C + t·Z, its derivative Z = Σ_i z_i G_i. Each Z is made once per row, and what lies
    behind it is applied to it before the states come: they meet D columns, not its whole width.
    """
    runs, (batch, sites, _), count = cores[0].shape[0], way.shape, len(nodes)
    derivatives = [torch.einsum("slir,bi->sblr", core[:, :, 1:], way[:, n]) for n, core in enumerate(cores)]
    behind = _derivatives_behind(cores, derivatives, nodes)
    times = nodes[:, None, None]  # (K, 1, 1)
    single_weights, pair_weights = (each[:, None, None] / runs for each in (single_weights, pair_weights))
    found = way.new_zeros(batch, sites, sites, cores[-1].shape[-1])
    states = way.new_ones(runs, batch, count, 1, 1)  # (S, B, K, 1 + sites so far, left): none replaced, then each
    for n, (core, derivative) in enumerate(zip(cores, derivatives, strict=True)):
        found[:, n, n] = torch.einsum("sbkr,sbkrd->bd", states[:, :, :, 0], single_weights * behind[n])
        found[:, :n, n] = (states[:, :, :, 1:] @ (pair_weights * behind[n])).sum(dim=(0, 2))
        found[:, n, :n] = found[:, :n, n]
        if n + 1 < sites:
            replaced = (states[:, :, :, 0] @ derivative).unsqueeze(-2)
            site = core[:, None, None, :, 0] + times * derivative.unsqueeze(2)
            states = torch.cat([states @ site, replaced], dim=-2)
    return found


def _derivatives_behind(
    cores: list[Tensor],
    derivatives: list[Tensor],  # N of (S, B, left, right)
    nodes: Tensor,  # (K,)
) -> list[Tensor]:  # N of (S, B, K, left, D)
    """Each site's derivative and all sites behind it at every node."""
    runs, batch, outputs = cores[0].shape[0], derivatives[0].shape[1], cores[-1].shape[-1]
    times = nodes[:, None]
    state = torch.eye(outputs, dtype=nodes.dtype, device=nodes.device)[:, None]
    state = state.expand(runs, batch, outputs, len(nodes), outputs)  # (S, B, right, K, D)
    found = []
    for core, derivative in zip(reversed(cores), reversed(derivatives), strict=True):
        columns = state.flatten(-2)
        slope = (derivative @ columns).unflatten(-1, state.shape[-2:])
        found.append(slope.transpose(2, 3))
        state = (core[:, None, :, 0] @ columns).unflatten(-1, state.shape[-2:]) + times * slope
    return found[::-1]
