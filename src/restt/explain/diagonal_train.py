"""A train with diagonal cores, centred at means: a sum of products over sites.

    f(x) = constant + Σ_j w_j Π_n ( a_nj + h_nj · (x(n) - mean(n)) ),       a_nj = φ_n(j) · mean(n),   h_nj = φ_n(j)

Each main effect is a few more states, whose factor is 1 at all sites but its own. Where a dense train multiplies
matrices, states only meet in the last sum, so every quantity costs states × sites. States and rows go block by block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from restt.diagonal import DiagonalTT
from restt.explain.dense_moments import whitening
from restt.explain.gram import Gram
from restt.explain.memory import MEMORY, slices


class DiagonalTrain:
    """The decision of a train with diagonal cores, centred.

    Parameters
    ----------
    module : in float64
    means : (N, I), the vector of an absent site; None for 0
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
        every = slice(0, self.count)
        absent = [self.directions(n, every) @ self.means[n, :width] for n, width in enumerate(self.widths)]
        self.absent = torch.stack(absent, 1)  # (J, N)
        places = torch.arange(module.sites, device=readout.device).repeat_interleave(outputs)
        elsewhere = places[:, None] != torch.arange(module.sites, device=readout.device)
        self.absent[self._products :] += elsewhere.to(self.absent)

    def directions(self, site: int, states: slice) -> Tensor:  # (J, I_n)
        """The factor of each state by entries of a site's vector."""
        effect, first, last = self._effects[site], states.start, min(states.stop, self.count)
        products = self.module.factors(site, slice(first, min(last, self._products)))
        added = effect.new_zeros(self.count - self._products, effect.shape[1])
        added[site * len(effect) : (site + 1) * len(effect)] = effect
        return torch.cat([products, added[max(0, first - self._products) : max(0, last - self._products)]])

    def _blocks(self, numbers: int) -> Iterator[slice]:
        """Slices of states, of which so many numbers each are made."""
        return slices(self.count, max(16, MEMORY.block // max(1, numbers)))

    def _present(self, site: int, states: slice, x: Tensor) -> Tensor:  # (B, I) -> (J, B)
        return self.directions(site, states) @ x[:, : self.widths[site]].T

    def spectrum(self, x: Tensor, highest: int) -> Tensor:  # (B, N, I), centred -> (B, highest+1, D)
        """The sum of all terms of each order."""
        found = x.new_zeros(len(x), highest + 1, len(self.constant))
        for rows in slices(len(x), MEMORY.rows):
            chunk = x[rows]
            for block in self._blocks(3 * (highest + 1) * len(chunk)):
                state = x.new_ones(1, block.stop - block.start, len(chunk))  # (orders, J, B)
                for n in range(len(self.widths)):
                    orders = min(n + 1, highest) + 1
                    grown = (state * self._present(n, block, chunk[:, n]))[: orders - 1]
                    state = state * self.absent[block, n, None]
                    state = torch.cat([state, state.new_zeros(orders - len(state), *state.shape[1:])])
                    state[1:] += grown
                found[rows] += torch.einsum("kjb,jd->bkd", state, self.weights[block])
        found[:, 0] += self.constant
        return found

    def term(self, points: Mapping[int, Tensor]) -> Tensor:  # site -> (B, I), centred -> (1, B, D)
        """The contribution of exactly these sites together; one row for the constant."""
        others = [n for n in range(len(self.widths)) if n not in points]
        weights = self.weights * self.absent[:, others].prod(1, keepdim=True)
        count = max(map(len, points.values()), default=1)
        found = weights.new_zeros(count, len(self.constant)) + (0 if points else self.constant)
        for rows in slices(count, MEMORY.rows):
            for block in self._blocks(2 * min(count, MEMORY.rows)):
                state = weights.new_ones(block.stop - block.start, rows.stop - rows.start)
                for n, x in points.items():
                    state = state * self._present(n, block, x[rows])
                found[rows] += state.T @ weights[block]
        return found[None]

    def moments(self, covariances: Tensor) -> Gram:  # (N, I, I)
        """Variances under independent sites of these covariances."""
        mixes = [mix[:width] for mix, width in zip(whitening(covariances)[0], self.widths, strict=True)]
        features = [self.directions(n, slice(0, self.count)) @ mix for n, mix in enumerate(mixes)]
        return Gram(self.weights, self.absent, features, self.constant)
