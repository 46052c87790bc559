"""Variances of a sum of products over independent sites, from the states' Gram matrices, block by block.

With factors a_nj + h_nj·ψ(n) over orthonormal ψ, two states have E[factor factor'] = A_n + G_n: A_n = a_nj a_nk is the
absent site and G_n = h_nj·h_nk what its presence adds. Every variance is Σ_jk w_j w_k times a product over sites of
A, G or their sum: J² numbers, of which only a block is held. A term of few sites needs no pairs of states: its tensor
Σ_j w_j h_nj ⊗ h_mj Π_others a_j is small.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from restt.explain.memory import MEMORY
from restt.prior.rounding import round_products


@dataclass(frozen=True, eq=False)
class Gram:
    """States under independent sites."""

    weights: Tensor  # (J, D)
    absent: Tensor  # (J, N)
    features: list[Tensor]  # N of (J, K_n)
    constant: Tensor  # (D,)

    @property
    def sites(self) -> int:
        """The number of sites."""
        return len(self.features)

    @cached_property
    def pairs(self) -> Tensor:  # (N, N, D)
        """The variance of every pair's term, of every single site's on the diagonal."""
        found = self.weights.new_zeros(self.sites, self.sites, self.weights.shape[1])
        for n in range(self.sites):
            found[n, n] = self.term((n,))
            for m in range(n):
                found[n, m] = found[m, n] = self.term((m, n))
        return found

    def term(self, members: tuple[int, ...]) -> Tensor:  # (D,)
        """The variance of the term of these sites."""
        others = [n for n in range(self.sites) if n not in members]
        weights = self.weights * self.absent[:, others].prod(1, keepdim=True)
        if self._size(members) <= len(weights):  # the tensor of the term is smaller than a matrix of states
            product = weights[:, None]
            for n in members[:-1]:
                product = (product[:, :, None] * self.features[n][:, None, :, None]).flatten(1, 2)
            return torch.einsum("jpd,jk->pkd", product, self.features[members[-1]]).square().sum((0, 1))
        total = torch.zeros_like(self.constant)
        for rows, columns, twice in self._blocks(2):
            product = weights.new_ones(())
            for n in members:
                product = product * (self.features[n][rows] @ self.features[n][columns].T)
            total += twice * _weighted(product, weights[rows], weights[columns])
        return total

    def _size(self, members: tuple[int, ...]) -> int:
        size = 1
        for n in members[:-1]:
            size *= self.features[n].shape[1]
        return size

    def cost(self, members: tuple[int, ...]) -> float:
        """About how many products :meth:`term` takes."""
        states = len(self.weights)
        wide = sum(self.features[n].shape[1] + 2 for n in members)
        return float(min(self._size(members) * self.features[members[-1]].shape[1], states * wide) * states)

    def variances(self, highest: int) -> tuple[Tensor, Tensor, Tensor]:  # (D,), (N, D), (highest+1, D)
        """The variance, that of all terms with each site, and that of all terms of each order; 0 for order 0."""
        outputs = self.weights.shape[1]
        whole, totals = self.weights.new_zeros(outputs), self.weights.new_zeros(self.sites, outputs)
        orders = self.weights.new_zeros(highest + 1, outputs)
        for rows, columns, twice in self._blocks(4 * self.sites + 2 * highest):
            ours, theirs = self.weights[rows], self.weights[columns]
            absent, present = self._matrices(rows, columns)
            after, last = [torch.ones_like(absent[0])], torch.ones_like(absent[0])
            for out, here in zip(reversed(absent[1:]), reversed(present[1:]), strict=True):
                after.append(after[-1] * (out + here))
            before, alone = torch.ones_like(absent[0]), []
            for n, (out, here) in enumerate(zip(absent, present, strict=True)):
                alone.append(before * here)
                totals[n] += twice * _weighted(alone[-1] * after[-1 - n], ours, theirs)
                before = before * (out + here)
            for out, step in zip(reversed(absent), reversed(alone), strict=True):
                whole += twice * _weighted(step * last, ours, theirs)
                last = last * out
            orders += twice * _order_variances(absent, present, highest, ours, theirs)
        orders[0] = 0.0
        return whole, totals, orders

    def containing(self) -> Tensor:  # (N, N, D)
        """The variance of all terms that contain both sites of each pair."""
        found = self.weights.new_zeros(self.sites, self.sites, self.weights.shape[1])
        for rows, columns, twice in self._blocks(4 * self.sites):
            ours, theirs = self.weights[rows], self.weights[columns]
            absent, present = self._matrices(rows, columns)
            both = [out + here for out, here in zip(absent, present, strict=True)]
            after = [torch.ones_like(both[0])]
            for each in reversed(both[1:]):
                after.append(after[-1] * each)
            before = torch.ones_like(both[0])
            for n in range(self.sites):
                state = before * present[n]
                for m in range(n + 1, self.sites):
                    value = _weighted(state * present[m] * after[-1 - m], ours, theirs)
                    found[n, m] += twice * value
                    state = state * both[m]
                before = before * both[n]
        return found + found.transpose(0, 1)

    def compressed(self, bond: int, tolerance: float) -> tuple[list[Tensor], Tensor]:  # N of (left, 1+K, right), (D,)
        """A train over the same features of at most this bond, and its root mean square distance by output.

        Without error but rounding where the bond is that of the states.
        """
        one = torch.ones_like(self.absent[:1])
        weights, absent = torch.cat([self.weights, self.constant[None]]), torch.cat([self.absent, one])
        factors = [
            torch.cat([absent[:, n, None], torch.cat([each, torch.zeros_like(each[:1])])], 1)
            for n, each in enumerate(self.features)
        ]
        cores, _ = round_products(weights, factors, [torch.ones_like(f[0]) for f in factors], bond, tolerance)
        cores = [core.to(weights) for core in cores]
        if bond >= len(weights):
            return cores, torch.zeros_like(self.constant)
        return cores, self._distance(cores, weights, factors)

    def _distance(self, cores: list[Tensor], weights: Tensor, factors: list[Tensor]) -> Tensor:  # (D,)
        """Root of E(f - g)² = E f² - 2 E f g + E g²: differences below 1e-8 of f are not seen."""
        state, own = weights.new_ones(len(weights), 1), weights.new_ones(1, 1)
        for core, factor in zip(cores, factors, strict=True):
            state = torch.einsum("jl,ji,lir->jr", state, factor, core)
            own = torch.einsum("ab,air,bis->rs", own, core, core)
        mean = self.absent.prod(1) @ self.weights + self.constant
        square = self.variances(1)[0] + mean.square()
        return (square - 2 * (state * weights).sum(0) + own.diagonal()).clamp(min=0).sqrt()

    def _matrices(self, rows: slice, columns: slice) -> tuple[list[Tensor], list[Tensor]]:
        absent = [torch.outer(self.absent[rows, n], self.absent[columns, n]) for n in range(self.sites)]
        return absent, [features[rows] @ features[columns].T for features in self.features]

    def _blocks(self, arrays: int) -> Iterator[tuple[slice, slice, float]]:
        """Pairs of blocks of states, each unordered pair once, and how often it counts."""
        step = max(16, int((MEMORY.pairs / max(1, arrays)) ** 0.5))
        starts = range(0, len(self.weights), step)
        for first in starts:
            for second in starts[first // step :]:
                yield slice(first, first + step), slice(second, second + step), 1.0 if first == second else 2.0


def _weighted(matrix: Tensor, ours: Tensor, theirs: Tensor) -> Tensor:  # (J, J2), (J, D), (J2, D) -> (D,)
    return ((matrix @ theirs) * ours).sum(0)


def _order_variances(
    absent: list[Tensor], present: list[Tensor], highest: int, ours: Tensor, theirs: Tensor
) -> Tensor:  # (highest+1, D)
    state = torch.ones_like(absent[0])[None]  # (orders, J, J2)
    for n, (out, here) in enumerate(zip(absent, present, strict=True)):
        orders = min(n + 1, highest) + 1
        grown = (state * here)[: orders - 1]
        state = state * out
        state = torch.cat([state, state.new_zeros(orders - len(state), *state.shape[1:])])
        state[1:] += grown
    return torch.stack([_weighted(matrix, ours, theirs) for matrix in state])
