"""A sum of products over sites, centred at means: trains with diagonal cores, and trees as sums of boxes.

    f(x) = constant + Σ_j w_j Π_{n in S_j} ( a_nj + h_nj · (x(n) - mean(n)) ),       a_nj = h_nj · mean(n)

Where a dense train multiplies matrices, products only meet in the last sum, so every quantity costs products × sites
that one has. A site keeps its distinct factor vectors h, its lines; a product names one of them by site. Products and
rows go block by block.

Under independent sites, with factors a_nj + h_nj·ψ(n) over orthonormal ψ, two products have E[factor factor'] =
A_n + G_n: A_n = a_nj a_nk is the absent site and G_n = h_nj·h_nk what its presence adds. Every variance is Σ_jk w_j w_k
times a product over sites of A, G or their sum: J² numbers, of which only a block is in memory. A term of few sites
needs no pairs of products: its tensor Σ_j w_j h_nj ⊗ h_mj Π_others a_j is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from restt.diagonal import DiagonalTT
from restt.explain.sweeps import MEMORY, by_order, slices, whitening
from restt.prior.gp import without_each

# In place of a factor of 0, so that others may be divided by it: small, and its powers are floats.
_LEAST_FACTOR = 1e-100


@dataclass(frozen=True, eq=False)
class Lines:
    """The distinct factor vectors of one site."""

    matrix: Tensor  # (M_n, I_n)

    @property
    def width(self) -> int:
        """The width I_n of a site vector."""
        return self.matrix.shape[1]

    def __len__(self) -> int:
        return len(self.matrix)

    def seen(self, x: Tensor) -> Tensor:  # (B, I_n) -> (M_n, B)
        """Products of the factor vectors with site vectors."""
        return self.matrix @ x.T


@dataclass(frozen=True, eq=False)
class Group:
    """Products over the same number of sites d: at each a line, or with a share one between it and the next."""

    site: Tensor  # (J, d)
    line: Tensor  # (J, d), counted over all sites
    weights: Tensor  # (J, D)
    share: Tensor | None = None  # (J, d)

    def __getitem__(self, chosen: slice | Tensor) -> Group:
        share = None if self.share is None else self.share[chosen]
        return Group(self.site[chosen], self.line[chosen], self.weights[chosen], share)

    def blocks(self, numbers: int) -> Iterator[Group]:
        """Parts of so many products that ``numbers`` of each fit into a block."""
        return (self[part] for part in slices(len(self.site), max(16, MEMORY.block // max(1, numbers))))

    def by_site(self, sites: int) -> Tensor:  # (J, N)
        """The line of each product at every site, -1 where it has none."""
        return self.line.new_full((len(self.line), sites), -1).scatter(1, self.site, self.line)

    def at(self, site: int, table: Tensor, start: int, none: float = 0.0) -> Tensor:  # (M, …) -> (J, …)
        """The value of each product's factor at one site, of the values of its lines; ``none`` without a factor."""
        values = table.new_full((len(self.site), *table.shape[1:]), none)
        rows, place = (self.site == site).nonzero(as_tuple=True)
        share = None if self.share is None else self.share[rows, place, None]
        part = Group(self.site[rows, place, None], self.line[rows, place, None] - start, self.weights[rows], share)
        values[rows] = part.factors(table)[0]
        return values

    def factors(self, lines: Tensor) -> list[Tensor]:  # (L, …) -> d of (J, …)
        """The value of each product's factors, of the value of all lines."""
        values = [lines[line] for line in self.line.T]
        if self.share is None:
            return values
        after = (self.line + 1).clamp(max=len(lines) - 1)
        shares = self.share.reshape(*self.share.shape, *[1] * (lines.dim() - 1)).unbind(1)
        return [torch.lerp(own, lines[place], s) for own, place, s in zip(values, after.T, shares, strict=True)]


@dataclass(frozen=True, eq=False)
class Products:
    """A sum of products of lines' values and a constant, read like a module."""

    lines: Sequence[Any]  # N of Lines, or of what has its methods
    groups: Sequence[Group]
    constant: Tensor  # (D,)

    runs = padding = None

    @classmethod
    def of(cls, module: DiagonalTT, readout: Tensor, offset: Tensor) -> Products:  # (O, D), (D,)
        """The products of a module with diagonal cores, and its main effects, each a product over one site."""
        effects = [readout.T @ effect for effect in module.effects()]  # N of (D, I_n)
        tables = [torch.cat([table.flatten(0, 1), own]) for table, own in zip(module.tables(), effects, strict=True)]
        starts = torch.tensor([0, *map(len, tables)], device=readout.device).cumsum(0)[:-1]
        counts = torch.tensor(module.vector_counts, device=readout.device)
        groups = torch.arange(module.groups, device=readout.device)[:, None, None]
        line = (starts + groups * counts + module.code).flatten(0, 1)  # (J, N)
        sites = torch.arange(module.sites, device=readout.device)
        share = module.share.repeat(module.groups, 1)
        products = Group(sites.expand_as(line), line, module.coefficients.flatten(0, 1) @ readout, share)
        outputs = torch.arange(readout.shape[1], device=readout.device)
        own = (starts + module.groups * counts)[:, None] + outputs  # (N, D)
        weights = torch.eye(len(outputs)).to(readout).repeat(module.sites, 1)
        alone = Group(sites.repeat_interleave(len(outputs))[:, None], own.reshape(-1, 1), weights)
        return cls([Lines(table) for table in tables], [products, alone], module.constant @ readout + offset)

    @property
    def sites(self) -> int:
        """N."""
        return len(self.lines)

    @property
    def feature_dim(self) -> int:
        """The widest site's width I."""
        return max(lines.width for lines in self.lines)

    @property
    def device(self) -> torch.device:
        """The device of the numbers."""
        return self.constant.device

    @property
    def degree(self) -> int:
        """The most sites of one product."""
        return max((group.site.shape[1] for group in self.groups), default=1)

    @cached_property
    def starts(self) -> list[int]:  # N
        """The number of each site's first line."""
        return [sum(map(len, self.lines[:n])) for n in range(self.sites)]

    def seen(self, x: Tensor) -> Tensor:  # (B, N, I) -> (L, B)
        """The values of the lines of all sites."""
        return torch.cat([self.seen_at(n, x[:, n]) for n in range(self.sites)])

    def seen_at(self, site: int, x: Tensor) -> Tensor:  # (B, I) -> (M, B)
        """The values of the lines of one site."""
        return self.lines[site].seen(x[:, : self.lines[site].width])

    def row_slices(self, rows: int) -> Iterator[slice]:
        """Slices of rows, fewer at once where there are many lines."""
        return slices(rows, max(1, min(MEMORY.rows, 2 * MEMORY.cpu // max(1, sum(map(len, self.lines))))))

    def __call__(self, x: Tensor) -> Tensor:  # (B, N, I) -> (B, D)
        """Evaluate at site vectors; gradients flow to x."""
        seen, total = self.seen(x), self.constant.expand(len(x), -1)
        for group in self.groups:
            for part in group.blocks(8 * len(x) * group.site.shape[1]):
                first, *others = part.factors(seen)
                for factor in others:
                    first = first * factor
                total = total + first.T @ part.weights
        return total

    def path_slopes(
        self,
        starts: Tensor,  # (B, N, I)
        way: Tensor,  # (B, N, I)
        nodes: Tensor,  # (K,)
        weights: Tensor,  # (K,)
    ) -> Tensor:  # (B, N, D)
        """Σ_k weight · derivative at start + t_k·way along the part of ``way`` in each site."""
        slopes = way.new_zeros(len(way), self.sites, len(self.constant))
        for rows in self.row_slices(len(way)):
            at, along, total = self.seen(starts[rows]), self.seen(way[rows]), slopes[rows].transpose(0, 1)  # (N, B, D)
            for group in self.groups:
                for part in group.blocks(8 * at.shape[1]):
                    start, moved = part.factors(at), part.factors(along)  # d of (J, B)
                    sums = [torch.zeros_like(v) for v in moved]
                    for t, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
                        values = [torch.add(a, v, alpha=t) for a, v in zip(start, moved, strict=True)]
                        for one, rest in zip(sums, without_each(values), strict=True):
                            one.add_(rest, alpha=weight)
                    for site, one, v in zip(part.site.T, sums, moved, strict=True):
                        one.mul_(v)
                        for d in range(total.shape[-1]):
                            total[:, :, d].index_add_(0, site, one * part.weights[:, d, None])
        return slopes


class ProductTrain:
    """A sum of products centred at means (N, I)."""

    def __init__(self, products: Products, means: Tensor) -> None:
        self.products, self.means = products, means
        self._absent = products.seen(means[None])  # (L, 1)

    @cached_property
    def absent(self) -> list[Tensor]:  # of (J, N)
        """The factors of each group's products at all sites when absent; 1 where a product has no factor."""
        values = self._absent[:, 0]
        return [
            torch.stack([group.at(n, values[start:], start, 1.0) for n, start in enumerate(self.products.starts)], 1)
            for group in self.products.groups
        ]

    def spectrum(self, x: Tensor, highest: int) -> Tensor:  # (B, N, I), centred -> (B, highest+1, D)
        """The sum of all terms of each order."""
        spectrum = x.new_zeros(len(x), highest + 1, len(self.products.constant))
        spectrum[:, 0] += self.products.constant
        for rows in self.products.row_slices(len(x)):
            seen = self.products.seen(x[rows])
            for group in self.products.groups:
                for part in group.blocks(3 * seen.shape[1] * (highest + 1)):
                    present, absent = part.factors(seen), part.factors(self._absent)
                    steps = [(a.mul, v.mul) for a, v in zip(absent, present, strict=True)]
                    orders = by_order(torch.ones_like(present[0]), steps, highest)
                    spectrum[rows, : len(orders)] += torch.einsum("kjb,jd->bkd", orders, part.weights)
        return spectrum

    def term(self, points: Mapping[int, Tensor]) -> Tensor:  # site -> (B, I), centred -> (1, B, D)
        """The contribution of exactly these sites together; one row for the constant."""
        count = max(map(len, points.values()), default=1)
        total = self._absent.new_zeros(count, len(self.products.constant))
        if not points:
            total += self.products.constant
        others = [n for n in range(self.products.sites) if n not in points]
        for group, absent in zip(self.products.groups, self.absent, strict=True):
            weighted = replace(group, weights=group.weights * absent[:, others].prod(1, keepdim=True))
            part = weighted[(group.by_site(self.products.sites)[:, list(points)] >= 0).all(1)]
            for rows in slices(count, MEMORY.rows):
                seen = {n: self.products.seen_at(n, x[rows]) for n, x in points.items()}
                for block in part.blocks(2 * (rows.stop - rows.start)):
                    state = total.new_ones(len(block.site), rows.stop - rows.start)
                    for n, lines in seen.items():
                        state = state * block.at(n, lines, self.products.starts[n])
                    total[rows] += state.T @ block.weights
        return total[None]

    def moments(self, covariances: Tensor | None) -> Gram:  # (N, I, I)
        """Variances under independent sites of these covariances."""
        assert covariances is not None
        features = []
        for n, (lines, mix) in enumerate(zip(self.products.lines, whitening(covariances)[0], strict=True)):
            table = lines.matrix @ mix[: lines.width]
            features.append(torch.cat([group.at(n, table, self.products.starts[n]) for group in self.products.groups]))
        weights, absent, line, constant = self.parts()
        return Gram(weights, absent, line >= 0, constant, lambda site, chosen: features[site][chosen])

    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # (J, D), (J, N), (J, N), (D,)
        """Weights, absent factors and lines (-1 for none) by site, of the products of all groups; and the constant."""
        groups, sites, constant = self.products.groups, self.products.sites, self.products.constant
        weights = torch.cat([constant.new_zeros(0, len(constant)), *(group.weights for group in groups)])
        absent = torch.cat([constant.new_zeros(0, sites), *self.absent])
        line = torch.cat([absent.new_zeros(0, sites).long(), *(group.by_site(sites) for group in groups)])
        return weights, absent, line, constant


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
        for ours, theirs, absent, present, twice in self._matrices(4 * self.sites):
            both = torch.stack([a + g for a, g in zip(absent, present, strict=True)])  # (N, J, J2)
            both[both == 0] = _LEAST_FACTOR
            # Exact where a factor is small: what is divided by is what the product has.
            shares = (torch.stack(present) / both).flatten(1)
            whole = twice * both.prod(0)
            for d, (own, other) in enumerate(zip(ours.T, theirs.T, strict=True)):
                variances[..., d] += (shares * (torch.outer(own, other) * whole).flatten()) @ shares.T
        variances.diagonal().zero_()
        return variances

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
