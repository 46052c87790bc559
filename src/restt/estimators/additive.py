"""Candidate models of classes without interactions: penalised logistic regressions on functions of single columns.

* *lines*: straight lines, the plain regression;
* *curves*: what a prior that is learned from the fold's rows says of single columns, a generalised additive model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from restt.estimators.candidates import ClassRows, Member
from restt.estimators.views import View, whole_view
from restt.module import ResTT
from restt.prior.classes import Axes, class_mode
from restt.prior.learning import Prior

LOGISTIC_PENALTIES = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001)
# Singular values below this share of the largest, and variances below this one, are as good as 0.
_SMALLEST_SHARE, _SMALLEST_SPREAD = 1e-12, 1e-12


@dataclass(frozen=True, eq=False)
class Sums:
    """Logistic regressions on a view of the columns, one view per fold."""

    name: str
    penalties: tuple[float, ...]
    rows: ClassRows
    views: tuple[View, ...]
    slopes: np.ndarray  # (P, folds, ΣJ, K)
    constants: np.ndarray  # (P, folds, K)
    held_out: np.ndarray  # (P, B, K)

    @property
    def names(self) -> list[str]:
        return [f"{self.name}, penalty {penalty:g}" for penalty in self.penalties]

    @torch.no_grad()
    def members(self, shares: np.ndarray) -> list[Member]:  # (P,)
        """One train with the mean of the regressions, whose bond is the rank of its slopes: K at most."""
        total = float(shares.sum())
        if total == 0:
            return []
        share = shares / total
        means = (torch.from_numpy(np.tensordot(share, slopes, 1)) for slopes in self.slopes.swapaxes(0, 1))
        slopes = torch.stack([_over_states(view, mean) for view, mean in zip(self.views, means, strict=True)]).mean(0)
        constant = np.einsum("p,pfk->k", share, self.constants) / len(self.views)
        whole = whole_view(self.rows.sites)
        return [Member(_train_of_sums(whole.widths, slopes, torch.from_numpy(constant)), whole, total)]


def _over_states(view: View, slopes: Tensor) -> Tensor:  # (ΣJ, K) -> (ΣI, K)
    """Slopes over a view as slopes over the states, site by site: together their matrices are nearly all zeros."""
    parts = zip(view.matrices, slopes.split(list(view.widths)), strict=True)
    return torch.cat([matrix @ part for matrix, part in parts])


def _train_of_sums(
    widths: Sequence[int],
    slopes: Tensor,  # (ΣI, K)
    constant: Tensor,  # (K,)
) -> ResTT:
    """The residual train Σ_n x_n · slopes_n + constant: linear entries and skips."""
    left, sizes, basis = torch.linalg.svd(slopes, full_matrices=False)
    bond = max(1, int((sizes > _SMALLEST_SHARE * sizes[0]).sum()))
    carried, basis = (left * sizes)[:, :bond], basis[:bond]
    sites, classes = len(widths), len(constant)
    module = ResTT(sites, widths, bond, classes, bias=True, runs=1, dtype=torch.float64)
    for parameter in module.parameters():
        parameter.zero_()
    into_bond, into_classes = (
        [torch.nn.functional.pad(part, (0, 0, 0, max(widths) - len(part))) for part in rows.split(list(widths))]
        for rows in (carried, slopes)
    )
    if sites == 1:
        module.first[0] = into_classes[0]
    else:
        assert module.last_linear is not None
        assert module.last_skip is not None
        module.first[0] = into_bond[0]
        module.last_linear[0] = into_classes[-1]
        module.last_skip[0] = basis
    if sites > 2:
        assert module.linear is not None
        module.linear[0] = torch.stack(into_bond[1:-1])
    assert module.bias is not None
    module.bias.copy_(constant.expand_as(module.bias))
    return module


def line_candidates(rows: ClassRows, view: View) -> Sums:
    """Logistic regressions on a view under each of :data:`LOGISTIC_PENALTIES`."""
    axes = Axes.of_features(view.columns(rows.states).numpy())
    return _sums("logistic", LOGISTIC_PENALTIES, rows, [view] * len(rows.parts), [axes] * len(rows.parts))


def curve_candidates(rows: ClassRows, priors: Sequence[Prior], penalties: Sequence[float]) -> Sums:
    """The same on the functions of single columns that each fold's prior expects."""
    views = [_curves(prior, rows) for prior in priors]
    axes = [Axes.of_features(view.columns(rows.states).numpy()) for view in views]
    return _sums("curves", tuple(penalties), rows, views, axes)


def _curves(prior: Prior, rows: ClassRows) -> View:
    """A view in which weights of variance 1 make the prior's functions of one column each, of variance 1 together."""
    roots = []
    for site, kernel, values in zip(rows.sites, prior.kernels, prior.parts, strict=True):
        squares, vectors = torch.linalg.eigh(kernel.cross(torch.eye(site.width, dtype=torch.float64), values))
        roots.append(vectors * squares.clamp(min=0).sqrt())
    spread = float(View("", tuple(roots)).columns(rows.states).square().sum(dim=1).mean())
    return View("curves", tuple(root / max(spread, _SMALLEST_SPREAD) ** 0.5 for root in roots))


def _sums(
    name: str, penalties: tuple[float, ...], rows: ClassRows, views: Sequence[View], axes: Sequence[Axes]
) -> Sums:
    slopes, constants, said = [], [], []
    for part, own in zip(rows.parts, axes, strict=True):
        modes = path(rows, own, part, penalties)
        slopes.append(own.directions @ modes[:, :-1])
        constants.append(modes[:, -1])
        said.append(own.values @ modes[:, :-1] + modes[:, -1:])
    held_out = np.stack([rows.held_out(one) for one in np.stack(said, axis=1)])
    return Sums(name, penalties, rows, tuple(views), np.stack(slopes, axis=1), np.stack(constants, axis=1), held_out)


def path(rows: ClassRows, axes: Axes, part: np.ndarray, penalties: Sequence[float]) -> np.ndarray:  # (P, M + 1, K)
    """The modes of one fold, each from the one before."""
    weights, mode, found = np.zeros(len(rows)), None, []
    weights[part] = rows.weights[part]
    for penalty in penalties:
        mode = class_mode(axes, rows.numbers, weights, rows.classes, penalty, mode)
        found.append(mode)
    return np.stack(found)
