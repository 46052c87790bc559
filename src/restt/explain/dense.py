"""A train with dense cores, centred at means: explanations of rows, and variances under independent sites.

A core is (S, left, 1+I, right). Slice 0 is the site when absent (at its mean), slices 1… multiply the entries of its
centred vector; those of a whitened core (left, 1+K, right) multiply uncorrelated features of variance 1. ``README.md``
beside this file has the derivations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from restt.explain.sweeps import by_order, row_chunks, whitening


class DenseTrain:
    """The decision of a train with dense cores over [1, x - means]; members have a leading axis."""

    def __init__(self, cores: Sequence[Tensor], means: Tensor) -> None:  # N of (S, left, 1+I, right), (N, I)
        self.cores, self._runs = [], len(cores[0])
        for core, mean in zip(cores, means, strict=True):
            absent = core[:, :, :1] + torch.einsum("slir,i->slr", core[:, :, 1:], mean).unsqueeze(2)
            self.cores.append(torch.cat([absent, core[:, :, 1:]], dim=2))

    def spectrum(self, x: Tensor, highest: int) -> Tensor:  # (B, N, I), centred -> (B, highest+1, D)
        """The sum of all terms of each order."""
        bond = max(core.shape[-1] for core in self.cores)
        parts = []
        for rows in row_chunks(len(x), self._runs * bond * (highest + 1) * (2 + x.shape[-1]), x.device):
            chunk = x[rows]
            steps = [
                (partial(_absent, core=core), partial(_present, core=core, x=at))
                for core, at in zip(self.cores, chunk.unbind(1), strict=True)
            ]
            state = by_order(x.new_ones(self._runs, len(chunk), 1), steps, highest)
            parts.append(state.mean(dim=1).transpose(0, 1))
        return torch.cat(parts)

    def term(self, points: Mapping[int, Tensor]) -> Tensor:  # site -> (B, I), centred -> (S, B, D)
        """The contribution of exactly these sites together, of each member; one row for the constant."""
        state = self.cores[0].new_ones(self._runs, max(map(len, points.values()), default=1), 1)
        for n, core in enumerate(self.cores):
            state = _present(state, core, points[n]) if n in points else _absent(state, core)
        return state

    def merged(self) -> list[Tensor]:  # N of (left, 1+I, right)
        """The members' mean as one train without the runs axis: their bonds side by side."""
        if self._runs == 1 or len(self.cores) == 1:
            return [core.mean(dim=0) for core in self.cores]
        joined = [torch.cat(list(self.cores[0]), dim=-1)]
        index = torch.arange(self._runs, device=self.cores[0].device)
        for core in self.cores[1:-1]:
            runs, left, width, right = core.shape
            wide = core.new_zeros(runs, left, width, runs, right)
            wide[index, :, :, index] = core
            joined.append(wide.reshape(runs * left, width, runs * right))
        return [*joined, self.cores[-1].flatten(0, 1) / self._runs]

    def moments(self, covariances: Tensor | None) -> DenseMoments:  # (N, I, I)
        """Variances under independent sites of these covariances."""
        assert covariances is not None
        return DenseMoments(
            [
                torch.cat([core[:, :1], torch.einsum("lir,ij->ljr", core[:, 1:], mix)], dim=1)
                for core, mix in zip(self.merged(), whitening(covariances)[0], strict=True)
            ]
        )


def _absent(state: Tensor, core: Tensor) -> Tensor:  # (…, S, B, left) -> (…, S, B, right)
    return torch.einsum("...sbl,slr->...sbr", state, core[:, :, 0])


def _present(state: Tensor, core: Tensor, x: Tensor) -> Tensor:  # (…, S, B, left), (B, I) -> (…, S, B, right)
    """The states with one site present, less those with it absent."""
    outer = (state.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)
    return torch.einsum("...sbl,slr->...sbr", outer, core[:, :, 1:].flatten(1, 2))


def transfer_left(moment: Tensor, core: Tensor) -> Tensor:  # (…, left, left), (left, J, right) -> (…, right, right)
    """E[state stateᵀ] through a whitened site, or some of its slices: Σ_j H_jᵀ E H_j."""
    left, width, right = core.shape
    half = (moment @ core.reshape(left, width * right)).unflatten(-1, (width, right)).flatten(-3, -2)
    return core.reshape(left * width, right).T @ half


def transfer_right(moment: Tensor, core: Tensor) -> Tensor:  # (…, right, right), (left, J, right) -> (…, left, left)
    """The adjoint of :func:`transfer_left`: Σ_j H_j F H_jᵀ."""
    return transfer_left(moment, core.transpose(0, 2))


@dataclass(frozen=True, eq=False)
class DenseMoments:
    """A train over orthonormal features [1, ψ(n)] of independent sites: the squared norm of its tensor is E f²."""

    train: list[Tensor]  # N of (left, 1+K, right)

    @property
    def ends(self) -> Tensor:  # (D, D, D)
        """Moment behind the last site that picks the square of each output."""
        return torch.diag_embed(torch.eye(self.train[-1].shape[-1]).to(self.train[-1]))

    @cached_property
    def sweeps(self) -> tuple[list[Tensor], list[Tensor]]:
        """E[state stateᵀ] before each site and after the last, N+1 of (left, left); their duals, (D, left, left)."""
        left, right = [self.train[0].new_ones(1, 1)], [self.ends]
        for core in self.train:
            left.append(transfer_left(left[-1], core))
        for core in reversed(self.train):
            right.append(transfer_right(right[-1], core))
        return left, right[::-1]

    @cached_property
    def _after(self) -> list[Tensor]:  # N of (right, D)
        """All sites behind each one, absent."""
        after = [torch.eye(self.train[-1].shape[-1]).to(self.train[-1])]
        for core in reversed(self.train[1:]):
            after.append(core[:, 0] @ after[-1])
        return after[::-1]

    @cached_property
    def variance(self) -> Tensor:  # (D,)
        """Var f: the terms whose last site is n, summed over n, so that nothing is subtracted."""
        total = self.train[-1].new_zeros(self.train[-1].shape[-1])
        for moment, core, end in zip(self.sweeps[0], self.train, self._after, strict=False):
            total = total + torch.einsum("ab,ad,bd->d", transfer_left(moment, core[:, 1:]), end, end)
        return total

    @cached_property
    def pairs(self) -> Tensor:  # (N, N, D)
        """The variance of every pair's term, of every single site's on the diagonal; exhaustive, O(N²)."""
        train = self.train
        variances = train[0].new_zeros(len(train), len(train), train[-1].shape[-1])
        before = train[0].new_ones(1, 1)  # all earlier sites absent
        travelling = train[0].new_zeros(0, 1)  # (entries of earlier sites, left)
        owners = torch.zeros(0, dtype=torch.long, device=variances.device)
        for n, (core, after) in enumerate(zip(train, self._after, strict=True)):
            behind = core[:, 1:] @ after  # (left, K, D)
            variances[n, n] = torch.einsum("al,lkd->kd", before, behind).square().sum(dim=0)
            together = torch.einsum("el,lkd->ekd", travelling, behind).square().sum(dim=1)
            variances[:, n] = variances[:, n].index_add(0, owners, together)
            variances[n, :n] = variances[:n, n]
            own = torch.einsum("al,lkr->kr", before, core[:, 1:])
            travelling = torch.cat([travelling @ core[:, 0], own])
            owners = torch.cat([owners, owners.new_full((len(own),), n)])
            before = before @ core[:, 0]
        return variances

    def variances(self, highest: int) -> tuple[Tensor, Tensor, Tensor]:  # (D,), (N, D), (highest+1, D)
        """The variance, that of all terms with each site, and that of all terms of each order; 0 for order 0."""
        left, right = self.sweeps
        totals = [
            torch.einsum("ab,dab->d", transfer_left(left[n], core[:, 1:]), right[n + 1])
            for n, core in enumerate(self.train)
        ]
        steps = [
            (partial(transfer_left, core=core[:, :1]), partial(transfer_left, core=core[:, 1:])) for core in self.train
        ]
        orders = by_order(self.train[0].new_ones(1, 1), steps, highest).diagonal(dim1=1, dim2=2).clone()
        orders[0] = 0.0
        return self.variance, torch.stack(totals), orders
