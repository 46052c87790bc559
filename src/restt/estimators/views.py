"""Views of site vectors: coarser hats or straight lines of a column, and weights over a view as weights over the whole.

A view is a matrix V (I, J) for each site: its vectors are u = Vᵀ x. Since a train is linear in each site vector, the
weights W_j of a train over u are those of a train over x with W_i = Σ_j V_ij W_j, exactly. So trains over different
maps of the same columns stand side by side in one module, which reads one encoding.

Hats of a coarse grid are straight between its knots, and so are sums of hats of a finer grid that holds the same knots;
a straight line is its values at the knots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from restt.chain.reference import ROLES
from restt.features import Hat
from restt.module import ResTT
from restt.prior import Site
from restt.prior.rows import weighted_quantile

# Sites 2 … N-1 are stacked in these roles; the others belong to the first or the last site.
_INNER = ("chain", "linear")


@dataclass(frozen=True, eq=False)
class View:
    """``matrices`` holds one V (I_n, J_n) for each of the sites at ``places``, all by default."""

    name: str
    matrices: tuple[Tensor, ...]
    places: tuple[int, ...] | None = None

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(matrix.shape[1] for matrix in self.matrices)

    @property
    def sites(self) -> tuple[int, ...]:
        """Which of all sites each matrix is of."""
        return tuple(range(len(self.matrices))) if self.places is None else self.places

    def at(self, places: Sequence[int]) -> View:
        """The view of some of the sites."""
        return View(self.name, tuple(self.matrices[place] for place in places), tuple(places))

    def vectors(self, states: Sequence[Tensor]) -> Tensor:  # N of (B, I_n) -> (B, N, J)
        """The view of rows, padded to the widest site."""
        found = torch.zeros(len(states[0]), len(self.matrices), max(self.widths), dtype=torch.float64)
        for n, (matrix, place) in enumerate(zip(self.matrices, self.sites, strict=True)):
            found[:, n, : matrix.shape[1]] = states[place] @ matrix
        return found

    def columns(self, states: Sequence[Tensor]) -> Tensor:  # N of (B, I_n) -> (B, Σ J_n)
        """The same side by side."""
        return torch.cat([states[n] @ matrix for n, matrix in zip(self.sites, self.matrices, strict=True)], dim=1)


def whole_view(sites: Sequence[Site]) -> View:
    """The states as they are."""
    return View("whole", tuple(torch.eye(site.width, dtype=torch.float64) for site in sites))


def hat_view(
    sites: Sequence[Site],
    columns: Sequence[np.ndarray],  # N of (B,)
    states: Sequence[Tensor],  # N of (B, I_n)
    weights: np.ndarray,  # (B,)
    knots: int,
) -> View:
    """Hats at up to ``knots`` of each column's own knots, those nearest to its quantiles, centred over the rows."""
    matrices = []
    for site, column, rows in zip(sites, columns, states, strict=True):
        matrix = torch.eye(site.width, dtype=torch.float64)
        if site.knots is not None and len(site.knots) > knots:
            chosen = _coarse(site, column, weights, knots)
            hats = Hat(knots=[chosen])(np.array(site.knots)[:, None])[:, 0]  # (I, J)
            matrix = torch.block_diag(hats, torch.eye(site.width - len(site.knots), dtype=torch.float64))
        matrices.append(_centred(matrix, rows, weights))
    return View("hats", tuple(matrices))


def _coarse(site: Site, column: np.ndarray, weights: np.ndarray, count: int) -> list[float]:
    assert site.knots is not None
    present, own = ~np.isnan(column), np.array(site.knots)
    levels = np.linspace(0, 1, count)[1:-1]
    wanted = (weighted_quantile(column[present], weights[present], levels) - site.shift) / site.scale
    nearest = np.abs(own[None, :] - np.asarray(wanted)[:, None]).argmin(axis=1)
    return own[np.unique([0, *nearest, len(own) - 1])].tolist()


def line_view(sites: Sequence[Site], *, constant: bool, furthest: float = np.inf) -> View:
    """The standardised number of each column, where ``constant`` beside a 1; states of their own stay as they are.

    Beyond ±``furthest`` a line is flat, which bounds the products of many columns.
    """
    matrices = []
    for site in sites:
        if site.knots is None:
            matrices.append(torch.eye(site.width, dtype=torch.float64))
            continue
        line = torch.tensor(site.values, dtype=torch.float64)[:, None].clamp(-furthest, furthest)
        line = torch.cat([torch.ones_like(line), line], dim=1) if constant else line
        matrices.append(torch.block_diag(line, torch.eye(site.width - len(site.knots), dtype=torch.float64)))
    return View("lines", tuple(matrices))


def centred(view: View, states: Sequence[Tensor], weights: np.ndarray) -> View:
    """The view with a mean of 0 over rows. States sum to one, so that this is another matrix."""
    pairs = zip(view.matrices, states, strict=True)
    return View(view.name, tuple(_centred(matrix, rows, weights) for matrix, rows in pairs))


def _centred(matrix: Tensor, rows: Tensor, weights: np.ndarray) -> Tensor:
    mean = torch.from_numpy(weights / weights.sum()) @ rows @ matrix
    return matrix - mean


@torch.no_grad()
def rewritten(module: ResTT, view: View, widths: Sequence[int], bond_dim: int) -> ResTT:
    """Runs of a residual train over a view as runs over all site vectors, of these widths, padded to ``bond_dim``.

    A site that is not in the view passes the state on. The view's first and last sites are those of the whole.
    """
    runs = 1 if module.runs is None else module.runs
    wide = ResTT(
        len(widths),
        list(widths),
        bond_dim,
        module.outputs,
        bias=True,
        runs=runs,
        dtype=torch.float64,
    )
    for parameter in wide.parameters():
        parameter.zero_()
    for role in ROLES:
        weights = getattr(module, role)
        if weights is None:
            continue
        weights = weights.detach().double().cpu()
        weights = weights[None] if module.runs is None else weights
        into = getattr(wide, role)
        for place, site in _sites_of(role, module.sites):
            matrix = view.matrices[site]
            own = weights if place is None else weights[:, place]
            target = into if place is None else into[:, view.sites[site] - 1]
            if role == "last_skip":
                value = own
            else:
                value = torch.einsum("ij,sj...->si...", matrix, own[:, : matrix.shape[1]])
            target[tuple(slice(size) for size in value.shape)] = value
    if module.bias is not None:
        assert wide.bias is not None
        wide.bias.copy_(module.bias.detach().double().cpu().reshape(wide.bias.shape))
    return wide


def _sites_of(role: str, sites: int) -> list[tuple[int | None, int]]:
    """Place along the role's own axis of sites, where it has one, and the site there."""
    if role in _INNER:
        return [(site - 1, site) for site in range(1, sites - 1)]
    return [(None, 0 if role == "first" else sites - 1)]
