"""A sum of products over sites, centred at means: what explanations of trains with diagonal cores are sweeps over.

    f(x) = constant + Σ_j w_j Π_n ( a_nj + h_nj · (x(n) - mean(n)) ),       a_nj = φ_n(j) · mean(n),   h_nj = φ_n(j)

Each main effect is a few more states, whose factor is 1 at all sites but its own. Where a dense train multiplies
matrices, states only meet in the last sum, so every quantity costs states × sites. States and rows go block by block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from restt.diagonal import DiagonalTT
from restt.explain.gram import Gram
from restt.explain.trains import whitening

# Numbers of the largest array that is made at once, and directions that are kept rather than made again.
_BLOCK = 2**21
_KEPT = 2**23
# Rows of x at once.
_ROWS = 256


class States:
    """The decision of a train with diagonal cores, centred.

    Parameters
    ----------
    module : in float64
    means : (N, I), what an absent site is; None for 0
    readout, offset : (O, D), (D,)
        decision = outputs @ readout + offset
    """

    def __init__(self, module: DiagonalTT, means: Tensor | None, readout: Tensor, offset: Tensor) -> None:
        self.module, self.widths = module, module.feature_dims
        self.means = readout.new_zeros(module.sites, module.feature_dim) if means is None else means
        self.constant = module.constant @ readout + offset  # (D,)
        self._effects = [readout.T @ effect for effect in module.effects()]  # N of (D, I_n)
        outputs = readout.shape[1]
        own = torch.eye(outputs).to(readout).repeat(module.sites, 1)
        self.weights = torch.cat([module.coefficients.flatten(0, 1) @ readout, own])  # (J, D)
        self.count, self._products = len(self.weights), module.bond_dim
        self._keeps = self.count * sum(self.widths) <= _KEPT
        self._kept: dict[int, Tensor] = {}
        every = slice(0, self.count)
        absent = [self.directions(n, every) @ self.means[n, :width] for n, width in enumerate(self.widths)]
        self.absent = torch.stack(absent, 1)  # (J, N)
        places = torch.arange(module.sites, device=readout.device).repeat_interleave(outputs)
        elsewhere = places[:, None] != torch.arange(module.sites, device=readout.device)
        self.absent[self._products :] += elsewhere.to(self.absent)

    def directions(self, site: int, states: slice) -> Tensor:  # (J, I_n)
        """What an entry of a site's vector multiplies each state by."""
        if not self._keeps:
            return self._made(site, states)
        if site not in self._kept:
            self._kept[site] = self._made(site, slice(0, self.count))
        return self._kept[site][states]

    def _made(self, site: int, states: slice) -> Tensor:
        effect, first, last = self._effects[site], states.start, min(states.stop, self.count)
        products = self.module.factors(site, slice(first, min(last, self._products)))
        start = self._products + site * len(effect)
        added = effect.new_zeros(self.count - self._products, effect.shape[1])
        added[start - self._products : start - self._products + len(effect)] = effect
        return torch.cat([products, added[max(0, first - self._products) : max(0, last - self._products)]])

    def blocks(self, numbers: int) -> Iterator[slice]:
        """Slices of states, of which so many numbers each are made."""
        step = max(16, _BLOCK // max(1, numbers))
        return (slice(start, min(self.count, start + step)) for start in range(0, self.count, step))

    def _present(self, site: int, states: slice, x: Tensor) -> Tensor:  # (B, I) -> (J, B)
        return self.directions(site, states) @ x[:, : self.widths[site]].T

    def spectrum(self, x: Tensor, highest: int) -> Tensor:  # (B, N, I), centred -> (B, highest+1, D)
        """The sum of all terms of each order."""
        found = x.new_zeros(len(x), highest + 1, len(self.constant))
        for rows in _chunks(len(x)):
            chunk = x[rows]
            for block in self.blocks(3 * (highest + 1) * len(chunk)):
                state = x.new_ones(1, 1, 1)  # (orders, J, B)
                for n in range(len(self.widths)):
                    orders = min(n + 1, highest) + 1
                    grown = (state * self._present(n, block, chunk[:, n]))[: orders - 1]
                    state = state * self.absent[block, n, None]
                    state = state.expand(-1, *grown.shape[1:]) if n == 0 else state
                    state = torch.cat([state, state.new_zeros(orders - len(state), *state.shape[1:])])
                    state[1:] += grown
                found[rows] += torch.einsum("kjb,jd->bkd", state, self.weights[block])
        found[:, 0] += self.constant
        return found

    def term(self, x: Tensor, members: set[int]) -> Tensor:  # (B, N, I), centred -> (B, D)
        """What exactly these sites contribute together."""
        weights = self._weights_of(members)
        found = x.new_zeros(len(x), len(self.constant)) + (0 if members else self.constant)
        for rows in _chunks(len(x)):
            for block in self.blocks(2 * min(len(x), _ROWS)):
                state = x.new_ones(block.stop - block.start, len(x[rows]))
                for n in members:
                    state = state * self._present(n, block, x[rows, n])
                found[rows] += state.T @ weights[block]
        return found

    def _weights_of(self, members: set[int]) -> Tensor:  # (J, D)
        """Weights with every site outside ``members`` absent."""
        others = [n for n in range(len(self.widths)) if n not in members]
        return self.weights * self.absent[:, others].prod(1, keepdim=True)

    def member_terms(self, points: dict[int, Tensor]) -> Tensor:  # site -> (G, I), centred -> (1, G, D), (1, G, H, D)
        """The term of one or two sites at all points of their grids."""
        weights, sites = self._weights_of(set(points)), list(points)
        every = slice(0, self.count)
        values = [self._present(n, every, points[n]) for n in sites]
        if len(sites) == 1:
            return (values[0].T @ weights)[None]
        return torch.einsum("jg,jd,jh->ghd", values[0], weights, values[1])[None]

    def pair_indices(
        self,
        way: Tensor,  # (B, N, I)
        nodes: Tensor,  # (K,)
        pair_weights: Tensor,  # (K,)
        single_weights: Tensor,  # (K,)
    ) -> Tensor:  # (B, N, N, D)
        """∫ of the second derivative along the way from the means, and on the diagonal that of the first."""
        sites = way.shape[1]
        found = way.new_zeros(len(way), sites, sites, len(self.constant))
        for rows in _chunks(len(way)):
            for block in self.blocks(4 * sites * len(way[rows])):
                present = [self._present(n, block, way[rows, n]) for n in range(sites)]
                for t, pair, single in zip(nodes, pair_weights, single_weights, strict=True):
                    values = [self.absent[block, n, None] + t * each for n, each in enumerate(present)]
                    self._add_pairs(found[rows], block, present, values, float(pair), float(single))
        return found

    def _add_pairs(
        self, found: Tensor, block: slice, present: list[Tensor], values: list[Tensor], pair: float, single: float
    ) -> None:
        after = [torch.ones_like(values[0])]
        for value in reversed(values[1:]):
            after.append(after[-1] * value)
        before, replaced = torch.ones_like(values[0]), values[0].new_zeros(0, *values[0].shape)
        for n, (each, value, behind) in enumerate(zip(present, values, reversed(after), strict=True)):
            slope = each * behind
            found[:, n, n] += single * ((before * slope).T @ self.weights[block])
            together = pair * torch.einsum("ijb,jd->bid", replaced * slope, self.weights[block])
            found[:, :n, n] += together
            found[:, n, :n] += together
            replaced = torch.cat([replaced * value, (before * each)[None]])
            before = before * value

    def tensor(self, widths: Sequence[int]) -> Tensor:  # (Π(1 + I_n), D)
        """Coefficients of all products of entries of [1, x(n) - mean(n)], the last site's fastest."""
        total = torch.zeros((), dtype=torch.float64, device=self.constant.device)
        size = math.prod(1 + width for width in widths) * len(self.constant)
        for block in self.blocks(2 * size):
            products = self.weights.new_ones(block.stop - block.start, 1)
            for n in range(len(self.widths)):
                factor = torch.cat([self.absent[block, n, None], self.directions(n, block)], 1)
                products = (products[:, :, None] * factor[:, None]).flatten(1)
            total = total + products.T @ self.weights[block]
        total[0] += self.constant
        return total

    def moments(self, covariances: Tensor) -> Gram:  # (N, I, I)
        """Variances under independent sites of these covariances."""
        every = slice(0, self.count)
        mixes = [mix[:width] for mix, width in zip(whitening(covariances)[0], self.widths, strict=True)]
        features = [self.directions(n, every) @ mix for n, mix in enumerate(mixes)]
        return Gram(self.weights, self.absent, features, self.constant)


def _chunks(rows: int) -> Iterator[slice]:
    return (slice(start, min(rows, start + _ROWS)) for start in range(0, rows, _ROWS))
