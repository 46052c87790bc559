"""Candidate models of classes without interactions: logistic regressions on straight lines, and the classes' shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from restt.estimators.candidates import ClassRows, Member
from restt.estimators.views import View, whole_view
from restt.module import ResTT
from restt.prior.softmax import Axes, class_mode

# Singular values below this share of the largest are as good as 0.
_SMALLEST_SHARE = 1e-12


@dataclass(frozen=True, eq=False)
class Logistic:
    """Logistic regressions on a view of the columns."""

    rows: ClassRows
    view: View
    slopes: np.ndarray  # (P, folds, ΣJ, K)
    constants: np.ndarray  # (P, folds, K)
    held_out: np.ndarray  # (P, B, K)

    @property
    def names(self) -> list[str]:
        return [f"logistic, penalty {penalty:g}" for penalty in self.rows.settings.logistic_penalties]

    @torch.no_grad()
    def members(self, shares: np.ndarray) -> list[Member]:  # (P,)
        """One train with the mean of the regressions, whose bond is the rank of its slopes: K at most."""
        total = float(shares.sum())
        if total == 0:
            return []
        share = shares / total
        slopes = _over_states(self.view, torch.from_numpy(np.tensordot(share, self.slopes.mean(1), 1)))
        constant = share @ self.constants.mean(1)
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


@dataclass(frozen=True, eq=False)
class Shares:
    """The logits of the classes' shares, which no column changes: what an average shrinks to."""

    rows: ClassRows
    held_out: np.ndarray  # (1, B, K)
    names: tuple[str, ...] = ("shares",)

    @classmethod
    def of(cls, rows: ClassRows) -> Shares:
        """Shares of the rows outside each fold, every class with one row more in all than it has."""
        logits = []
        for part in rows.parts:
            counts = np.bincount(rows.numbers[part], rows.weights[part], minlength=rows.classes) + 1 / rows.classes
            logits.append(np.broadcast_to(np.log(counts / counts.sum()), (len(rows), rows.classes)))
        return cls(rows, rows.held_out(np.stack(logits))[None])

    @torch.no_grad()
    def members(self, shares: np.ndarray) -> list[Member]:  # (1,)
        """A train of nothing but a bias."""
        if not shares.any():
            return []
        whole, constant = whole_view(self.rows.sites), torch.from_numpy(self.rows.bias).double()
        slopes = torch.zeros(sum(whole.widths), len(constant), dtype=torch.float64)
        return [Member(_train_of_sums(whole.widths, slopes, constant), whole, float(shares[0]))]


def logistic_candidates(rows: ClassRows, view: View) -> Logistic:
    """Logistic regressions on a view under each of the settings' penalties."""
    axes = Axes.of_features(view.columns(rows.states).numpy())
    modes = np.stack([path(rows, axes, part, rows.settings.logistic_penalties) for part in rows.parts], axis=1)
    logits = axes.values @ modes[..., :-1, :] + modes[..., -1:, :]  # (P, F, B, K)
    held_out = np.stack([rows.held_out(one) for one in logits])
    return Logistic(rows, view, axes.directions @ modes[..., :-1, :], modes[..., -1, :], held_out)


def path(rows: ClassRows, axes: Axes, part: np.ndarray, penalties: Sequence[float]) -> np.ndarray:  # (P, M + 1, K)
    """The modes of one fold, each from the one before."""
    weights, mode, found = np.zeros(len(rows)), None, []
    weights[part] = rows.weights[part]
    for penalty in penalties:
        mode = class_mode(axes, rows.numbers, weights, rows.classes, penalty, mode)
        found.append(mode)
    return np.stack(found)
