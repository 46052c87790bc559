"""Laplace posteriors of classifiers' logits under the softmax likelihood, averaged.

Logits of K classes sum to 0 in every row: f = Bᵀ g with an orthonormal basis B (K - 1, K) and K - 1 independent
processes g of covariance κ. At the mode of rows Z with weights w and probabilities p the curvature of the loss is
block diagonal, G_i = w_i B (diag p_i - p_i p_iᵀ) Bᵀ, so that the posterior covariance of g is

    κ(x, x') 1 - (k_Z ⊗ 1)ᵀ WᵀW (k'_Z ⊗ 1),      W = L⁻¹ G^½,      L Lᵀ = 1 + G^½ (K_ZZ ⊗ 1) G^½

(Rasmussen and Williams 2006, sections 3.4 and 3.5; the classes coupled). An output of coefficients b, a class's logit
or the log-odds of two, is b·g: its prior covariance is |b|² κ, and W (1 ⊗ b)/|b|² is the root of what rows take away.

Of many rows X the first ones are inducing rows Z: with K_XZ K_ZZ⁻¹ K_ZX in the place of their covariance, and
W = L⁻¹ G^½ (K_XZ K_ZZ⁻¹ ⊗ 1) over Z, which loses what X say beyond Z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.linalg import helmert
from torch import Tensor

from restt.prior.gp import Process, cholesky
from restt.prior.kernel import Kernel
from restt.prior.mixture import Conditioned
from restt.prior.settings import Component, Settings
from restt.prior.sites import Site, rows_of

# Variance of the constant of each contrast. A fit has no prior of it; this one is as good as none.
CONSTANT = 100.0
# Rows of a posterior times the contrasts, inducing rows, and numbers of a file (1.5 MB): limits of time and memory.
MOST_UNKNOWNS, MOST_INDUCING, MOST_NUMBERS = 2304, 768, 140_000
# On the diagonal of a kernel that logits are interpolated with, relative to it: they are of float32.
_NUGGET = 1e-10
_ARRAYS = ("factors", "weights", "table", "row_weights", "logits")


def kept_rows(rows: int, columns: int, classes: int, members: int) -> int:
    """Number of rows that a posterior is kept on.

    >>> kept_rows(350, 13, 2, 3), kept_rows(5000, 13, 2, 3), kept_rows(5000, 13, 26, 3)
    (350, 2304, 92)
    """
    return max(1, min(rows, MOST_UNKNOWNS // (classes - 1), MOST_NUMBERS // (columns + members * classes)))


@dataclass(frozen=True, eq=False)
class Mode:
    """A member of an average of classifiers: a process times a factor, and the logits of its mode at the first rows."""

    process: Process
    weight: float
    factor: float
    logits: np.ndarray  # (B, K)


@dataclass(frozen=True, eq=False)
class LogitPosterior:
    """Modes of averaged processes at rows, from which all else follows when it is first asked for.

    Of more rows than ``kept_rows``, a random sample, each counts as so many more.
    """

    kernel: Kernel
    thetas: Tensor  # (S, T)
    components: tuple[Component, ...]  # S
    factors: np.ndarray  # (S,): of the kernel
    weights: np.ndarray  # (S,), of sum 1
    share: float  # of these members in the average; the rest are trained
    table: np.ndarray  # (B, C)
    row_weights: np.ndarray  # (B,)
    logits: np.ndarray  # (S, B, K)

    @classmethod
    def of(cls, modes: Sequence[Mode], table: np.ndarray, weights: np.ndarray) -> LogitPosterior | None:
        """The posterior of modes given rows (B, C) and their weights (B,).

        Rows are in a random order after one of every class; None where classes are more than rows that may be kept.
        """
        kernel, shares = modes[0].process.kernel, np.array([mode.weight for mode in modes])
        classes = modes[0].logits.shape[1]
        kept = kept_rows(len(table), table.shape[1], classes, len(modes))
        if kept < classes:
            return None
        return cls(
            kernel,
            torch.stack([mode.process.theta for mode in modes]),
            tuple(mode.process.component for mode in modes),
            np.array([mode.factor for mode in modes]),
            shares / shares.sum(),
            round(float(shares.sum()), 9),  # without trains it is 1, whatever rounding says
            table[:kept],
            weights[:kept] * (weights.sum() / weights[:kept].sum()),
            np.stack([mode.logits[:kept] for mode in modes]),
        )

    @property
    def classes(self) -> int:
        """K."""
        return self.logits.shape[2]

    @property
    def numbers(self) -> np.ndarray:  # (M, C)
        """The inducing rows."""
        return self.table[:MOST_INDUCING]

    @cached_property
    def basis(self) -> Tensor:  # (K - 1, K)
        """Orthonormal contrasts of the classes."""
        return torch.from_numpy(helmert(self.classes))

    @cached_property
    def readouts(self) -> Tensor:  # (D, K - 1)
        """The outputs as sums of contrasts: of two classes the second's log-odds."""
        return (self.basis[:, 1] - self.basis[:, 0])[None] if self.classes == 2 else self.basis.T.contiguous()

    @cached_property
    def contrasts(self) -> Conditioned:
        """The posterior of all contrasts together: roots (R, M·(K - 1)) and means (M·(K - 1), 1)."""
        roots, means = zip(*(self._solved(member) for member in range(len(self.weights))), strict=True)
        return self._conditioned(1.0, roots, means)

    @cached_property
    def outputs(self) -> tuple[Conditioned, ...]:  # D
        """The posterior of each output by itself."""
        found, count = [], len(self.basis)
        for b in self.readouts:
            size = float(b @ b)
            roots = tuple(root.unflatten(1, (-1, count)) @ b / size for root in self.contrasts.roots)
            if count > 1:  # as many rows as columns are enough
                roots = tuple(torch.linalg.qr(root, mode="r").R for root in roots)
            means = tuple(mean.reshape(-1, count) @ b[:, None] / size for mean in self.contrasts.means)
            found.append(self._conditioned(size, roots, means))
        return tuple(found)

    def _conditioned(self, size: float, roots: tuple[Tensor, ...], means: tuple[Tensor, ...]) -> Conditioned:
        processes = tuple(self._process(member, size) for member in range(len(self.weights)))
        return Conditioned(self.kernel, self.weights, self.numbers, processes, roots, means, self.share)

    def _process(self, member: int, size: float) -> Process:
        """The prior of a contrast in a member, times a size."""
        settings = Settings(constant=size * CONSTANT)
        factor = size * float(self.factors[member])
        return Process(self.kernel, self.thetas[member], self.components[member], settings, factor)

    @torch.no_grad()
    def _solved(self, member: int) -> tuple[Tensor, Tensor]:  # (M·(K - 1), M·(K - 1)), (M·(K - 1), 1)
        """The root W of the contrasts' variance, and weights of the rows in their means."""
        logits, rows = torch.from_numpy(self.logits[member]), rows_of(self.kernel.sites, self.table)
        count = len(self.numbers)
        cross = self._process(member, 1.0).covariance(rows, rows.take(slice(count)))  # (B, M)
        half = curvature_roots(logits, torch.from_numpy(self.row_weights), self.basis)  # (B, K - 1, K - 1)
        among = cholesky(cross[:count].clone(), _NUGGET * cross[:count].diagonal()).tril()
        mean = torch.cholesky_solve(logits[:count] @ self.basis.T, among).reshape(-1, 1)
        is_whole, covariance, carried = count == len(rows), cross, torch.eye(count, dtype=torch.float64)
        if not is_whole:
            seen = torch.linalg.solve_triangular(among, cross.T, upper=False)
            covariance, carried = seen.T @ seen, torch.cholesky_solve(cross.T, among).T
        inner = torch.einsum("ihj,ik,kjl->ihkl", half, covariance, half).flatten(2).flatten(0, 1)
        lower = cholesky(inner, torch.ones_like(inner[0])).tril()
        image = torch.einsum("ihj,im->ihmj", half, carried).flatten(2).flatten(0, 1)
        root = torch.linalg.solve_triangular(lower, image, upper=False)
        return root if is_whole else torch.linalg.qr(root, mode="r").R, mean

    def to_config(self) -> dict[str, Any]:
        """Plain values; the arrays are in :meth:`tensors`."""
        return {
            "sites": [site.to_config() for site in self.kernel.sites],
            "components": [{"name": one.name, "terms": list(one.terms)} for one in self.components],
            "share": self.share,
        }

    def tensors(self) -> dict[str, Tensor]:
        """The arrays, for a safetensors file; moments of neighbouring states, since a number is between two."""
        found = {name: torch.from_numpy(np.ascontiguousarray(getattr(self, name))) for name in _ARRAYS}
        for n, (mean, moment) in enumerate(zip(self.kernel.means, self.kernel.moments, strict=True)):
            found |= {f"mean.{n}": mean.contiguous(), f"moment.{n}": moment.diagonal().clone()}
            found[f"beside.{n}"] = moment.diagonal(1).clone()
        return {**found, "thetas": self.thetas}

    @classmethod
    def from_config(cls, config: dict[str, Any], tensors: dict[str, Tensor]) -> LogitPosterior:
        """The posterior that :meth:`to_config` and :meth:`tensors` described; ValueError where they do not fit."""
        sites = [Site.from_config(site) for site in config["sites"]]
        arrays = {name: tensors[name].numpy() for name in _ARRAYS}
        members, rows, classes = arrays["logits"].shape
        if not (members and rows and classes > 1 and rows * (classes - 1) <= MOST_UNKNOWNS):
            raise ValueError(f"logits of {members} members, {rows} rows and {classes} classes are none of a posterior")
        means, moments = [tensors[f"mean.{n}"] for n in range(len(sites))], []
        for n, (site, mean) in enumerate(zip(sites, means, strict=True)):
            own, beside, width = tensors[f"moment.{n}"], tensors[f"beside.{n}"], site.width if site.knots else 0
            if mean.shape != (site.width,) or own.shape != (width,) or beside.shape != (max(width - 1, 0),):
                raise ValueError(f"column {n} has states of shapes {tuple(mean.shape)} and {tuple(own.shape)}")
            moment = torch.diag(own)
            if width:
                moment += torch.diag(beside, 1) + torch.diag(beside, -1)
            moments.append(moment)
        kernel = Kernel(sites, means, moments, 1 if classes == 2 else classes)
        shapes = {"factors": (members,), "weights": (members,), "table": (rows, len(sites)), "row_weights": (rows,)}
        for name, shape in shapes.items():
            if arrays[name].shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {arrays[name].shape}")
        if tensors["thetas"].shape != (members, len(kernel.layout.names)) or len(config["components"]) != members:
            raise ValueError(f"{members} members do not fit {tuple(tensors['thetas'].shape)} hyper-parameters")
        for name, array in {**arrays, "thetas": tensors["thetas"].numpy()}.items():
            if name != "table" and not np.isfinite(array).all():
                raise ValueError(f"{name} must be finite")
            if name in ("factors", "weights", "row_weights") and (array < 0).any():
                raise ValueError(f"{name} must not be below 0")
        share = float(config["share"])
        if not (0 < share <= 1 and abs(arrays["weights"].sum() - 1) < 1e-6):
            raise ValueError(f"members of share {share} have weights of sum {arrays['weights'].sum()}")
        components = tuple(Component(one["name"], tuple(one["terms"])) for one in config["components"])
        return cls(kernel, tensors["thetas"], components, **arrays, share=share)


def curvature_roots(logits: Tensor, weights: Tensor, basis: Tensor) -> Tensor:  # (M, K), (M,) -> (M, K - 1, K - 1)
    """Symmetric roots of the curvature of each row's loss in the contrasts."""
    p = logits.softmax(1)
    spread = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    values, vectors = torch.linalg.eigh(weights[:, None, None] * (basis @ spread @ basis.T))
    return (vectors * values.clamp(min=0).sqrt()[:, None]) @ vectors.mT
