"""A Gaussian process with fitted hyper-parameters, conditioned on rows: mean, variance, and its mean as products.

On the CPU Cholesky factors are LAPACK's, as scipy brings it, in a matrix's own memory: half of the matrix is read and
written, and nothing is copied. torch's own functions, which do the work on other devices, take twice as long there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from scipy.linalg import cython_lapack
from torch import Tensor

from restt.prior.kernel import Kernel
from restt.prior.pairs import Rows, Tables, covariance
from restt.prior.settings import TERMS, Component, Settings

# Tried in turn on the diagonal, relative to its mean, until the covariance has a Cholesky factor.
_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4)
_ROWS_AT_ONCE = 2048

Product = Sequence[Tensor]  # N of (A, I_n): site vectors of A products over columns
# What LAPACK calls the upper half of a matrix stored by columns is the lower half of one stored by rows.
_HALF = b"U"


@dataclass(frozen=True, eq=False)
class Data:
    """Rows that an objective is of."""

    rows: Rows
    z: Tensor  # (B, O): robustly standardised targets
    weights: Tensor  # (B,)
    precision: Tensor  # (B,): of the noise, relative to that of a row of weight 1
    level: Tensor  # (B,): leave-one-out predictions on which the noise may depend

    def take(self, rows: Tensor | slice) -> Data:
        """Some of the rows."""
        parts = (part[rows] for part in (self.z, self.weights, self.precision, self.level))
        return Data(self.rows.take(rows), *parts)


def log_noise(h: dict[str, Tensor], features: Tensor, level: Tensor) -> Tensor:  # (B, K), (B,) -> (B,)
    """Log variance of the noise of rows, within ``Settings.NOISE_RANGE`` of the common one.

    Without bounds, a region where y and its noise are both large would hardly count in the mean of a skewed y.
    """
    slope = features @ h["number.noise"] + h["noise_mean"] * level.clamp(-Settings.NOISE_END, Settings.NOISE_END)
    return h["noise"] + Settings.NOISE_RANGE * torch.tanh(slope / Settings.NOISE_RANGE)


def term_mask(component: Component, like: Tensor) -> Tensor:  # (4,)
    """1 for terms of the kernel that the component has."""
    return torch.tensor([float(name in component.terms) for name in TERMS], dtype=like.dtype, device=like.device)


@dataclass(frozen=True, eq=False)
class Process:
    """A prior over functions: a kernel with its hyper-parameters, and the noise."""

    kernel: Kernel
    theta: Tensor
    component: Component
    settings: Settings
    factor: float = 1.0  # of the kernel without its constant

    @cached_property
    def _tables(self) -> tuple[list[Tensor], Tensor]:
        with torch.no_grad():
            tables, scale = self.kernel.tables_with_average(self.theta)
            return tables, self.factor * scale * term_mask(self.component, scale)

    @cached_property
    def _in_one(self) -> Tables:
        return Tables.of(self.tables)

    @property
    def tables(self) -> list[Tensor]:  # N of (I_n + 1, I_n + 1, 4)
        """The kernel's tables over states, the average of the states last."""
        return self._tables[0]

    @property
    def scale(self) -> Tensor:  # (4,)
        """Scales of the four terms."""
        return self._tables[1]

    def covariance(self, rows: Rows, others: Rows | None = None, half: bool = False) -> Tensor:  # (B, B2)
        """The kernel between rows, see :func:`restt.prior.pairs.covariance`."""
        return covariance(self._in_one, self.scale, rows, others, half).add_(self.settings.constant)

    def variance(self, rows: Rows) -> Tensor:  # (B,)
        """The kernel of each row with itself; a level that the fit did not see is as far from the average as others."""
        parts = []
        for n, table in enumerate(self.tables):
            diagonal = _with_unseen(table, self.kernel.means[n])
            code, share = rows.code[:, n].long(), rows.share[:, n, None]
            after = (code + 1).clamp(max=len(table) - 1)
            between = (1 - share) ** 2 * diagonal[code] + share**2 * diagonal[after]
            parts.append(between + 2 * share * (1 - share) * table[code, after])
        factors = torch.stack(parts)  # (N, B, 4)
        total = factors[..., :3].prod(0) @ self.scale[:3] + factors[..., 3].sum(0) * self.scale[3]
        return total + self.settings.constant

    def noise(self, rows: Rows, level: Tensor) -> Tensor:  # (B,), (B,) -> (B,)
        """Variance of the noise of rows of weight 1 whose predictions are these."""
        h = self.kernel.layout.split(self.theta)
        return log_noise(h, self.kernel.noise_features(rows), level).exp() + self.settings.least_noise


def _with_unseen(table: Tensor, mean: Tensor) -> Tensor:  # (I + 1, I + 1, 4), (I,) -> (I + 1, 4)
    diagonal = table.diagonal().T.clone()
    diagonal[-1] = mean @ diagonal[:-1]
    return diagonal


@dataclass(frozen=True, eq=False)
class Posterior:
    """A process conditioned on rows."""

    process: Process
    rows: Rows
    alpha: Tensor  # (B, O): A⁻¹ t
    loo_mean: Tensor  # (B, O): leave-one-out means; empty where they were not found
    loo_variance: Tensor  # (B,): of an observation of weight 1 there

    def mean(self, rows: Rows) -> Tensor:  # (B2, O)
        """The posterior mean of rows."""
        parts = [rows.take(slice(start, start + _ROWS_AT_ONCE)) for start in range(0, len(rows), _ROWS_AT_ONCE)]
        return torch.cat([self.process.covariance(part, self.rows) @ self.alpha for part in parts])

    def products(self) -> tuple[Tensor, list[Tensor]]:  # (J, O), N of (J, I_n)
        """Coefficients and factors of the mean as a sum of products over sites, less its :meth:`effects`.

        One product a row and term of the kernel; the constant is one more.
        """
        terms = [k for k in range(3) if float(self.process.scale[k]) > 0]
        tables = self.process.tables
        coefficients = [float(self.process.scale[k]) * self.alpha for k in terms]
        coefficients.append(self.process.settings.constant * self.alpha.sum(0, keepdim=True))
        factors = []
        for n, table in enumerate(tables):
            states = self.rows.vectors(n, len(table))  # (B, I + 1)
            parts = [states @ table[:, :-1, k] for k in terms]
            factors.append(torch.cat([*parts, table.new_ones(1, len(table) - 1)]))
        return torch.cat(coefficients), factors

    def effects(self) -> list[Tensor]:  # N of (O, I_n)
        """The main effects of the kernel's sum."""
        size = float(self.process.scale[3])
        return [
            size * self.alpha.T @ (self.rows.vectors(n, len(table)) @ table[:, :-1, 3])
            for n, table in enumerate(self.process.tables)
        ]


def cholesky(matrix: Tensor, diagonal: Tensor) -> Tensor:  # (B, B), (B,) -> (B, B)
    """The factor of the matrix, whose diagonal this is added to: its lower half, the upper one may be anything."""
    matrix.diagonal().add_(diagonal)
    size, before = float(matrix.diagonal().mean()), 0.0
    for jitter in _JITTERS:
        matrix.diagonal().add_((jitter - before) * size)
        before = jitter
        with suppress(torch.linalg.LinAlgError):
            return factorise(matrix.clone())
    raise ValueError("the covariance of the rows has no Cholesky factor: are there values of extreme size?")


@torch.no_grad()
def condition(process: Process, data: Data, targets: Tensor) -> Posterior:  # (B, O)
    """The posterior given rows, and leave-one-out predictions of them.

    With A = K + noise, a row left out is predicted by t_i - (A⁻¹t)_i/(A⁻¹)_ii with variance 1/(A⁻¹)_ii.
    """
    noise = process.noise(data.rows, data.level)
    own = noise / (data.weights * data.precision)
    lower = cholesky(process.covariance(data.rows, half=True), own)
    # Not inverse @ targets, whose error is that of the inverse times the covariance: too much without noise.
    alpha = solve(lower, targets)
    diagonal = inverse_diagonal(lower)
    variance = (1 / diagonal - own).clamp(min=0) + noise
    return Posterior(process, data.rows, alpha, targets - alpha / diagonal[:, None], variance)


@torch.no_grad()
def condition_iteratively(
    process: Process, inducing: Rows, data: Data, targets: Tensor, held: int, tolerance: float, steps: int
) -> tuple[Posterior, Tensor]:
    """The posterior given many rows, and predictions (H, O) of the last ``held`` rows from all others.

    Both by conjugate gradients on the covariance of the rows in float32. The residual of A α = t is the error of the
    mean at the rows that the next step would mend: they stop when its root mean square is below ``tolerance`` standard
    deviations of the noise. The preconditioner is (D + VᵀV)⁻¹ with V = L⁻¹ K_ZX of inducing rows Z.
    """
    rows = len(targets)
    matrix = torch.empty(rows, rows, dtype=torch.float32, device=targets.device)
    for start in range(0, rows, _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        matrix[part] = process.covariance(data.rows.take(part), data.rows)
    # Rounding to float32 moves eigenvalues by about as much: with less noise some could be negative.
    least = 2 * torch.finfo(matrix.dtype).eps * float(matrix.diagonal().mean()) * rows**0.5
    noise = process.noise(data.rows, data.level).clamp(min=least)
    own = (noise / (data.weights * data.precision)).clamp(min=least)
    base = process.covariance(inducing)
    lower = cholesky(base, base.diagonal() * 1e-6)
    root = torch.linalg.solve_triangular(lower, process.covariance(inducing, data.rows), upper=False)  # (J, B)

    def product(x: Tensor) -> Tensor:  # (B, O)
        return (matrix @ x.float()).double()

    def solve(alpha: Tensor, kept: Tensor) -> Tensor:  # (B, O), (B,) of 0 and 1
        trust = kept / own
        inner = cholesky((root * trust) @ root.T, torch.ones_like(base[:, 0]))
        residual = kept[:, None] * (targets - product(alpha) - own[:, None] * alpha)
        direction, size = torch.zeros_like(alpha), torch.ones_like(alpha[0])
        for _ in range(steps):
            if bool((residual.square() / noise[:, None]).sum() <= tolerance**2 * kept.sum() * alpha.shape[1]):
                break
            solved = residual * trust[:, None]
            solved = solved - trust[:, None] * (root.T @ torch.cholesky_solve(root @ solved, inner))
            before, size = size, (residual * solved).sum(0)
            direction = solved + size / before.clamp(min=1e-300) * direction
            image = kept[:, None] * product(direction) + own[:, None] * direction
            step = size / (direction * image).sum(0).clamp(min=1e-300)
            alpha, residual = alpha + step * direction, residual - step * image
        return alpha

    kept = torch.ones_like(own)
    kept[rows - held :] = 0
    alpha = solve(torch.zeros_like(targets), kept)
    predicted = product(alpha)[rows - held :]
    alpha = solve(alpha, torch.ones_like(own))
    return Posterior(process, data.rows, alpha, targets[:0], own[:0]), predicted


def product_covariance(process: Process, left: Product, right: Product) -> Tensor:  # (A, B)
    """Prior covariance of products of site vectors."""
    scale, found = process.scale, left[0].new_ones(3, len(left[0]), len(right[0]))
    for table, ours, theirs in zip(process.tables, left, right, strict=True):
        found = found * (ours @ table[:-1, :-1, :3].permute(2, 0, 1) @ theirs.T)
    # A main effect is that of one column times the sums of the other vectors.
    mass, alone = _alone(left)
    their_mass, theirs_alone = _alone(right)
    slopes = [vectors @ table[:-1, :-1, 3] for vectors, table in zip(alone, process.tables, strict=True)]
    additive = scale[3] * torch.cat(slopes, 1) @ torch.cat(theirs_alone, 1).T
    return torch.tensordot(scale[:3], found, 1) + additive + process.settings.constant * torch.outer(mass, their_mass)


def _alone(vectors: Product) -> tuple[Tensor, list[Tensor]]:
    """The product of all vectors' sums (A,), and each vector times the sums of the others."""
    sums = [one.sum(1) for one in vectors]
    others = without_each(sums)
    return others[0] * sums[0], [one * other[:, None] for one, other in zip(vectors, others, strict=True)]


def without_each(factors: Sequence[Tensor]) -> list[Tensor]:
    """The product of all factors but each one, without a division.

    >>> [int(each) for each in without_each([torch.tensor(2), torch.tensor(0), torch.tensor(5)])]
    [0, 10, 0]
    """
    after = [torch.ones_like(factors[-1])]
    for factor in reversed(factors[1:]):
        after.append(after[-1] * factor)
    before, found = torch.ones_like(factors[0]), []
    for factor, behind in zip(factors, reversed(after), strict=True):
        found.append(before * behind)
        before = before * factor
    return found


def factorise(matrix: Tensor) -> Tensor:  # (B, B)
    """The factor L, L Lᵀ the matrix, whose lower half is read; LinAlgError where there is none.

    On the CPU it takes the place of the lower half, and the upper one stays as it is.
    """
    if matrix.device.type != "cpu":
        return torch.linalg.cholesky(matrix)
    if _lapack("dpotrf", _HALF, len(matrix), matrix, len(matrix)):
        raise torch.linalg.LinAlgError("the matrix has no Cholesky factor")
    return matrix


def solve(lower: Tensor, right: Tensor) -> Tensor:  # (B, B), (B, O) -> (B, O)
    """The solution x of L Lᵀ x = right."""
    if lower.device.type != "cpu":
        return torch.cholesky_solve(right, lower)
    solved = right.T.clone(memory_format=torch.contiguous_format)  # by columns
    _lapack("dpotrs", _HALF, len(lower), len(solved), lower, len(lower), solved, len(lower))
    return solved.T


def invert(lower: Tensor) -> Tensor:  # (B, B)
    """The lower half of (L Lᵀ)⁻¹, on the CPU in the place of L."""
    if lower.device.type != "cpu":
        return torch.cholesky_inverse(lower)
    _lapack("dpotri", _HALF, len(lower), lower, len(lower))
    return lower


def inverse_diagonal(lower: Tensor) -> Tensor:  # (B, B) -> (B,)
    """The diagonal of (L Lᵀ)⁻¹; on the CPU L is lost."""
    if lower.device.type != "cpu":
        return torch.cholesky_inverse(lower).diagonal()
    _lapack("dtrtri", _HALF, b"N", len(lower), lower, len(lower))
    return lower.tril_().square_().sum(0)


def _lapack(name: str, *arguments: bytes | int | Tensor) -> int:
    """LAPACK's ``info``: 0 where all went well."""
    info = ctypes.c_int()
    given = [
        ctypes.c_void_p(one.data_ptr())
        if isinstance(one, Tensor)
        else ctypes.c_char_p(one)
        if isinstance(one, bytes)
        else ctypes.byref(ctypes.c_int(one))
        for one in arguments
    ]
    _routine(name)(*given, ctypes.byref(info))
    return info.value


@cache
def _routine(name: str) -> Any:
    """LAPACK's function; Python's lock is free while it runs."""
    capsule, api = cython_lapack.__pyx_capi__[name], ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None)(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))
