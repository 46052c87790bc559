"""Factors of a sum of products at one site, over the rows of a fit or one by one, and sums over the products.

The mean of a posterior has one product for each row and term of the kernel, and main effects. A row's factor has two
parts at most, so a sum over rows is one over states, whatever a site's width; main effects are a train of their own, so
that their work is linear in the number of sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from restt.prior.gp import Posterior

# Directions of a site up to which rows are taken one by one: of four, states take twice as long with 400 rows, and four
# fifths of the time with 2,000.
_NARROW = 4
# Singular values below this share of the largest are left out: they are rounding.
_LEAST_SINGULAR = 1e-13
# Entries of the largest array that is made at once.
_LARGEST = 2**20


@dataclass(frozen=True, eq=False)
class Coded:
    """One site's factors of G groups of products over the same R rows, and its part of a constant and main effects.

    A row's factor lies between two lines of its group's table, so a sum over rows is one over states: its work does not
    grow with the width of the site. Main effects on Q outputs are a train of bond 1 + Q, whose first state is that none
    is done yet: they are the last 1 + Q of the J products.
    """

    code: Tensor  # (R,)
    share: Tensor  # (R,): of the line after
    tables: Tensor  # (G, M, I)
    ones: Tensor  # (I,)
    effects: Tensor  # (Q, I)

    @property
    def shape(self) -> tuple[int, int]:
        """Products J and width I, as a dense factor has them."""
        return self._products + 1 + len(self.effects), len(self.ones)

    @property
    def start(self) -> Tensor:  # (J, 1)
        """Value of the products before the first site."""
        found = self.ones.new_ones(self.shape[0], 1)
        found[self._products + 1 :] = 0
        return found

    @property
    def middle(self) -> Tensor:  # (I,)
        """The mean factor."""
        return torch.cat([self.tables.flatten(0, 1), self.ones[None]]).mean(0)

    def times(self, root: Tensor) -> Coded:  # (I, I') or (I,)
        """The factors times a matrix, or a diagonal one."""
        parts = self.tables, self.ones, self.effects
        tables, ones, effects = (each * root if root.dim() == 1 else each @ root for each in parts)
        return replace(self, tables=tables, ones=ones, effects=effects)

    def contract(self, state: Tensor, core: Tensor, backward: bool) -> Tensor:  # (J, a), (a, I, b) -> (J, b)
        """Σ_ai state_ja factor_ji core_aib; ``state`` is of the sites before this one or, backward, of those after."""
        inner, rest = self._split(state)
        found = contract(inner.flatten(0, 1), self._dense, core) if self._is_narrow else self._along(inner, core)
        last = rest @ torch.einsum("i,aib->ab", self.ones, core)
        steps = torch.einsum("qi,aib->qab", self.effects, core)
        if backward:
            last[:1] += (rest[1:, None] @ steps).sum(0)
        else:
            last[1:] += (rest[:1] @ steps)[:, 0]
        return torch.cat([found, last])

    def outer(self, left: Tensor, right: Tensor) -> Tensor:  # (J, a), (J, b) -> (a, I, b)
        """Σ_j left_ja factor_ji right_jb."""
        (ours, rest), (theirs, others) = self._split(left), self._split(right)
        if self._is_narrow:
            found = outer(ours.flatten(0, 1), self._dense, theirs.flatten(0, 1))
        else:
            found = self._between(ours, theirs)
        found += self.ones[:, None] * (rest.T @ others)[:, None]
        return found + rest[0, :, None, None] * (self.effects.T @ others[1:])

    def _along(self, left: Tensor, core: Tensor) -> Tensor:  # (G, R, a), (a, I, b) -> (G·R, b)
        along = torch.einsum("gsi,aib->sgab", self.tables, core)
        found = left.new_empty(*left.shape[:2], core.shape[2])
        for line, rows, share in self._states:
            ours = left[:, rows]
            value = ours @ along[line]
            if share is not None:
                value = torch.lerp(value, ours @ along[line + 1], share)
            found[:, rows] = value
        return found.flatten(0, 1)

    def _between(self, left: Tensor, right: Tensor) -> Tensor:  # (G, R, a), (G, R, b) -> (a, I, b)
        groups, lines = self.tables.shape[:2]
        total = left.new_zeros(lines, groups, left.shape[2], right.shape[2])
        for line, rows, share in self._states:
            near, far = left[:, rows].mT, right[:, rows]
            if share is not None:
                total[line + 1].baddbmm_(near, far * share)
                far = far * (1 - share)
            total[line].baddbmm_(near, far)
        return torch.einsum("gsi,sgab->aib", self.tables, total)

    @property
    def _is_narrow(self) -> bool:
        """Whether a sum over rows costs less than one over the states that they are in."""
        return len(self.ones) <= _NARROW

    @cached_property
    def _dense(self) -> Tensor:  # (G·R, I)
        after = (self.code + 1).clamp(max=self.tables.shape[1] - 1)
        return torch.lerp(self.tables[:, self.code], self.tables[:, after], self.share[:, None]).flatten(0, 1)

    @property
    def _products(self) -> int:
        return len(self.tables) * len(self.code)

    def _split(self, values: Tensor) -> tuple[Tensor, Tensor]:  # (J, a) -> (G, R, a), (1 + Q, a)
        inner = values[: self._products].reshape(len(self.tables), len(self.code), values.shape[1])
        return inner, values[self._products :]

    @cached_property
    def _states(self) -> list[tuple[int, Tensor, Tensor | None]]:
        """Each state that rows are in, these rows, and their shares (R', 1) of the next state, None where all are 0."""
        states, counts = self.code.unique(return_counts=True)
        rows = self.code.argsort(stable=True).split(counts.tolist())
        shares = [self.share[own, None] for own in rows]
        found = [share if bool(share.any()) else None for share in shares]
        return list(zip(states.tolist(), rows, found, strict=True))


def mean_of(
    posteriors: Sequence[Posterior], weights: np.ndarray, order: Sequence[int]
) -> tuple[list[Tensor], list[list[Tensor]], list[Tensor], Tensor]:  # of (R, O), N of (I + 1, I), N of (O, I), (O,)
    """The weighted mean of posteriors on the same rows: coefficients and tables of groups, main effects, constant."""
    coefficients, tables, pairs = [], [], list(zip(weights.tolist(), posteriors, strict=True))
    for weight, one in pairs:
        for term, scale in enumerate(one.process.scale[:3].tolist()):
            if scale > 0:
                coefficients.append(weight * scale * one.alpha)
                tables.append([one.process.tables[n][:, :-1, term] for n in order])
    columns = list(zip(*([weight * own for own in one.effects()] for weight, one in pairs), strict=True))
    effects = [torch.stack(columns[n]).sum(0) for n in order]
    constants = [weight * one.process.settings.constant * one.alpha.sum(0) for weight, one in pairs]
    return coefficients, tables, effects, torch.stack(constants).sum(0)


def coded_products(
    posteriors: Sequence[Posterior], weights: np.ndarray, order: Sequence[int]
) -> tuple[Tensor, list[Coded]]:  # (J, O), N
    """The weighted mean of posteriors on the same rows as a sum of products, sites in this order."""
    coefficients, tables, effects, constant = mean_of(posteriors, weights, order)
    left, sizes, last = torch.linalg.svd(torch.cat([effect.T for effect in effects]), full_matrices=False)
    kept = int((sizes > _LEAST_SINGULAR * sizes[0]).sum())  # on many outputs they may have few dimensions
    added = (left * sizes)[:, :kept].split([effect.shape[1] for effect in effects])
    rows, factors = posteriors[0].rows, []
    for place, (n, effect) in enumerate(zip(order, added, strict=True)):
        width = len(effect)
        own = torch.stack([effect.new_zeros(width + 1, width), *(group[place] for group in tables)])[1:]
        factors.append(Coded(rows.code[:, n].long(), rows.share[:, n], own, effect.new_ones(width), effect.T))
    return torch.cat([*coefficients, constant[None], last[:kept]]), factors


def times(factor: Tensor | Coded, root: Tensor) -> Tensor | Coded:
    """A site's factors times a matrix (I, I'), or a diagonal one (I,)."""
    if isinstance(factor, Coded):
        return factor.times(root)
    return factor * root if root.dim() == 1 else factor @ root


def start_of(factor: Tensor | Coded) -> Tensor:  # (J, 1)
    """Value of a factor's products before the first site."""
    return factor.start if isinstance(factor, Coded) else factor.new_ones(len(factor), 1)


def contract(
    left: Tensor, factor: Tensor | Coded, core: Tensor, backward: bool = False
) -> Tensor:  # (J, a), (J, m), (a, m, b) -> (J, b)
    """Σ_am left_ja factor_jm core_amb, a slice of rows at a time."""
    if isinstance(factor, Coded):
        return factor.contract(left, core, backward)
    rows = max(1, _LARGEST // (left.shape[1] * factor.shape[1]))
    flat = core.reshape(-1, core.shape[2])
    parts = [
        (a[:, :, None] * f[:, None, :]).reshape(len(a), -1) @ flat
        for a, f in zip(left.split(rows), factor.split(rows), strict=True)
    ]
    return torch.cat(parts)


def outer(left: Tensor, factor: Tensor | Coded, right: Tensor) -> Tensor:  # (J, a), (J, m), (J, b) -> (a, m, b)
    """Σ_j left_ja factor_jm right_jb, a slice of rows at a time."""
    if isinstance(factor, Coded):
        return factor.outer(left, right)
    rows = max(1, _LARGEST // (left.shape[1] * factor.shape[1]))
    total = left.new_zeros(left.shape[1] * factor.shape[1], right.shape[1])
    for a, f, b in zip(left.split(rows), factor.split(rows), right.split(rows), strict=True):
        total += (a[:, :, None] * f[:, None, :]).reshape(len(a), -1).T @ b
    return total.reshape(left.shape[1], factor.shape[1], -1)
