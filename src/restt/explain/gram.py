"""Variances of a sum of products over independent sites, from the Gram matrices of its factors, block by block.

With factors a_nj + h_nj·ψ(n) over orthonormal ψ, two products have E[factor factor'] = A_n + G_n: A_n = a_nj a_nk is
the absent site and G_n = h_nj·h_nk what its presence adds. Every variance is Σ_jk w_j w_k times a product over sites of
A, G or their sum: J² numbers, of which only a block is in memory. A term of few sites needs no pairs of products: its
tensor Σ_j w_j h_nj ⊗ h_mj Π_others a_j is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from restt.explain.sweeps import MEMORY, by_order


@dataclass(frozen=True, eq=False)
class Gram:
    """Products of factors at independent sites."""

    weights: Tensor  # (J, D)
    absent: Tensor  # (J, N)
    reads: Tensor  # (J, N) bool: whether a product has a factor at a site
    constant: Tensor  # (D,)
    features: Callable[[int, Tensor | slice], Tensor]  # site, chosen products -> (J, K_n): h

    @property
    def sites(self) -> int:
        """The number of sites."""
        return self.absent.shape[1]

    @cached_property
    def variance(self) -> Tensor:  # (D,)
        """The variance of the sum."""
        return self.variances(1)[0]

    @cached_property
    def pairs(self) -> Tensor:  # (N, N, D)
        """The variance of every pair's term, of every single site's on the diagonal."""
        variances = self.weights.new_zeros(self.sites, self.sites, self.weights.shape[1])
        for n in range(self.sites):
            for m in range(n + 1):
                variances[n, m] = variances[m, n] = self.term((m, n) if m < n else (n,))[0]
        return variances

    def term(self, members: tuple[int, ...]) -> tuple[Tensor, float]:  # (D,)
        """The variance of the term of these sites, and about how many multiplications it took."""
        sites = list(members)
        chosen = self.reads[:, sites].all(1).nonzero()[:, 0]
        absent = self.absent[chosen]
        absent[:, sites] = 1.0
        weights, features = (
            self.weights[chosen] * absent.prod(1, keepdim=True),
            [self.features(n, chosen) for n in sites],
        )
        count, widths = len(weights), [part.shape[1] for part in features]
        size = math.prod(widths[:-1])
        if size <= count:  # smaller than a matrix of products
            tensor = weights[:, None]
            for part in features[:-1]:
                tensor = (tensor[:, :, None] * part[:, None, :, None]).flatten(1, 2)
            return torch.einsum("jpd,jk->pkd", tensor, features[-1]).square().sum((0, 1)), count * size * widths[-1]
        total = torch.zeros_like(self.constant)
        for rows, columns, twice in _blocks(count, 2):
            matrix = weights.new_ones(())
            for part in features:
                matrix = matrix * (part[rows] @ part[columns].T)
            total += twice * _weighted(matrix, weights[rows], weights[columns])
        return total, count**2 * (sum(widths) + 2 * len(widths))

    def variances(self, highest: int) -> tuple[Tensor, Tensor, Tensor]:  # (D,), (N, D), (highest+1, D)
        """The variance, that of all terms with each site, and that of all terms of each order; 0 for order 0."""
        outputs = self.weights.shape[1]
        whole, totals = self.weights.new_zeros(outputs), self.weights.new_zeros(self.sites, outputs)
        orders = self.weights.new_zeros(highest + 1, outputs)
        for ours, theirs, absent, present, twice in self._matrices(6 * self.sites + 2 * highest):
            both = [a + g for a, g in zip(absent, present, strict=True)]
            before, after, rest = _before(both), _before(both[::-1])[::-1], _before(absent[::-1])[::-1]
            for n, here in enumerate(present):
                alone = before[n] * here
                totals[n] += twice * _weighted(alone * after[n], ours, theirs)
                whole += twice * _weighted(alone * rest[n], ours, theirs)  # terms whose last site is n
            steps = [(a.mul, g.mul) for a, g in zip(absent, present, strict=True)]
            for order, matrix in enumerate(by_order(torch.ones_like(absent[0]), steps, highest)):
                orders[order] += twice * _weighted(matrix, ours, theirs)
        orders[0] = 0.0
        return whole, totals, orders

    def containing(self) -> Tensor:  # (N, N, D)
        """The variance of all terms that contain both sites of each pair."""
        variances = self.weights.new_zeros(self.sites, self.sites, self.weights.shape[1])
        for ours, theirs, absent, present, twice in self._matrices(5 * self.sites):
            both = [a + g for a, g in zip(absent, present, strict=True)]
            before, after = _before(both), _before(both[::-1])[::-1]
            for n in range(self.sites):
                state = before[n] * present[n]
                for m in range(n + 1, self.sites):
                    variances[n, m] += twice * _weighted(state * present[m] * after[m], ours, theirs)
                    state = state * both[m]
        return variances + variances.transpose(0, 1)

    def _matrices(self, arrays: int) -> Iterator[tuple[Tensor, Tensor, list[Tensor], list[Tensor], float]]:
        """Blocks of pairs of products: their weights, A and G of every site, and how often the block counts."""
        for rows, columns, twice in _blocks(len(self.weights), arrays):
            absent = [torch.outer(self.absent[rows, n], self.absent[columns, n]) for n in range(self.sites)]
            present = [self.features(n, rows) @ self.features(n, columns).T for n in range(self.sites)]
            yield self.weights[rows], self.weights[columns], absent, present, twice


def _blocks(count: int, arrays: int) -> Iterator[tuple[slice, slice, float]]:
    """Pairs of blocks, each unordered pair once, and how often it counts."""
    step = max(16, int((MEMORY.pairs / max(1, arrays)) ** 0.5))
    starts = range(0, count, step)
    for first in starts:
        for second in starts[first // step :]:
            yield slice(first, first + step), slice(second, second + step), 1.0 if first == second else 2.0


def _before(factors: list[Tensor]) -> list[Tensor]:
    """The product of all factors before each one."""
    products = [torch.ones_like(factors[0])]
    for factor in factors[:-1]:
        products.append(products[-1] * factor)
    return products


def _weighted(matrix: Tensor, ours: Tensor, theirs: Tensor) -> Tensor:  # (J, J2), (J, D), (J2, D) -> (D,)
    return ((matrix @ theirs) * ours).sum(0)
