"""The posterior mean as a residual train: rounded to bond r, or as it is with diagonal cores.

The posterior mean Σ_j c_j Π_n (1 + k_n(x_n, z_jn)) is a train with diagonal cores of bond = terms. It is compressed in
two steps, neither of which holds a core of that size:

1. A random train of bond ℓ is contracted with all sites to the right of each bond, which leaves (terms, ℓ) matrices; a
   sweep from the left keeps at each bond the span that these see (randomise, then orthogonalise: Al Daas et al. 2023).
2. The train of bond ℓ is rounded from the right by singular values (Oseledets 2011). What is cut away is known, and
   within √(N-1) of the least possible.

A row's factor has two parts at most, so sums over rows are sums over states, whatever a site's width (:class:`Coded`).
Both steps measure a function's size by its mean square over independent sites with the columns' own distributions. Site
vectors sum to one, so the cores G_i of any train are those of a residual one: W(n,1)_i = G_i - I.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from restt.diagonal import DiagonalTT
from restt.init import undrawn
from restt.module import ResTT
from restt.prior.gp import Posterior

# Bonds beyond the wanted one that the random train has.
_OVERSAMPLING = 10
# The smallest share of the tolerance that is cut away over independent sites where the rows' sites are not independent.
_TIGHTEST = 1 / 64
# Every state has at least this share of the measure: a level that no row is in has a value all the same.
_FLOOR = 1e-6
# Singular values of main effects on several outputs below this share of the largest are left out.
_LEAST_SINGULAR = 1e-13
# Entries of the largest array that is made at once.
_LARGEST = 2**20


@dataclass(frozen=True)
class Rounding:
    """Record of a rounding: the kind of train, its bonds and its errors.

    ``kind``: ``"rounded"`` to a dense train of bond r, or ``"diagonal"``, with one state per row and product.
    ``discarded``: root mean square over independent sites of what was cut away, in standard deviations of the target.
    ``distance``: root mean square distance from the exact posterior mean on the rows of the fit, in the same unit; 0
    where it was not measured. The prior lives on the knots, so they add no error of their own.
    """

    bond_dim: int
    bonds: tuple[int, ...]  # N - 1
    discarded: float
    distance: float
    kind: str = "rounded"


@dataclass(frozen=True, eq=False)
class Coded:
    """One site's factors of G groups of products over the same R rows, and then of other products.

    A row's factor lies between two lines of its group's table, so a sum over rows is one over states: its work does not
    grow with the width of the site.
    """

    code: Tensor  # (R,)
    share: Tensor  # (R,): of the line after
    tables: Tensor  # (G, M, I)
    others: Tensor  # (J - G·R, I)

    @property
    def shape(self) -> tuple[int, int]:
        """Products J and width I, as a dense factor has them."""
        return len(self.tables) * len(self.code) + len(self.others), self.others.shape[1]

    def times(self, root: Tensor) -> Coded:  # (I, I) or (I,)
        """The factors times a matrix, or a diagonal one."""
        tables, others = (each * root if root.dim() == 1 else each @ root for each in (self.tables, self.others))
        return replace(self, tables=tables, others=others)

    def contract(self, left: Tensor, core: Tensor) -> Tensor:  # (J, a), (a, I, b) -> (J, b)
        """Σ_ai left_ja factor_ji core_aib."""
        inner, rest = self._split(left)
        along = torch.einsum("gsi,aib->sgab", self.tables, core)
        found = left.new_empty(*inner.shape[:2], core.shape[2])
        for state, rows, share in self._states:
            ours = inner[:, rows]
            value = ours @ along[state]
            if share is not None:
                value = torch.lerp(value, ours @ along[state + 1], share)
            found[:, rows] = value
        return torch.cat([found.flatten(0, 1), _contract(rest, self.others, core)])

    def outer(self, left: Tensor, right: Tensor) -> Tensor:  # (J, a), (J, b) -> (a, I, b)
        """Σ_j left_ja factor_ji right_jb."""
        (ours, rest), (theirs, others) = self._split(left), self._split(right)
        groups, lines = self.tables.shape[:2]
        total = left.new_zeros(lines, groups, left.shape[1], right.shape[1])
        for state, rows, share in self._states:
            near, far = ours[:, rows].mT, theirs[:, rows]
            if share is not None:
                total[state + 1].baddbmm_(near, far * share)
                far = far * (1 - share)
            total[state].baddbmm_(near, far)
        return torch.einsum("gsi,sgab->aib", self.tables, total) + _outer(rest, self.others, others)

    def _split(self, values: Tensor) -> tuple[Tensor, Tensor]:  # (J, a) -> (G, R, a), (J - G·R, a)
        count = len(self.tables) * len(self.code)
        return values[:count].reshape(len(self.tables), len(self.code), -1), values[count:]

    @cached_property
    def _states(self) -> list[tuple[int, Tensor, Tensor | None]]:
        """Each state that rows are in, these rows, and their shares (R', 1) of the next state, None where all are 0."""
        states, counts = self.code.unique(return_counts=True)
        rows = self.code.argsort(stable=True).split(counts.tolist())
        shares = [self.share[own, None] for own in rows]
        found = [share if bool(share.any()) else None for share in shares]
        return list(zip(states.tolist(), rows, found, strict=True))


def _mean_of(
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
    coefficients, tables, effects, constant = _mean_of(posteriors, weights, order)
    last, added = effects_as_products(effects)
    rows, factors = posteriors[0].rows, []
    for place, (n, factor) in enumerate(zip(order, added, strict=True)):
        width = factor.shape[1]
        own = torch.stack([factor.new_zeros(width + 1, width), *(group[place] for group in tables)])[1:]
        others = torch.cat([factor.new_ones(1, width), factor])
        factors.append(Coded(rows.code[:, n].long(), rows.share[:, n], own, others))
    return torch.cat([*coefficients, constant[None], last]), factors


@torch.no_grad()
def round_products(
    coefficients: Tensor,  # (J, O)
    factors: Sequence[Tensor | Coded],  # N of (J, I_n): the value of each term's factor in each state
    moments: Sequence[Tensor],  # N of (I_n, I_n): mean over rows of x xᵀ; (I_n,) where it is diagonal
    largest_bond: int,
    tolerance: float,
    distance: Callable[[list[Tensor]], float] | None = None,
    first_bonds: Sequence[int] = (),
) -> tuple[list[Tensor], Rounding]:
    """Cores (left, I_n, right) of Σ_j c_j Π_n factor_n(j), of bond at most ``largest_bond``, on the CPU.

    Bonds are as small as a root mean square error of ``tolerance`` over independent sites allows. ``distance`` tells
    that of cores from the sum over rows, whose sites may go together: where it is larger, less is cut away, until it is
    not or bonds are as large as they may be. ``first_bonds`` are tried before the largest: they are enough for most
    tables, and cost little.
    """
    roots = [_root(moment) for moment in moments]
    whitened = [
        factor.times(root) if isinstance(factor, Coded) else factor * root if root.dim() == 1 else factor @ root
        for factor, root in zip(factors, roots, strict=True)
    ]
    for bond in (*(bond for bond in first_bonds if bond < largest_bond), largest_bond):
        compressed = _compressed(coefficients, whitened, bond + _OVERSAMPLING)
        # From here on matrices are small, and singular values of small matrices are slow on a GPU.
        small, own_roots = ([one.cpu() for one in each] for each in (compressed, roots))
        cores, rounding = _cut(small, own_roots, bond, tolerance, distance)
        if rounding.distance <= tolerance:
            break
    return cores, rounding


def _cut(
    compressed: list[Tensor],
    roots: list[Tensor],
    largest_bond: int,
    tolerance: float,
    distance: Callable[[list[Tensor]], float] | None,
) -> tuple[list[Tensor], Rounding]:
    """Cores of the smallest bonds that hold the tolerance, as far as the largest does."""

    def cut(share: float) -> tuple[list[Tensor], float, float]:
        cores, lost = _truncated(compressed, largest_bond, tolerance * share)
        cores = [_unwhitened(core, root) for core, root in zip(cores, roots, strict=True)]
        return cores, lost, 0.0 if distance is None else distance(cores)

    cores, lost, away = cut(_TIGHTEST)
    # Where the tightest does not hold, no looser one does.
    share = 1.0 if away <= tolerance else 0.0
    while share > _TIGHTEST:
        looser = cut(share)
        if looser[2] <= tolerance:
            cores, lost, away = looser
            break
        share *= min(0.5, 0.7 * tolerance / looser[2])
    bonds = tuple(core.shape[2] for core in cores[:-1])
    return cores, Rounding(max(bonds, default=1), bonds, lost, away)


def effects_as_products(effects: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:  # N of (O, I_n)
    """Coefficients (J, O) and factors N of (J, I_n) of Σ_n effect_n(x_n): a factor is 1 but for that of one column.

    As many products a column as its effects on several outputs have dimensions, not one for each output.
    """
    split = [torch.linalg.svd(effect, full_matrices=False) for effect in effects]
    least = _LEAST_SINGULAR * max(float(sizes[0]) for _, sizes, _ in split)
    kept = [int((sizes > least).sum()) for _, sizes, _ in split]
    places = torch.repeat_interleave(torch.arange(len(effects)), torch.tensor(kept)).to(effects[0].device)
    coefficients = torch.cat([(u * sizes)[:, :k].T for (u, sizes, _), k in zip(split, kept, strict=True)])
    factors = []
    for n, (_, _, directions) in enumerate(split):
        factor = directions.new_ones(len(places), directions.shape[1])
        factor[places == n] = directions[: kept[n]]
        factors.append(factor)
    return coefficients, factors


def train_values(cores: Sequence[Tensor], states: Sequence[Tensor]) -> Tensor:  # N of (l, I_n, r), (B, I_n) -> (B, O)
    """Evaluate a train of these cores at rows."""
    found = states[0].new_ones(len(states[0]), 1)
    for core, rows in zip(cores, states, strict=True):
        found = _contract(found, rows, core)
    return found


def _root(moment: Tensor) -> Tensor:  # (I, I), lower; or (I,)
    diagonal = moment if moment.dim() == 1 else moment.diagonal()
    floor = _FLOOR * max(1.0, float(diagonal.max())) / len(moment)
    if moment.dim() == 1:
        return (moment + floor).sqrt()
    return torch.linalg.cholesky(moment + floor * torch.diag(torch.ones_like(diagonal)))


def _unwhitened(core: Tensor, root: Tensor) -> Tensor:  # (l, I, r)
    if root.dim() == 1:
        return core / root[:, None]
    return torch.linalg.solve_triangular(root.T, core, upper=True)


def _compressed(coefficients: Tensor, factors: Sequence[Tensor | Coded], bond: int) -> list[Tensor]:
    """A train of bond ≤ ``bond`` whose cores but the last are orthonormal from the left."""
    generator = torch.Generator().manual_seed(0)
    sketches = [coefficients]  # of the sites right of each bond, the last first
    for factor in reversed(factors[1:]):
        shape = (sketches[-1].shape[1], factor.shape[1], bond)
        noise = torch.randn(shape, generator=generator, dtype=torch.float64) / shape[0] ** 0.5
        seen = _contract(sketches[-1], factor, noise.to(coefficients))
        sketches.append(seen / seen.abs().max().clamp(min=1e-300))
    left = coefficients.new_ones(len(coefficients), 1)  # (J, r)
    cores = []
    for factor, sketch in zip(factors[:-1], reversed(sketches[1:]), strict=True):
        seen = _outer(left, factor, sketch)  # (r, m, ℓ)
        rank, width, _ = seen.shape
        basis = torch.linalg.qr(seen.reshape(rank * width, -1))[0].reshape(rank, width, -1)
        cores.append(basis)
        left = _contract(left, factor, basis)
    cores.append(_outer(left, factors[-1], coefficients))
    return cores


def _contract(left: Tensor, factor: Tensor | Coded, core: Tensor) -> Tensor:  # (J, a), (J, m), (a, m, b) -> (J, b)
    """Σ_am left_ja factor_jm core_amb, a slice of rows at a time."""
    if isinstance(factor, Coded):
        return factor.contract(left, core)
    rows = max(1, _LARGEST // (left.shape[1] * factor.shape[1]))
    flat = core.reshape(-1, core.shape[2])
    parts = [
        (a[:, :, None] * f[:, None, :]).reshape(len(a), -1) @ flat
        for a, f in zip(left.split(rows), factor.split(rows), strict=True)
    ]
    return torch.cat(parts)


def _outer(left: Tensor, factor: Tensor | Coded, right: Tensor) -> Tensor:  # (J, a), (J, m), (J, b) -> (a, m, b)
    """Σ_j left_ja factor_jm right_jb, a slice of rows at a time."""
    if isinstance(factor, Coded):
        return factor.outer(left, right)
    rows = max(1, _LARGEST // (left.shape[1] * factor.shape[1]))
    total = left.new_zeros(left.shape[1] * factor.shape[1], right.shape[1])
    for a, f, b in zip(left.split(rows), factor.split(rows), right.split(rows), strict=True):
        total += (a[:, :, None] * f[:, None, :]).reshape(len(a), -1).T @ b
    return total.reshape(left.shape[1], factor.shape[1], -1)


def _truncated(cores: list[Tensor], largest: int, tolerance: float) -> tuple[list[Tensor], float]:
    """Singular values below the tolerance cut away from the right; the cores left of each bond are orthonormal."""
    allowed = tolerance**2 / max(1, len(cores) - 1)
    lost, cores = 0.0, list(cores)
    for n in range(len(cores) - 1, 0, -1):
        left, width, right = cores[n].shape
        u, values, v = torch.linalg.svd(cores[n].reshape(left, width * right), full_matrices=False)
        tails = values.flip(0).square().cumsum(0).flip(0)  # weight from each value on
        rank = min(max(1, int((tails > allowed).sum())), largest)
        lost += float(tails[rank]) if rank < len(values) else 0.0
        cores[n] = v[:rank].reshape(rank, width, right)
        cores[n - 1] = cores[n - 1] @ (u[:, :rank] * values[:rank])
    return cores, lost**0.5


@torch.no_grad()
def residual_module(
    cores: Sequence[Tensor],  # N of (left, I_n, right), right = O at the last
    dtype: torch.dtype = torch.float64,
) -> ResTT:
    """The residual train that has these cores on site vectors that sum to one."""
    bond = max([core.shape[2] for core in cores[:-1]], default=1)
    widths, outputs = [core.shape[1] for core in cores], cores[-1].shape[2]
    with undrawn():
        module = ResTT(len(cores), widths, bond, outputs, dtype=dtype)
    for parameter in module.parameters():
        parameter.zero_()
    if len(cores) == 1:
        module.first[: widths[0]] = cores[0][0]
        return module
    module.first[: widths[0], : cores[0].shape[2]] = cores[0][0]
    for n, core in enumerate(cores[1:-1]):
        assert module.chain is not None
        module.chain[n, : widths[n + 1], : core.shape[0], : core.shape[2]] = core.transpose(0, 1)
        module.chain[n, : widths[n + 1]] -= torch.eye(bond, dtype=dtype)
    assert module.last_chain is not None
    module.last_chain[: widths[-1], : cores[-1].shape[0]] = cores[-1].transpose(0, 1)
    return module


@torch.no_grad()
def diagonal_module(
    posteriors: Sequence[Posterior],
    weights: np.ndarray,  # (members,)
    order: Sequence[int],
) -> DiagonalTT:
    """The members' weighted mean, on the CPU; its sites are the columns in ``order``.

    Members are conditioned on the same rows, so they share codes; each product term of each member is a group.
    """
    first, (coefficients, tables, effects, constant) = posteriors[0], _mean_of(posteriors, weights, order)
    if not tables:  # main effects alone
        coefficients, tables = [0 * first.alpha], [[first.process.tables[n][:, :-1, 0] for n in order]]
    place = torch.tensor(order, device=first.rows.code.device)
    sites = [torch.stack(site) for site in zip(*tables, strict=True)]
    codes = first.rows.code[:, place], first.rows.share[:, place]
    return DiagonalTT(sites, *codes, torch.stack(coefficients), effects, constant).cpu()
