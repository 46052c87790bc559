"""The posterior mean as a residual train: rounded to bond r, or as it is with diagonal cores.

The posterior mean Σ_j c_j Π_n (1 + k_n(x_n, z_jn)) is a train with diagonal cores of bond = terms. It is compressed in
two steps, neither of which holds a core of that size:

1. A random train of bond ℓ is contracted with all sites to the right of each bond, which leaves (terms, ℓ) matrices; a
   sweep from the left keeps at each bond the span that these see (randomise, then orthogonalise: Al Daas et al. 2023).
2. The train of bond ℓ is rounded from the right by singular values (Oseledets 2011). What is cut away is known, and
   within √(N-1) of the least possible.

Where a small bond is not enough, every site first keeps only the directions that the function has there: the singular
vectors of its fibres, contracted with narrow random trains on both sides (a Tucker compression; Halko, Martinsson and
Tropp 2011).

All steps measure a function's size by its mean square over independent sites with the columns' own distributions. Site
vectors sum to one, so the cores G_i of any train are those of a residual one: W(n,1)_i = G_i - I.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from restt.diagonal import DiagonalTT
from restt.init import undrawn
from restt.module import ResTT
from restt.prior.coded import Coded, contract, mean_of, outer, start_of, times
from restt.prior.gp import Posterior

# Bonds beyond the wanted one that the random train has.
_OVERSAMPLING = 10
# Bonds of the narrow random trains beyond the root of the widest site.
_FIBRES = 3
# The smallest share of the tolerance that is cut away over independent sites where the rows' sites are not independent,
# and what compressing the sites cuts away before that.
_TIGHTEST = 1 / 64
# Every state has at least this share of the measure: a level that no row is in has a value all the same.
_FLOOR = 1e-6
# Singular values of a site below this share of the largest are left out.
_LEAST_SINGULAR = 1e-13


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
class Sample:
    """Rows on which the error of a train is measured."""

    states: Sequence[Tensor]  # N of (B, I_n)
    values: Tensor  # (B, O): of the sum of products
    weights: Tensor  # (B,)

    def distance(self, cores: Sequence[Tensor], maps: Sequence[Tensor]) -> float:  # N of (I_n, I'_n)
        """Root mean square error of cores in the coordinates that the maps take states to."""
        states = [rows @ one for rows, one in zip(self.states, maps, strict=True)]
        squares = (train_values(cores, states) - self.values).square().mean(1)
        return float(self.weights @ squares / self.weights.sum()) ** 0.5


@torch.no_grad()
def round_products(
    coefficients: Tensor,  # (J, O)
    factors: Sequence[Tensor | Coded],  # N of (J, I_n): the value of each term's factor in each state
    moments: Sequence[Tensor],  # N of (I_n, I_n): mean over rows of x xᵀ; (I_n,) where it is diagonal
    largest_bond: int,
    tolerance: float,
    sample: Sample | None = None,
    first_bonds: Sequence[int] = (),
) -> tuple[list[Tensor], Rounding]:
    """Cores (left, I_n, right) of Σ_j c_j Π_n factor_n(j), of bond at most ``largest_bond``, on the CPU.

    Bonds are as small as a root mean square error of ``tolerance`` over independent sites allows. The rows of
    ``sample``, whose sites may go together, are where cores are compared with the sum: where the error there is larger,
    less is cut away, until it is not or bonds are as large as they may be. ``first_bonds`` are tried before the
    largest: they are enough for most tables, and cost little.
    """
    roots = [_root(moment) for moment in moments]
    whitened = [times(factor, root) for factor, root in zip(factors, roots, strict=True)]
    sites, bases, lost = whitened, [torch.eye(factor.shape[1]).to(coefficients) for factor in whitened], 0.0
    bonds = [*(bond for bond in first_bonds if bond < largest_bond), largest_bond]
    for bond in bonds:
        compressed = _compressed(coefficients, sites, bond + _OVERSAMPLING)
        # From states to the coordinates of these cores, and back. From here on matrices are small, and singular values
        # of small matrices are slow on a GPU.
        maps = [_unwhitened(basis, root).cpu() for basis, root in zip(bases, roots, strict=True)]
        cores, found = _cut([one.cpu() for one in compressed], maps, bond, tolerance, sample)
        if found.distance <= tolerance:
            break
        if bond == bonds[0]:
            bases, lost = _bases(coefficients, whitened, tolerance * _TIGHTEST)
            sites = [times(factor, basis) for factor, basis in zip(whitened, bases, strict=True)]
    cores = [torch.einsum("lmr,im->lir", core, one) for core, one in zip(cores, maps, strict=True)]
    return cores, replace(found, discarded=(found.discarded**2 + lost**2) ** 0.5)


def _cut(
    compressed: list[Tensor],
    maps: Sequence[Tensor],
    largest_bond: int,
    tolerance: float,
    sample: Sample | None,
) -> tuple[list[Tensor], Rounding]:
    """Cores of the smallest bonds that hold the tolerance, as far as the largest does."""

    def cut(share: float) -> tuple[list[Tensor], float, float]:
        cores, lost = _truncated(compressed, largest_bond, tolerance * share)
        return cores, lost, 0.0 if sample is None else sample.distance(cores, maps)

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


def train_values(cores: Sequence[Tensor], states: Sequence[Tensor]) -> Tensor:  # N of (l, I_n, r), (B, I_n) -> (B, O)
    """Evaluate a train of these cores at rows."""
    found = states[0].new_ones(len(states[0]), 1)
    for core, rows in zip(cores, states, strict=True):
        found = contract(found, rows, core)
    return found


def _root(moment: Tensor) -> Tensor:  # (I, I), lower; or (I,)
    diagonal = moment if moment.dim() == 1 else moment.diagonal()
    floor = _FLOOR * max(1.0, float(diagonal.max())) / len(moment)
    if moment.dim() == 1:
        return (moment + floor).sqrt()
    return torch.linalg.cholesky(moment + floor * torch.diag(torch.ones_like(diagonal)))


def _unwhitened(basis: Tensor, root: Tensor) -> Tensor:  # (I, m)
    if root.dim() == 1:
        return basis / root[:, None]
    return torch.linalg.solve_triangular(root.T, basis, upper=True)


def _bases(
    coefficients: Tensor, factors: Sequence[Tensor | Coded], tolerance: float
) -> tuple[list[Tensor], float]:  # N of (I_n, m)
    """Orthonormal directions of each site that hold the function within the tolerance, and its error."""
    generator = torch.Generator().manual_seed(1)
    count = int(max(factor.shape[1] for factor in factors) ** 0.5) + _FIBRES
    rights = [coefficients]
    for factor in reversed(factors[1:]):
        rights.append(contract(rights[-1], factor, _random(rights[-1].shape[1], factor, count, generator), True))
    left, bases, lost = start_of(factors[0]), [], 0.0
    for factor, right in zip(factors, reversed(rights), strict=True):
        fibres = outer(left, factor, right).transpose(0, 1).flatten(1)
        basis, values, _ = torch.linalg.svd(fibres, full_matrices=False)
        tails = values.flip(0).square().cumsum(0).flip(0)
        least = tolerance**2 / len(factors) + (_LEAST_SINGULAR * values[0]) ** 2
        kept = max(1, int((tails > least).sum()))
        if len(basis) < fibres.shape[1]:
            bases.append(basis[:, :kept])
            lost += float(tails[kept]) if kept < len(tails) else 0.0
        else:  # the first site and the last one
            bases.append(torch.eye(len(basis)).to(basis))
        left = contract(left, factor, _random(left.shape[1], factor, count, generator))
    return bases, lost**0.5


def _random(rows: int, factor: Tensor | Coded, columns: int, generator: torch.Generator) -> Tensor:  # (a, I, b)
    """A random core under which sizes are kept on average, and the mean factor's part exactly.

    Of normal numbers alone, products over hundreds of sites would all point the same way.
    """
    noise = torch.randn(rows, factor.shape[1], columns, generator=generator, dtype=torch.float64) / columns**0.5
    middle = factor.middle if isinstance(factor, Coded) else factor.mean(0)
    noise = noise.to(middle)
    if rows == columns and bool(middle.any()):
        middle = middle / middle.norm()
        along = torch.einsum("aib,i->ab", noise, middle)
        noise += middle[:, None] * (torch.eye(rows).to(noise) - along)[:, None]
    return noise


def _compressed(coefficients: Tensor, factors: Sequence[Tensor | Coded], bond: int) -> list[Tensor]:
    """A train of bond ≤ ``bond`` whose cores but the last are orthonormal from the left."""
    generator = torch.Generator().manual_seed(0)
    sketches = [coefficients]  # of the sites right of each bond, the last first
    for factor in reversed(factors[1:]):
        seen = contract(sketches[-1], factor, _random(sketches[-1].shape[1], factor, bond, generator), True)
        sketches.append(seen / seen.abs().max().clamp(min=1e-300))
    left = start_of(factors[0])  # (J, r)
    cores = []
    for factor, sketch in zip(factors[:-1], reversed(sketches[1:]), strict=True):
        seen = outer(left, factor, sketch)  # (r, m, ℓ)
        rank, width, _ = seen.shape
        basis = torch.linalg.qr(seen.reshape(rank * width, -1))[0].reshape(rank, width, -1)
        cores.append(basis)
        left = contract(left, factor, basis)
    cores.append(outer(left, factors[-1], coefficients))
    return cores


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
def residual_module(cores: Sequence[Tensor]) -> ResTT:  # N of (left, I_n, right), right = O at the last
    """The residual train in float64 that has these cores on site vectors that sum to one."""
    bond = max([core.shape[2] for core in cores[:-1]], default=1)
    widths, outputs = [core.shape[1] for core in cores], cores[-1].shape[2]
    with undrawn():
        module = ResTT(len(cores), widths, bond, outputs, dtype=torch.float64)
    for parameter in module.parameters():
        parameter.zero_()
    if len(cores) == 1:
        module.first[: widths[0]] = cores[0][0]
        return module
    module.first[: widths[0], : cores[0].shape[2]] = cores[0][0]
    for n, core in enumerate(cores[1:-1]):
        assert module.chain is not None
        module.chain[n, : widths[n + 1], : core.shape[0], : core.shape[2]] = core.transpose(0, 1)
        module.chain[n, : widths[n + 1]] -= torch.eye(bond, dtype=torch.float64)
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
    first, (coefficients, tables, effects, constant) = posteriors[0], mean_of(posteriors, weights, order)
    if not tables:  # main effects alone
        coefficients, tables = [0 * first.alpha], [[first.process.tables[n][:, :-1, 0] for n in order]]
    place = torch.tensor(order, device=first.rows.code.device)
    sites = [torch.stack(site) for site in zip(*tables, strict=True)]
    codes = first.rows.code[:, place], first.rows.share[:, place]
    return DiagonalTT(sites, *codes, torch.stack(coefficients), effects, constant).cpu()
