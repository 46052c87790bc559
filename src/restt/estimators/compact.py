"""Rows of a table in little memory: one number for each column, from which site vectors are made batch by batch.

A site vector has at most two entries that are not 0, and they are neighbours: the knots beside a number, one level, or
the missing state. So one number p, its position among the states, describes it: state i has max(0, 1 - |i - p|). A
table is then (B, N) numbers in place of (B, N, I), and functions of a column that are given by their values in each
state are interpolated at p, whatever I is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from restt.estimators.encoding import Encoding
from restt.features import Hat
from restt.module import ResTT
from restt.prior import Predictive

# Rows whose positions are computed at once: their scratch is a few numbers for each column.
ROWS_AT_ONCE = 8192
# Functions of a column whose prior variance, against the constant's, is below this are left out.
LEAST_VARIANCE = 1e-7
_FLOOR = 1e-9


def state_positions(encoding: Encoding, numbers: Tensor) -> Tensor:  # (B, C) -> (B, N)
    """Return the position of each value among its site's states.

    ValueError for an encoding whose vectors are not of this form, and for a value that the fit had not seen.
    """
    hats = encoding.feature_map
    if not isinstance(hats, Hat) or hats.outside != "clamp":
        raise ValueError(f"rows have positions among hats that end at the outermost knots, got {hats!r}")
    order, categorical = list(encoding.order), encoding.categorical.to(numbers.device)
    shift, scale, fill = (values.to(numbers) for values in (encoding.shift, encoding.scale, encoding.fill))
    missing_states, limit = encoding.missing_states.to(numbers), torch.finfo(numbers.dtype).max
    positions = numbers.new_empty(len(numbers), len(order), dtype=torch.float32)
    for part, out in zip(numbers.split(ROWS_AT_ONCE), positions.split(ROWS_AT_ONCE), strict=True):
        x = part if encoding.in_order else part[:, order]
        missing = x.isnan()
        plain = not (encoding.holds_categories or bool(missing.any()))
        known = x if plain else torch.where(missing | categorical, fill, x)
        place = hats.positions(((known - shift) / scale).clamp(-limit, limit))
        out.copy_(place if plain else torch.where(missing, missing_states, torch.where(categorical, x, place)))
    if bool((positions < 0).any()):
        row, site = (positions < 0).nonzero()[0].tolist()
        raise ValueError(f"row {row} has a value in column {encoding.order[site]} that the fit has no state for")
    return positions


class Interpolated:
    """A feature map from positions (B, N) to the values (B, N, K) of functions given in each state."""

    def __init__(self, tables: Tensor) -> None:  # (N, I, K)
        sites, states, self.count = tables.shape
        # The value in a state and the rise to the next one side by side, so that they are read together.
        rises = torch.cat([tables[:, 1:] - tables[:, :-1], torch.zeros_like(tables[:, :1])], dim=1)
        self.lines = torch.cat([tables, rises], dim=2).flatten(0, 1)  # (N·I, 2 K)
        self._first = states * torch.arange(sites, device=tables.device)

    def __call__(self, positions: Tensor) -> Tensor:  # (B, N) -> (B, N, K)
        """Interpolate between two states."""
        below = positions.long()
        share = (positions - below).unsqueeze(-1).to(self.lines)
        lines = torch.nn.functional.embedding(below + self._first, self.lines)
        return torch.addcmul(lines[..., : self.count], share, lines[..., self.count :])


@dataclass(frozen=True, eq=False)
class Basis:
    """Functions of one column that take the place of its states: a site vector x becomes ``x @ values``.

    Weights w of states are weights ``back @ w`` of the functions, and those v are weights ``values @ v`` of states.
    """

    values: Tensor  # (I, K)
    back: Tensor  # (K, I)


def state_bases(encoding: Encoding) -> list[Basis]:
    """Return each site's states as its functions."""
    eyes = [torch.eye(width, dtype=torch.float64) for width in encoding.widths]
    return [Basis(eye, eye) for eye in eyes]


def prior_bases(predictive: Predictive, order: Sequence[int]) -> list[Basis]:
    """Principal functions of each site's column under the prior, in the order of the sites.

    With P the mean prior covariance of a function of the column and M the second moment of its site vectors, these are
    the principal functions of P under M: uncorrelated in the prior and over the rows, scaled by the prior's standard
    deviation. Weights of variance 1 are then a draw from the prior, a gradient step of one size suits all of them, and
    a column without relevance has next to none.
    """
    bases = []
    for n in order:
        kernel = predictive.kernel
        tables = [process.tables[n][:-1, :-1] for process in predictive.processes]  # (I, I, 4)
        mean = sum(
            float(share) * (1 + (table[..., 0] - 1) / 2 + (table[..., 1] - 1) / 2 + table[..., 3])
            for share, table in zip(predictive.weights, tables, strict=True)
        )
        assert isinstance(mean, Tensor)
        moment = kernel.moments[n] if kernel.sites[n].knots is not None else torch.diag(kernel.means[n])
        bases.append(_principal(mean, moment + _FLOOR * torch.eye(len(moment), dtype=torch.float64)))
    return bases


def _principal(covariance: Tensor, moment: Tensor) -> Basis:  # (I, I) each
    values, vectors = torch.linalg.eigh(moment)
    root, inverse = (vectors * values ** (sign / 2) @ vectors.T for sign in (1, -1))
    variances, directions = torch.linalg.eigh(root @ covariance @ root)
    variances, directions = variances.flip(0), directions.flip(1)
    keep = int((variances > LEAST_VARIANCE).sum())
    sizes, directions = variances[:keep].sqrt(), directions[:, :keep]
    return Basis(inverse @ directions * sizes, (directions / sizes).T @ root)


def interpolated(bases: Sequence[Basis], encoding: Encoding, like: Tensor) -> Interpolated:
    """Return the map from positions to functions of all sites, padded with 0 and centred where the encoding is."""
    tables = torch.zeros(len(bases), max(encoding.widths), max(basis.values.shape[1] for basis in bases)).double()
    for n, basis in enumerate(bases):
        width, count = basis.values.shape
        mean = 0.0 if encoding.means is None else encoding.means[n, :width] @ basis.values
        tables[n, :width, :count] = basis.values - mean
    return Interpolated(tables.to(like))


@torch.no_grad()
def change_basis(module: ResTT, changes: Sequence[Tensor], dtype: torch.dtype) -> ResTT:  # N of (new I_n, I_n)
    """Multiply every weight along its site's states; the module is linear in each site vector.

    With the bases' ``back`` it becomes a function of ``x @ values``, with their ``values`` one of x again.
    """
    changed = ResTT(
        module.sites,
        [len(change) for change in changes],
        module.bond_dim,
        module.outputs,
        topology=module.topology,
        bias=module.bias is not None,
        runs=module.runs,
        dtype=dtype,
    )
    for name, parameter in changed.named_parameters():
        given = module.get_parameter(name).detach().double().cpu()
        if name in ("bias", "last_skip"):
            parameter.copy_(given)
            continue
        inner = name in ("chain", "linear")
        sites = range(1, module.sites - 1) if inner else (0,) if name == "first" else (module.sites - 1,)
        parameter.zero_()
        for place, n in enumerate(sites):
            new, old = changes[n].shape
            target, source = (part[:, place] if inner else part for part in (parameter, given))  # (S, I, …)
            target[:, :new] = torch.einsum("ki,si...->sk...", changes[n], source[:, :old])
    return changed
