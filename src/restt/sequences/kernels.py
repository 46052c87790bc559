"""Volterra kernels by ridge regression over all products of lags, or as a train, core by core; and one as the other.

A series of order P over a window u of lags is a polynomial of degree P in u, and so a tensor over P copies of [1, u]:

    y(t) = h0 + Σ h1(τ) u(t-τ) + Σ h2(τ1, τ2) u(t-τ1) u(t-τ2) + …  =  Σ A(i1 … iP) ũ(i1) … ũ(iP),     ũ = [1, u]

A tensor train of A is the model; its kernels are A's slices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement, permutations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

# Penalties tried, as shares of the largest squared singular value; leave-one-out picks.
PENALTIES = np.logspace(-15, 1, 33)
# Singular values of the tensor below this share are rounding.
ROUNDING = 1e-12
# Below this penalty a core's normal equations could be singular to rounding.
LEAST_PENALTY = 1e-13
# A sweep over the cores that lowers the error by less than this share of it was the last.
LEAST_GAIN = 1e-4


def exact_kernels(
    windows: np.ndarray,  # (T, L)
    targets: np.ndarray,  # (T,)
    order: int,
    alpha: str | float,
) -> tuple[list[np.ndarray], float]:
    """Symmetric kernels of ridge regression over the products of up to ``order`` lags, and the penalty.

    A product of multiplicity m (its permutations) is weighed by √(m · binomial(order, degree)): the penalty is then the
    norm that the kernel (1 + u·u')^order has, the same for every permutation. h0 is free of it.
    """
    lags = windows.shape[1]
    multisets = [m for degree in range(1, order + 1) for m in combinations_with_replacement(range(lags), degree)]
    turned = [set(permutations(members)) for members in multisets]
    weights = np.sqrt([len(own) * math.comb(order, len(m)) for m, own in zip(multisets, turned, strict=True)])
    table = np.empty((len(windows), len(multisets)))
    for place, members in enumerate(multisets):
        table[:, place] = weights[place] * windows[:, members].prod(axis=1)
    means, level = table.mean(axis=0), targets.mean()
    u, s, v = np.linalg.svd(table - means, full_matrices=False)
    projected = u.T @ (targets - level)
    largest = float(s[0] ** 2) if len(s) and s[0] > 0 else 1.0
    choices = PENALTIES if alpha == "auto" else np.array([float(alpha)])
    errors = [leave_one_out(u, s, projected, targets - level, share * largest) for share in choices]
    chosen = float(choices[int(np.argmin(errors))])
    coefficients = v.T @ (_shrunk(s, chosen * largest) * projected)
    kernels = [np.array(level - means @ coefficients), *(np.zeros((lags,) * p) for p in range(1, order + 1))]
    for own, value in zip(turned, coefficients * weights, strict=True):
        for members in own:
            kernels[len(members)][members] = value / len(own)
    return kernels, chosen


def _shrunk(s: np.ndarray, penalty: float) -> np.ndarray:
    nonzero = s > max(s.max(initial=0.0), 1e-300) * np.finfo(float).eps * len(s)
    return np.where(nonzero, s / (np.where(nonzero, s, 1.0) ** 2 + penalty), 0.0)


def leave_one_out(u: np.ndarray, s: np.ndarray, projected: np.ndarray, targets: np.ndarray, penalty: float) -> float:
    """Mean squared error of each row predicted from all others, in closed form."""
    shares = s * _shrunk(s, penalty)
    leverage = (u**2) @ shares + 1 / len(targets)
    residual = targets - u @ (shares * projected)
    return float(np.mean((residual / np.maximum(1 - leverage, 1e-12)) ** 2))


def train_of_kernels(kernels: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A tensor train over [1, u] at each of ``order`` sites whose kernels these are: cores (left, 1+L, right)."""
    order = len(kernels) - 1
    lags = kernels[1].shape[0]
    rest = np.zeros((1 + lags,) * order)
    for place, degree in _slices(order):
        rest[place] = kernels[degree] / math.comb(order, degree)
    cores, left = [], 1
    for _ in range(order - 1):
        u, s, v = np.linalg.svd(rest.reshape(left * (1 + lags), -1), full_matrices=False)
        bond = max(1, int((s > ROUNDING * s[0]).sum()))
        cores.append(u[:, :bond].reshape(left, 1 + lags, bond))
        rest, left = s[:bond, None] * v[:bond], bond
    return [*cores, rest.reshape(left, 1 + lags, 1)]


def kernels_of_train(cores: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The symmetric kernels of a train over [1, u], index = order."""
    order, lags = len(cores), cores[0].shape[1] - 1
    tensor = np.ones((1, 1))
    for core in cores:
        tensor = np.einsum("pl,lir->pir", tensor, core).reshape(-1, core.shape[2])
    tensor = tensor.reshape((1 + lags,) * order)
    kernels = [np.zeros((lags,) * degree) for degree in range(order + 1)]
    for place, degree in _slices(order):
        kernels[degree] = kernels[degree] + tensor[place]
    turned = [[np.transpose(kernel, axes) for axes in permutations(range(kernel.ndim))] for kernel in kernels]
    return [np.asarray(sum(own) / len(own)) for own in turned]


def _slices(order: int) -> list[tuple[tuple[slice | int, ...], int]]:
    """Every slice of the tensor that some sites read lags in, the others 1; and how many sites these are."""
    chosen = [sites for degree in range(order + 1) for sites in combinations(range(order), degree)]
    return [(tuple(slice(1, None) if n in sites else 0 for n in range(order)), len(sites)) for sites in chosen]


def evaluate(cores: Sequence[np.ndarray], windows: np.ndarray) -> np.ndarray:  # (T, L) -> (T,)
    """The train at each window."""
    state = np.ones((len(windows), 1))
    for core in cores:
        outer = (state[:, :, None] * windows[:, None, :]).reshape(len(windows), -1)
        state = state @ core[:, 0] + outer @ core[:, 1:].reshape(-1, core.shape[2])
    return state[:, 0]


def fit_train(
    windows: np.ndarray,  # (T, L)
    targets: np.ndarray,  # (T,)
    order: int,
    bond: int,
    alpha: float,
    sweeps: int,
    rng: np.random.RandomState,
    *,
    residual: bool,
) -> list[np.ndarray]:  # P of (left, 1+L, right)
    """Alternating least squares: each core in turn solves its own ridge regression.

    A plain train keeps all other cores orthogonal. A residual one, y_n = y_{n-1} + Σ_i u_i (y_{n-1} W_{n,i}) + u U_n,
    is with state [y, 1] a plain train of bond r + 1 whose constant slices are identities (:meth:`restt.ResTT.cores`):
    only W and U are solved for, and the whole last core.
    """
    features = np.concatenate([np.ones((len(windows), 1)), windows], axis=1)  # (T, 1+L)
    width = features.shape[1]
    if residual:
        cores = [_residual_core(width - 1, bond, rng) for _ in range(order - 1)]
        cores = [core[bond:] if n == 0 else core for n, core in enumerate(cores)]
        cores.append(rng.standard_normal((bond + 1 if cores else 1, width, 1)))
    else:
        bonds = [1, *(min(bond, width ** min(n, order - n)) for n in range(1, order)), 1]
        cores = [rng.standard_normal((bonds[n], width, bonds[n + 1])) for n in range(order)]
        for n in range(order - 1, 0, -1):
            _move_left(cores, n)
    error = math.inf
    for _ in range(sweeps):
        for n in range(order):
            _solve(cores, n, features, targets, alpha, residual)
            if not residual and n < order - 1:
                left, _, right = cores[n].shape
                q, r = np.linalg.qr(cores[n].reshape(left * width, right))
                cores[n], cores[n + 1] = q.reshape(left, width, -1), np.einsum("ab,bic->aic", r, cores[n + 1])
        for n in range(order - 1, -1, -1):
            _solve(cores, n, features, targets, alpha, residual)
            if not residual and n > 0:
                _move_left(cores, n)
        before, error = error, float(np.mean((evaluate(cores, windows) - targets) ** 2))
        if not error < before * (1 - LEAST_GAIN):
            break
    return cores


def _residual_core(lags: int, bond: int, rng: np.random.RandomState) -> np.ndarray:  # (r+1, 1+L, r+1)
    core = np.zeros((bond + 1, 1 + lags, bond + 1))
    core[:, 0] = np.eye(bond + 1)
    core[:bond, 1:, :bond] = 0.1 * rng.standard_normal((bond, lags, bond)) / bond**0.5
    core[bond, 1:, :bond] = rng.standard_normal((lags, bond))
    return core


def _solve(
    cores: list[np.ndarray], n: int, features: np.ndarray, targets: np.ndarray, alpha: float, residual: bool
) -> None:
    """Least squares in what is free of a core, with a penalty of ``alpha`` times a bound of the largest eigenvalue."""
    left, right = np.ones((len(features), 1)), np.ones((len(features), 1))
    for core in cores[:n]:
        left = np.einsum("ta,ti,aib->tb", left, features, core, optimize=True)
    for core in reversed(cores[n + 1 :]):
        right = np.einsum("tb,ti,aib->ta", right, features, core, optimize=True)
    free = cores[n]
    if residual and n < len(cores) - 1:
        targets = targets - np.einsum("ta,ab,tb->t", left, cores[n][:, 0], right, optimize=True)
        free, features, right = cores[n][:, 1:, :-1], features[:, 1:], right[:, :-1]
    table = np.einsum("ta,ti,tb->taib", left, features, right).reshape(len(features), -1)
    gram = table.T @ table
    gram[np.diag_indices_from(gram)] += max(alpha, LEAST_PENALTY) * np.linalg.norm(gram, np.inf)
    free[...] = cho_solve(cho_factor(gram), table.T @ targets).reshape(free.shape)


def _move_left(cores: list[np.ndarray], n: int) -> None:
    """Make the rows of core n orthonormal, at the cost of the one before."""
    left, width, right = cores[n].shape
    q, r = np.linalg.qr(cores[n].reshape(left, width * right).T)
    cores[n - 1], cores[n] = np.einsum("aib,cb->aic", cores[n - 1], r), q.T.reshape(-1, width, right)
